"""Reading without a lock, for those who look and change nothing."""

from collections.abc import Iterator
from typing import Any, TypeVar

from interlock.kernel.rows import Event, Row, Unit, Worker
from interlock.store.session import Session, listed

R = TypeVar("R", bound=Row)
PAGE = 1_000  # units read together


def read(session: Session, kind: type[R], rest: str, **params: Any) -> list[R]:
    """Rows of a table; `rest` is what follows FROM."""
    rows = session.rows(f"SELECT {listed(kind)} FROM {kind.table} {rest}", params)
    return [kind(**dict(zip(kind.__struct_fields__, row, strict=True))) for row in rows]


def histories(session: Session) -> Iterator[tuple[Unit, list[Event]]]:
    """Every unit with all its events, in the order of their ids, a page at a time."""
    last = 0
    while units := read(session, Unit, "WHERE id > :last ORDER BY id LIMIT :page", last=last, page=PAGE):
        first, last = units[0].id, units[-1].id
        events: dict[int, list[Event]] = {}
        for event in read(session, Event, "WHERE unit BETWEEN :a AND :b ORDER BY unit, version", a=first, b=last):
            events.setdefault(event.unit, []).append(event)
        for unit in units:
            yield unit, events.get(unit.id, [])


def unmet_needs(session: Session) -> list[tuple[int, int, int]]:
    """Each open unit that has needs: how many it says are unmet, and how many are."""
    sql = (
        "SELECT unit.id, unit.unmet, sum(CASE WHEN needed.outcome = 'success' THEN 0 ELSE 1 END) FROM need "
        "JOIN unit ON unit.id = need.unit JOIN unit AS needed ON needed.id = need.needs "
        "WHERE unit.outcome IS NULL GROUP BY unit.id, unit.unmet"
    )
    return [(one, unmet, int(counted)) for one, unmet, counted in session.rows(sql)]


def slots(session: Session) -> list[tuple[int, str, int, int, int, int]]:
    """Each key: tenant, name, capacity, how many slots are taken, how many units have one, how many wait for one."""
    seated = "SUM(CASE WHEN unit.available_at IS NOT NULL OR unit.holder IS NOT NULL THEN 1 ELSE 0 END)"
    by_name = " UNION ALL ".join(
        f"SELECT body.tenant AS tenant, '{kind}:' || body.{column} AS key, {seated} AS seated "
        f"FROM body JOIN unit ON unit.id = body.unit WHERE body.{column} IS NOT NULL "
        f"GROUP BY body.tenant, body.{column}"
        for kind, column in (("mutex", "mutex"), ("limit", "limit_key"))
    )
    waiting = "SELECT count(*) FROM unit WHERE unit.tenant = slot.tenant AND parked_on = slot.key"
    sql = (
        f"SELECT slot.tenant, slot.key, capacity, taken, coalesce(seated, 0), ({waiting}) FROM slot "
        f"LEFT JOIN ({by_name}) AS named ON named.tenant = slot.tenant AND named.key = slot.key ORDER BY 1, 2"
    )
    return [(row[0], row[1], row[2], row[3], int(row[4]), row[5]) for row in session.rows(sql)]


def workers(session: Session) -> list[Worker]:
    return read(session, Worker, "ORDER BY unit")


def tenants(session: Session) -> list[int]:
    return [row[0] for row in session.rows("SELECT id FROM tenant ORDER BY id")]
