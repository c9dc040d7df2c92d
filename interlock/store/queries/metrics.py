"""Queries of the counters that all processes share, and of gauges."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from interlock.kernel.commands import Count, CountEvents, Position
from interlock.kernel.lifecycle import Category, Lifecycle
from interlock.kernel.metrics import MOVES, RENEWALS, TYPE, ObservedEvent, encode_labels, sum_events
from interlock.kernel.minute_metrics import sum_minutes
from interlock.store.acts import ACT_BITS
from interlock.store.cache import NUMBERS
from interlock.store.connection import Connection
from interlock.store.queries.minute_metrics import add_minutes, list_minutes
from interlock.store.queries.snapshots import IN_ORDER, read_epoch, read_horizon
from interlock.store.unit_of_work import UnitOfWork

PAGE = 2_000  # events that are counted together
# Ids of acts from one transaction to the next.
ACTS_APART = {"sqlite": 1, "postgres": 1 << ACT_BITS}
IDLE = 100_000  # transactions; so far may a tenant that does nothing stay behind
LANES_MOST, DEPTH_MOST, PRIORITIES_MOST = 1_000, 100_000, 100
FEW = 1_000  # units of a lane that are looked at to find the oldest
WORKERS_MOST = 100  # told apart; programs choose their names
HELD_MOST = 10_000  # live leases that are counted by queue
LAST = 2**62
ADD = """
INSERT INTO tally (tenant, name, labels, value) VALUES (:tenant, :name, :labels, :value)
ON CONFLICT (tenant, name, labels) DO UPDATE SET value = tally.value + excluded.value
"""
BEGIN_AT = """
INSERT INTO tallied (tenant, epoch, act, place) VALUES (:tenant, :epoch, :act, :place) ON CONFLICT (tenant) DO NOTHING
"""
MOVE_ON = "UPDATE tallied SET epoch = :epoch, act = :act, place = :place WHERE tenant = :tenant"
# What comes with an event is looked up for those alone that need it, each by its key.
EVENTS = """
SELECT told.act, told.place, told.lifecycle, told.trigger, told.source, told.target, told.lease_from, told.lease_to,
       told.at, told.payload, (SELECT task FROM body WHERE body.unit = told.unit),
       CASE WHEN told.lease_from IS NULL AND told.lease_to IS NOT NULL THEN ({before}) END,
       CASE WHEN told.lease_to IN ({ends}) THEN ({began}) END,
       CASE WHEN told.lease_to IS NOT NULL AND (told.lease_from IS NULL OR told.lease_to IN ({ends})) THEN (
           SELECT lane.queue FROM unit JOIN lane ON lane.id = unit.lane WHERE unit.id = told.unit) END
FROM journal AS told WHERE told.tenant = :tenant AND (told.act, told.place) > (:act, :place) AND told.act >= :act
AND told.act < :horizon ORDER BY {order} LIMIT :limit
"""
# When the event before it was, and when its lease began to be used: found from its act back, however much lies before.
# OFFSET 0 keeps PostgreSQL from reading all acts instead: it thinks that a walk is longer than it is.
BEFORE = {
    "sqlite": """
SELECT act.at FROM member CROSS JOIN act ON act.id = member.act
WHERE member.unit = told.unit AND member.version < told.version - 1 ORDER BY member.version DESC LIMIT 1
""",
    "postgres": """
SELECT coalesce(CASE WHEN own.version = told.version - 1 THEN (
    SELECT act.at FROM act WHERE act.id = own.before[array_position(own.units, told.unit)]) END, told.at)
FROM act AS own WHERE own.id = told.act
""",
}
BEGAN = {
    "sqlite": """
SELECT act.at FROM member CROSS JOIN act ON act.id = member.act CROSS JOIN path_hop AS hop ON hop.path = act.path
WHERE member.unit = told.unit AND member.version < told.version AND act.version + hop.place <= told.version
AND hop.lease_to = :active AND act.fence + hop.fence = told.fence ORDER BY member.version DESC LIMIT 1
""",
    "postgres": """
WITH RECURSIVE walk AS (
    SELECT act.at, act.path, act.version, act.fence, act.before[array_position(act.units, told.unit)] AS came_from
    FROM act WHERE act.id = told.act
    UNION ALL
    SELECT act.at, act.path, act.version, act.fence, act.before[array_position(act.units, told.unit)]
    FROM walk CROSS JOIN LATERAL (SELECT * FROM act WHERE act.id = walk.came_from OFFSET 0) AS act
    WHERE walk.fence >= told.fence)
SELECT max(walk.at) FROM walk JOIN path_hop AS hop ON hop.path = walk.path
WHERE hop.lease_to = :active AND walk.fence + hop.fence = told.fence AND walk.version + hop.place <= told.version
""",
}
# Lanes are found one after the other in the index; what waits in each is counted there, as far as that is told.
DEPTHS = """
WITH RECURSIVE served (lane, place) AS (
    SELECT (
        SELECT min(unit.lane) FROM unit
        WHERE unit.lane > :first AND unit.lane < :end AND available_at IS NOT NULL
    ), 1
    UNION ALL
    SELECT (
        SELECT min(unit.lane) FROM unit
        WHERE unit.lane > served.lane AND unit.lane < :end AND available_at IS NOT NULL
    ), place + 1
    FROM served WHERE served.lane IS NOT NULL AND place < :lanes
)
SELECT served.lane, lane.queue,
    (SELECT count(*) FROM (
        SELECT 1 FROM unit WHERE unit.lane = served.lane AND available_at IS NOT NULL
        ORDER BY priority DESC, available_at, unit.id LIMIT :most) AS waits),
    (SELECT min(available_at) FROM (
        SELECT available_at FROM unit WHERE unit.lane = served.lane AND available_at IS NOT NULL
        ORDER BY priority DESC, available_at, unit.id LIMIT :few) AS first_few)
FROM served JOIN lane ON lane.id = served.lane
"""
HELD = """
SELECT lane.queue, count(*) FROM
    (SELECT unit FROM live_lease WHERE tenant = :tenant ORDER BY worker, unit LIMIT :most) AS held
JOIN unit ON unit.id = held.unit JOIN lane ON lane.id = unit.lane GROUP BY lane.queue
"""
FIRST = """
SELECT priority, available_at FROM unit WHERE lane = :lane AND available_at IS NOT NULL AND priority < :below
ORDER BY priority DESC, available_at LIMIT 1
"""


class Depth(msgspec.Struct, frozen=True):
    """How much waits in a queue, and since when the oldest does."""

    queue: str
    units: int
    oldest_at: int


class MeasuredWorker(msgspec.Struct, frozen=True):
    """How much a worker that has not shut down holds and may hold, and how many leases it has ended itself."""

    name: str
    holding: int
    places: int
    completions: int


class Gauges(msgspec.Struct, frozen=True):
    """What is so at this instant."""

    now: int
    depths: list[Depth]
    dead: int
    held: int
    workers: int
    renewals: int
    loads: list[MeasuredWorker] = []  # of the workers that were heard last


def read_position(connection: Connection, tenant: int) -> Position:
    """Up to where a tenant was counted; from the beginning, if it was in another store."""
    here = read_epoch(connection) or ""
    rows = connection.rows("SELECT epoch, act, place FROM tallied WHERE tenant = :tenant", {"tenant": tenant})
    return Position(*rows[0]) if rows and rows[0][0] == here else Position(here)


def read_next_counts(
    connection: Connection, tenant: int, lifecycles: Mapping[str, Lifecycle]
) -> tuple[CountEvents | None, bool]:
    """What is to be counted next, if there is anything, and whether more comes behind it."""
    after = read_position(connection, tenant)
    end = read_horizon(connection)
    places, events = read_observed_events(connection, tenant, lifecycles["lease"], after, end)
    more = len(events) == PAGE
    upto = Position(after.epoch, *places[-1]) if more else Position(after.epoch, max(end - 1, after.act), LAST)
    counts = sum_events(lifecycles, events, read_types(connection, tenant))
    minutes = list_minutes(connection, tenant, sum_minutes(lifecycles, events))
    far = upto.act - after.act > IDLE * ACTS_APART[connection.name]
    return CountEvents(after=after, upto=upto, counts=counts, minutes=minutes) if counts or far else None, more


def read_observed_events(
    connection: Connection, tenant: int, leases: Lifecycle, after: Position, end: int
) -> tuple[list[tuple[int, int]], list[ObservedEvent]]:
    """The next events behind a position and before the act `end`: where each stands, and what is counted of it."""
    ends = [name for name, state in leases.states.items() if state.settled]
    (active,) = [name for name, state in leases.states.items() if state.category is Category.ACTIVE]
    name = connection.name
    sql = EVENTS.format(
        ends=", ".join(f":e{place}" for place in range(len(ends))),
        before=BEFORE[name], began=BEGAN[name], order=IN_ORDER[name],
    )  # fmt: skip
    given = {
        "tenant": tenant, "act": after.act, "place": after.place, "horizon": end, "limit": PAGE, "active": active,
        **{f"e{place}": name for place, name in enumerate(ends)},
    }  # fmt: skip
    rows = connection.rows(sql, given)
    return [row[:2] for row in rows], [ObservedEvent(*row[2:]) for row in rows]


def read_types(connection: Connection, tenant: int) -> list[str]:
    """The types of work that are told apart."""
    sql = "SELECT labels FROM tally WHERE tenant = :tenant AND name = :name"
    return [msgspec.json.decode(labels)[0] for (labels,) in connection.rows(sql, {"tenant": tenant, "name": TYPE})]


def read_counts(connection: Connection, tenant: int) -> list[tuple[str, list[str], int]]:
    """Everything that was counted of a tenant: the metric, its labels, and how much."""
    sql = "SELECT name, labels, value FROM tally WHERE tenant = :tenant ORDER BY name, labels"
    return decode_counts(connection.rows(sql, {"tenant": tenant}))


def read_moves(connection: Connection, tenant: int) -> list[tuple[str, list[str], int]]:
    """How often units went from one state to another; in the same shape."""
    sql = "SELECT name, labels, value FROM tally WHERE tenant = :tenant AND name = :name"
    return decode_counts(connection.rows(sql, {"tenant": tenant, "name": MOVES}))


def decode_counts(rows: Iterable[Sequence[Any]]) -> list[tuple[str, list[str], int]]:
    """Decodes counters as they are stored."""
    return [(name, msgspec.json.decode(labels), value) for name, labels, value in rows]


def add_event_counts(tx: UnitOfWork, command: CountEvents) -> bool:
    """The counts are added, if the position is still the one that they were taken behind."""
    tenant = {"tenant": command.tenant}
    tx.changes.count += 1
    tx.connection.rows(BEGIN_AT, {**tenant, **msgspec.structs.asdict(command.after)})
    rows = tx.connection.rows("SELECT epoch, act, place FROM tallied WHERE tenant = :tenant {lock}", tenant)
    at = Position(*rows[0])
    if at.epoch != command.after.epoch:  # what was counted in another store counts no more
        tx.connection.rows("DELETE FROM tally WHERE tenant = :tenant AND name <> :kept", {**tenant, "kept": RENEWALS})
        tx.connection.rows("DELETE FROM metric_minute WHERE tenant = :tenant", tenant)
    elif at != command.after:
        return False
    add_metrics(tx, command.tenant, command.counts)
    add_minutes(tx, command.tenant, command.minutes)
    tx.connection.rows(MOVE_ON, {**tenant, **msgspec.structs.asdict(command.upto)})
    return True


def add_metrics(tx: UnitOfWork, tenant: int, counts: Sequence[Count]) -> None:
    """Adds to counters of a tenant."""
    if counts:
        tx.changes.count += 1
        tx.connection.many(ADD, [{"tenant": tenant, **msgspec.structs.asdict(count)} for count in counts])


def write_metrics(tx: UnitOfWork) -> None:
    """What verbs counted themselves is in the database; it is told last, because many add to the same rows."""
    for (tenant, name, label), value in sorted(tx.counters.metrics.items()):
        add_metrics(tx, tenant, [Count(name, encode_labels(label), value)])
    tx.counters.metrics.clear()


def count_renewals(tx: UnitOfWork, ids: Sequence[int]) -> None:
    """What workers have renewed stays counted when they leave the database."""
    sql = "SELECT coalesce(sum(renewals), 0) FROM worker WHERE unit {ids}"
    if renewals := int(tx.connection.rows(sql, {"ids": list(ids)})[0][0]):
        add_metrics(tx, tx.tenant, [Count(RENEWALS, encode_labels(), renewals)])


def read_gauges(connection: Connection, tenant: int) -> Gauges:
    """What waits, is dead and is held now. Lanes beyond the thousandth are left out."""
    own: dict[str, Any] = {"tenant": tenant}
    dead = "SELECT count(*) FROM unit WHERE tenant = :tenant AND dead_at IS NOT NULL"
    category = "(SELECT category FROM unit WHERE unit.id = worker.unit)"
    alive = f"worker.tenant = :tenant AND {category} <> '{Category.CLOSED}'"
    live_workers = f"SELECT count(*), coalesce(sum(holding), 0) FROM worker WHERE {alive}"
    ((workers, held),) = connection.rows(live_workers, own)
    renewals = connection.rows("SELECT coalesce(sum(renewals), 0) FROM worker WHERE tenant = :tenant", own)[0][0]
    return Gauges(
        connection.now(),
        read_depths(connection, tenant),
        connection.rows(dead, own)[0][0],
        int(held),
        workers,
        int(renewals),
        read_loads(connection, tenant, alive),
    )


def read_loads(connection: Connection, tenant: int, alive: str) -> list[MeasuredWorker]:
    """The load of the hundred workers that were heard last, by name; of one name, the one that registered last."""
    sql = (
        f"SELECT name, holding, CASE WHEN concurrency > 0 THEN concurrency ELSE capacity END, completions FROM worker "
        f"WHERE {alive} ORDER BY seen_at DESC, unit DESC LIMIT :limit"
    )
    by_name: dict[str, MeasuredWorker] = {}
    for row in connection.rows(sql, {"tenant": tenant, "limit": WORKERS_MOST}):
        by_name.setdefault(row[0], MeasuredWorker(*row))
    return [by_name[name] for name in sorted(by_name)]


def read_depths(connection: Connection, tenant: int) -> list[Depth]:
    """The queues in which something waits; more than a hundred thousand in a lane are told as so many."""
    by_queue: dict[str, Depth] = {}
    bounds = {"first": tenant * NUMBERS, "end": (tenant + 1) * NUMBERS, "lanes": LANES_MOST}
    for lane, queue, units, oldest_at in connection.rows(DEPTHS, {**bounds, "most": DEPTH_MOST, "few": FEW}):
        if units > FEW:
            oldest_at = find_oldest(connection, lane)
        before = by_queue.get(queue, Depth(queue, 0, LAST))
        by_queue[queue] = Depth(queue, before.units + units, min(before.oldest_at, oldest_at))
    return [by_queue[queue] for queue in sorted(by_queue)]


def count_held_by_queue(connection: Connection, tenant: int) -> dict[str, int]:
    """How many units of each queue workers hold; of more than ten thousand in all, of so many."""
    rows = connection.rows(HELD, {"tenant": tenant, "most": HELD_MOST})
    return {queue: int(count) for queue, count in rows}


def find_oldest(connection: Connection, lane: int) -> int:
    """Since when the oldest unit of a lane waits: the first one of each priority is asked, not every unit."""
    below, at = 2**31, LAST
    for _ in range(PRIORITIES_MOST):
        first = connection.rows(FIRST, {"lane": lane, "below": below})
        if not first:
            break
        below, at = first[0][0], min(at, first[0][1])
    return at
