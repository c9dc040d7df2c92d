"""Send heartbeats from a thread of their own, so that a handler that blocks the loop does not lose the leases.

The thread does three things: it sends the heartbeats that are due, it applies at once what was answered to them (a
lease that is longer, or one that is lost), and it watches over the loop. What an answer asks of a handler is done on
the loop.

A loop that is blocked for good would keep the leases of jobs that it never starts. So while it is blocked, a job that
has not started is renewed no longer than for one lease: then others may have it.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from logging import WARNING
from math import inf
from threading import Event, Thread
from typing import Any

from interlock.kernel.commands import Heartbeat, LeaseStatus
from interlock.kernel.errors import Contended, InterlockError, Unavailable
from interlock.worker.execution import Execution
from interlock.worker.leases import Executions
from interlock.worker.log_lines import log_event
from interlock.worker.retrying_client import RetryingClient
from interlock.worker.watchdog import LOOK_EVERY, Watchdog

RETRY_AFTER = 0.2  # seconds until heartbeats that got no answer are sent again
JOIN_WITHIN = 1.0  # seconds that the thread gets to end
Beat = tuple[Heartbeat, list[Execution]]


class Heartbeats:
    """Keeps all leases of a worker alive, and knows which of them are lost."""

    def __init__(
        self, client: RetryingClient, executions: Executions, clock: Callable[[], float], tenant: int, actor: str,
        on_answer: Callable[[Execution, LeaseStatus], None],
    ) -> None:  # fmt: skip
        """`on_answer` is called on the loop with each answer."""
        self.client, self.executions, self.clock = client, executions, clock
        self.tenant, self.actor, self.on_answer = tenant, actor, on_answer
        self.changed = Event()
        self.due_now = self.ending = False
        self.retry_at, self.waits_until = 0.0, inf
        self.watchdog: Watchdog | None = None

    # What the worker calls, from any thread.

    def wake(self) -> None:
        """Looks again what is due."""
        self.changed.set()

    def send_soon(self) -> None:
        """Sends a heartbeat now: somebody stopped or took what is held."""
        self.due_now = True
        self.wake()

    # What is due, and what came of it.

    def due_in(self) -> float | None:
        """Returns the seconds until the next heartbeats are due; None while nothing is held."""
        now = self.clock()
        due_at = self.executions.next_heartbeat_at(now)
        return None if due_at is None else max(self.retry_at - now, 0.0 if self.due_now else due_at - now)

    def take_due(self) -> list[Beat]:
        """Takes the heartbeats of all that is held; the next ones are due half a beat from now."""
        self.due_now = False
        blocked_us = 1_000_000 * (self.watchdog.blocked_for if self.watchdog else 0.0)
        now, renewed = self.clock(), list[Execution]()
        for execution in self.executions:
            execution.lease.renewed_at = now
            if execution.started_at is not None or blocked_us <= execution.grant.ttl_us:
                renewed.append(execution)
        return list(self.make_beats(renewed))

    def make_beats(self, executions: Sequence[Execution]) -> Iterator[Beat]:
        """Yields one command for those that the engine knows to run, and one for those that are only held so far."""
        for running in (True, False):
            if some := [execution for execution in executions if execution.start_reported is running]:
                held = tuple(execution.held for execution in some)
                yield Heartbeat(tenant=self.tenant, actor=self.actor, held=held, running=running), some

    def apply(
        self, beats: Sequence[Beat], sent_at: float, answers: Sequence[Any]
    ) -> list[tuple[Execution, LeaseStatus]]:
        """Extends or ends the leases as was answered. Returns what is left to do on the loop."""
        answered: list[tuple[Execution, LeaseStatus]] = []
        for (_, executions), answer in zip(beats, answers, strict=True):
            if isinstance(answer, InterlockError):
                log_event(WARNING, "heartbeat failed", answer, worker=self.actor, held=len(executions))
                continue
            for execution, status in zip(executions, answer, strict=True):
                execution.lease = lease = copy(execution.lease)  # those that share it have an answer of their own
                if status.accepted:
                    lease.extend(sent_at, status.lasts_us)
                else:
                    lease.end()
                answered.append((execution, status))
        return answered

    def pass_on(self, answered: Iterable[tuple[Execution, LeaseStatus]]) -> None:
        for execution, answer in answered:
            self.on_answer(execution, answer)

    # The thread.

    async def run(self) -> None:
        """Sends heartbeats until this is cancelled. Raises what broke the thread."""
        loop = asyncio.get_running_loop()
        broken: asyncio.Future[None] = loop.create_future()
        self.watchdog = Watchdog(loop, self.executions)
        thread = Thread(target=self.send_until_ended, args=(loop, broken), name="interlock heartbeats", daemon=True)
        thread.start()
        try:
            await broken
        finally:
            self.ending = True
            self.wake()
            await asyncio.to_thread(thread.join, JOIN_WITHIN)

    def send_until_ended(self, loop: asyncio.AbstractEventLoop, broken: "asyncio.Future[None]") -> None:
        assert self.watchdog
        try:
            while not self.ending:
                due_in = self.due_in()
                if due_in is not None and due_in <= 0:
                    self.send(loop)
                    continue
                wait = None if due_in is None else min(due_in, LOOK_EVERY)
                self.waits_until = inf if wait is None else self.clock() + wait
                self.changed.wait(wait)
                self.waits_until = inf  # what is claimed before it has looked wakes it again
                self.changed.clear()
                self.watchdog.look()
        except BaseException as error:
            with suppress(RuntimeError):  # a loop that has ended needs no heartbeats
                loop.call_soon_threadsafe(set_exception, broken, error)

    def send(self, loop: asyncio.AbstractEventLoop) -> None:
        """Renews every lease, or learns that it is lost; what gets no answer is sent again soon."""
        sent_at, beats = self.clock(), self.take_due()
        answers = self.client.send_once([command for command, _ in beats])
        missing = [answer for answer in answers if isinstance(answer, Unavailable | Contended)]
        if missing:
            self.client.log_away(missing[0])
            self.due_now, self.retry_at = True, self.clock() + RETRY_AFTER
            return
        if answered := self.apply(beats, sent_at, answers):
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self.pass_on, answered)


def set_exception(broken: "asyncio.Future[None]", error: BaseException) -> None:
    """Fails a future that is still open."""
    if not broken.done():
        broken.set_exception(error)
