"""What an engine remembers between transactions; each committer has its own cache.

Lanes, which never change once they are committed; units that somebody holds; what a worker can do; and facts.
"""

from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, NamedTuple, TypeVar

import msgspec

from interlock.kernel.rows import Body, Unit, WorkerRow, copied
from interlock.store.connection import Connection
from interlock.store.query import BoundQuery, Query

# Lanes.

NUMBERS = 1 << 32  # the lanes that a tenant may have
LANES_MAX = 100_000  # remembered
SERVED_MAX = 256  # different wishes of workers, remembered by a tenant's lanes


class Lane(NamedTuple):
    """A queue of one tenant together with what it asks of a worker."""

    id: int
    queue: str
    capabilities: str  # sorted, joined by commas
    task: str = ""  # that the worker must know


class Served(NamedTuple):
    """The lanes that a worker can serve: the queue of each, and the stretches of ids that hold no other lane."""

    queues: dict[int, str]
    runs: list[tuple[int, int]]


class LaneOrLimits(NamedTuple):
    """A row of the one question for a tenant's lanes and its limits; those have the id 0."""

    id: int
    queue: str
    capabilities: str
    task: str
    max_running: int | None
    max_waiting: int | None


class Lanes:
    """The lanes of one tenant in the order of their ids.

    Ids begin with the tenant, so that nobody else's lane lies between two of them: a search from lane to lane
    never comes across rows that it may not see.
    """

    def __init__(self, tenant: int, lanes: Iterable[Lane] = ()) -> None:
        self.tenant, self.last = tenant, tenant * NUMBERS
        self.end = self.last + NUMBERS - 1
        self.lanes: list[Lane] = []
        self.ids: dict[tuple[str, str, str], int] = {}
        self.served_before: dict[tuple[tuple[str, ...], str, str | None], Served] = {}
        self.extend(lanes)

    def extend(self, lanes: Iterable[Lane]) -> None:
        """Lanes with higher ids than all before are known too."""
        for lane in lanes:
            self.lanes.append(lane)
            self.ids[lane[1:]] = self.last = lane.id
            self.served_before.clear()

    def find(self, lane: int) -> Lane | None:
        """A lane by its id."""
        place = bisect_left(self.lanes, lane, key=lambda known: known.id)
        return self.lanes[place] if place < len(self.lanes) and self.lanes[place].id == lane else None

    def served(self, queues: tuple[str, ...], capabilities: str, tasks: str | None = None) -> Served:
        """What a worker with these capabilities, that knows these tasks (a JSON list, or any), can serve of queues."""
        name = (queues, capabilities, tasks)
        if name not in self.served_before:
            if len(self.served_before) >= SERVED_MAX:
                self.served_before.clear()
            known = None if tasks is None else {"", *msgspec.json.decode(tasks, type=list[str])}
            self.served_before[name] = self.search(set(queues), set(capabilities.split(",")) | {""}, known)
        return self.served_before[name]

    def search(self, wanted: set[str], able: set[str], known: set[str] | None) -> Served:
        lanes, runs, inside = dict[int, str](), list[tuple[int, int]](), False
        for lane, queue, demands, task in self.lanes:
            fits = queue in wanted and (known is None or task in known) and able.issuperset(demands.split(","))
            if fits:
                lanes[lane] = queue
                runs.append((runs.pop()[0] if inside else lane, lane))
            inside = fits
        return Served(lanes, runs)


def remember_lanes(memory: dict[int, Lanes], tenant: int, lanes: Lanes) -> None:
    """A connection knows these lanes from now on; when it knows too many, it begins again."""
    if sum(len(known.lanes) for known in memory.values()) > LANES_MAX:
        memory.clear()
    memory[tenant] = lanes


# Held units.

UNITS_MAX = 50_000
XID_RANGE = 2**32


class Writer(NamedTuple):
    """A unit, which is locked, and the transaction that wrote its row, without its epoch."""

    unit: int
    xid: str


WRITERS = Query("SELECT id, xmin::text FROM unit WHERE id {ids} ORDER BY id {lock}", Writer)


class HeldCache:
    """What is cached is never believed: the database says first that nobody has touched it since."""

    def __init__(self) -> None:
        # With the mark of the transaction that wrote it, and with its body if that was read.
        self.units: dict[int, tuple[str, Unit, Body | None]] = {}
        self.ended = ""  # one writer: the mark with which the last transaction of ours ended
        self.changing = Lock()

    def recall(
        self, connection: Connection, ids: Sequence[int], run: Callable[[BoundQuery[Writer]], list[Writer]]
    ) -> list[tuple[Unit, Body | None]]:
        """Of these units, those that are cached as the database has them; it has locked them then (`run` asks it)."""
        with self.changing:
            if not connection.many_writers and connection.mark != self.ended:
                self.units.clear()  # somebody else has written since
            cached = {unit_id: self.units[unit_id] for unit_id in ids if unit_id in self.units}
        if not cached:
            return []
        if connection.many_writers:
            cached = {
                unit_id: cached[unit_id] for unit_id, xid in run(WRITERS.bind(ids=list(ids)))
                if unit_id in cached and int(cached[unit_id][0]) % XID_RANGE == int(xid)
            }  # fmt: skip
        recalled = []
        for mark, unit, body in cached.values():
            own: Unit = copied(unit)
            own.xid = mark
            recalled.append((own, copied(body) if body else None))
        return recalled

    def after_commit(
        self, connection: Connection, mark: str, units: Iterable[Unit], written: Container[int],
        bodies: Mapping[int, Body],
    ) -> None:  # fmt: skip
        """The transaction of this mark is committed: what it had locked is cached while somebody holds it."""
        with self.changing:
            if len(self.units) > UNITS_MAX:
                self.units.clear()
            if not connection.many_writers:
                if mark != self.ended:
                    self.units.clear()
                self.ended = connection.mark
            for unit in units:
                by = mark if unit.id in written else unit.xid
                if unit.holder is not None and (by or not connection.many_writers):
                    self.units[unit.id] = by, unit, bodies.get(unit.id)
                else:
                    self.units.pop(unit.id, None)

    def forget(self, units: Iterable[int]) -> None:
        """These units have been written in a way that leaves nothing to cache."""
        with self.changing:
            for number in units:
                self.units.pop(number, None)


# All of it.

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
        self.facts_mark = ""
