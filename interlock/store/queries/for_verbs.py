"""The questions that verbs ask of the database, each with a plan that a test looks at."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from interlock.kernel.errors import Unknown
from interlock.kernel.lifecycle import Category
from interlock.kernel.rows import Answer, Artifact, Body, Event, Note, Schedule, Slot, Token, Unit, Worker
from interlock.kernel.workflow_graph import Template
from interlock.store.acts import events_here
from interlock.store.lanes import Lane, LaneOrLimits, Lanes, remember
from interlock.store.queries.snapshots import LEASES_US, newest_events
from interlock.store.query import BoundQuery, Query, select
from interlock.store.unit_of_work import UnitOfWork

OVERDUE = select(
    Unit, "WHERE tenant = :tenant AND wake_at IS NOT NULL AND wake_at <= :now ORDER BY wake_at, id LIMIT :limit {skip}"
)
# What is held under a lease that is over. The lease's own row is not locked: whoever has the unit writes it.
EXPIRED = select(
    Unit,
    "JOIN lease ON lease.unit = unit.id AND lease.id = unit.lease_id WHERE lease.tenant = :tenant AND ended_at IS NULL "
    "AND until <= :now ORDER BY until, lease.unit LIMIT :limit {skip_unit}",
)
TOKENS_BACK = select(Token, "WHERE tenant = :tenant AND back_at <= :now ORDER BY back_at LIMIT :limit {skip}")
WORKER_UNLOCKED, UNIT_UNLOCKED = select(Worker, "WHERE unit = :unit"), select(Unit, "WHERE id = :id")
OPEN_CHILDREN = select(Unit, "WHERE parent = :parent AND outcome IS NULL ORDER BY id {lock}")
LAST_CHILD = select(Unit, "WHERE parent = :parent ORDER BY id DESC LIMIT 1 {lock}")
NOTES_NAMED = select(Note, "WHERE unit {ids} AND kind = :kind")
COMPENSATIONS = select(Note, "WHERE unit {ids} AND kind = 'compensation' ORDER BY unit, id DESC")
REMEMBERED = select(Note, "WHERE unit {ids} AND kind IN ('checkpoint', 'step') ORDER BY id")
ARTIFACT = select(Artifact, "WHERE unit = :unit AND attempt = :attempt AND name = :name")
# In the order of the index.
INCARNATIONS = select(Worker, "WHERE tenant = :tenant AND name = :name ORDER BY incarnation {lock}")
WITH_KEYS = select(Body, "WHERE tenant = :tenant AND task = :task AND key {ids}")
SLOT = select(Slot, "WHERE tenant = :tenant AND key = :key {lock}")
DUE_SCHEDULES = select(
    Schedule,
    "WHERE tenant = :tenant AND next_at IS NOT NULL AND next_at <= :now ORDER BY next_at, name LIMIT :limit {skip}",
)
SCHEDULE = select(Schedule, "WHERE tenant = :tenant AND name = :name {lock}")
NEWEST_TEMPLATE = select(Template, "WHERE tenant = :tenant AND name = :name ORDER BY version DESC LIMIT 1")
TEMPLATE = select(Template, "WHERE tenant = :tenant AND name = :name AND version = :version")
ANSWER = select(Answer, "WHERE tenant = :tenant AND scope = :scope AND key = :key")
KEYS_AT_ONCE, PARKED_AT_ONCE = 500, 4
# In one question with the limits of their tenant, which are asked for as often, and which few tenants have.
LANES = Query(
    """
SELECT id, queue, capabilities, NULL, NULL FROM lane WHERE id > :last AND id <= :end
UNION ALL SELECT 0, '', '', max_running, max_waiting FROM tenant
WHERE id = :tenant AND (max_running IS NOT NULL OR max_waiting IS NOT NULL)
""",
    LaneOrLimits,
)


def overdue(tx: UnitOfWork, limit: int) -> list[Unit]:
    """Units of a tenant that time must look at, by their clocks or their leases', the longest overdue first."""
    by_clock = in_turn(tx, OVERDUE, limit, lambda unit: passed(tx, unit.wake_at), tenant=tx.tenant)
    by_lease = in_turn(tx, EXPIRED, limit, lambda unit: lease_passed(tx, unit), tenant=tx.tenant)
    found = {unit.id: unit for unit in (*by_clock, *by_lease)}
    return sorted(found.values(), key=lambda unit: (next_clock(unit), unit.id))[:limit]


def passed(tx: UnitOfWork, at: int | None) -> bool:
    return at is not None and at <= tx.now


def lease_passed(tx: UnitOfWork, unit: Unit) -> bool:
    return unit.holder is not None and passed(tx, unit.lease_until)


def next_clock(unit: Unit) -> int:
    """When time must look at a unit: the earliest of its clocks, its lease's among them."""
    clocks = [unit.wake_at, unit.lease_until if unit.holder is not None else None]
    return min(at for at in clocks if at is not None)


def in_turn(tx: UnitOfWork, query: Query[Unit], wanted: int, still: Callable[[Unit], bool], **given: int) -> list[Unit]:
    """The first rows of an ordered question that are still an answer: all that are there, or `wanted` and maybe more.

    The database has not seen what this transaction did, so it answers with what was taken already. It is asked for
    twice as much then: what a group reads stays in proportion to what it takes.
    """
    name = (query, *given.values())
    asked, read = tx.asked.get(name, (0, []))
    while True:
        found = [unit for unit in read if still(unit)]
        if len(found) >= wanted or len(read) < asked:
            return found
        asked = max(wanted, 2 * asked)
        read = tx.known(tx.run(query.bind(limit=asked, **given)))
        tx.asked[name] = (asked, read)


def lanes_of(tx: UnitOfWork, tenant: int) -> Lanes:
    """The lanes of a tenant, as this transaction sees them."""
    memory = tx.cache.lanes
    if tenant not in tx.lanes:
        tx.lanes[tenant] = memory.get(tenant) or Lanes(tenant)
        if read_lanes(tx, tx.lanes[tenant]):
            remember(memory, tenant, tx.lanes[tenant])
    return tx.lanes[tenant]


def read_lanes(tx: UnitOfWork, known: Lanes) -> bool:
    """Lanes that were made since are known too; answers whether there were any. Their tenant's limits are, too."""
    found = tx.run(new_lanes(known))
    fresh = sorted(Lane(*row[:3]) for row in found if row.id)
    tx.limits[known.tenant] = next((row[3:] for row in found if not row.id), (None, None))
    known.extend(fresh)
    return bool(fresh)


def new_lanes(known: Lanes) -> BoundQuery[LaneOrLimits]:
    """The query for lanes that were made since, and for the limits of their tenant."""
    return LANES.bind(last=known.last, end=known.end, tenant=known.tenant)


def lane_for(tx: UnitOfWork, tenant: int, queue: str, capabilities: Iterable[str]) -> int:
    """The lane of a queue and a set of demands, made if there is none yet."""
    asked = ",".join(sorted(capabilities)) if capabilities else ""
    while (queue, asked) not in lanes_of(tx, tenant).ids:
        make_lane(tx, tenant, queue, asked)
    return lanes_of(tx, tenant).ids[queue, asked]


def make_lane(tx: UnitOfWork, tenant: int, queue: str, capabilities: str) -> None:
    """A lane is made, unless somebody else has just made it or taken its number: theirs is known then."""
    if tx.lanes[tenant] is tx.cache.lanes.get(tenant):
        tx.lanes[tenant] = Lanes(tenant, tx.lanes[tenant].lanes)  # what may be rolled back is not remembered
    known = tx.lanes[tenant]
    if not known.lanes:
        ensure_tenant(tx, tenant)
    lane = Lane(known.last + 1, queue, capabilities)
    values = "(:id, :tenant, :queue, :capabilities) ON CONFLICT DO NOTHING RETURNING id"
    sql = f"INSERT INTO lane (id, tenant, queue, capabilities) VALUES {values}"
    if tx.connection.rows(sql, {**lane._asdict(), "tenant": tenant}):
        known.extend([lane])
    else:
        read_lanes(tx, known)


def ensure_tenant(tx: UnitOfWork, tenant: int) -> None:
    """The tenant has a row: whoever lets time pass finds the tenants by that."""
    sql = "INSERT INTO tenant (id, name, created_at) VALUES (:id, :name, :now) ON CONFLICT DO NOTHING"
    tx.connection.rows(sql, {"id": tenant, "name": f"tenant-{tenant}", "now": tx.now})


def held_by(tx: UnitOfWork, worker: int) -> list[Unit]:
    """What a worker holds, locked, as this transaction knows it."""
    sql = "SELECT unit FROM lease WHERE tenant = :tenant AND worker = :worker AND ended_at IS NULL ORDER BY unit"
    tx.load(one for (one,) in tx.connection.rows(sql, {"tenant": tx.tenant, "worker": worker}))
    return sorted((unit for unit in tx.units.values() if unit.holder == worker), key=lambda unit: unit.id)


def open_children(tx: UnitOfWork, parent: int) -> list[Unit]:
    """The children of a unit that have not ended, locked in the order of their ids."""
    if parent not in tx.born:  # else the database knows none of them
        tx.known(tx.run(OPEN_CHILDREN.bind(parent=parent)))
    mine = [unit for unit in tx.children.get(parent, {}).values() if unit.outcome is None]
    return sorted(mine, key=lambda unit: unit.id)


def last_child(tx: UnitOfWork, parent: int) -> Unit | None:
    """The youngest child of a unit, locked."""
    found = tx.known(tx.run(LAST_CHILD.bind(parent=parent)))
    return found[0] if found else None


def has_note(tx: UnitOfWork, unit: int, kind: str, name: str) -> bool:
    """Whether a unit has such a note, also one that this transaction has just made."""
    look_for_notes(tx, kind, name, [unit])
    return tx.noted[unit, kind, name]


def find_askers(tx: UnitOfWork, units: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Who asked these units to stop, why and when; the last one who did."""
    sql = "SELECT unit, payload, at FROM note WHERE unit {ids} AND kind = 'cancel_requested' ORDER BY id"
    found = {}
    for unit, payload, at in tx.connection.rows(sql, {"ids": list(units)}):
        try:
            stamp = msgspec.json.decode(payload, type=dict[str, str | None])
        except msgspec.MsgspecError:
            continue  # a note that somebody damaged keeps nothing from being cancelled
        found[unit] = {"by": stamp.get("actor") or "", "reason": stamp.get("reason") or "", "at": at}
    return found


def look_for_notes(tx: UnitOfWork, kind: str, name: str, units: Iterable[int]) -> None:
    """It is known which of these units have such a note."""
    unknown = sorted({unit for unit in units if (unit, kind, name) not in tx.noted})
    if unknown:
        sql = "SELECT unit FROM note WHERE unit {ids} AND kind = :kind AND name = :name"
        found = {unit for (unit,) in tx.connection.rows(sql, {"ids": unknown, "kind": kind, "name": name})}
        tx.noted |= {(unit, kind, name): unit in found for unit in unknown}


def notes_named(tx: UnitOfWork, units: list[int], kind: str) -> list[Note]:
    """The notes of one kind that these units have, this transaction's included."""
    if not units:
        return []
    here = [row for row in tx.fresh if isinstance(row, Note) and row.kind == kind and row.unit in units]
    found = tx.run(NOTES_NAMED.bind(ids=units, kind=kind))
    return sorted([*found, *here], key=lambda note: note.id)


def submitter(tx: UnitOfWork, unit: int) -> str:
    """Who made a unit."""
    here = [event for event in events_here(tx, unit) if event.version == 1]
    if here:
        return here[0].actor
    found = tx.connection.rows(
        "SELECT actor FROM act JOIN unit ON unit.born = act.id WHERE unit.id = :unit", {"unit": unit}
    )
    return found[0][0] if found else ""


def compensations(tx: UnitOfWork, units: list[int]) -> list[Note]:
    """What would undo the work of these units, the last first."""
    if not units:
        return []
    return tx.run(COMPENSATIONS.bind(ids=units))


def remembered(tx: UnitOfWork, units: list[int]) -> dict[int, tuple[str | None, dict[str, str]]]:
    """What earlier attempts of these units left for later ones: the last checkpoint, and the results of steps."""
    if not units:
        return {}
    notes = tx.run(REMEMBERED.bind(ids=units))
    notes += [row for row in tx.fresh if isinstance(row, Note) and row.unit in units]
    found: dict[int, tuple[str | None, dict[str, str]]] = {}
    for note in notes:
        checkpoint, steps = found.get(note.unit, (None, {}))
        if note.kind == "checkpoint":
            found[note.unit] = note.payload, steps
        elif note.kind == "step":
            found[note.unit] = checkpoint, {**steps, note.name: note.payload}
    return found


def has_artifact(tx: UnitOfWork, unit: int, attempt: int, name: str) -> bool:
    """Whether an attempt has an artifact of that name, also one that this transaction has just made."""
    here = [row for row in tx.fresh if isinstance(row, Artifact)]
    if any((one.unit, one.attempt, one.name) == (unit, attempt, name) for one in here):
        return True
    return bool(tx.run(ARTIFACT.bind(unit=unit, attempt=attempt, name=name)))


def closing_event(tx: UnitOfWork, unit: Unit) -> Event | None:
    """The last hop of the lease that a unit had last."""
    here = [event for event in events_here(tx, unit.id) if event.fence == unit.fence and event.lease_to]
    if here:
        return here[-1]
    events = newest_events(tx.connection, unit.id, unit.version)
    return next((event for event in events if event.fence == unit.fence and event.lease_to), None)


def last_grant(tx: UnitOfWork, unit: Unit) -> Event | None:
    """The event by which a unit was last leased."""
    here = [event for event in events_here(tx, unit.id) if event.lease_to and not event.lease_from]
    if here:
        return here[-1]
    events = newest_events(tx.connection, unit.id, unit.version)
    return next((event for event in events if event.lease_to and not event.lease_from), None)


def unlocked(tx: UnitOfWork, worker: int) -> tuple[Worker | None, Unit | None]:
    """A worker and its unit as they are now; others may change them."""
    workers, units = tx.run(WORKER_UNLOCKED.bind(unit=worker)), tx.run(UNIT_UNLOCKED.bind(id=worker))
    return next(iter(workers), None), next(iter(units), None)


def incarnations(tx: UnitOfWork, tenant: int, name: str) -> list[Worker]:
    """Every worker that ever had a name, locked."""
    found = sorted(tx.run(INCARNATIONS.bind(tenant=tenant, name=name)), key=lambda worker: worker.unit)
    return [tx.workers.setdefault(worker.unit, worker) for worker in found]


def with_keys(tx: UnitOfWork, tenant: int, task: str, keys: Iterable[str]) -> None:
    """What this transaction must know of a task's keys, it knows."""
    unknown = sorted({key for key in keys if (tenant, task, key) not in tx.keyed})
    for start in range(0, len(unknown), KEYS_AT_ONCE):
        some = unknown[start : start + KEYS_AT_ONCE]
        tx.keyed |= {(tenant, task, key): None for key in some}
        for body in tx.run(WITH_KEYS.bind(tenant=tenant, task=task, ids=some)):
            tx.keyed[tenant, task, body.key or ""] = tx.bodies.setdefault(body.unit, body)


def with_key(tx: UnitOfWork, tenant: int, task: str, key: str) -> Body | None:
    """The body of the unit that a task has under a key, also one that this transaction has just made."""
    with_keys(tx, tenant, task, [key])
    return tx.keyed[tenant, task, key]


def slot_for(tx: UnitOfWork, tenant: int, key: str, capacity: int = 1) -> Slot:
    """The slots of a key, locked; if it is new, so many."""
    if (tenant, key) not in tx.slots:
        named = {"tenant": tenant, "key": key}
        first = "INSERT INTO slot (tenant, key, capacity, taken) VALUES (:tenant, :key, :capacity, 0)"
        tx.connection.rows(f"{first} ON CONFLICT DO NOTHING", {**named, "capacity": capacity})
        (tx.slots[tenant, key],) = tx.run(SLOT.bind(**named))
    return tx.slots[tenant, key]


def parked(tx: UnitOfWork, tenant: int, key: str) -> Unit | None:
    """The most urgent unit that is parked on a key, locked.

    Not skipping what others have locked: a unit that is passed over now would never be offered the key again.
    """
    rest = "WHERE tenant = :tenant AND parked_on = :key ORDER BY priority DESC, id LIMIT :limit"
    limit = PARKED_AT_ONCE
    while True:
        found = tx.connection.rows(f"SELECT id FROM unit {rest}", {"tenant": tenant, "key": key, "limit": limit})
        tx.lock([one for (one,) in found])
        here = [unit for unit in tx.units.values() if (unit.tenant, unit.parked_on) == (tenant, key)]
        if here or len(found) < limit:
            return min(here, key=lambda unit: (-unit.priority, unit.id), default=None)
        limit *= 2  # all of them are parked no more, as far as this transaction knows


def tokens_back(tx: UnitOfWork, limit: int) -> list[Token]:
    """Tokens of a tenant that are back, at most so many: they are taken out, and whoever calls gives them away.

    Once a transaction: the time stands still in it.
    """
    if ("tokens", tx.tenant) in tx.looked:
        return []
    tx.looked.add(("tokens", tx.tenant))
    found = tx.run(TOKENS_BACK.bind(tenant=tx.tenant, limit=limit))
    if found:
        gone = [{"unit": token.unit, "fence": token.fence} for token in found]
        tx.connection.many("DELETE FROM token WHERE unit = :unit AND fence = :fence", gone)
    return found


def due_schedules(tx: UnitOfWork, limit: int) -> list[Schedule]:
    """Schedules of a tenant that have an instant to look at, locked, the longest overdue first."""
    found = tx.run(DUE_SCHEDULES.bind(tenant=tx.tenant, limit=limit))
    known = [tx.schedules.setdefault((row.tenant, row.name), row) for row in found]
    return [row for row in known if row.next_at is not None and row.next_at <= tx.now]


def known_schedule(tx: UnitOfWork, tenant: int, name: str) -> Schedule | None:
    """A schedule by its name, locked, if there is one."""
    if (tenant, name) not in tx.schedules:
        for row in tx.run(SCHEDULE.bind(tenant=tenant, name=name)):
            tx.schedules[tenant, name] = row
    return tx.schedules.get((tenant, name))


def schedule_named(tx: UnitOfWork, tenant: int, name: str) -> Schedule:
    """A schedule by its name, locked; raises Unknown, which says which there are. One that was removed is none."""
    found = known_schedule(tx, tenant, name)
    if found is None or found.removed_at is not None:
        sql = "SELECT name FROM schedule WHERE tenant = :tenant AND removed_at IS NULL ORDER BY name LIMIT 10"
        there = {one for (one,) in tx.connection.rows(sql, {"tenant": tenant})}
        there -= {one for (whose, one), row in tx.schedules.items() if whose == tenant and row.removed_at is not None}
        names = ", ".join(sorted(there))
        gone = f"schedule '{name}' was removed" if found else f"there is no schedule '{name}'"
        raise Unknown(f"{gone}; there are {names or 'none'}")
    return found


def template_of(tx: UnitOfWork, tenant: int, name: str, version: int | None = None) -> Template | None:
    """One version of a template, or the newest, also one that this transaction has just made."""
    key = (tenant, name, version)
    if key not in tx.templates:
        if version is None:
            found = tx.run(NEWEST_TEMPLATE.bind(tenant=tenant, name=name))
        else:
            found = tx.run(TEMPLATE.bind(tenant=tenant, name=name, version=version))
        tx.templates[key] = found[0] if found else None
    return tx.templates[key]


def results_below(tx: UnitOfWork, parents: list[int]) -> list[tuple[int, str, str | None]]:
    """Children of these units that have succeeded: the parent, what each promised, and what it came to."""
    if not parents:
        return []
    sql = "SELECT unit.parent, body.policy, body.result FROM unit JOIN body ON body.unit = unit.id"
    where = f"WHERE unit.parent {{ids}} AND unit.outcome = '{Category.SUCCESS}' ORDER BY unit.id"
    return [
        (parent, policy, result) for parent, policy, result in tx.connection.rows(f"{sql} {where}", {"ids": parents})
    ]


def answer_to(tx: UnitOfWork, tenant: int, scope: str, key: str) -> Answer | None:
    """What a command under a key was answered, also by this transaction."""
    if (tenant, scope, key) not in tx.answers:
        found = tx.run(ANSWER.bind(tenant=tenant, scope=scope, key=key))
        if not found:
            return None
        tx.answers[tenant, scope, key] = found[0]
    return tx.answers[tenant, scope, key]


def forget_answer(tx: UnitOfWork, old: Answer) -> None:
    """An answer that has expired makes room for another under its key; one that others keep meanwhile stays."""
    named = {"tenant": old.tenant, "scope": old.scope, "key": old.key, "now": tx.now}
    where = "tenant = :tenant AND scope = :scope AND key = :key AND expires <= :now"
    tx.connection.rows(f"DELETE FROM answer WHERE {where}", named)


def forget_expired(tx: UnitOfWork, limit: int) -> int:
    """Notes, answers and skipped instants whose time has come are gone, at most `limit` of each."""
    gone = 0
    for table, key in (("note", "id"), ("answer", "key"), ("skipped", "id")):
        due = f"SELECT {key} FROM {table} WHERE expires <= :now AND tenant = :tenant ORDER BY expires LIMIT :limit"
        sql = f"DELETE FROM {table} WHERE tenant = :tenant AND expires <= :now AND {key} IN ({due}) RETURNING 1"
        gone += len(tx.connection.rows(sql, {"now": tx.now, "tenant": tx.tenant, "limit": limit}))
    return gone + forget_leases(tx, limit)


def forget_leases(tx: UnitOfWork, limit: int) -> int:
    """Leases that ended a day ago are gone: whoever says something under one of them is not known any more."""
    due = "SELECT unit, id FROM lease WHERE tenant = :tenant AND ended_at <= :before ORDER BY ended_at LIMIT :limit"
    sql = f"DELETE FROM lease WHERE (unit, id) IN ({due}) RETURNING 1"
    return len(tx.connection.rows(sql, {"tenant": tx.tenant, "before": tx.now - LEASES_US, "limit": limit}))
