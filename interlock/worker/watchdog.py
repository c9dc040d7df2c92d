"""Watch the worker's event loop from another thread, and log the handler that blocks it."""

import asyncio
import sys
import time
from contextlib import suppress
from logging import WARNING
from threading import get_ident

from interlock.worker.execution import Execution
from interlock.worker.leases import Executions
from interlock.worker.log_lines import log_event, log_job

LOOK_EVERY = 0.25  # seconds
LOOKS_MISSED_MAX = 4  # in a row, before the loop is called blocked


class Watchdog:
    """Sends the loop a callback, and counts the looks until it runs: a process that was stopped counts as one look."""

    def __init__(self, loop: asyncio.AbstractEventLoop, executions: Executions) -> None:
        """To be made on the loop's own thread."""
        self.loop, self.executions, self.thread = loop, executions, get_ident()
        self.callback_sent, self.missed, self.looked_at = False, 0, 0.0

    @property
    def blocked_for(self) -> float:
        """About how many seconds the loop has run no callback; 0 unless it is blocked."""
        return self.missed * LOOK_EVERY if self.missed >= LOOKS_MISSED_MAX else 0.0

    def look(self) -> None:
        """In the watching thread, as often as it likes; logs once each time that the loop is blocked."""
        now = time.monotonic()
        if now - self.looked_at < LOOK_EVERY * 0.9:
            return
        self.looked_at = now
        if not self.callback_sent:
            self.callback_sent, self.missed = True, 0
            with suppress(RuntimeError):  # it has ended
                self.loop.call_soon_threadsafe(self.run_callback)
            return
        self.missed += 1
        if self.missed == LOOKS_MISSED_MAX:
            self.log_blocked()

    def run_callback(self) -> None:
        """On the loop."""
        if self.missed >= LOOKS_MISSED_MAX:
            log_event(WARNING, "event loop runs again", blocked_seconds=round(self.missed * LOOK_EVERY, 1))
        self.callback_sent, self.missed = False, 0

    def log_blocked(self) -> None:
        """Logs which handler blocks the loop, and where it is."""
        task = asyncio.current_task(self.loop)
        frame = sys._current_frames().get(self.thread)
        where = f"in {frame.f_code.co_name} ({frame.f_code.co_filename}:{frame.f_lineno}); " if frame else ""
        reason = (
            f"{where}no other async handler runs meanwhile, and nothing is claimed or reported; make it a plain "
            "function, which gets a thread, or await what it waits for"
        )
        execution = self.find_execution(task)
        if execution:
            log_job(WARNING, "handler blocks the event loop", execution.grant, reason)
        else:
            log_event(WARNING, "event loop blocked", reason, asyncio_task=task.get_name() if task else "none")

    def find_execution(self, task: "asyncio.Task[object] | None") -> Execution | None:
        return next((each for each in self.executions if task is not None and each.asyncio_task is task), None)
