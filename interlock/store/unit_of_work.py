"""The unit of work: one open transaction. Rows are read into memory, changed there, and written by a flush.

What is here
------------
`open_unit_of_work` begins a transaction and returns a `UnitOfWork`, which verbs, reactions and plugins get as `tx`. It
consists of four small objects:

- `tx.rows` (`IdentityMap`): the rows that the transaction has read or made, one object per row.
- `tx.changes` (`Changes`): what it has changed and the database has not seen, and what its flushes have written.
- `tx.ids` (`Ids`, in `store/ids.py`): where the ids of new rows come from.
- `tx.counters` (`Counters`): amounts that are added to the database at the very end.

A module that must remember more for the length of a transaction keeps it in a class of its own: `tx.state(SlotState)`
returns this transaction's instance of `SlotState`, which is made at its first use. The core and the plugins do that.

The life of a transaction
-------------------------
1. BEGIN. The queries that the commands declared ahead go with it (`store/prefetch.py`): all of them cost one round
   trip. `tx.now` is the store's time; it does not change while the transaction is open.
2. Verbs read. `tx.unit`, `tx.lock_units` and `tx.load_units` lock units in the order of their ids. The queries of
   `store/queries` read other rows and pass units through `tx.merge_units`. A row that is known already is not replaced
   by what was read again: the object in memory is newer than the database.
3. Verbs change. Only `core/advance.py` writes the columns of units; it calls `tx.add_unit` and `tx.touch`. A new row is
   given to `tx.add`, a changed body or worker to `tx.change`, a changed row of a plugin's table to `tx.update`.
4. A flush (`store/flush.py`) writes all of it, a statement per table: changed bodies; the acts, round by round, with
   the units that they make; new rows; the unit columns that no act writes; leases; workers; rows of plugins. Reactions
   follow from what the flush reports, change more, and are flushed again until nothing is pending.
5. Counters are written last and by adding to them, so that transactions wait for each other as briefly as possible.
6. The committer commits, and calls `after_commit`: units that somebody holds are kept in the cache of held units.

Why so
------
A group of commands costs one locking SELECT and one write per table, however many units it touches; and locks are taken
in one order (limits; units by id; acts; leases; counters), so that transactions do not deadlock. `changes.count` grows
with every change: a command that was refused and left it as it was has not spoilt the transaction for the others.

What is ugly
------------
- The database does not know what is only in memory. Whoever runs a query must test its condition again on the objects
  that come back, and must add rows that this transaction has made. Nothing but tests finds a query that forgets it.
- `tx.tenant` is the tenant of the command that is being carried out. Reactions change it to that of the unit at hand
  (`act_for`).
- Each unit is copied when it is read, because the flush compares it with what it was.
- What was prefetched is valid only until the first flush, which throws the rest away.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from interlock.kernel.errors import Unknown, UnknownLifecycle
from interlock.kernel.ids import format_id
from interlock.kernel.lifecycle import Lifecycle
from interlock.kernel.paths import paths_of
from interlock.kernel.rows import Body, Lease, Note, Row, Unit, WorkerRow, columns, copied
from interlock.store.acts import RecordedMove
from interlock.store.cache import EngineCache
from interlock.store.commit_proof import CommitProof
from interlock.store.connection import Connection, Rows
from interlock.store.hooks import NONE, Hooks
from interlock.store.ids import Ids
from interlock.store.query import BoundQuery, Query, list_columns, select

T = TypeVar("T")
S = TypeVar("S")
RowKey = tuple[int | str, ...]


class LiveLease(NamedTuple):
    """Until when a unit is held, and on which terms."""

    unit: int
    until: int
    ttl: int
    beat: int


UNITS_LOCKED = Query(f"SELECT {list_columns(Unit)}, {{xid}} FROM unit WHERE id {{ids}} ORDER BY id {{lock}}", Unit)
WORKER_LOCKED = select(WorkerRow, "WHERE unit = :unit {lock}")
BODIES = select(Body, "WHERE unit {ids}")
# The last lease of each unit whose lease was taken from its holder, found by its key however many there were; a planner
# may begin with either table.
LAST_LEASES = (
    "JOIN unit ON unit.id = lease.unit "
    "WHERE unit.id {ids} AND lease.unit {ids} "
    "AND lease.id = (SELECT max(id) FROM lease AS last WHERE last.unit = unit.id)"
)
LAST_LEASES_OF = select(Lease, LAST_LEASES)
# Units with the row of their live lease: their own, or the one that they share.
WITH_LEASES = """unit LEFT JOIN lease AS own ON own.unit = unit.id AND own.id = unit.lease_id
    LEFT JOIN lease AS shared ON shared.unit = 0 AND shared.id = unit.lease_id"""
LIVE_LEASES = Query(
    f"""
SELECT unit.id, coalesce(own.until, shared.until), coalesce(own.ttl, shared.ttl), coalesce(own.beat, shared.beat)
FROM {WITH_LEASES} WHERE unit.id {{ids}} AND unit.lease_id IS NOT NULL AND coalesce(own.until, shared.until) IS NOT NULL
""",
    LiveLease,
)


class TableUpdate:
    """How changed rows of a table are written: found by `key`, and with all other columns or with those named."""

    def __init__(self, kind: type[Row], key: Sequence[str], written: Sequence[str] = ()) -> None:
        self.key = key
        sets = written or [name for name in columns(kind) if name not in key]
        self.sql = (
            f"UPDATE {kind.table} SET {', '.join(f'{name} = :{name}' for name in sets)} "
            f"WHERE {' AND '.join(f'{name} = :{name}' for name in key)}"
        )

    def key_of(self, row: Row) -> RowKey:
        """The values of the key columns of a row."""
        return tuple(getattr(row, name) for name in self.key)


class IdentityMap:
    """The rows that a transaction has read or made, one object per row."""

    def __init__(self) -> None:
        self.units: dict[int, Unit] = {}
        self.children: dict[int, dict[int, Unit]] = {}  # by parent: those of `units`
        self.loaded: dict[int, Unit] = {}  # copies: each unit as the database has it
        self.bodies: dict[int, Body] = {}
        self.unread: set[int] = set()  # units that were read without their bodies
        self.bodiless: set[int] = set()  # units whose body is missing in the database
        self.workers: dict[int, WorkerRow] = {}
        # By tenant, task and key: the body that has this idempotency key; None if the database was asked and has none.
        self.keys: dict[tuple[int, str, str], Body | None] = {}
        # By unit, kind and name: whether there is such a note, as far as somebody looked.
        self.notes: dict[tuple[int, str, str], bool] = {}

    def add_unit(self, unit: Unit) -> None:
        """Adds a unit, also under its parent."""
        self.units[unit.id] = unit
        if unit.parent is not None:
            self.children.setdefault(unit.parent, {})[unit.id] = unit

    def add_loaded(self, units: Iterable[Unit]) -> None:
        """Adds units as they were read, and keeps a copy of each."""
        for unit in units:
            self.add_unit(unit)
            self.loaded[unit.id] = copied(unit)
            if unit.id not in self.bodies:
                self.unread.add(unit.id)

    def add_new(self, row: Row) -> None:
        """Adds a row that the transaction has made, if rows of this kind are looked up again."""
        if isinstance(row, Body):
            self.bodies[row.unit] = row
            if row.key is not None:
                self.keys[row.tenant, row.task, row.key] = row
        elif isinstance(row, Note):
            self.notes[row.unit, row.kind, row.name] = True
        elif isinstance(row, WorkerRow):
            self.workers[row.unit] = row

    def forget(self, unit: int) -> None:
        """Removes a unit and its rows: it is no longer in the database."""
        self.units.pop(unit, None)
        self.loaded.pop(unit, None)
        self.bodies.pop(unit, None)
        self.workers.pop(unit, None)


class Changes:
    """What a transaction has changed: first what the next flush writes, then what earlier flushes have written."""

    def __init__(self) -> None:
        self.count = 0  # of all changes so far; a refusal that did not raise it leaves the transaction usable
        self.born: dict[int, Unit] = {}
        self.moved: dict[int, Unit] = {}  # units that have changed and were not born since the last flush
        self.counted: dict[int, Unit] = {}  # units that wait for another number of needs
        self.bodies: dict[int, Body] = {}
        self.workers: dict[int, WorkerRow] = {}
        self.inserts: list[Row] = []  # new rows: bodies, needs, notes, workers, artifacts, rows of plugins
        self.new: set[int] = set()  # those of `inserts`, by identity
        self.updates: dict[TableUpdate, dict[RowKey, Row]] = {}  # changed rows of plugins' tables
        self.moves: list[RecordedMove] = []
        self.last_moves: dict[int, RecordedMove] = {}  # by unit
        self.child_rounds: dict[int, int] = {}  # by parent: the last round in which a child of it has moved
        self.leaves_children = False  # whether a unit has ended, or is about to, and its children were not stopped
        self.round = 0  # the round in which what is done now happens: later than what led to it
        self.results: dict[int, str] = {}  # by unit: results that no act has recorded yet
        # What flushes have written.
        self.acts = 0
        self.written: set[int] = set()  # units
        self.ended: set[int] = set()  # units that succeeded by the fast path
        self.lanes_with_work: set[int] = set()  # in which units were born by the fast path
        self.flushed = False  # whether anything was written but by the fast path
        self.made_available: set[int] = set()  # units that became claimable
        self.freed_tenants: set[int] = set()  # tenants of which less is held, or more may be
        self.proof: CommitProof | None = None  # a row that shows, if it is there, that the transaction was committed

    @property
    def pending(self) -> bool:
        """Whether something has changed that the database has not seen."""
        return bool(
            self.moves
            or self.born
            or self.moved
            or self.counted
            or self.inserts
            or self.bodies
            or self.workers
            or self.updates
        )

    def clear(self) -> None:
        """Forgets what a flush has just written."""
        self.born.clear()
        self.moved.clear()
        self.counted.clear()
        self.bodies.clear()
        self.workers.clear()
        self.inserts.clear()
        self.new.clear()
        self.updates.clear()
        self.moves.clear()
        self.last_moves.clear()
        self.child_rounds.clear()
        self.leaves_children = False
        self.results.clear()
        self.round = 0


@dataclass
class Counters:
    """Amounts that are added to the database when nothing else is left to do."""

    costs: Counter[int] = field(default_factory=Counter)  # by unit, in millionths
    metrics: Counter[tuple[int, str, str]] = field(default_factory=Counter)  # by tenant, metric and label


@dataclass
class Picks:
    """Which units a claim or the time picked, without a command that names them."""

    picked: set[int] = field(default_factory=set)
    allowed: frozenset[int] | None = None  # the only units that may be picked; None: all

    def pick(self, units: Iterable[Unit]) -> list[Unit]:
        """Returns those of the units that may be picked, and remembers them."""
        picked = [unit for unit in units if self.allowed is None or unit.id in self.allowed]
        self.picked.update(unit.id for unit in picked)
        return picked


def open_unit_of_work(
    connection: Connection, lifecycles: Mapping[str, Lifecycle], ids: Ids, tenants: Sequence[int],
    hooks: Hooks = NONE, *, cache: EngineCache | None = None, ahead: Sequence[BoundQuery[object]] = (),
) -> "UnitOfWork":  # fmt: skip
    """Begins a transaction that sees the rows of these tenants; the queries of `ahead` are sent with BEGIN."""
    opened = connection.begin(tenants, ahead)
    tx = UnitOfWork(connection, lifecycles, ids, tenants, hooks, cache or EngineCache(), opened.now)
    tx.prefetched = dict(zip(ahead, opened.ahead, strict=True))
    return tx


class UnitOfWork:
    """One open transaction, with what it knows and what it has changed. `open_unit_of_work` makes it."""

    def __init__(
        self, connection: Connection, lifecycles: Mapping[str, Lifecycle], ids: Ids, tenants: Sequence[int],
        hooks: Hooks, cache: EngineCache, now: int,
    ) -> None:  # fmt: skip
        """`now` is the time of the transaction that is open on the connection, in microseconds."""
        self.connection, self.hooks, self.cache, self.now = connection, hooks, cache, now
        self.lifecycles, self.lease_lifecycle = lifecycles, lifecycles["lease"]
        self.paths = paths_of(lifecycles)
        self.tenant, self.tenants = tenants[0], tenants  # `tenant` is that of the command that is being carried out
        self.mark = connection.mark  # the database's name for this transaction
        self.rows, self.changes, self.ids, self.counters = IdentityMap(), Changes(), ids, Counters()
        self.fast_path = True  # whether the fast path may be taken
        self.keeps_facts = False  # whether the facts of the cache hold in it and, if it flushes nothing, behind it
        self.states: dict[type, object] = {}
        # By query: rows that were read before they are asked for. They do not know what this transaction has written.
        self.prefetched: dict[BoundQuery[object], Rows] = {}

    def state(self, kind: type[S]) -> S:
        """Returns this transaction's instance of a class, which is made at the first call."""
        state = self.states.get(kind)
        if not isinstance(state, kind):
            state = self.states[kind] = kind()
        return state

    # Reading.

    def run(self, bound: BoundQuery[T]) -> list[T]:
        """Returns what a query finds; if it was prefetched, without asking the database again."""
        rows = self.prefetched.pop(bound, None) if self.prefetched else None
        if rows is None:
            rows = self.connection.rows(bound.query.sql, {**dict(bound.values), "now": self.now})
        make = bound.query.make
        return [make(*row) for row in rows]

    def prefetch(self, queries: Sequence[BoundQuery[object]]) -> None:
        """Reads the rows of these queries in one round trip, for whoever runs them next."""
        self.prefetched = dict(zip(queries, self.connection.fetch_together(queries, self.now), strict=True))

    def take_prefetched(self, bound: BoundQuery[T]) -> list[T]:
        """Returns what a query has found that was prefetched; nothing if it was not."""
        return [bound.query.make(*row) for row in self.prefetched.pop(bound, ())]

    def lock_units(self, ids: Iterable[int]) -> list[Unit]:
        """Returns these units of the tenant, locked in the order of their ids; those that do not exist are left out."""
        self.load_units(ids)
        units = self.rows.units
        return [units[unit] for unit in ids if unit in units and units[unit].tenant == self.tenant]

    def load_units(self, ids: Iterable[int]) -> None:
        """Reads and locks these units, whichever tenant's they are."""
        known = self.rows.units
        unknown = {unit for unit in ids if unit not in known}
        if unknown and (missing := self.load_cached(sorted(unknown))):
            self.merge_units(self.run(UNITS_LOCKED.bind(ids=missing)))

    def load_cached(self, ids: list[int]) -> list[int]:
        """Takes from the cache, and locks, what it holds of these units; returns those that must be read."""
        cached = self.cache.held.recall(self.connection, ids, self.run) if self.cache.held else []
        if not cached:
            return ids
        for unit, body in cached:
            if body is not None:
                self.rows.bodies[unit.id] = body
        # A lease is renewed in its own row, so what the cache knows of its end is the least that it lasts.
        self.read_leases([unit for unit, _ in cached if unit.lease_until is None or unit.lease_until <= self.now])
        self.rows.add_loaded(unit for unit, _ in cached)
        return [unit for unit in ids if unit not in self.rows.units]

    def unit(self, unit: int) -> Unit:
        """Returns a unit, locked.

        Raises:
            Unknown: There is no such unit, or it is another tenant's.
        """
        if not self.lock_units([unit]):
            raise Unknown(f"no job, run or step {unit}")
        return self.rows.units[unit]

    def merge_units(self, units: Sequence[Unit]) -> list[Unit]:
        """Returns units that a query has read as this transaction knows them; new ones are known from now on."""
        unknown = [unit for unit in units if unit.id not in self.rows.units]
        self.read_leases([unit for unit in unknown if unit.lease_id is not None])
        self.rows.add_loaded(unknown)
        return [self.rows.units[unit.id] for unit in units]

    def read_leases(self, units: Sequence[Unit]) -> None:
        """Fills in what the last lease of each of these locked units says, live or taken from its holder."""
        held = {unit.id: unit for unit in units if unit.lease_id is not None}
        ended = {unit.id: unit for unit in units if unit.lease_id is None}
        for lease in self.run(LIVE_LEASES.bind(ids=sorted(held))) if held else ():
            unit = held[lease.unit]
            unit.lease_until, unit.lease_ttl, unit.lease_beat = lease.until, lease.ttl, lease.beat
        for last in self.run(LAST_LEASES_OF.bind(ids=sorted(ended))) if ended else ():
            unit = ended[last.unit]
            unit.lease_hash, unit.lease_until = last.secret, last.until
            unit.lease_ttl, unit.lease_beat = last.ttl, last.beat

    def body(self, unit: Unit) -> Body:
        """Returns the body of a unit. Those of all units that this transaction knows are read with the first one."""
        body = self.rows.bodies.get(unit.id)
        if body is None:
            unread = {unit.id, *self.rows.unread} - self.rows.bodies.keys()
            missing = sorted(known for known in unread if known not in self.changes.born)
            self.rows.unread.clear()
            for row in self.run(BODIES.bind(ids=missing)):
                self.rows.bodies[row.unit] = row
            body = self.rows.bodies.get(unit.id) or self.replace_missing_body(unit)
        return body

    def replace_missing_body(self, unit: Unit) -> Body:
        """Returns an empty body for a unit that has none. Such a unit is never granted, but it can be cancelled."""
        self.rows.bodiless.add(unit.id)
        body = Body(unit=unit.id, tenant=unit.tenant, task="", correlation=str(unit.id))
        self.rows.bodies[unit.id] = body
        return body

    def worker(self, unit: int) -> WorkerRow:
        """Returns a worker's row, locked.

        Raises:
            Unknown: There is no such worker, or it is another tenant's.
        """
        workers = self.rows.workers
        if unit not in workers:
            workers.update((worker.unit, worker) for worker in self.run(WORKER_LOCKED.bind(unit=unit)))
        if unit not in workers or workers[unit].tenant != self.tenant:
            raise Unknown(f"there is no worker {unit}")
        return workers[unit]

    def act_for(self, unit: Unit) -> Unit:
        """Does what follows in the name of this unit's tenant, and returns the unit."""
        self.tenant = unit.tenant
        return unit

    def lifecycle(self, unit: Unit) -> Lifecycle:
        """Returns the lifecycle of a unit.

        Raises:
            UnknownLifecycle: This program was not given the file of the lifecycle.
        """
        try:
            return self.lifecycles[unit.lifecycle]
        except KeyError:
            raise UnknownLifecycle(
                f"{format_id(unit.lifecycle, unit.id)} is a {unit.lifecycle}, "
                "and this program knows no such lifecycle: give it the file"
            ) from None

    # Changing.

    def add(self, row: Row) -> None:
        """Adds a new row, but for a unit."""
        self.changes.count += 1
        self.changes.inserts.append(row)
        self.changes.new.add(id(row))
        self.rows.add_new(row)

    def add_unit(self, unit: Unit) -> None:
        """Adds a new unit; the move that makes it is recorded next."""
        self.changes.count += 1
        self.rows.add_unit(unit)
        self.changes.born[unit.id] = unit

    def touch(self, unit: Unit) -> None:
        """Has a unit written that has changed."""
        self.changes.count += 1
        self.rows.units[unit.id] = unit
        if unit.id not in self.changes.born:
            self.changes.moved[unit.id] = unit

    def change(self, row: Body | WorkerRow) -> None:
        """Has a body or a worker written that has changed."""
        self.changes.count += 1
        if id(row) in self.changes.new:
            return
        if isinstance(row, Body):
            self.changes.bodies[row.unit] = row
        else:
            self.changes.workers[row.unit] = row

    def update(self, table: TableUpdate, row: Row) -> None:
        """Has a row of a plugin's table written that has changed."""
        self.changes.count += 1
        if id(row) not in self.changes.new:
            self.changes.updates.setdefault(table, {})[table.key_of(row)] = row

    # The end.

    def after_commit(self) -> None:
        """Tells the cache of held units what this transaction, which is committed, has left with holders."""
        if self.cache.held:
            units = self.rows.units.values()
            self.cache.held.after_commit(self.connection, self.mark, units, self.changes.written, self.rows.bodies)
