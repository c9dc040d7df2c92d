"""What an engine remembers between transactions; each committer has its own cache."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from interlock.kernel.rows import WorkerRow
from interlock.store.held_cache import HeldCache
from interlock.store.lanes import Lanes

WORKERS_MAX = 10_000
DUE, CALM = "due", "calm"  # facts: when time has something to do next, and that plugins keep nothing from claims
S = TypeVar("S")


class WorkerHint(NamedTuple):
    """What the next claim of a worker will want to know."""

    capabilities: str = ""
    tasks: str | None = None  # those that it knows
    busy: bool = False  # it held something when it last claimed


@dataclass
class EngineCache:
    """Nothing in it is a promise: a transaction that finds it empty does the same, with more questions.

    `facts` are answers that stay true while nothing is written but moves of plain units: that a tenant has no lanes but
    those that are known, that none of its work is paused, when something is due next. They are used with one writer
    only, and by groups of commands that move plain units. All of them are forgotten once another connection has
    written, or a transaction of ours has flushed a change.
    """

    lanes: dict[int, Lanes] = field(default_factory=dict)  # by tenant, those that are known to be committed
    passed_over: dict[int, int] = field(default_factory=dict)  # units that failed when they were picked, until when
    # By tenant: when it was asked, and how long its beats and its notes are kept.
    note_terms: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    workers: dict[int, WorkerHint] = field(default_factory=dict)
    slow_lanes: set[int] = field(default_factory=set)  # in which no unit was plain when they were looked into last
    states: dict[type, object] = field(default_factory=dict)  # what plugins remember, by a class of theirs
    held: HeldCache | None = None  # with many writers shared by the committers of an engine
    facts: dict[tuple[object, ...], Any] = field(default_factory=dict)
    facts_mark: str = ""  # how the database was marked when the last transaction ended that left them true

    def is_passed_over(self, unit: int, now: int) -> bool:
        """Whether a unit is not to be picked for a while, because it failed when it was picked last."""
        return bool(self.passed_over) and self.passed_over.get(unit, 0) > now

    def remember_worker(self, worker: WorkerRow) -> None:
        """What the next claim of this worker will want to know."""
        if len(self.workers) >= WORKERS_MAX:
            self.workers.clear()
        self.workers[worker.unit] = WorkerHint(worker.capabilities, worker.tasks, worker.holding > 0)

    def state(self, kind: type[S]) -> S:
        """Returns this cache's instance of a class, which is made at the first call."""
        state = self.states.get(kind)
        if not isinstance(state, kind):
            state = self.states[kind] = kind()
        return state

    def note_clock(self, tenant: int, at: int) -> None:
        """Time has something to do for a tenant then, if not before."""
        if (DUE, tenant) in self.facts:
            self.facts[DUE, tenant] = min(self.facts[DUE, tenant], at)

    def forget_lanes(self) -> None:
        """After a new connection: it may be to another server, or to a database that was restored."""
        self.lanes.clear()
        self.slow_lanes.clear()
        self.states.clear()
        self.facts.clear()
