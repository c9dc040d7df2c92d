"""Queries of the fast path: many plain units at once.

Nothing but what an act and an answer need is read, and no row becomes an object. What these questions leave out is no
business of the fast path: the verbs decide about it, unit by unit.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from interlock.kernel.rows import WorkerRow
from interlock.store.connection import Connection
from interlock.store.query import BoundQuery, Query, list_columns
from interlock.store.unit_of_work import WITH_LEASES

LANES_MAX = 64  # that one question looks into
COLUMNS = "id, act, lifecycle, state, version, attempt, priority, available_at"
# Whose first grant changes nothing but the unit itself, and whose clock is not ahead of the store's.
FITS = (
    "plain = 1 AND fence = 0 AND wake_at IS NULL AND due_at IS NULL AND asked_at IS NULL "
    "AND changed_at <= :now AND available_at <= :now AS fits"
)
URGENCY = "ORDER BY priority DESC, available_at, id"
WITH_BODIES = f"""
SELECT {", ".join(f"picked.{name}" for name in COLUMNS.split(", "))},
       body.task, body.input, body.correlation, body.trace, body.policy
FROM {{picked}} AS picked LEFT JOIN body ON body.unit = picked.id AND picked.fits
"""
IN_LANE = f"""
(SELECT {COLUMNS}, {FITS} FROM unit
  WHERE lane = {{lane}} AND available_at IS NOT NULL {URGENCY} LIMIT {{limit}} {{skip}})
"""
# The first units of each lane, of which the most urgent are taken: no lane is read further than that.
HEADS = f"SELECT lane, id FROM ({{heads}} {URGENCY} LIMIT :limit) AS first"
HEAD = f"""
SELECT * FROM (SELECT lane, priority, available_at, id FROM unit
                WHERE lane = :lane{{place}} AND available_at IS NOT NULL {URGENCY} LIMIT :limit) AS head{{place}}
"""
# Rows that others have locked are passed over lane by lane, so that claims do not wait for each other.
LOCKED = """
(WITH share AS (SELECT lane, count(*) AS number FROM ({heads}) AS heads GROUP BY lane)
 SELECT lane_picked.* FROM share CROSS JOIN LATERAL {in_lane} AS lane_picked)
"""
UNLOCKED = f"""
(SELECT {COLUMNS}, {FITS} FROM unit WHERE id IN (SELECT id FROM ({{heads}})) {URGENCY})
"""
# Held by somebody whose success is all that there is to it.
# The row of its lease is not locked: whoever renews it has the unit.
HELD = """
SELECT lifecycle, state, lease, version, attempt, fence, holder, until, ttl, beat,
       {list:id}, {list:act}, {list:lease_id}, {list:secret}
FROM (
    SELECT unit.id, unit.act, unit.lifecycle, unit.state, unit.lease, unit.lease_id, unit.version, unit.attempt,
           unit.fence, unit.holder, coalesce(own.until, shared.until) AS until, coalesce(own.ttl, shared.ttl) AS ttl,
           coalesce(own.beat, shared.beat) AS beat, unit.lease_hash AS secret
      FROM WITH_LEASES
     WHERE unit.id {ids} AND unit.tenant = :tenant AND unit.plain = 1 AND unit.failures = 0
       AND unit.asked_at IS NULL AND unit.changed_at <= :now AND coalesce(own.until, shared.until) > :now
     ORDER BY unit.id {lock_unit}) AS held
GROUP BY lifecycle, state, lease, version, attempt, fence, holder, until, ttl, beat
""".replace("WITH_LEASES", WITH_LEASES)


# Held by somebody who has not begun yet, and whose beginning concerns nobody else.
STARTABLE = """
SELECT unit.id, unit.act, unit.lifecycle, unit.state, unit.lease, unit.lease_id, unit.version, unit.attempt, unit.fence,
       coalesce(own.until, shared.until), coalesce(own.ttl, shared.ttl), coalesce(own.beat, shared.beat),
       unit.lease_hash, body.policy
  FROM WITH_LEASES JOIN body ON body.unit = unit.id
 WHERE unit.id {ids} AND unit.tenant = :tenant AND unit.plain = 1 AND unit.failures = 0 AND unit.asked_at IS NULL
   AND unit.started_at IS NULL AND unit.wake_at IS NULL AND unit.changed_at <= :now
   AND coalesce(own.until, shared.until) > :now
 ORDER BY unit.id {lock_unit}
""".replace("WITH_LEASES", WITH_LEASES)


class Claimable(NamedTuple):
    """A unit that a claim has locked. Without a task it is none for the fast path."""

    id: int
    act: int  # that moved it last
    lifecycle: str
    state: str
    version: int
    attempt: int
    priority: int
    available_at: int
    task: str | None
    input: str
    correlation: str
    trace: str
    policy: str


class Startable(NamedTuple):
    """A held unit that has not begun."""

    id: int
    act: int
    lifecycle: str
    state: str
    lease: str  # its state
    lease_id: int
    version: int
    attempt: int
    fence: int
    until: int
    ttl: int
    beat: int
    secret: str  # the hash of it
    policy: str


class HeldGroup:
    """Held units that are in the same place under like leases: what one act can end."""

    def __init__(
        self, lifecycle: str, state: str, lease: str, version: int, attempt: int, fence: int, holder: int, until: int,
        ttl: int, beat: int, ids: str, acts: str, leases: str, secrets: str,
    ) -> None:  # fmt: skip
        """The last four are lists in one text, because that costs a database and a driver least."""
        self.lifecycle, self.state, self.lease = lifecycle, state, lease
        self.version, self.attempt, self.fence, self.holder = version, attempt, fence, holder
        self.until, self.ttl, self.beat = until, ttl, beat
        numbers = (map(int, ids.split(",")), map(int, acts.split(",")), map(int, leases.split(",")))
        self.units = sorted(zip(*numbers, secrets.split(","), strict=True))  # id, act, lease, hash of its secret


class WorkerPlace(NamedTuple):
    """A worker, and the place from which its unit may move."""

    row: WorkerRow
    state: str
    version: int
    attempt: int
    fence: int
    act: int
    changed_at: int
    deadline_at: int | None


def make_worker_place(*values: Any) -> WorkerPlace:
    """A worker's place from the values of its unit, and those of its row behind them."""
    own = len(WorkerPlace._fields) - 1
    return WorkerPlace(WorkerRow(*values[own:]), *values[:own])


HELD_GROUPS = Query(HELD, HeldGroup)
WORKER_PLACE = (
    f"SELECT {', '.join(f'unit.{name}' for name in WorkerPlace._fields[1:])}, {list_columns(WorkerRow)} "
    "FROM worker {by_key:worker} JOIN unit ON unit.id = worker.unit WHERE worker.unit = :unit"
)
WORKER_LOCKED = Query(f"{WORKER_PLACE} {{lock}}", make_worker_place)
WORKER_UNLOCKED = Query(WORKER_PLACE, make_worker_place)
STARTABLES = Query(STARTABLE, Startable)
WRONGLY_PLAIN = """
SELECT unit.id FROM unit JOIN body ON body.unit = unit.id
WHERE unit.plain = 1 AND unit.outcome IS NULL AND (
    unit.parent IS NOT NULL OR unit.total > 0 OR unit.unmet > 0 OR unit.decides = 0 OR body.mutex IS NOT NULL
    OR body.limit_key IS NOT NULL OR body.rate_key IS NOT NULL OR body.retry_of IS NOT NULL
    OR EXISTS (SELECT 1 FROM need WHERE need.needs = unit.id) OR EXISTS (SELECT 1 FROM need WHERE need.unit = unit.id)
    OR EXISTS (SELECT 1 FROM unit AS child WHERE child.parent = unit.id))
ORDER BY unit.id
"""


@cache
def build_claimable(lanes: int, many_writers: bool) -> Query[Claimable]:
    """The question for the most urgent units of so many lanes."""
    if lanes == 1:
        picked = IN_LANE.replace("{lane}", ":lane0").replace("{limit}", ":limit")
    else:
        heads = HEADS.replace("{heads}", " UNION ALL ".join(HEAD.format(place=place) for place in range(lanes)))
        in_lane = IN_LANE.replace("{lane}", "share.lane").replace("{limit}", "share.number")
        picked = (LOCKED if many_writers else UNLOCKED).replace("{heads}", heads).replace("{in_lane}", in_lane)
    return Query(WITH_BODIES.replace("{picked}", picked), Claimable)


def bind_claimable(lanes: Sequence[int], limit: int, *, many_writers: bool) -> BoundQuery[Claimable]:
    """The question for what a claim may take of these lanes; at most `LANES_MAX` of them."""
    names = {f"lane{place}": lane for place, lane in enumerate(lanes)}
    return build_claimable(len(lanes), many_writers).bind(limit=limit, **names)


def find_wrongly_plain(connection: Connection) -> list[int]:
    """Open units that are said to be plain, and something follows from their moves."""
    return [unit for (unit,) in connection.rows(WRONGLY_PLAIN)]


def bind_held_groups(units: Sequence[int], tenant: int) -> BoundQuery[HeldGroup]:
    """The question for those of these units that are plain and held, by what one act can end; it locks them."""
    return HELD_GROUPS.bind(ids=list(units), tenant=tenant)


def bind_startables(units: Sequence[int], tenant: int) -> BoundQuery[Startable]:
    """The question for those of these units that are plain, held and have not begun; it locks them."""
    return STARTABLES.bind(ids=list(units), tenant=tenant)
