"""Reading without a lock, for those who look and change nothing."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any, TypeVar

from interlock.kernel.rows import Event, ForcedMove, Row, Unit, Worker
from interlock.store.session import Session, listed
from interlock.store.tx import marks, params

R = TypeVar("R", bound=Row)
PAGE = 1_000  # rows read together
LAST_VERSION = 2**31 - 1
SNAPSHOT = {"sqlite": "BEGIN", "postgres": "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"}
# Up to where no event can come any more: on PostgreSQL below every transaction that was still open.
CURSOR = {
    "sqlite": "SELECT pos FROM event ORDER BY pos DESC LIMIT 1",
    "postgres": "SELECT xid, pos FROM event WHERE xid < pg_snapshot_xmin(pg_current_snapshot())::text::bigint "
    "ORDER BY xid DESC, pos DESC LIMIT 1",
}
POSITION = {"sqlite": "pos", "postgres": "xid, pos"}
AFTER = {
    "sqlite": "WHERE pos > :pos ORDER BY pos LIMIT :limit",
    "postgres": "WHERE (xid, pos) > (:xid, :pos) AND xid < pg_snapshot_xmin(pg_current_snapshot())::text::bigint "
    "ORDER BY xid, pos LIMIT :limit",
}


@contextmanager
def snapshot(session: Session, of: Sequence[int] = ()) -> Iterator[None]:
    """One picture of these tenants, or of all, for everything that is read; writers neither wait nor show in it."""
    session.rows(SNAPSHOT[session.name])
    try:
        session.declare(of or tenants(session))
        yield
    finally:
        session.rollback()


def read(session: Session, kind: type[R], rest: str, **params: Any) -> list[R]:
    """Rows of a table; `rest` is what follows FROM."""
    rows = session.rows(f"SELECT {listed(kind)} FROM {kind.table} {rest}", params)
    return [kind(*row) for row in rows]


def histories(session: Session) -> Iterator[tuple[Unit, Iterator[Event]]]:
    """Every unit with its events, in the order of their ids; the events are there until the next unit is asked for."""
    last = 0
    while units := read(session, Unit, "WHERE id > :last ORDER BY id LIMIT :page", last=last, page=PAGE):
        last = units[-1].id
        groups = groupby(events_between(session, units[0].id, last), key=lambda event: event.unit)
        group = next(groups, None)
        for unit in units:
            while group and group[0] < unit.id:
                group = next(groups, None)  # of no unit: `orphans` finds them
            if group and group[0] == unit.id:
                yield unit, group[1]
                group = next(groups, None)
            else:
                yield unit, iter(())


def events_between(session: Session, first: int, last: int) -> Iterator[Event]:
    """The events of these units in order, a page at a time: one unit may have more than memory holds."""
    at = {"unit": first - 1, "version": LAST_VERSION}
    rest = "WHERE (unit, version) > (:unit, :version) AND unit <= :last ORDER BY unit, version LIMIT :page"
    while events := read(session, Event, rest, last=last, page=PAGE, **at):
        yield from events
        at = {"unit": events[-1].unit, "version": events[-1].version}


def orphans(session: Session) -> Iterator[tuple[int, int]]:
    """Units that only their events know, and how many these are."""
    sql = (
        "SELECT event.unit, count(*) FROM event WHERE event.unit > :last "
        "AND NOT EXISTS (SELECT 1 FROM unit WHERE unit.id = event.unit) "
        "GROUP BY event.unit ORDER BY event.unit LIMIT :page"
    )
    yield from pages(session, sql)


def policies(session: Session) -> Iterator[tuple[int, str | None]]:
    """Every unit with the text of its policy; None if it has no body."""
    sql = (
        "SELECT unit.id, body.policy FROM unit LEFT JOIN body ON body.unit = unit.id "
        "WHERE unit.id > :last ORDER BY unit.id LIMIT :page"
    )
    yield from pages(session, sql)


def unmet_needs(session: Session) -> Iterator[tuple[int, int, int]]:
    """Each open unit that has needs: how many it says are unmet, and how many are."""
    sql = (
        "SELECT unit.id, unit.unmet, sum(CASE WHEN needed.outcome = 'success' THEN 0 ELSE 1 END) FROM need "
        "JOIN unit ON unit.id = need.unit JOIN unit AS needed ON needed.id = need.needs WHERE need.unit > :last "
        "AND unit.outcome IS NULL GROUP BY unit.id, unit.unmet ORDER BY unit.id LIMIT :page"
    )
    for one, unmet, counted in pages(session, sql):
        yield one, unmet, int(counted)


def slots(session: Session) -> list[tuple[int, str, int, int, int, int]]:
    """Each key: tenant, name, capacity, how many slots are taken, how many units have one, how many wait for one."""
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
        f"LEFT JOIN ({by_name}) AS named ON named.tenant = slot.tenant AND named.key = slot.key ORDER BY 1, 2"
    )
    return [(row[0], row[1], row[2], row[3], int(row[4]), row[5]) for row in session.rows(sql)]


def heads(session: Session) -> Iterator[tuple[int, int, str]]:
    """Every unit that there is, or that was archived: its id, its version and the hash of its last event."""
    sql = (
        "SELECT id, version, head FROM unit WHERE id > :last UNION ALL "
        "SELECT unit, version, head FROM archived WHERE unit > :last "
        "AND NOT EXISTS (SELECT 1 FROM unit WHERE unit.id = archived.unit) ORDER BY id LIMIT :page"
    )
    yield from pages(session, sql)


def pages(session: Session, sql: str) -> Iterator[tuple[Any, ...]]:
    """The rows of a statement that wants what comes after `:last`, its first column."""
    last = 0
    while rows := session.rows(sql, {"last": last, "page": PAGE}):
        yield from rows
        last = rows[-1][0]


def hashes(session: Session, versions: Sequence[tuple[int, int]]) -> dict[int, str]:
    """By unit, the hash of its event of that version; where there is none, the unit is left out."""
    wanted = ", ".join(f"(:u{place}, :v{place})" for place in range(len(versions)))
    numbers = {f"v{place}": version for place, (_, version) in enumerate(versions)}
    sql = (
        f"WITH wanted (unit, version) AS (VALUES {wanted}) SELECT event.unit, event.hash FROM wanted CROSS JOIN event "
        "WHERE event.unit = wanted.unit AND event.version = wanted.version"
    )
    return dict(session.rows(sql, params([unit for unit, _ in versions]) | numbers))


def archived(session: Session, units: Sequence[int]) -> dict[int, tuple[int, str, str, str]]:
    """By unit, the version and the head with which it was archived, its file, and the digest of its tree there."""
    sql = f"SELECT unit, version, head, file, digest FROM archived WHERE unit IN ({marks(units)})"
    return {unit: tuple(rest) for unit, *rest in session.rows(sql, params(units))} if units else {}


def cursor(session: Session) -> tuple[int, ...]:
    """The position of the last event before which none can come any more; empty if there is none."""
    found = session.rows(CURSOR[session.name])
    return tuple(found[0]) if found else ()


def events_after(session: Session, after: Sequence[int], limit: int) -> list[tuple[tuple[int, ...], Event]]:
    """Events behind a position, each with its own, in an order into which none can come later."""
    *xid, pos = after or (0,)
    given = {"xid": xid[0] if xid else 0, "pos": pos, "limit": limit}
    width = POSITION[session.name].count(",") + 1
    rows = session.rows(f"SELECT {POSITION[session.name]}, {listed(Event)} FROM event {AFTER[session.name]}", given)
    return [(tuple(row[:width]), Event(**dict(zip(Event.__struct_fields__, row[width:], strict=True)))) for row in rows]


def epoch(session: Session) -> str | None:
    """The random name of this store; None if it was made before there was one."""
    found = session.rows("SELECT value FROM about WHERE name = 'epoch'")
    return found[0][0] if found else None


def forced_moves(session: Session) -> list[ForcedMove]:
    """What operators forced, in the order of time."""
    return read(session, ForcedMove, "ORDER BY at, unit, version")


def lifecycles(session: Session, units: Sequence[int]) -> dict[int, str]:
    """The lifecycle of each of these units that is there."""
    sql = f"SELECT id, lifecycle FROM unit WHERE id IN ({marks(units)})"
    return dict(session.rows(sql, params(units))) if units else {}


def workers(session: Session) -> list[Worker]:
    return read(session, Worker, "ORDER BY unit")


def tenants(session: Session) -> list[int]:
    return [row[0] for row in session.rows("SELECT id FROM tenant ORDER BY id")]


def due_tenants(session: Session) -> list[int]:
    """Tenants for whom time has something to do: work, a rate, a schedule, or what was kept for a while."""
    clocks = (
        ("unit", "wake_at"), ("token", "back_at"), ("schedule", "next_at"), ("note", "expires"), ("answer", "expires"),
        ("skipped", "expires"),
    )  # fmt: skip
    due = " OR ".join(
        f"EXISTS (SELECT 1 FROM {table} WHERE {table}.tenant = tenant.id AND {at} IS NOT NULL AND {at} <= :now)"
        for table, at in clocks
    )
    found = session.rows(f"SELECT id FROM tenant WHERE {due} ORDER BY id", {"now": session.now()})
    return [tenant for (tenant,) in found]


def queues(session: Session, tenant: int) -> list[str]:
    """Every queue that work was ever submitted to."""
    sql = "SELECT DISTINCT queue FROM lane WHERE tenant = :tenant ORDER BY queue"
    return [name for (name,) in session.rows(sql, {"tenant": tenant})]


def next_wake(session: Session, tenant: int) -> int | None:
    """When time must look at work, at a rate or at a schedule next; None: never, as things are."""
    clocks = (
        "SELECT min(wake_at) AS at FROM unit WHERE wake_at IS NOT NULL AND lane <> 0 AND tenant = :tenant",
        "SELECT min(back_at) FROM token WHERE tenant = :tenant",
        "SELECT min(next_at) FROM schedule WHERE next_at IS NOT NULL AND tenant = :tenant",
    )
    found = session.rows(f"SELECT min(at) FROM ({' UNION ALL '.join(clocks)}) AS clock", {"tenant": tenant})
    return None if found[0][0] is None else int(found[0][0])
