"""Heartbeats, from a thread of their own: a handler that blocks the worker's loop does not cost the worker its leases.

Two clocks matter. The store's clock decides when a lease is over; it is asked with every heartbeat. The worker's own
clock must never say later than that: it counts the time of a lease from before the request that granted or renewed it
was sent, and it goes on while the process is stopped and while the machine sleeps. Nothing begins under a lease that is
over by this clock (`Hold.is_over`).

The thread does three things: it sends the heartbeats that are due, it notes at once what was answered to them (a lease
that is longer, or one that is lost), and it watches over the loop. What an answer asks of a handler is done there.

A loop that is blocked for good would keep the leases of jobs that it never begins. So while it is blocked, a job that
has not begun is renewed no longer than for one lease: then others may have it.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from threading import Event, Thread
from typing import Any

from interlock.kernel.commands import Heard, Heartbeat
from interlock.kernel.errors import Contended, InterlockError, Unavailable
from interlock.worker.asking import Asking
from interlock.worker.holds import Hold, Holds
from interlock.worker.reports import Reports
from interlock.worker.watchdog import WATCH, Watchdog

log = logging.getLogger("interlock.worker")
AGAIN = 0.2  # seconds until heartbeats that got no answer are sent again
LEAVE = 1.0  # seconds that the thread has to end in
Beat = tuple[Heartbeat, list[Hold]]


def read_clock() -> float:
    """Seconds that have passed since whenever, also while this process was stopped or its machine slept."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Heartbeats:
    """Keeps all leases of a worker alive, and knows which of them are lost."""

    def __init__(self, asking: Asking, holds: Holds, reports: Reports, clock: Callable[[], float]) -> None:
        self.asking, self.holds, self.reports, self.clock = asking, holds, reports, clock
        self.woken = Event()
        self.summoned = self.ending = False
        self.retry_at = 0.0
        self.watchdog: Watchdog | None = None

    # What the worker says, from any thread.

    def wake(self) -> None:
        self.woken.set()

    def summon(self) -> None:
        """A heartbeat is due now: somebody stopped or took what is held."""
        self.summoned = True
        self.wake()

    # What is due, and what came of it.

    def due_in(self) -> float | None:
        """The seconds until the next heartbeats are due; None while nothing is held."""
        due = self.holds.beat_at()
        if due is None:
            return None
        now = self.clock()
        return max(self.retry_at - now, 0.0 if self.summoned else due - now)

    def collect(self) -> list[Beat]:
        """The heartbeats of all that is held; the next ones are due half a beat from now."""
        self.summoned = False
        blocked = self.watchdog.blocked_for if self.watchdog else 0.0
        wanted = [hold for hold in self.holds if hold.begun is not None or blocked * 1_000_000 <= hold.grant.ttl_us]
        now = self.clock()
        for hold in self.holds:
            hold.renewed = now
        return list(self.reports.beats(wanted))

    def apply(self, beats: Sequence[Beat], sent: float, answers: Sequence[Any]) -> list[tuple[Hold, Heard]]:
        """The leases are as long as was answered. What is left to do on the loop is answered."""
        heard: list[tuple[Hold, Heard]] = []
        for (_, holds), answer in zip(beats, answers, strict=True):
            if isinstance(answer, InterlockError):
                log.warning("a heartbeat was refused: %s", answer)
                continue
            for hold, one in zip(holds, answer, strict=True):
                if one.accepted:
                    hold.renew(sent, one.lasts_us)
                else:
                    hold.ends_at = 0.0
                heard.append((hold, one))
        return heard

    def mind(self, heard: Iterable[tuple[Hold, Heard]]) -> None:
        for hold, one in heard:
            self.reports.mind(hold, one)

    # The thread.

    async def run(self) -> None:
        """Heartbeats are sent until this is cancelled. Raises what broke the thread."""
        loop = asyncio.get_running_loop()
        broken: asyncio.Future[None] = loop.create_future()
        self.watchdog = Watchdog(loop, self.holds)
        thread = Thread(target=self.beat_until_ended, args=(loop, broken), name="interlock heartbeats", daemon=True)
        thread.start()
        try:
            await broken
        finally:
            self.ending = True
            self.wake()
            await asyncio.to_thread(thread.join, LEAVE)

    def beat_until_ended(self, loop: asyncio.AbstractEventLoop, broken: "asyncio.Future[None]") -> None:
        assert self.watchdog
        try:
            while not self.ending:
                due = self.due_in()
                if due is not None and due <= 0:
                    self.send(loop)
                    continue
                self.woken.wait(None if due is None else min(due, WATCH))
                self.woken.clear()
                self.watchdog.look()
        except BaseException as error:
            with suppress(RuntimeError):  # a loop that has ended needs no heartbeats
                loop.call_soon_threadsafe(fail, broken, error)

    def send(self, loop: asyncio.AbstractEventLoop) -> None:
        """Every lease is renewed, or known to be lost; what gets no answer is sent again soon."""
        sent, beats = self.clock(), self.collect()
        answers = self.asking.ask_here([command for command, _ in beats])
        missing = [one for one in answers if isinstance(one, Unavailable | Contended)]
        if missing:
            self.asking.note_away(missing[0])
            self.summoned, self.retry_at = True, self.clock() + AGAIN
            return
        if heard := self.apply(beats, sent, answers):
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self.mind, heard)


def fail(broken: "asyncio.Future[None]", error: BaseException) -> None:
    if not broken.done():
        broken.set_exception(error)
