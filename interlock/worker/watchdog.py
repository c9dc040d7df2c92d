"""Watches over the worker's loop from another thread, and says which handler blocks it."""

import asyncio
import logging
import sys
import time
from contextlib import suppress
from threading import get_ident

from interlock.worker.holds import Hold, Holds
from interlock.worker.reports import titled

log = logging.getLogger("interlock.worker")
WATCH = 0.25  # seconds between two looks
LOOKS = 4  # that the loop may miss in a row before it is called blocked


class Watchdog:
    """Asks the loop to answer, and counts the looks until it does: a process that was stopped counts as one look."""

    def __init__(self, loop: asyncio.AbstractEventLoop, holds: Holds) -> None:
        """To be made on the loop's own thread."""
        self.loop, self.holds, self.thread = loop, holds, get_ident()
        self.asked, self.missed, self.looked_at = False, 0, 0.0

    @property
    def blocked_for(self) -> float:
        """About how many seconds the loop has not answered; 0 unless it is blocked."""
        return self.missed * WATCH if self.missed >= LOOKS else 0.0

    def look(self) -> None:
        """In the watching thread, as often as it likes; told once each time that the loop is blocked."""
        now = time.monotonic()
        if now - self.looked_at < WATCH * 0.9:
            return
        self.looked_at = now
        if not self.asked:
            self.asked, self.missed = True, 0
            with suppress(RuntimeError):  # it has ended
                self.loop.call_soon_threadsafe(self.answer)
            return
        self.missed += 1
        if self.missed == LOOKS:
            log.warning("%s", self.describe())

    def answer(self) -> None:
        """On the loop."""
        if self.missed >= LOOKS:
            log.warning("the event loop answers again, after about %.1f s", self.missed * WATCH)
        self.asked, self.missed = False, 0

    def describe(self) -> str:
        """Which handler blocks the loop, and where it is."""
        task = asyncio.current_task(self.loop)
        hold = self.hold_of(task)
        name = titled(hold) if hold else f"the task '{task.get_name()}'" if task else "something that is no task"
        frame = sys._current_frames().get(self.thread)
        where = f", in {frame.f_code.co_name} ({frame.f_code.co_filename}:{frame.f_lineno})" if frame else ""
        return (
            f"{name} blocks the event loop{where}: no other async handler runs meanwhile, and nothing is claimed or "
            "reported; make it a plain function, which gets a thread, or await what it waits for"
        )

    def hold_of(self, task: "asyncio.Task[object] | None") -> Hold | None:
        return next((hold for hold in self.holds if task is not None and hold.running is task), None)
