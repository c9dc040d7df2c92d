"""A transaction as a unit of work: it loads what it needs, is changed in memory, and is flushed once."""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

from interlock.kernel.errors import Unknown, UnknownLifecycle
from interlock.kernel.lifecycle import Lifecycle
from interlock.kernel.paths import paths_of
from interlock.kernel.rows import (
    Answer,
    Body,
    Lease,
    Note,
    Row,
    Schedule,
    Slot,
    Unit,
    Worker,
    copied,
)
from interlock.kernel.workflow_graph import Template
from interlock.store.acts import Move
from interlock.store.cache import EngineCache
from interlock.store.commit_proof import Witness, best
from interlock.store.connection import Connection, Queue, Rows
from interlock.store.flush import COUNTED, WORKER_WRITTEN, WRITTEN, write
from interlock.store.hooks import NONE, Hooks, Moved
from interlock.store.ids import Ids
from interlock.store.lanes import Lanes
from interlock.store.query import BoundQuery, select

R = TypeVar("R", bound=Row)
T = TypeVar("T")
Urgency = tuple[int, int, int]  # the order of claims: by priority, then by age
UNITS_LOCKED = select(Unit, "WHERE id {ids} ORDER BY id {lock}")
WORKER_LOCKED = select(Worker, "WHERE unit = :unit {lock}")
BODIES = select(Body, "WHERE unit {ids}")
# The last lease of each unit, found by its key however many there were.
LAST_LEASES = (
    "JOIN unit ON unit.id = lease.unit "
    "WHERE unit.id {ids} AND lease.id = (SELECT max(id) FROM lease AS last WHERE last.unit = unit.id)"
)

LAST_LEASES_OF = select(Lease, LAST_LEASES)


class UnitOfWork:
    """One open transaction. Every row that is read passes through its identity map."""

    def __init__(
        self, connection: Connection, lifecycles: Mapping[str, Lifecycle], ids: Ids, tenants: Sequence[int],
        hooks: Hooks = NONE, *, cache: EngineCache | None = None, ahead: Sequence[BoundQuery[Any]] = (),
    ) -> None:  # fmt: skip
        """A transaction is open that sees the rows of these tenants; the queries of `ahead` were sent with BEGIN."""
        self.connection, self.ids, self.hooks, self.cache = connection, ids, hooks, cache or EngineCache()
        self.lifecycles, self.leases = lifecycles, lifecycles["lease"]
        self.followed = {lifecycle.options.follows for lifecycle in lifecycles.values()}
        self.tenant, self.tenants = tenants[0], tenants  # `tenant` is that of the command that is being carried out
        self.begin(ahead)
        self.changes = 0  # counts writes: a refusal that made none leaves the transaction sound
        self.units: dict[int, Unit] = {}
        self.children: dict[int, dict[int, Unit]] = {}  # by parent, those of `units`
        self.was: dict[int, Unit] = {}  # each unit as the database has it
        self.bodies: dict[int, Body] = {}
        self.bodiless: set[int] = set()  # units whose body the database does not have
        self.workers: dict[int, Worker] = {}
        self.born: dict[int, Unit] = {}
        self.moved: dict[int, Unit] = {}
        self.changed_bodies: dict[int, Body] = {}
        self.changed_workers: dict[int, Worker] = {}
        self.new: set[int] = set()  # those of `fresh`, by identity
        self.fresh: list[Row] = []  # inserted as they are: bodies, needs, notes, workers, artifacts
        self.paths = paths_of(lifecycles)
        self.moves: list[Move] = []  # that the database has not seen
        self.last_moves: dict[int, Move] = {}  # by unit
        self.child_rounds: dict[int, int] = {}  # by parent: the last round in which a child of it has moved
        self.floor = 0  # the round in which what is done now happens: later than what led to it
        self.acts = 0  # that it has made
        self.fired: deque[tuple[Unit, str, int]] = deque()  # what moved by which trigger in which round
        self.lanes: dict[int, Lanes] = {}  # of each tenant, those that this transaction made included
        self.heads: dict[Any, dict[int, Urgency]] = {}  # of lanes that had something, as the database has them
        self.asked: dict[Any, tuple[int, list[Unit]]] = {}  # how much was read of what finders read in order
        self.tallies: Counter[tuple[int, str, str]] = Counter()  # by tenant, metric and label: what verbs counted
        self.results: dict[int, str] = {}  # by unit, those that no act tells of yet
        self.costs: dict[int, int] = {}  # by unit: what it has cost since, in millionths
        self.retryable: set[int] = set()  # units whose failure may be tried again
        self.slots: dict[tuple[int, str], Slot] = {}
        self.changed_slots = dict[tuple[int, str], Slot]()
        self.schedules: dict[tuple[int, str], Schedule] = {}
        self.templates: dict[tuple[int, str, int | None], Template | None] = {}  # by version; None: the newest
        self.changed_schedules: dict[tuple[int, str], Schedule] = {}
        self.given_back: dict[tuple[int, int], tuple[int, Any]] = {}  # by tenant and worker: how much, and why
        self.silent: set[int] = set()  # workers that have lost a lease because they were not heard
        self.takings: dict[tuple[int, int], Any] = {}  # by tenant and worker: what a claim leaves in its row
        self.seats: dict[int, tuple[str, ...]] = {}  # by unit: the keys that it has
        self.sound: dict[Any, int] = {}  # rules of work that were found to be allowed, each with a number
        self.looked: set[Any] = set()  # what was looked for already, and is not looked for again
        self.keyed: dict[tuple[int, str, str], Body | None] = {}  # what is known of users' keys
        self.noted: dict[tuple[int, str, str], bool] = {}  # which notes there are, as far as somebody asked
        self.askers: dict[int, dict[str, Any]] = {}  # by unit: who asked it to stop, why and when
        self.answers: dict[tuple[int, str, str], Answer] = {}
        self.flushed: set[int] = set()  # units that were written
        self.opened: set[int] = set()  # units that became available
        self.limits: dict[int, tuple[int | None, int | None]] = {}  # by tenant: how much may be held, and may wait
        self.summoned: set[Queue] = set()  # workers that are to ask how it stands with what they hold
        self.freed: set[int] = set()  # tenants of which less is held, or more may be
        self.witness: Witness | None = None
        self.chosen: set[int] = set()  # units that a claim or the time picked: no command names them
        self.only: frozenset[int] | None = None  # the only ones that they may pick

    def begin(self, ahead: Sequence[BoundQuery[Any]]) -> None:
        """The transaction has a time and the database's mark, and what was sent ahead is here."""
        opened = self.connection.begin(self.tenants, ahead)
        self.now, self.mark = opened.now, self.connection.mark
        # By query: rows that are here before they are asked for. What is written from then on they have not seen.
        self.prefetched: dict[BoundQuery[Any], Rows] = dict(zip(ahead, opened.ahead, strict=True))

    # Reading.

    def run(self, bound: BoundQuery[T]) -> list[T]:
        """What a query finds; if it was prefetched, without asking again."""
        rows = self.prefetched.pop(bound, None) if self.prefetched else None
        if rows is None:
            rows = self.connection.rows(bound.query.sql, bound.params(self.now))
        make = bound.query.make
        return [make(*row) for row in rows]

    def prefetch(self, queries: Sequence[BoundQuery[Any]]) -> None:
        """The rows of these queries are here for whoever runs them next. They come in one round trip."""
        self.prefetched = dict(zip(queries, self.connection.fetch_together(queries, self.now), strict=True))

    def take_prefetched(self, bound: BoundQuery[T]) -> list[T]:
        """What a query has found that was prefetched; nothing if it was not."""
        return [bound.query.make(*row) for row in self.prefetched.pop(bound, ())]

    def lock(self, ids: Iterable[int]) -> list[Unit]:
        """These units, locked in the order of their ids; those that do not exist are left out."""
        self.load(ids)
        return [self.units[one] for one in ids if one in self.units and self.units[one].tenant == self.tenant]

    def load(self, ids: Iterable[int]) -> None:
        """These units are known and locked, whichever tenant's they are."""
        missing = self.recalled(sorted({one for one in ids if one not in self.units}))
        if missing:
            self.known(self.run(UNITS_LOCKED.bind(ids=missing)))

    def recalled(self, wanted: list[int]) -> list[int]:
        """Of these units, those that must be read; the others are locked, and were remembered as they are."""
        recalled = []
        for unit, body in self.cache.held.recall(self.connection, wanted) if self.cache.held and wanted else ():
            recalled.append(unit)
            self.bodies[unit.id] = body
        if not recalled:
            return wanted
        # A lease is renewed in its own row, so what is remembered of its end is the least that it lasts.
        self.read_leases([unit for unit in recalled if unit.lease_until is None or unit.lease_until <= self.now])
        self.meet(recalled)
        return [one for one in wanted if one not in self.units]

    def unit(self, one: int) -> Unit:
        """A unit, locked; raises Unknown."""
        if not self.lock([one]):  # nor is there one of another tenant
            raise Unknown(f"there is no unit {one}")
        return self.units[one]

    def known(self, found: Sequence[Unit]) -> list[Unit]:
        """Units that a finder has read, as this transaction knows them."""
        fresh = [unit for unit in found if unit.id not in self.units]
        self.read_leases([unit for unit in fresh if unit.lease_id is not None])
        self.meet(fresh)
        return [self.units[unit.id] for unit in found]

    def meet(self, units: Iterable[Unit]) -> None:
        """This transaction knows these units from now on, and as what it met them."""
        for unit in units:
            self.units[unit.id], self.was[unit.id] = unit, copied(unit)
            if unit.parent is not None:
                self.children.setdefault(unit.parent, {})[unit.id] = unit

    def read_leases(self, held: Sequence[Unit]) -> None:
        """What the last leases of these units say, which are locked: nobody but who has a unit writes its lease."""
        if not held:
            return
        by_unit = {unit.id: unit for unit in held}
        for lease in self.run(LAST_LEASES_OF.bind(ids=sorted(by_unit))):
            unit = by_unit[lease.unit]
            unit.lease_hash, unit.lease_until = lease.secret, lease.until
            unit.lease_ttl, unit.lease_beat = lease.ttl, lease.beat

    def recall_leases(self, ids: Iterable[int]) -> None:
        """Of these units, those whose lease is over know it again, so that whoever held it can be told so."""
        units = [self.units[one] for one in ids if one in self.units]
        self.read_leases([unit for unit in units if unit.lease is not None and unit.lease_hash is None])

    def body(self, unit: Unit) -> Body:
        """The rest of a unit; those of all units that this transaction knows come with the first one."""
        found = self.bodies.get(unit.id)
        if found is None:
            missing = sorted(one for one in self.units if one not in self.bodies and one not in self.born)
            for body in self.run(BODIES.bind(ids=missing)):
                self.bodies[body.unit] = body
            found = self.bodies.get(unit.id) or self.stand_in(unit)
        return found

    def stand_in(self, unit: Unit) -> Body:
        """For a body that is missing: such a unit is never granted, but it can be cancelled."""
        self.bodiless.add(unit.id)
        self.bodies[unit.id] = Body(unit=unit.id, tenant=unit.tenant, task="", correlation=str(unit.id))
        return self.bodies[unit.id]

    def pick(self, units: Iterable[Unit]) -> list[Unit]:
        """Of these units, those that this transaction may pick; it is known which ones it did."""
        picked = [unit for unit in units if self.only is None or unit.id in self.only]
        self.chosen.update(unit.id for unit in picked)
        return picked

    def left_alone(self, unit: Unit) -> bool:
        """Whether a unit is passed over for a while, because it failed when it was picked last."""
        return bool(self.cache.passed_over) and self.cache.passed_over.get(unit.id, 0) > self.now

    def worker(self, one: int) -> Worker:
        """What a worker is beside its unit, locked; raises Unknown."""
        if one not in self.workers:
            found = self.run(WORKER_LOCKED.bind(unit=one))
            if not found:
                raise Unknown(f"there is no worker {one}")
            self.workers[one] = found[0]
        if self.workers[one].tenant != self.tenant:
            raise Unknown(f"there is no worker {one}")
        return self.workers[one]

    def as_its_own(self, unit: Unit) -> Unit:
        """What follows is done in the name of this unit's tenant."""
        self.tenant = unit.tenant
        return unit

    def lifecycle(self, unit: Unit) -> Lifecycle:
        """The lifecycle of a unit; raises Unknown if this program was not told of it."""
        try:
            return self.lifecycles[unit.lifecycle]
        except KeyError:
            raise UnknownLifecycle(
                f"unit {unit.id} is a {unit.lifecycle}, and this program knows no such lifecycle: give it the file"
            ) from None

    # Writing.

    def add(self, row: Row) -> None:
        """A row that is new."""
        self.changes += 1
        self.fresh.append(row)
        self.new.add(id(row))
        if isinstance(row, Body):
            self.bodies[row.unit] = row
            if row.key is not None:
                self.keyed[row.tenant, row.task, row.key] = row
        if isinstance(row, Note):
            self.noted[row.unit, row.kind, row.name] = True
        if isinstance(row, Worker):
            self.workers[row.unit] = row
        if isinstance(row, Schedule):
            self.schedules[row.tenant, row.name] = row
        if isinstance(row, Template):
            self.templates |= {(row.tenant, row.name, version): row for version in (None, row.version)}

    def touch(self, unit: Unit) -> None:
        """A unit that has changed, or was born."""
        self.changes += 1
        self.units[unit.id] = unit
        if unit.id not in self.born:
            self.moved[unit.id] = unit

    def new_id(self) -> int:
        return self.ids.take()

    def bear(self, unit: Unit) -> None:
        """A unit that is new; its events come before it."""
        self.changes += 1
        self.units[unit.id] = self.born[unit.id] = unit
        if unit.parent is not None:
            self.children.setdefault(unit.parent, {})[unit.id] = unit

    def change(self, row: Body | Worker) -> None:
        """A body or a worker that has changed."""
        self.changes += 1
        if id(row) not in self.new:
            changed: dict[int, Any] = self.changed_bodies if isinstance(row, Body) else self.changed_workers
            changed[row.unit] = row

    def change_slot(self, slot: Slot) -> None:
        """A slot that was taken, given back, or has another capacity."""
        self.changes += 1
        self.changed_slots[slot.tenant, slot.key] = slot

    def change_schedule(self, schedule: Schedule) -> None:
        """A schedule that has changed."""
        self.changes += 1
        if id(schedule) not in self.new:
            self.changed_schedules[schedule.tenant, schedule.name] = schedule

    def forget(self, one: int) -> None:
        """A unit that is no longer in the database."""
        for known in (self.units, self.was, self.bodies, self.workers):
            known.pop(one, None)

    @property
    def pending(self) -> bool:
        """Whether something changed that the database has not seen."""
        return bool(self.moves or self.born or self.moved or self.fresh or any(self.changed_rows))

    @property
    def changed_rows(self) -> tuple[dict[Any, Any], ...]:
        return self.changed_bodies, self.changed_workers, self.changed_slots, self.changed_schedules

    def meet_needs(self, succeeded: Mapping[int, int]) -> list[Unit]:
        """Those whose last need has just succeeded, or that need something again, locked."""
        if not succeeded:
            return []
        # Counted here: a database that groups and sorts may prefer to read all needs in that order.
        ids = sorted(succeeded)
        sql = "SELECT unit, needs FROM need WHERE needs {ids}"
        sums: Counter[int] = Counter()
        for unit, needs in self.connection.rows(sql, {"ids": ids}):
            sums[unit] -= succeeded[needs]
        changed = self.add_counts({one: {"unmet": number} for one, number in sums.items()})
        return [unit for unit in changed if unit.outcome is None and (unit.unmet == 0 or sums[unit.id] > 0)]

    def add_counts(self, sums: Mapping[int, Mapping[str, int]]) -> list[Unit]:
        """These units, locked in the order of their ids, with what was added to their counters.

        It is the last thing that a flush does, so that children of one parent wait for each other no longer than that.
        """
        self.load(sorted(sums))
        changed = []
        for one in sorted(sums):
            for name, number in sums[one].items():
                setattr(self.units[one], name, getattr(self.units[one], name) + number)
            if any(sums[one].values()):
                changed.append(self.units[one])
        if changed:
            self.connection.update(changed, COUNTED, "id")
            self.flushed.update(unit.id for unit in changed)
        return [self.units[one] for one in sorted(sums)]

    def add_costs(self) -> None:
        """What units have cost is added to theirs, and to that of all above them."""
        sums: Counter[int] = Counter()
        for one, cost in self.costs.items():
            above: int | None = one
            while above is not None:
                sums[above] += cost
                self.load([above])
                above = self.units[above].parent
        self.costs.clear()
        for one, cost in sums.items():
            self.units[one].cost += cost
        if sums:
            self.connection.update([self.units[one] for one in sorted(sums)], ("cost",), "id")
            self.flushed |= sums.keys()

    def next_act(self) -> int:
        """The id of the next act of this transaction."""
        self.acts += 1
        return self.connection.act_id(self.acts)

    def flush(self) -> list[Moved]:
        """Everything that changed is in the database: acts first, and one statement a table for the rest.

        Answers what was born or moved: each as it is now, and as it was before (None: born).
        """
        units = {**self.born, **self.moved}
        before = {one: None if one in self.born else self.was[one] for one in sorted(units)}
        self.prefetched.clear()
        with self.connection.pipeline():
            acts = write(self)
        workers = ((row, ("unit", *WORKER_WRITTEN)) for row in self.changed_workers.values())
        moved = ((row, ("id", *WRITTEN)) for row in self.moved.values())
        self.witness = best(self.witness, chain(acts, self.fresh), chain(workers, moved))
        self.moves.clear()
        self.results.clear()
        self.last_moves.clear()
        self.child_rounds.clear()
        self.floor = 0
        self.fresh.clear()
        self.new.clear()
        for written in (self.born, self.moved, *self.changed_rows):
            written.clear()
        self.flushed |= units.keys()
        self.opened |= {one for one, was in before.items() if became_available(units[one], was)}
        self.freed |= {was.tenant for one, was in before.items() if was and was.holder and not units[one].holder}
        self.was |= {one: copied(unit) for one, unit in units.items()}
        return [Moved(self.was[one], was) for one, was in before.items()]

    def committed(self) -> None:
        """The database has said that this transaction stands: what it leaves with holders is remembered."""
        if self.cache.held:
            written = [self.units[one] for one in self.flushed if one in self.units]
            self.cache.held.after_commit(self.connection, self.mark, written, self.bodies)

    def served(self, known: Mapping[int, Queue]) -> dict[int, Queue]:
        """The lanes in which something became available and still is, with the queue of each."""
        units = (self.units[one] for one in self.opened if one in self.units)
        opened = {unit.lane for unit in units if unit.available_at is not None}
        found = {lane: known[lane] for lane in opened if lane in known}
        if missing := sorted(opened - found.keys()):
            sql = "SELECT id, tenant, queue FROM lane WHERE id {ids}"
            found |= {lane: (tenant, queue) for lane, tenant, queue in self.connection.rows(sql, {"ids": missing})}
        return found


def became_available(unit: Unit, was: Unit | None) -> bool:
    return unit.available_at is not None and (was is None or was.available_at is None)


def marks(ids: Sequence[Any]) -> str:
    return ", ".join(f":u{place}" for place in range(len(ids)))


def params(ids: Sequence[Any]) -> dict[str, Any]:
    return {f"u{place}": one for place, one in enumerate(ids)}
