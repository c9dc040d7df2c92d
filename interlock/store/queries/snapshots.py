"""Read-only snapshots, without locks."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby, islice
from typing import Any, TypeVar

import msgspec

from interlock.kernel.rows import Act, Archived, Event, ForcedMove, Row, Unit, WorkerRow, columns
from interlock.store.connection import Connection
from interlock.store.query import list_columns, list_params, list_placeholders
from interlock.store.unit_of_work import LIVE_LEASES, LiveLease

R = TypeVar("R", bound=Row)
NEWEST = 20  # events of a unit that are read first
PAGE = 1_000  # rows read together
LISTS_FROM = Act.__struct_fields__.index("units")  # all columns of an act from there on but its digest are lists
EVENTS_PAGE = 20_000  # a page costs a walk through the unit's whole history
LEASES_US = 86_400_000_000  # so long an ended lease is remembered
SNAPSHOT = {"sqlite": "BEGIN", "postgres": "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"}
# Below which no act can come any more: on PostgreSQL that of the oldest transaction that is still open.
HORIZON = {
    "sqlite": "SELECT coalesce(max(seq), 0) + 1 FROM sqlite_sequence WHERE name = 'act'",  # the last may be archived
    "postgres": "SELECT ((SELECT value::bigint FROM about WHERE name = 'generation') << 36 "
    "| pg_snapshot_xmin(pg_current_snapshot())::text::bigint) << 18",
}
# SQLite reads the units and hops of an act in their order by itself: the view joins them so. It would sort all acts.
IN_ORDER = {"sqlite": "act", "postgres": "act, place"}
AFTER = "(act, place) > (:act, :place) AND act >= :act AND act < :horizon ORDER BY {order} LIMIT :limit"
# The acts that took a unit beyond a version, found from its last one back.
BEYOND = {
    "sqlite": "SELECT act FROM member WHERE unit = :unit AND version >= "
    "(SELECT max(version) FROM member WHERE unit = :unit AND version <= :after)",
    "postgres": "WITH RECURSIVE walk AS ("
    "SELECT act.id, act.version, act.before[array_position(act.units, unit.id)] AS came_from "
    "FROM unit JOIN act ON act.id = unit.act WHERE unit.id = :unit UNION ALL "
    "SELECT act.id, act.version, act.before[array_position(act.units, (:unit)::bigint)] "
    "FROM walk JOIN act ON act.id = walk.came_from WHERE walk.version > :after) SELECT id FROM walk",
}
Position = tuple[int, int]  # an act, and a place in it: a cursor may rest inside an act
BEGINNING: Position = (0, 0)


@contextmanager
def snapshot(connection: Connection, of: Sequence[int] = (), seconds: float | None = None) -> Iterator[None]:
    """One picture of these tenants, or of all, for everything that is read; writers neither wait nor show in it.

    With `seconds` the database stops what is read after that time, with a StoreError.
    """
    connection.rows(SNAPSHOT[connection.name])
    try:
        connection.declare(of or read_tenant_ids(connection), seconds)
        yield
    finally:
        connection.rollback()


def read_rows(connection: Connection, kind: type[R], rest: str, **params: Any) -> list[R]:
    """Rows of a table; `rest` is what follows FROM."""
    rows = connection.rows(f"SELECT {list_columns(kind)} FROM {kind.table} {rest}", params)
    return [kind(*row) for row in rows]


def read_histories(connection: Connection) -> Iterator[tuple[Unit, Iterator[Event]]]:
    """Every unit with its events, in the order of their ids; the events are there until the next unit is asked for."""
    last = 0
    while units := read_rows(connection, Unit, "WHERE id > :last ORDER BY id LIMIT :page", last=last, page=PAGE):
        last = units[-1].id
        read_leases(connection, units)
        groups = groupby(read_events(connection, units), key=lambda event: event.unit)
        group = next(groups, None)
        for unit in units:
            while group and group[0] < unit.id:
                group = next(groups, None)
            if group and group[0] == unit.id:
                yield unit, group[1]
                group = next(groups, None)
            else:
                yield unit, iter(())


def find_replaced(connection: Connection, by: Sequence[int] | None = None) -> list[int]:
    """Children that have ended and whose place another one took that does their work again: they count no more.

    With `by`, only those whose place one of these units took.
    """
    sql = (
        "SELECT old.unit FROM body AS fresh JOIN body AS old ON old.unit = fresh.retry_of "
        "WHERE fresh.retry_of IS NOT NULL AND old.replaced_by = fresh.unit"
    )
    rows = connection.rows(sql) if by is None else connection.rows(f"{sql} AND fresh.unit {{ids}}", {"ids": list(by)})
    return [unit for (unit,) in rows]


def read_leases(connection: Connection, units: Sequence[Unit]) -> None:
    """What the live leases of these units say."""
    held = {unit.id: unit for unit in units if unit.lease_id is not None}
    if not held:
        return
    for row in connection.rows(LIVE_LEASES.sql, {"ids": sorted(held)}):
        lease = LiveLease(*row)
        unit = held[lease.unit]
        unit.lease_until, unit.lease_ttl, unit.lease_beat = lease.until, lease.ttl, lease.beat


def read_heads(connection: Connection, units: Sequence[Unit]) -> None:
    """What the last acts of these units are known by."""
    acts = sorted({unit.act for unit in units})
    heads: dict[int, str] = (
        dict(connection.rows("SELECT id, digest FROM act WHERE id {ids}", {"ids": acts})) if acts else {}
    )
    for unit in units:
        unit.head = heads.get(unit.act, "")


def read_events(connection: Connection, units: Sequence[Unit]) -> Iterator[Event]:
    """The events of these units in order: those of some units together, and of one that has very many by pages."""
    some: list[Unit] = []
    events = 0
    for unit in units:
        if some and events + unit.version > EVENTS_PAGE:
            yield from read_events_between(connection, some)
            some, events = [], 0
        some.append(unit)
        events += unit.version
    if some:
        yield from read_events_between(connection, some)


def read_events_beyond(connection: Connection, unit: int, after: int) -> list[Event]:
    """The events of a unit behind a version, in order: they cost what is read of them, not what lies before."""
    sql = f"SELECT {', '.join(columns(Event))} FROM journal WHERE act IN ({BEYOND[connection.name]}) AND unit = :unit"
    rows = connection.rows(f"{sql} AND version > :after ORDER BY version", {"unit": unit, "after": after})
    return [Event(*row) for row in rows]


def read_newest_events(connection: Connection, unit: int, version: int) -> Iterator[Event]:
    """The events of a unit that is at that version, the newest first; most who ask want one of the first few."""
    near = max(0, version - NEWEST)
    yield from reversed(read_events_beyond(connection, unit, near))
    if near:
        yield from (event for event in reversed(read_events_beyond(connection, unit, 0)) if event.version <= near)


def read_events_between(connection: Connection, units: Sequence[Unit]) -> Iterator[Event]:
    """Reads the events of these units, of a long history page by page."""
    if len(units) > 1 or units[0].version <= EVENTS_PAGE:
        ends = {"first": units[0].id, "last": units[-1].id}
        yield from read_rows(connection, Event, "WHERE unit >= :first AND unit <= :last ORDER BY unit, version", **ends)
        return
    version = 0
    rest = "WHERE unit = :unit AND version > :version ORDER BY version LIMIT :limit"
    while events := read_rows(connection, Event, rest, unit=units[0].id, version=version, limit=EVENTS_PAGE):
        yield from events
        version = events[-1].version


def read_open_parents(connection: Connection) -> Iterator[tuple[Unit, str]]:
    """Every unit that has children and no outcome, with the text of its policy."""
    sql = (
        "SELECT unit.id, body.policy FROM unit JOIN body ON body.unit = unit.id "
        "WHERE unit.id > :last AND unit.outcome IS NULL AND unit.total > 0 ORDER BY unit.id LIMIT :page"
    )
    policies = read_pages(connection, sql)
    while page := dict(islice(policies, PAGE)):
        for unit in read_rows(connection, Unit, "WHERE id {ids} ORDER BY id", ids=list(page)):
            yield unit, page[unit.id]


def read_ended_families(connection: Connection, settle: str) -> Iterator[tuple[list[Event], list[tuple[Unit, Event]]]]:
    """Every ended unit that says how it settles: its events, and its children that needed nothing, each with its end.

    The end of a child is the event by which it got its outcome.
    """
    sql = (
        "SELECT unit.id FROM unit JOIN body ON body.unit = unit.id WHERE unit.id > :last "
        "AND unit.outcome IS NOT NULL AND body.policy LIKE :settle ORDER BY unit.id LIMIT :page"
    )
    for (number,) in read_pages(connection, sql, settle=f'%"settle":"{settle}"%'):
        (parent,) = read_rows(connection, Unit, "WHERE id = :id", id=number)
        children = read_rows(connection, Unit, "WHERE parent = :id AND unmet = 0 ORDER BY id", id=number)
        ends = {event.unit: event for event in read_events(connection, children)} if children else {}
        ended = [(child, ends[child.id]) for child in children if child.outcome is not None and child.id in ends]
        yield list(read_events(connection, [parent])), ended


def read_wrong_origins(connection: Connection) -> list[tuple[int, int]]:
    """Units that say that they do one again which is themselves, or of another kind or tenant; each with that one."""
    sql = (
        "SELECT unit.id, origin.id FROM body JOIN unit ON unit.id = body.unit JOIN unit AS origin "
        "ON origin.id = body.retry_of WHERE body.retry_of IS NOT NULL "
        "AND (origin.id = unit.id OR origin.lifecycle <> unit.lifecycle OR origin.tenant <> unit.tenant) ORDER BY 1"
    )
    return [(unit, origin) for unit, origin in connection.rows(sql)]


def read_lost_leases(connection: Connection) -> Iterator[tuple[int, str, int, str]]:
    """Units that say how many leases of theirs may be lost: lifecycle, how many were, and the text of the policy."""
    sql = (
        "SELECT unit.id, unit.lifecycle, unit.losses, body.policy FROM unit JOIN body ON body.unit = unit.id "
        "WHERE unit.id > :last AND unit.losses > 0 AND body.policy LIKE :losses ORDER BY unit.id LIMIT :page"
    )
    yield from read_pages(connection, sql, losses='%"losses":%')


def find_orphans(connection: Connection) -> Iterator[tuple[int, int]]:
    """Units that only acts know, and how many acts these are."""
    sql = (
        "SELECT unit, count(*) FROM (SELECT DISTINCT act, unit FROM journal_unit WHERE unit > :last) AS told "
        "WHERE NOT EXISTS (SELECT 1 FROM unit WHERE unit.id = told.unit) "
        "AND NOT EXISTS (SELECT 1 FROM archived WHERE archived.unit = told.unit) "
        "GROUP BY unit ORDER BY unit LIMIT :page"
    )
    yield from read_pages(connection, sql)


def read_policies(connection: Connection) -> Iterator[tuple[int, str | None]]:
    """Every unit with the text of its policy; None if it has no body."""
    sql = (
        "SELECT unit.id, body.policy FROM unit LEFT JOIN body ON body.unit = unit.id "
        "WHERE unit.id > :last ORDER BY unit.id LIMIT :page"
    )
    yield from read_pages(connection, sql)


def read_acts(connection: Connection, after: int, limit: int) -> list[Act]:
    """Acts behind one of them, with their digests, in the order in which readers see them."""
    return select_acts(connection, "WHERE id > :after ORDER BY id LIMIT :limit", after=after, limit=limit)


def select_acts(connection: Connection, rest: str, **given: Any) -> list[Act]:
    """Acts with their digests; `rest` is the statement from WHERE on."""
    rows = connection.rows(f"SELECT {', '.join(Act.__struct_fields__)} FROM act {rest}", given)
    if connection.name == "sqlite":
        rows = [(*row[:LISTS_FROM], *map(decode_list, row[LISTS_FROM:-1]), row[-1]) for row in rows]
    return [Act(*row) for row in rows]


def decode_list(value: str | None) -> Any:
    """SQLite keeps lists as JSON."""
    return None if value is None else msgspec.json.decode(value)


def count_unmet_needs(connection: Connection) -> Iterator[tuple[int, int, int]]:
    """Each open unit that has needs: how many it says are unmet, and how many are."""
    sql = (
        "SELECT unit.id, unit.unmet, sum(CASE WHEN needed.outcome = 'success' "
        "OR (need.by_end = 1 AND needed.outcome IS NOT NULL) THEN 0 ELSE 1 END) FROM need "
        "JOIN unit ON unit.id = need.unit LEFT JOIN unit AS needed ON needed.id = need.needs WHERE need.unit > :last "
        "AND unit.outcome IS NULL GROUP BY unit.id, unit.unmet ORDER BY unit.id LIMIT :page"
    )
    for unit, unmet, counted in read_pages(connection, sql):
        yield unit, unmet, int(counted)


def read_slots(connection: Connection) -> list[tuple[int, str, int, int, int, int]]:
    """Each key: tenant, name, capacity, how many slots are taken, how many units have one, how many wait for one.

    Resources are not among them: how much a unit takes of one is in its policy.
    """
    available, held = "unit.available_at IS NOT NULL", "unit.holder IS NOT NULL"
    kinds = (("mutex", "mutex", f"{available} OR {held}"), ("limit", "limit_key", f"{available} OR {held}"))
    by_name = " UNION ALL ".join(
        f"SELECT body.tenant AS tenant, '{kind}:' || body.{column} AS key, 1 AS seated "
        f"FROM body JOIN unit ON unit.id = body.unit WHERE body.{column} IS NOT NULL AND ({having})"
        for kind, column, having in (*kinds, ("rate", "rate_key", available))
    )
    by_name = f"{by_name} UNION ALL SELECT tenant, key, 1 AS seated FROM token"  # a token that is away is taken
    by_name = f"SELECT tenant, key, sum(seated) AS seated FROM ({by_name}) AS seat GROUP BY tenant, key"
    waiting = "SELECT count(*) FROM unit WHERE unit.tenant = slot.tenant AND parked_on = slot.key"
    sql = (
        f"SELECT slot.tenant, slot.key, capacity, taken, coalesce(seated, 0), ({waiting}) FROM slot "
        f"LEFT JOIN ({by_name}) AS named ON named.tenant = slot.tenant AND named.key = slot.key "
        "WHERE slot.key NOT LIKE 'resource:%' ORDER BY 1, 2"
    )
    return [(row[0], row[1], row[2], row[3], int(row[4]), row[5]) for row in connection.rows(sql)]


def read_pages(connection: Connection, sql: str, **given: str) -> Iterator[tuple[Any, ...]]:
    """The rows of a statement that wants what comes after `:last`, its first column."""
    last = 0
    while rows := connection.rows(sql, {**given, "last": last, "page": PAGE}):
        yield from rows
        last = rows[-1][0]


def read_archived(connection: Connection, tenant: int, born: int) -> list[Archived]:
    """Units of a tenant that were archived, and born no later than by that act."""
    return read_rows(
        connection, Archived, "WHERE tenant = :tenant AND born <= :born ORDER BY unit", tenant=tenant, born=born
    )


def read_digests(connection: Connection, acts: Iterable[int]) -> dict[int, str]:
    """The digests of those of these acts that are in the database, or have left it in order."""
    wanted, by_act = sorted(set(acts)), dict[int, str]()
    for table in ("act", "act_gone"):
        for start in range(0, len(wanted), PAGE):
            some = {"ids": wanted[start : start + PAGE]}
            by_act |= dict(connection.rows(f"SELECT id, digest FROM {table} WHERE id {{ids}}", some))
    return by_act


def read_gone_acts(connection: Connection, tenant: int, end: int) -> dict[int, str]:
    """The digests of acts of a tenant up to that one which have left the database with the last of their units."""
    sql = "SELECT id, digest FROM act_gone WHERE tenant = :tenant AND id <= :end"
    return dict(connection.rows(sql, {"tenant": tenant, "end": end}))


def read_path_texts(connection: Connection) -> dict[str, str]:
    """By the digest of a path, what it tells."""
    return dict(connection.rows("SELECT digest, told FROM transition_path"))


def read_horizon(connection: Connection) -> int:
    """The act below which none can come any more."""
    return int(connection.rows(HORIZON[connection.name])[0][0])


def read_cursor(connection: Connection) -> Position:
    """The position of the last event before which none can come any more."""
    rows = connection.rows("SELECT max(id) FROM act WHERE id < :horizon", {"horizon": read_horizon(connection)})
    if rows[0][0] is None:
        return BEGINNING
    last = connection.rows("SELECT max(place) FROM journal WHERE act = :act", {"act": rows[0][0]})
    return rows[0][0], last[0][0] or 0


def read_events_after(
    connection: Connection, after: Position, limit: int, tenant: int | None = None
) -> list[tuple[Position, Event]]:
    """Events behind a position, each with its own, in an order into which none can come later; of one tenant or all."""
    act, place = after or BEGINNING
    given = {"act": act, "place": place, "limit": limit, "horizon": read_horizon(connection)}
    own = "" if tenant is None else "tenant = :tenant AND "
    given |= {} if tenant is None else {"tenant": tenant}
    sql = f"SELECT act, place, {', '.join(columns(Event))} FROM journal WHERE {own}{AFTER}"
    rows = connection.rows(sql.format(order=IN_ORDER[connection.name]), given)
    return [((row[0], row[1]), Event(*row[2:])) for row in rows]


def read_epoch(connection: Connection) -> str | None:
    """The random name of this store; None if it was made before there was one."""
    rows = connection.rows("SELECT value FROM about WHERE name = 'epoch'")
    return rows[0][0] if rows else None


def read_forced_moves(connection: Connection) -> list[ForcedMove]:
    """What operators forced, in the order of time."""
    return read_rows(connection, ForcedMove, "ORDER BY at, unit, version")


def read_lifecycle_names(connection: Connection, units: Sequence[int]) -> dict[int, str]:
    """The lifecycle of each of these units that is there."""
    sql = f"SELECT id, lifecycle FROM unit WHERE id IN ({list_placeholders(units)})"
    return dict(connection.rows(sql, list_params(units))) if units else {}


def read_workers(connection: Connection) -> list[WorkerRow]:
    """All workers, by unit."""
    return read_rows(connection, WorkerRow, "ORDER BY unit")


def read_tenant_ids(connection: Connection) -> list[int]:
    """The ids of all tenants."""
    return [row[0] for row in connection.rows("SELECT id FROM tenant ORDER BY id")]


def read_due_tenants(connection: Connection) -> list[int]:
    """Tenants for whom time has something to do: work, a lease, a rate, a schedule, a pause, acts that are not sealed,
    or what was kept for a while.
    """
    clocks = (
        ("unit", "wake_at"), ("token", "back_at"), ("schedule", "next_at"), ("note", "expires"), ("answer", "expires"),
        ("skipped", "expires"), ("metric_minute", "expires"),
    )  # fmt: skip
    due = " OR ".join((
        *(
            f"EXISTS (SELECT 1 FROM {table} WHERE {table}.tenant = tenant.id AND {at} IS NOT NULL AND {at} <= :now)"
            for table, at in clocks
        ),
        "EXISTS (SELECT 1 FROM lease WHERE lease.tenant = tenant.id AND ended_at IS NULL AND until <= :now)",
        "EXISTS (SELECT 1 FROM lease WHERE lease.tenant = tenant.id AND ended_at <= :forgotten)",
        "EXISTS (SELECT 1 FROM pause WHERE pause.tenant = tenant.id AND live = 1 AND (ended_at > 0 OR until <= :now))",
        "(SELECT max(id) FROM act WHERE act.tenant = tenant.id) "
        "> coalesce((SELECT max(last_act) FROM seal WHERE seal.tenant = tenant.id), 0)",
    ))  # fmt: skip
    now = connection.now()
    sql = f"SELECT id FROM tenant WHERE {due} ORDER BY id"
    return [tenant for (tenant,) in connection.rows(sql, {"now": now, "forgotten": now - LEASES_US})]


def read_queues(connection: Connection, tenant: int) -> list[str]:
    """Every queue that work was ever submitted to."""
    sql = "SELECT DISTINCT queue FROM lane WHERE tenant = :tenant ORDER BY queue"
    return [name for (name,) in connection.rows(sql, {"tenant": tenant})]


def read_next_wake(connection: Connection, tenant: int) -> int | None:
    """When time must look at work, at a rate, at a schedule or at a pause next; None: never, as things are."""
    clocks = (
        "SELECT min(wake_at) AS at FROM unit WHERE wake_at IS NOT NULL AND lane <> 0 AND tenant = :tenant",
        "SELECT min(until) FROM lease WHERE ended_at IS NULL AND tenant = :tenant",
        "SELECT min(back_at) FROM token WHERE tenant = :tenant",
        "SELECT min(next_at) FROM schedule WHERE next_at IS NOT NULL AND tenant = :tenant",
        "SELECT min(until) FROM pause WHERE live = 1 AND ended_at IS NULL AND tenant = :tenant",
    )
    rows = connection.rows(f"SELECT min(at) FROM ({' UNION ALL '.join(clocks)}) AS clock", {"tenant": tenant})
    return None if rows[0][0] is None else int(rows[0][0])
