"""Queries of the audit about the record: paths, acts, leases and seals."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from interlock.kernel.paths import BORN, PathHop
from interlock.kernel.rows import Act, Body, Lease, Seal
from interlock.store.acts import digest_result
from interlock.store.connection import Connection
from interlock.store.queries.snapshots import PAGE, read_pages, read_rows, read_tenant_ids, select_acts
from interlock.store.seals import START
from interlock.store.unit_of_work import WITH_LEASES

# What a trigger derives from what a path tells; the last two are not compared with a field of a path.
DERIVED = (
    "lifecycle", "source", "target", "category", "outcome", "started", "forced", "payload_hop", "opens", "grants",
    "lease_from", "lease_to", "hops", "lease_ends",
)  # fmt: skip
# What the acts that list a unit come to, where its row says something else. The last of them need not have the highest
# id: whoever began first may move last. The acts are gone through once, whatever PostgreSQL believes of their number:
# behind 5,000 births that only `unit` had statistics of, it went through them for each unit, for more than ten minutes.
UNLIKE_ACTS = """
WITH listed AS MATERIALIZED (
    SELECT told.unit, sum(path.hops) AS events,
           max(CASE WHEN told.act = moved.born AND path.source = '' THEN 1 ELSE 0 END) AS bears,
           max(CASE WHEN told.act = moved.act AND told.version + path.hops = moved.version THEN 1 ELSE 0 END) AS moves
    FROM {told} AS told JOIN transition_path AS path ON path.id = told.path JOIN unit AS moved ON moved.id = told.unit
    GROUP BY told.unit)
SELECT unit.id, unit.version, listed.events FROM unit LEFT JOIN listed ON listed.unit = unit.id
WHERE unit.id > :last AND (listed.unit IS NULL OR listed.events <> unit.version OR listed.bears + listed.moves <> 2)
ORDER BY unit.id LIMIT :page
"""
# SQLite finds the acts of a unit by a table of its own, which is in the order of units and is held against the acts.
ACTS_BY_UNIT = {
    "sqlite": "(SELECT unit, act.id AS act, member.version, path FROM member CROSS JOIN act ON act.id = member.act)",
    "postgres": "journal_unit",
}
MEMBERS = "SELECT unit, act, version FROM {one} EXCEPT SELECT unit, act, version FROM {other}"
NO_LEASE = """
SELECT unit.id FROM WITH_LEASES
WHERE unit.id > :last AND unit.lease_id IS NOT NULL AND (
    coalesce(own.ended_at, shared.ended_at) IS NOT NULL
    OR (coalesce(own.worker, shared.worker) = unit.holder) IS NOT TRUE)
ORDER BY unit.id LIMIT :page
""".replace("WITH_LEASES", WITH_LEASES)
# What is granted to units that are under a lease, as their rows say.
HELD = """
SELECT id, lease_id, tenant, holder, lease_hash FROM unit
WHERE id > :last AND lease_id IS NOT NULL ORDER BY id LIMIT :page
"""
# Rows for many: how many units are under each lease, and how many of them have rows of their own.
COUNTED = """
SELECT lease.id, lease.units, (SELECT count(*) FROM {members} WHERE unit.lease_id = lease.id),
       (SELECT count(*) FROM lease AS own WHERE own.id = lease.id AND own.unit > 0 AND own.ended_at IS NULL)
FROM lease WHERE lease.unit = 0 AND lease.id > :last ORDER BY lease.id LIMIT :page
"""
MEMBERS_OF_LEASE = {
    "sqlite": "act CROSS JOIN json_each(act.units) AS listed CROSS JOIN unit "
    "ON act.id = lease.id AND unit.id = listed.value",
    "postgres": "act CROSS JOIN LATERAL unnest(act.units) AS listed (unit) JOIN unit "
    "ON act.id = lease.id AND unit.id = listed.unit",
}
RESULTS = """
SELECT unit.id, body.result, body.error, unit.act FROM unit JOIN body ON body.unit = unit.id
WHERE unit.id > :last AND (body.result IS NOT NULL OR body.error IS NOT NULL) ORDER BY unit.id LIMIT :page
"""
TRACEBACKS = """
SELECT id, unit, payload FROM note WHERE id > :last AND kind = 'traceback' ORDER BY id LIMIT :page
"""
NEXT_LEASES = "WHERE (unit, id) > (:unit, :id) ORDER BY unit, id LIMIT :page"
NEXT_SEALS = "WHERE tenant = :tenant AND number > :after ORDER BY number LIMIT :page"
UNSEALED = """
SELECT count(*), min(at) FROM act WHERE tenant = :tenant
AND id > (SELECT coalesce(max(last_act), 0) FROM seal WHERE tenant = :tenant)
"""
EVER = """
SELECT count(*), coalesce(sum(version), 0) FROM (
    SELECT id, version FROM unit UNION ALL
    SELECT unit, version FROM archived WHERE NOT EXISTS (SELECT 1 FROM unit WHERE unit.id = archived.unit)) AS known
"""


class Unsealed(NamedTuple):
    """How many acts are not sealed yet, and when the first of them was."""

    acts: int
    since: int | None


class ListedPath(NamedTuple):
    """A row of a path: what it tells, what was derived from that, and its hops."""

    id: int
    text: str
    digest: str
    derived: list[Any]  # in the order of DERIVED
    hops: list[tuple[Any, ...]]


def read_listed_paths(connection: Connection) -> Iterator[ListedPath]:
    """Every path that the database lists, with its hops."""
    hops: dict[int, list[tuple[Any, ...]]] = {}
    for path, *hop in connection.rows(f"SELECT path, {', '.join(PathHop._fields)} FROM path_hop ORDER BY path, place"):
        hops.setdefault(path, []).append(tuple(hop))
    for path_id, text, digest, *derived in connection.rows(
        f"SELECT id, told, digest, {', '.join(DERIVED)} FROM transition_path"
    ):
        yield ListedPath(path_id, text, digest, derived, hops.get(path_id, []))


def read_lease_categories(connection: Connection) -> dict[str, str]:
    """By state of a lease, its category."""
    return dict(connection.rows("SELECT target, min(category) FROM edge WHERE lifecycle = 'lease' GROUP BY target"))


def read_path_digests(connection: Connection) -> tuple[dict[int, str], set[int]]:
    """By path, its digest; and which paths are births."""
    rows = connection.rows("SELECT id, digest, source FROM transition_path")
    return {path_id: digest for path_id, digest, _ in rows}, {path_id for path_id, _, source in rows if source == BORN}


def read_details(connection: Connection, acts: Iterable[int]) -> list[tuple[int, int, str]]:
    """What is kept apart from these acts: the act, the unit and what is told of it."""
    rows = connection.rows("SELECT act, unit, payload FROM act_detail WHERE act {ids}", {"ids": sorted(set(acts))})
    return [(act, unit, payload) for act, unit, payload in rows]


def has_erased_details(connection: Connection, unit: int) -> bool:
    """Whether something was told of a unit that is told no more: what it cost may have been among it."""
    of_unit = "WHERE id IN (SELECT act FROM event WHERE unit = :unit) AND details IS NOT NULL AND version > 0"
    acts = select_acts(connection, of_unit, unit=unit)
    results = {digest_result(body.result) for body in read_bodies(connection, [unit]) if body.result is not None}
    recorded = {act.id for act in acts if find_recorded_digest(act, unit) not in (None, *results)}
    kept = connection.rows("SELECT act FROM act_detail WHERE unit = :unit", {"unit": unit}) if recorded else []
    return bool(recorded - {act for (act,) in kept})


def find_recorded_digest(act: Act, unit: int) -> str | None:
    """The digest that an act has of what is kept apart from it of this unit."""
    return act.details[act.units.index(unit)] if act.details else None


class KeptResult(NamedTuple):
    """What is kept of a unit beside its acts, and whether its result is one that they tell of."""

    unit: int
    error: str | None
    recorded: bool


def read_results(connection: Connection, page: int) -> Iterator[KeptResult]:
    """Every unit that has a result or an error."""
    last = 0
    while rows := connection.rows(RESULTS, {"last": last, "page": page}):
        last = rows[-1][0]
        acts = {act.id: act for act in select_acts(connection, "WHERE id {ids}", ids=sorted({row[3] for row in rows}))}
        for unit, result, error, act in rows:
            recorded = result is None or is_recorded(connection, unit, result, acts.get(act))
            yield KeptResult(unit, error, recorded)


def is_recorded(connection: Connection, unit: int, result: str, last: Act | None) -> bool:
    """Whether a result is the one that a unit's acts tell of. Mostly the last of them does."""
    digest = digest_result(result)
    if last is not None and unit in last.units and find_recorded_digest(last, unit) == digest:
        return True
    of_unit = "WHERE id IN (SELECT act FROM event WHERE unit = :unit) AND details IS NOT NULL AND version > 0"
    return any(find_recorded_digest(act, unit) == digest for act in select_acts(connection, of_unit, unit=unit))


def read_tracebacks(connection: Connection) -> Iterator[tuple[int, str]]:
    """Every traceback as it is kept, and its unit."""
    for _, unit, payload in read_pages(connection, TRACEBACKS):
        yield unit, payload


def read_bodies(connection: Connection, units: Iterable[int]) -> list[Body]:
    """The bodies of these units; those without one are left out."""
    ids = sorted(units)
    return read_rows(connection, Body, "WHERE unit {ids}", ids=ids) if ids else []


def find_units_that_differ_from_their_acts(connection: Connection) -> Iterator[tuple[int, int, int]]:
    """Units that are not what their acts come to: the unit, its version, and how many events these acts tell of it."""
    for unit, version, events in read_pages(connection, UNLIKE_ACTS.format(told=ACTS_BY_UNIT[connection.name])):
        yield unit, version, int(events or 0)


def find_lone_members(connection: Connection) -> Iterator[tuple[int, int]]:
    """Units and acts of which SQLite's table of members and the acts themselves do not say the same."""
    if connection.name == "sqlite":
        for table, other in (("member", "journal_unit"), ("journal_unit", "member")):
            for unit, act, _ in connection.rows(MEMBERS.format(one=table, other=other)):
                yield unit, act


def find_units_without_their_lease(connection: Connection) -> Iterator[int]:
    """Units under a lease of which there is no live row."""
    for (unit,) in read_pages(connection, NO_LEASE):
        yield unit


class HeldUnit(NamedTuple):
    """Under which lease a unit is, as its row says."""

    unit: int
    lease: int
    tenant: int
    holder: int | None
    secret: str | None  # the hash of it


def read_held_units(connection: Connection) -> Iterator[tuple[HeldUnit, Act | None]]:
    """Every unit that is under a lease, with the act that is said to have granted it."""
    last = 0
    while rows := connection.rows(HELD, {"last": last, "page": PAGE}):
        held = [HeldUnit(*row) for row in rows]
        last = held[-1].unit
        ids = sorted({unit.lease for unit in held})
        acts = {act.id: act for act in select_acts(connection, "WHERE id {ids}", ids=ids)}
        yield from ((unit, acts.get(unit.lease)) for unit in held)


class SharedRow(NamedTuple):
    """The row of a lease of many units: how many it says are under it, how many are, and which have their own row."""

    lease: int
    units: int
    under: int
    apart: int


def count_units_under_leases(connection: Connection) -> Iterator[SharedRow]:
    """What the rows of many units say, and what these units say."""
    sql = COUNTED.format(members=MEMBERS_OF_LEASE[connection.name])
    yield from (SharedRow(*row) for row in read_pages(connection, sql))


def read_all_leases(connection: Connection, page: int) -> Iterator[tuple[Lease, Act | None, int | None]]:
    """Every lease, the act that is said to have granted it, and the lease that its unit is under."""
    at = {"unit": 0, "id": 0}
    while leases := read_rows(connection, Lease, NEXT_LEASES, page=page, **at):
        at = {"unit": leases[-1].unit, "id": leases[-1].id}
        acts = {
            act.id: act for act in select_acts(connection, "WHERE id {ids}", ids=sorted({lease.id for lease in leases}))
        }
        sql = "SELECT id, lease_id FROM unit WHERE id {ids}"
        live: dict[int, int | None] = dict(connection.rows(sql, {"ids": sorted({lease.unit for lease in leases})}))
        for lease in leases:
            yield lease, acts.get(lease.id), live.get(lease.unit)


def read_seal_before(connection: Connection, tenant: int, number: int) -> Seal:
    """The seal before the one of that number; if there are not so many, what comes before the first one."""
    seals = read_rows(connection, Seal, "WHERE tenant = :tenant AND number = :last", tenant=tenant, last=number - 1)
    return seals[0] if seals else Seal(tenant=tenant, number=0, first_act=0, last_act=0, acts=0, root=START, at=0)


def read_seals_after(connection: Connection, before: Seal, page: int) -> Sequence[Seal]:
    """The next seals of a tenant behind one of them, a page at a time."""
    return read_rows(connection, Seal, NEXT_SEALS, tenant=before.tenant, after=before.number, page=page)


def count_unsealed(connection: Connection) -> Unsealed:
    """How many acts no seal knows yet: who changes one of these is found by nothing but its own digest."""
    rows = [connection.rows(UNSEALED, {"tenant": tenant})[0] for tenant in read_tenant_ids(connection)]
    return Unsealed(sum(int(count) for count, _ in rows), min((at for _, at in rows if at is not None), default=None))


def count_ever(connection: Connection) -> tuple[int, int]:
    """How many units there are or were, and how many events they had."""
    units, events = connection.rows(EVER)[0]
    return int(units), int(events)
