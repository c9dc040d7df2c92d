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
    """Each unit that has needs: how many it says are unmet, and how many are."""
    sql = (
        "SELECT unit.id, unit.unmet, sum(CASE WHEN needed.outcome = 'success' THEN 0 ELSE 1 END) FROM need "
        "JOIN unit ON unit.id = need.unit JOIN unit AS needed ON needed.id = need.needs GROUP BY unit.id, unit.unmet"
    )
    return [(one, unmet, int(counted)) for one, unmet, counted in session.rows(sql)]


def workers(session: Session) -> list[Worker]:
    return read(session, Worker, "ORDER BY unit")


def tenants(session: Session) -> list[int]:
    return [row[0] for row in session.rows("SELECT id FROM tenant ORDER BY id")]
