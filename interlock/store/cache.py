"""What an engine remembers between transactions; each committer has its own cache."""

from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from interlock.kernel.rows import WorkerRow
from interlock.store.held_cache import HeldCache
from interlock.store.lanes import Lanes

WORKERS_MAX = 10_000
S = TypeVar("S")


class WorkerHint(NamedTuple):
    """What the next claim of a worker will want to know."""

    capabilities: str = ""
    tasks: str | None = None  # those that it knows
    busy: bool = False  # it held something when it last claimed


@dataclass
class EngineCache:
    """Nothing in it is a promise: a transaction that finds it empty does the same, with more questions."""

    lanes: dict[int, Lanes] = field(default_factory=dict)  # by tenant, those that are known to be committed
    passed_over: dict[int, int] = field(default_factory=dict)  # units that failed when they were picked, until when
    # By tenant: when it was asked, and how long its beats and its notes are kept.
    note_terms: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    workers: dict[int, WorkerHint] = field(default_factory=dict)
    slow_lanes: set[int] = field(default_factory=set)  # in which no unit was plain when they were looked into last
    states: dict[type, object] = field(default_factory=dict)  # what plugins remember, by a class of theirs
    held: HeldCache | None = None  # with many writers shared by the committers of an engine

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

    def forget_lanes(self) -> None:
        """After a new connection: it may be to another server, or to a database that was restored."""
        self.lanes.clear()
        self.slow_lanes.clear()
        self.states.clear()
