"""Ticks: let time pass for all tenants; any process with the database may send them.

Nobody is elected for it. What is due is locked by one tick and skipped by the others, so several processes that tick
are as good as one. `interlock serve`, `interlock up` and `interlock worker` tick; a program that only submits does not.
"""

import logging
from collections.abc import Callable
from threading import Event, Thread
from typing import Protocol, TypeVar

from interlock.core.failures import log_trouble
from interlock.core.timers import run_timers
from interlock.core.validation import check_range
from interlock.kernel.commands import Command, Tick
from interlock.kernel.errors import InterlockError
from interlock.store.connection import Connection
from interlock.store.queries.for_verbs import forget_expired
from interlock.store.queries.snapshots import read_due_tenants
from interlock.store.seals import write_seal
from interlock.store.unit_of_work import UnitOfWork

A = TypeVar("A")
T = TypeVar("T")
TICK = 0.5  # seconds
log = logging.getLogger("interlock.core")


def tick(tx: UnitOfWork, command: Tick) -> int:
    """Time has passed: what is due has been looked at, and what was kept for a while is gone."""
    check_range("limit", command.limit, 1)
    before = tx.changes.count
    forget_expired(tx, command.limit)
    write_seal(tx.connection, tx.tenant, tx.now)
    done = run_timers(tx, command.limit) + sum(timer(tx, command.limit) for timer in tx.hooks.tick_timers)
    if done or tx.changes.count != before:
        tx.keeps_facts = False
    return done


class Ticked(Protocol):
    """What has the database."""

    def send(self, command: Command[A]) -> A: ...
    def read(self, question: Callable[[Connection], T], tenant: int | None = 1) -> T: ...


class Ticker:
    """A thread that lets time pass for every tenant of a database until it is stopped."""

    def __init__(self, engine: Ticked, actor: str, every: float = TICK) -> None:
        self.engine, self.actor, self.every = engine, actor, every
        self.stopped, self.failed = Event(), False
        self.thread = Thread(target=self.run, name="interlock ticker", daemon=True)

    def start(self) -> None:
        self.thread.start()

    def stop(self) -> None:
        """No tick is on its way any more."""
        self.stopped.set()
        self.thread.join()

    def run(self) -> None:
        while not self.stopped.wait(self.every):
            try:
                self.tick_all()
                self.failed = False
            except Exception as error:  # a thread that ends would let no time pass any more, and tell nobody
                if not self.failed:
                    log_trouble("tick failed", error)
                self.failed = True

    def tick_all(self) -> None:
        """Every tenant for whom something is due had a tick; one that is refused does not stop the others."""
        for tenant in self.engine.read(read_due_tenants, None):
            try:
                self.engine.send(Tick(tenant=tenant, actor=self.actor))
            except InterlockError as error:
                facts = {"tenant": tenant, "error": str(error)}
                log.warning("tick failed: tenant=%d error=%s", tenant, error, extra={"facts": facts})
