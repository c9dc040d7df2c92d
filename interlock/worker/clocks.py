"""The worker's own clock, and waiting for an event no longer than a time."""

import asyncio
import time


def read_clock() -> float:
    """Seconds since an arbitrary moment. They go on while this process is stopped and while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


async def wait_for_event(event: asyncio.Event, seconds: float | None) -> bool:
    """Whether the event was set within so many seconds; None waits for as long as it takes."""
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False
