"""The world of one seed: a store, servers, a network, and a checker that looks at every commit."""

import logging
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from interlock.audit.laws import audit
from interlock.audit.laws.incremental import CommitReview, IncrementalLaws
from interlock.core.pending import PendingCommand
from interlock.core.plugin import Registry
from interlock.kernel.commands import Route
from interlock.kernel.errors import Corrupt, InterlockError, StoreError
from interlock.kernel.rows import Body, Event
from interlock.plugins import STANDARD
from interlock.store import inventory
from interlock.store.change_capture import start_capture, take_written
from interlock.store.queries.snapshots import read_due_tenants
from interlock.store.queries.views import notes_of
from interlock.testing.simulation.faults import Faults
from interlock.testing.simulation.faulty_store import Disk, FaultyConnection, brief_lifecycles
from interlock.testing.simulation.handlers import Sink
from interlock.testing.simulation.net import Net
from interlock.testing.simulation.promises import check_answers, check_births, find_broken_promises
from interlock.testing.simulation.record import RecordedStep, Recording
from interlock.testing.simulation.scenarios import Move, list_taken_moves
from interlock.testing.simulation.server import SimulatedServer
from interlock.testing.simulation.virtual_loop import VirtualLoop

START_US = 1_893_456_000_000_000  # 2030-01-01
STORE_FAULTS = frozenset({"store", "deadlock", "lost_commit", "crash_commit"})
SUBMITTERS = ("submitter", "player 0", "player 1", "stranger")  # who make units under their names, and nothing else
COMMITTERS = 1 + max(route.place for route in Route)  # where transactions of several connections overlap
ENOUGH = 20  # violations of one seed
SERVER_TICKS = 4  # in one seed of so many only servers let time pass


class World:
    """Everything of a seed that is not a client or a worker."""

    def __init__(
        self, seed: int, kinds: tuple[str, ...] | None = None, file: Path | None = None, registry: Registry = STANDARD
    ) -> None:
        self.seed, self.random = seed, random.Random(f"world {seed}")
        self.registry, self.lifecycles = registry, brief_lifecycles(registry)
        self.loop, self.faults, self.skew_us = VirtualLoop(), Faults(seed, kinds), 0
        self.over = False
        self.violations: list[str] = []
        self.commands = self.transitions = 0
        self.moves: Counter[Move] = Counter()
        self.cells: Counter[tuple[Move, str]] = Counter()
        self.sums, self.record, self.sink = sha256(), Recording(), Sink()
        self.disk, self.laws = Disk(file, registry), IncrementalLaws(self.lifecycles)
        self.eye = self.disk.connection(self.now_us, lambda place: "")
        if self.disk.shared:
            start_capture(self.eye)
        self.sink.is_recorded = self.is_recorded
        self.net = Net(self)
        self.server_ticks = seed % SERVER_TICKS == 2  # and no worker does
        committers, count = self.random.choice((1, COMMITTERS)), self.random.choice((1, 1, 2))
        self.servers = [SimulatedServer(self, f"server {place}", committers) for place in range(count)]
        self.on_commit: list[Any] = []  # who wants to see what a commit did
        self.poisoned: set[int] = set()  # units that were broken from outside: that laws find them so is right

    def now_us(self) -> int:
        """What the clock of the store says."""
        return START_US + self.skew_us + round(self.loop.now * 1_000_000)

    def note(self, *words: Any) -> None:
        """Part of the history that two runs of a seed must share."""
        self.sums.update(msgspec.json.encode(words))

    def add_violation(self, text: str) -> None:
        if len(self.violations) < ENOUGH:
            self.violations.append(text)

    # What servers do.

    def check_group(self, server: SimulatedServer, at: int, asks: list[PendingCommand], fell: bool) -> None:
        """A group has been carried out, as far as anybody can know."""
        answers = [answer_of(ask) for ask in asks]
        commands = tuple(ask.command for ask in asks)
        self.commands += len(asks)
        self.record.add(RecordedStep(at, server.name, commands, tuple(answers), tuple(server.planned)))
        self.note(at, server.name, server.planned, [type(command).__name__ for command in commands], commands)
        for ask, answer in zip(asks, answers, strict=True):
            self.note(str(answer) if isinstance(answer, BaseException) else answer)
            spoilt = getattr(ask.command, "unit", None) in self.poisoned
            if not fell and not spoilt and isinstance(answer, BaseException) and self.is_strange(answer):
                self.add_violation(f"{ask.command} was answered with {answer!r}")
        review = self.look()
        for text in (
            *check_answers(commands, answers, self.laws.units),
            *check_births(commands, review, SUBMITTERS),
        ):
            self.add_violation(text)

    def is_strange(self, error: BaseException) -> bool:
        """Whether no client should ever be told so."""
        if isinstance(error, Corrupt) or not isinstance(error, InterlockError):
            return True
        return isinstance(error, StoreError) and not self.faults.on & STORE_FAULTS

    def look(self) -> CommitReview:
        """All laws and promises are asked of what was committed since the last look."""
        rows = self.disk.stash + take_written(self.eye) if self.disk.shared else self.disk.stash + self.list_written()
        self.disk.stash = []
        review = self.laws.check_commit(self.eye, rows)
        for broken in review.broken:
            if broken.unit not in self.poisoned:
                self.add_violation(f"unit {broken.unit}: {broken.law}: {broken.text}")
        if review.events or review.changed:
            for text in find_broken_promises(self.lifecycles, review, self.laws.units, self.eye):
                self.add_violation(text)
            self.count(review)
            for law, judge in self.registry.laws.items():
                for unit, text in judge(self.eye):
                    self.add_violation(f"unit {unit}: {law}: {text}")
            for watcher in self.on_commit:
                watcher(review)
        return review

    def is_recorded(self, unit: int, step: str) -> bool:
        """Whether a step of a unit is recorded by now."""
        tenant = self.laws.units[unit].tenant
        return any((note.kind, note.name) == ("step", step) for note in notes_of(self.eye, tenant, unit))

    def find_due_tenants(self) -> list[int]:
        """For whom a worker lets time pass: for all, unless servers do it."""
        if self.server_ticks:
            return []
        up = [server for server in self.servers if server.process.alive and not server.process.frozen]
        return sorted({1, *(up[0].engine.read(read_due_tenants, None) if up else ())})

    def break_policy(self, unit: int) -> None:
        """Somebody with a shell has put the guard aside, and written what no program can read."""
        self.poisoned.add(unit)
        (guard,) = [sql for _, name, _, sql in self.eye.rows(inventory.SQLITE) if name == "guard_body_fixed"]
        self.eye.rows("DROP TRIGGER guard_body_fixed")
        self.eye.update([Body(unit=unit, tenant=1, task="", policy="no JSON")], ["policy"], "unit")
        self.eye.rows(guard)
        self.note("poisoned", unit)

    def list_written(self) -> list[tuple[str, int]]:
        sessions: list[FaultyConnection] = [connection for server in self.servers for connection in server.sessions]
        return [row for connection in sessions if connection.tracks for row in take_written(connection)]

    def count(self, review: CommitReview) -> None:
        by_unit: dict[int, list[Event]] = {}
        for event in review.events:
            by_unit.setdefault(event.unit, []).append(event)
            self.transitions += event.source is not None and event.source != event.target
            self.note(event.hash)
        for events in by_unit.values():
            for move in sorted(list_taken_moves(self.lifecycles, events), key=str):
                self.moves[move] += 1
                for kind in self.faults.armed:
                    self.cells[move, kind] += 1

    # The end.

    def close(self) -> None:
        """Every law has been asked of everything once more, and nothing is left open."""
        self.over = True
        self.look()
        for broken in audit(self.eye, self.lifecycles, rebuild=True, laws=self.registry.laws):
            if broken.unit not in self.poisoned:
                self.add_violation(f"in the end: unit {broken.unit}: {broken.law}: {broken.text}")
        self.violations += self.sink.broken
        for server in self.servers:
            if server.process.alive:
                server.close()
        self.eye.close()
        self.disk.close()
        self.loop.close()


def answer_of(ask: PendingCommand) -> Any:
    """What came of a command; None if nobody was told."""
    if not ask.future.done():
        return None
    return ask.future.exception() or ask.future.result()


@contextmanager
def silence_logs() -> Iterator[None]:
    """What workers log of every fault is not wanted here."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
