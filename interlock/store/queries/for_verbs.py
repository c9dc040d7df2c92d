"""Queries that verbs run inside a transaction; a test checks the plan of each."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from interlock.kernel.rows import Answer, Artifact, Body, Event, Note, Token, Unit, WorkerRow
from interlock.store.acts import read_unflushed_events
from interlock.store.cache import Lane, LaneOrLimits, Lanes, remember_lanes
from interlock.store.connection import Queue
from interlock.store.queries.minute_metrics import forget_minutes
from interlock.store.queries.snapshots import LEASES_US, read_newest_events
from interlock.store.query import BoundQuery, Query, select
from interlock.store.unit_of_work import UnitOfWork

Urgency = tuple[int, int, int]  # the order of claims: by priority, then by age
Limits = tuple[int | None, int | None]  # of a tenant: how many units may be held, and how many may wait


class ExpiredRow(NamedTuple):
    """A row of a lease that is over; unit 0: of many."""

    id: int
    unit: int
    until: int


class ExpiredUnit(NamedTuple):
    """A unit whose lease is over, and since when."""

    until: int
    unit: int


OVERDUE = select(
    Unit, "WHERE tenant = :tenant AND wake_at IS NOT NULL AND wake_at <= :now ORDER BY wake_at, id LIMIT :limit {skip}"
)
# Leases that are over: rows of single units, and of many; somebody is under each.
EXPIRED = Query(
    "SELECT id, unit, until FROM lease WHERE tenant = :tenant AND ended_at IS NULL AND until <= :now "
    "ORDER BY until, unit LIMIT :limit",
    ExpiredRow,
)
UNDER_EXPIRED = Query("SELECT until, unit FROM live_lease WHERE id {ids} AND until <= :now", ExpiredUnit)
# The row of the lease is not locked: whoever has the unit writes it.
EXPIRED_UNITS = select(Unit, "WHERE id {ids} AND lease_id IS NOT NULL ORDER BY id {skip}")
TOKENS_BACK = select(Token, "WHERE tenant = :tenant AND back_at <= :now ORDER BY back_at LIMIT :limit {skip}")
UNIT_UNLOCKED = select(Unit, "WHERE id = :id")
OPEN_CHILDREN = select(Unit, "WHERE parent = :parent AND outcome IS NULL ORDER BY id {lock}")
LAST_CHILD = select(Unit, "WHERE parent = :parent AND decides = 1 ORDER BY id DESC LIMIT 1 {lock}")
NOTES_NAMED = select(Note, "WHERE unit {ids} AND kind = :kind")
UNITS_WITH_NOTE = Query("SELECT unit FROM note WHERE unit {ids} AND kind = :kind AND name = :name", int)
ARTIFACT = select(Artifact, "WHERE unit = :unit AND attempt = :attempt AND name = :name")
# In the order of the index.
INCARNATIONS = select(WorkerRow, "WHERE tenant = :tenant AND name = :name ORDER BY incarnation {lock}")
WITH_KEYS = select(Body, "WHERE tenant = :tenant AND task = :task AND key {ids}")
ANSWER = select(Answer, "WHERE tenant = :tenant AND scope = :scope AND key = :key")
KEYS_AT_ONCE = 500
NEVER = 2**62  # microseconds; no clock gets there
CLOCKS = (
    "SELECT min(wake_at) FROM unit WHERE tenant = :tenant AND wake_at IS NOT NULL",
    "SELECT min(until) FROM lease WHERE tenant = :tenant AND ended_at IS NULL",
)
# In one question with the limits of their tenant, which are asked for as often, and which few tenants have.
LANES = Query(
    """
SELECT id, queue, capabilities, task, NULL, NULL FROM lane WHERE id > :last AND id <= :end
UNION ALL SELECT 0, '', '', '', max_running, max_waiting FROM tenant
WHERE id = :tenant AND (max_running IS NOT NULL OR max_waiting IS NOT NULL)
""",
    LaneOrLimits,
)


@dataclass
class LaneState:
    """What a transaction knows of lanes."""

    lanes: dict[int, Lanes] = field(default_factory=dict)  # by tenant, with those that the transaction has made
    limits: dict[int, Limits] = field(default_factory=dict)  # by tenant
    limits_locked: bool = False
    # By tenant, queues, capabilities and known tasks: the most urgent unit of each lane that had one, as the database
    # has them.
    heads: dict[tuple[int, tuple[str, ...], str, str | None], dict[int, Urgency]] = field(default_factory=dict)


@dataclass
class OrderedReads:
    """What was read of ordered queries: by query and parameters, how many units were asked for, and the units."""

    units: dict[tuple[object, ...], tuple[int, list[Unit]]] = field(default_factory=dict)


@dataclass
class KeptAnswers:
    """Answers that are kept under idempotency keys, by tenant, scope and key."""

    answers: dict[tuple[int, str, str], Answer] = field(default_factory=dict)


def find_overdue(tx: UnitOfWork, limit: int) -> list[Unit]:
    """Units of a tenant that time must look at, by their clocks or their leases', the longest overdue first."""
    by_clock = read_in_turn(tx, OVERDUE, limit, lambda unit: has_passed(tx, unit.wake_at), tenant=tx.tenant)
    by_lease = read_until_enough(
        tx, (EXPIRED, tx.tenant), limit, lambda unit: is_lease_over(tx, unit), lambda most: read_expired(tx, most)
    )
    units = {unit.id: unit for unit in (*by_clock, *by_lease)}
    return sorted(units.values(), key=lambda unit: (get_next_clock(unit), unit.id))[:limit]


def find_next_clock(tx: UnitOfWork) -> int:
    """When time has something to do for a tenant, by the database: for a unit, for a lease, or for a plugin."""
    clocks = " UNION ALL ".join((*CLOCKS, *tx.hooks.clocks_of_rows))
    sql = f"SELECT min(at) FROM (SELECT NULL AS at UNION ALL {clocks}) AS clock"
    at = tx.connection.rows(sql, {"tenant": tx.tenant})[0][0]
    return NEVER if at is None else int(at)


def has_passed(tx: UnitOfWork, at: int | None) -> bool:
    """Whether an instant is there and has come."""
    return at is not None and at <= tx.now


def is_lease_over(tx: UnitOfWork, unit: Unit) -> bool:
    """Whether a unit is held under a lease that has expired."""
    return unit.holder is not None and has_passed(tx, unit.lease_until)


def get_next_clock(unit: Unit) -> int:
    """When time must look at a unit: the earliest of its clocks, its lease's among them."""
    clocks = [unit.wake_at, unit.lease_until if unit.holder is not None else None]
    return min(at for at in clocks if at is not None)


def read_expired(tx: UnitOfWork, limit: int) -> list[Unit]:
    """Units that are held under a lease that is over, the longest one first; none that somebody else has locked."""
    rows = tx.run(EXPIRED.bind(limit=limit, tenant=tx.tenant))
    if not rows:
        return []
    expired = sorted(tx.run(UNDER_EXPIRED.bind(ids=sorted({row.id for row in rows}))))
    return tx.run(EXPIRED_UNITS.bind(ids=sorted({unit for _, unit in expired[:limit]})))


def read_in_turn(
    tx: UnitOfWork, query: Query[Unit], wanted: int, still: Callable[[Unit], bool], **params: int
) -> list[Unit]:
    """The first rows of an ordered question that are still an answer."""
    name = (query, *params.values())
    return read_until_enough(tx, name, wanted, still, lambda limit: tx.run(query.bind(limit=limit, **params)))


def read_until_enough(
    tx: UnitOfWork, name: tuple[object, ...], wanted: int, still: Callable[[Unit], bool],
    read_first: Callable[[int], list[Unit]],
) -> list[Unit]:  # fmt: skip
    """The first units that are still an answer: all that are there, or `wanted` and maybe more.

    The database has not seen what this transaction did, so it answers with what was taken already. It is asked for
    twice as much then: what a group reads stays in proportion to what it takes.
    """
    limit, read = tx.state(OrderedReads).units.get(name, (0, []))
    while True:
        fitting = [unit for unit in read if still(unit)]
        if len(fitting) >= wanted or len(read) < limit:
            return fitting
        limit = max(wanted, 2 * limit)
        read = tx.merge_units(read_first(limit))
        tx.state(OrderedReads).units[name] = (limit, read)


def load_lanes(tx: UnitOfWork, tenant: int) -> Lanes:
    """The lanes of a tenant, as this transaction sees them."""
    state, known = tx.state(LaneState), tx.cache.lanes.get(tenant)
    if tenant not in state.lanes:
        lanes = state.lanes[tenant] = known or Lanes(tenant)
        if known and (LaneState, tenant) in tx.cache.facts:
            state.limits[tenant] = tx.cache.facts[LaneState, tenant]
        elif read_lanes(tx, lanes):
            remember_lanes(tx.cache.lanes, tenant, lanes)
    return state.lanes[tenant]


def get_limits(tx: UnitOfWork, tenant: int) -> Limits:
    """How many units of a tenant may be held and may wait, as far as is known without a lock. It costs no question."""
    load_lanes(tx, tenant)  # they come with its lanes
    return tx.state(LaneState).limits[tenant]


def read_lanes(tx: UnitOfWork, known: Lanes) -> bool:
    """Lanes that were made since are known too; answers whether there were any. Their tenant's limits are, too."""
    rows = tx.run(bind_new_lanes(known))
    fresh = sorted(Lane(*row[:4]) for row in rows if row.id)
    limits = next((row[4:] for row in rows if not row.id), (None, None))
    tx.state(LaneState).limits[known.tenant] = tx.cache.facts[LaneState, known.tenant] = limits
    known.extend(fresh)
    return bool(fresh)


def bind_new_lanes(known: Lanes) -> BoundQuery[LaneOrLimits]:
    """The query for lanes that were made since, and for the limits of their tenant."""
    return LANES.bind(last=known.last, end=known.end, tenant=known.tenant)


def find_or_make_lane(tx: UnitOfWork, tenant: int, queue: str, capabilities: Iterable[str], task: str = "") -> int:
    """The lane of a queue, a set of demands and a task that a worker must know, made if there is none yet."""
    lane = (queue, ",".join(sorted(capabilities)) if capabilities else "", task)
    while lane not in load_lanes(tx, tenant).ids:
        make_lane(tx, tenant, *lane)
    return load_lanes(tx, tenant).ids[lane]


def find_lane_of_task(tx: UnitOfWork, tenant: int, lane: int, task: str) -> int:
    """The lane in which another task waits as work of this lane does: in its queue, with its demands."""
    known = load_lanes(tx, tenant).find(lane)
    if known is None or known.task == task:
        return lane
    return find_or_make_lane(tx, tenant, known.queue, filter(None, known.capabilities.split(",")), task)


def make_lane(tx: UnitOfWork, tenant: int, queue: str, capabilities: str, task: str) -> None:
    """A lane is made, unless somebody else has just made it or taken its number: theirs is known then."""
    lanes = tx.state(LaneState).lanes
    if lanes[tenant] is tx.cache.lanes.get(tenant):
        lanes[tenant] = Lanes(tenant, lanes[tenant].lanes)  # what may be rolled back is not remembered
    known = lanes[tenant]
    if not known.lanes:
        ensure_tenant(tx, tenant)
    lane = Lane(known.last + 1, queue, capabilities, task)
    values = "(:id, :tenant, :queue, :capabilities, :task) ON CONFLICT DO NOTHING RETURNING id"
    sql = f"INSERT INTO lane (id, tenant, queue, capabilities, task) VALUES {values}"
    if tx.connection.rows(sql, {**lane._asdict(), "tenant": tenant}):
        known.extend([lane])
    else:
        read_lanes(tx, known)


def ensure_tenant(tx: UnitOfWork, tenant: int) -> None:
    """The tenant has a row: whoever lets time pass finds the tenants by that."""
    sql = "INSERT INTO tenant (id, name, created_at) VALUES (:id, :name, :now) ON CONFLICT DO NOTHING"
    tx.connection.rows(sql, {"id": tenant, "name": f"tenant-{tenant}", "now": tx.now})


def find_lanes_with_work(tx: UnitOfWork, known: Mapping[int, Queue]) -> dict[int, Queue]:
    """The lanes in which a unit became available and still is, with the queue of each; `known` are those of before."""
    units = (tx.rows.units[unit] for unit in tx.changes.made_available if unit in tx.rows.units)
    lanes = {unit.lane for unit in units if unit.available_at is not None} | tx.changes.lanes_with_work
    queues = {lane: known[lane] for lane in lanes if lane in known}
    if missing := sorted(lanes - queues.keys()):
        sql = "SELECT id, tenant, queue FROM lane WHERE id {ids}"
        queues |= {lane: (tenant, queue) for lane, tenant, queue in tx.connection.rows(sql, {"ids": missing})}
    return queues


def load_held_units(tx: UnitOfWork, worker: int) -> list[Unit]:
    """What a worker holds, locked, as this transaction knows it."""
    sql = "SELECT unit FROM live_lease WHERE tenant = :tenant AND worker = :worker ORDER BY unit"
    tx.load_units(unit for (unit,) in tx.connection.rows(sql, {"tenant": tx.tenant, "worker": worker}))
    return sorted((unit for unit in tx.rows.units.values() if unit.holder == worker), key=lambda unit: unit.id)


def load_open_children(tx: UnitOfWork, parent: int) -> list[Unit]:
    """The children of a unit that have not ended, locked in the order of their ids."""
    if parent not in tx.changes.born:  # else the database knows none of them
        tx.merge_units(tx.run(OPEN_CHILDREN.bind(parent=parent)))
    mine = [unit for unit in tx.rows.children.get(parent, {}).values() if unit.outcome is None]
    return sorted(mine, key=lambda unit: unit.id)


def find_parents(tx: UnitOfWork, units: Sequence[int]) -> dict[int, int | None]:
    """The parents of these units, which stay the same; nothing is locked."""
    rows = tx.connection.rows("SELECT id, parent FROM unit WHERE id {ids}", {"ids": sorted(units)}) if units else []
    return dict(rows)


def load_last_child(tx: UnitOfWork, parent: int) -> Unit | None:
    """The youngest child of a unit that decides about it, locked."""
    units = tx.merge_units(tx.run(LAST_CHILD.bind(parent=parent)))
    return units[0] if units else None


def has_note(tx: UnitOfWork, unit: int, kind: str, name: str) -> bool:
    """Whether a unit has such a note, also one that this transaction has just made."""
    notes = tx.rows.notes
    if (unit, kind, name) not in notes:
        load_notes(tx, kind, name, [unit])
    return notes[unit, kind, name]


def find_cancel_requests(tx: UnitOfWork, units: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Who asked these units to stop, why and when; the last one who did."""
    sql = "SELECT unit, payload, at FROM note WHERE unit {ids} AND kind = 'cancel_requested' ORDER BY id"
    requests = {}
    for unit, payload, at in tx.connection.rows(sql, {"ids": list(units)}):
        try:
            stamp = msgspec.json.decode(payload, type=dict[str, str | None])
        except msgspec.MsgspecError:
            continue  # a note that somebody damaged keeps nothing from being cancelled
        requests[unit] = {"by": stamp.get("actor") or "", "reason": stamp.get("reason") or "", "at": at}
    return requests


def load_notes(tx: UnitOfWork, kind: str, name: str, units: Iterable[int]) -> None:
    """It is known which of these units have such a note."""
    unknown = sorted({unit for unit in units if (unit, kind, name) not in tx.rows.notes})
    if unknown:
        with_note = set(tx.run(UNITS_WITH_NOTE.bind(ids=unknown, kind=kind, name=name)))
        tx.rows.notes.update({(unit, kind, name): unit in with_note for unit in unknown})


def read_notes(tx: UnitOfWork, units: list[int], kind: str) -> list[Note]:
    """The notes of one kind that these units have, this transaction's included."""
    if not units:
        return []
    here = [row for row in tx.changes.inserts if isinstance(row, Note) and row.kind == kind and row.unit in units]
    rows = tx.run(NOTES_NAMED.bind(ids=units, kind=kind))
    return sorted([*rows, *here], key=lambda note: note.id)


def find_submitter(tx: UnitOfWork, unit: int) -> str:
    """Who made a unit."""
    here = [event for event in read_unflushed_events(tx, unit) if event.version == 1]
    if here:
        return here[0].actor
    rows = tx.connection.rows(
        "SELECT actor FROM act JOIN unit ON unit.born = act.id WHERE unit.id = :unit", {"unit": unit}
    )
    return rows[0][0] if rows else ""


def has_artifact(tx: UnitOfWork, unit: int, attempt: int, name: str) -> bool:
    """Whether an attempt has an artifact of that name, also one that this transaction has just made."""
    here = [row for row in tx.changes.inserts if isinstance(row, Artifact)]
    if any((artifact.unit, artifact.attempt, artifact.name) == (unit, attempt, name) for artifact in here):
        return True
    return bool(tx.run(ARTIFACT.bind(unit=unit, attempt=attempt, name=name)))


def find_closing_event(tx: UnitOfWork, unit: Unit) -> Event | None:
    """The last hop of the lease that a unit had last."""
    here = [event for event in read_unflushed_events(tx, unit.id) if event.fence == unit.fence and event.lease_to]
    if here:
        return here[-1]
    events = read_newest_events(tx.connection, unit.id, unit.version)
    return next((event for event in events if event.fence == unit.fence and event.lease_to), None)


def find_last_grant(tx: UnitOfWork, unit: Unit) -> Event | None:
    """The event by which a unit was last leased."""
    here = [event for event in read_unflushed_events(tx, unit.id) if event.lease_to and not event.lease_from]
    if here:
        return here[-1]
    events = read_newest_events(tx.connection, unit.id, unit.version)
    return next((event for event in events if event.lease_to and not event.lease_from), None)


def lock_incarnations(tx: UnitOfWork, tenant: int, name: str) -> list[WorkerRow]:
    """Every worker that ever had a name, locked."""
    workers = sorted(tx.run(INCARNATIONS.bind(tenant=tenant, name=name)), key=lambda worker: worker.unit)
    return [tx.rows.workers.setdefault(worker.unit, worker) for worker in workers]


def load_keys(tx: UnitOfWork, tenant: int, task: str, keys: Iterable[str]) -> None:
    """What this transaction must know of a task's keys, it knows."""
    unknown = sorted({key for key in keys if (tenant, task, key) not in tx.rows.keys})
    for start in range(0, len(unknown), KEYS_AT_ONCE):
        some = unknown[start : start + KEYS_AT_ONCE]
        tx.rows.keys |= {(tenant, task, key): None for key in some}
        for body in tx.run(WITH_KEYS.bind(tenant=tenant, task=task, ids=some)):
            tx.rows.keys[tenant, task, body.key or ""] = tx.rows.bodies.setdefault(body.unit, body)


def find_by_key(tx: UnitOfWork, tenant: int, task: str, key: str) -> Body | None:
    """The body of the unit that a task has under a key, also one that this transaction has just made."""
    load_keys(tx, tenant, task, [key])
    return tx.rows.keys[tenant, task, key]


def find_answer(tx: UnitOfWork, tenant: int, scope: str, key: str) -> Answer | None:
    """What a command under a key was answered, also by this transaction."""
    answers = tx.state(KeptAnswers).answers
    if (tenant, scope, key) not in answers:
        for answer in tx.run(ANSWER.bind(tenant=tenant, scope=scope, key=key)):
            answers[tenant, scope, key] = answer
    return answers.get((tenant, scope, key))


def forget_answer(tx: UnitOfWork, old: Answer) -> None:
    """An answer that has expired makes room for another under its key; one that others keep meanwhile stays."""
    named = {"tenant": old.tenant, "scope": old.scope, "key": old.key, "now": tx.now}
    where = "tenant = :tenant AND scope = :scope AND key = :key AND expires <= :now"
    tx.connection.rows(f"DELETE FROM answer WHERE {where}", named)


def forget_expired(tx: UnitOfWork, limit: int) -> int:
    """Notes, answers, skipped instants and minutes of metrics whose time has come are gone, at most `limit` of each."""
    gone = 0
    for table, key in (("note", "id"), ("answer", "key"), ("skipped", "id")):
        due = f"SELECT {key} FROM {table} WHERE expires <= :now AND tenant = :tenant ORDER BY expires LIMIT :limit"
        sql = f"DELETE FROM {table} WHERE tenant = :tenant AND expires <= :now AND {key} IN ({due}) RETURNING 1"
        gone += len(tx.connection.rows(sql, {"now": tx.now, "tenant": tx.tenant, "limit": limit}))
    return gone + forget_leases(tx, limit) + forget_minutes(tx, limit)


def forget_leases(tx: UnitOfWork, limit: int) -> int:
    """Leases that ended a day ago are gone: whoever says something under one of them is not known any more."""
    due = "SELECT unit, id FROM lease WHERE tenant = :tenant AND ended_at <= :before ORDER BY ended_at LIMIT :limit"
    sql = f"DELETE FROM lease WHERE (unit, id) IN ({due}) RETURNING 1"
    return len(tx.connection.rows(sql, {"tenant": tx.tenant, "before": tx.now - LEASES_US, "limit": limit}))
