"""Tasks to try: one that greets, a slow one, a flaky one, one that always fails."""

import asyncio
import time

from interlock.client.app import App
from interlock.client.exceptions import Cancelled, Reject
from interlock.kernel.errors import TransientError
from interlock.worker.context import JobContext


def make_app(url: str, hurry: int = 1) -> App:
    """An app with these tasks."""
    app = App(url, hurry=hurry)
    for task in (greet, slow, sleep, flaky, broken, refused, stoppable):
        app.task(task)
    return app


async def greet(name: str = "world") -> str:
    """Says hello."""
    return f"hello, {name}"


async def slow(seconds: float = 5.0, *, ctx: JobContext) -> str:
    """Takes its time, and says how far it is."""
    for part in range(1, 11):
        await asyncio.sleep(seconds / 10)
        ctx.progress(part / 10, f"{part} of 10")
    return f"took {seconds:g} s"


async def sleep(seconds: float = 1.0) -> None:
    """Does nothing for so long."""
    await asyncio.sleep(seconds)


def flaky(failures: int = 1, *, ctx: JobContext) -> str:
    """Fails so many times, and then works."""
    if ctx.attempt <= failures:
        raise TransientError(f"attempt {ctx.attempt}: the weather was bad")
    return f"worked at attempt {ctx.attempt}"


async def broken() -> None:
    """Never works, so it becomes a dead letter."""
    raise TransientError("the other side does not answer")


async def refused() -> None:
    """Is refused for good."""
    raise Reject("this order was paid already")


def stoppable(seconds: float = 60.0, *, ctx: JobContext) -> str:
    """Works until it is asked to stop."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if ctx.cancelled:
            raise Cancelled("asked to stop")
        time.sleep(0.02)
    return "nobody stopped it"
