"""What people ask to see: one unit, or many, with what is written beside them."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from interlock.kernel.errors import Unknown
from interlock.kernel.rows import Artifact, Body, Event, Note, Slot, Unit, Worker
from interlock.store.reads import read
from interlock.store.session import Session

GLIMPSE = "SELECT id, lifecycle, state, category, outcome, result, error FROM unit JOIN body ON body.unit = unit.id"


class Glimpse(msgspec.Struct, frozen=True):
    """Where a unit stands, and what came of it."""

    unit: int
    lifecycle: str
    state: str
    category: str
    outcome: str | None
    result: str | None
    error: str | None


class View(msgspec.Struct, frozen=True):
    """A unit and its body."""

    unit: Unit
    body: Body
    queue: str
    capabilities: tuple[str, ...]
    holder: str | None  # the worker's name


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which units are meant; nothing said is all of them."""

    states: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    lifecycle: str | None = None
    task: str | None = None
    queue: str | None = None
    parent: int | None = None
    key: str | None = None
    correlation: str | None = None
    holder: str | None = None
    settled_before: int | None = None  # microseconds

    @property
    def empty(self) -> bool:
        return self == Filter()


def glimpse(session: Session, unit: int) -> Glimpse:
    """Where a unit stands. Raises Unknown."""
    found = session.rows(f"{GLIMPSE} WHERE id = :unit", {"unit": unit})
    if not found:
        raise Unknown(f"there is no unit {unit}")
    return Glimpse(*found[0])


def view(session: Session, unit: int) -> View:
    """A unit and its body. Raises Unknown."""
    found = views(session, "unit.id = :unit", {"unit": unit}, 1)
    if not found:
        raise Unknown(f"there is no unit {unit}")
    return found[0]


def listing(session: Session, wanted: Filter, limit: int, after: int | None = None) -> list[View]:
    """The units that a filter means, the newest first, from `after` on."""
    where, params = conditions(wanted)
    if after is not None:
        where, params = [*where, "unit.id < :after"], {**params, "after": after}
    return views(session, " AND ".join(where) or "1 = 1", params, limit)


def matching(session: Session, wanted: Filter, limit: int | None = None) -> list[int]:
    """The ids of the units that a filter means, the oldest first."""
    where, params = conditions(wanted)
    sql = f"SELECT unit.id {FROM} WHERE {' AND '.join(where) or '1 = 1'} ORDER BY unit.id"
    rows = session.rows(f"{sql} LIMIT :limit" if limit else sql, {**params, "limit": limit} if limit else params)
    return [one for (one,) in rows]


FROM = (
    "FROM unit JOIN body ON body.unit = unit.id LEFT JOIN lane ON lane.id = unit.lane "
    "LEFT JOIN worker ON worker.unit = unit.holder"
)


def conditions(wanted: Filter) -> tuple[list[str], dict[str, Any]]:
    columns = {
        "lifecycle": "unit.lifecycle", "task": "body.task", "queue": "lane.queue", "parent": "unit.parent",
        "key": "body.key", "correlation": "body.correlation", "holder": "worker.name",
    }  # fmt: skip
    params = {name: getattr(wanted, name) for name in columns if getattr(wanted, name) is not None}
    where = [f"{columns[name]} = :{name}" for name in params]
    for column, words in (("state", wanted.states), ("category", wanted.categories)):
        if words:
            names = {f"{column}{place}": word for place, word in enumerate(words)}
            where.append(f"unit.{column} IN ({', '.join(f':{name}' for name in names)})")
            params |= names
    if wanted.settled_before is not None:
        where.append("unit.outcome IS NOT NULL AND unit.changed_at < :settled_before")
        params["settled_before"] = wanted.settled_before
    return where, params


def views(session: Session, where: str, params: Mapping[str, Any], limit: int) -> list[View]:
    units, bodies = (", ".join(f"{kind.table}.{name}" for name in kind.__struct_fields__) for kind in (Unit, Body))
    columns = f"{units}, {bodies}, lane.queue, lane.capabilities, worker.name"
    sql = f"SELECT {columns} {FROM} WHERE {where} ORDER BY unit.id DESC LIMIT :limit"
    found = []
    for row in session.rows(sql, {**params, "limit": limit}):
        unit = Unit(**dict(zip(Unit.__struct_fields__, row, strict=False)))
        rest = row[len(Unit.__struct_fields__) :]
        body = Body(**dict(zip(Body.__struct_fields__, rest, strict=False)))
        queue, capabilities, holder = rest[len(Body.__struct_fields__) :]
        found.append(View(unit, body, queue or "", tuple(filter(None, (capabilities or "").split(","))), holder))
    return found


def events_of(session: Session, unit: int) -> list[Event]:
    return read(session, Event, "WHERE unit = :unit ORDER BY version", unit=unit)


def notes_of(session: Session, unit: int) -> list[Note]:
    return read(session, Note, "WHERE unit = :unit ORDER BY id", unit=unit)


def artifacts_of(session: Session, unit: int) -> list[Artifact]:
    return read(session, Artifact, "WHERE unit = :unit ORDER BY attempt, name", unit=unit)


def children_of(session: Session, unit: int) -> list[View]:
    return list(reversed(listing(session, Filter(parent=unit), 1_000)))


def needs_of(session: Session, unit: int) -> list[Glimpse]:
    """What a unit needs."""
    sql = f"{GLIMPSE} JOIN need ON need.needs = unit.id WHERE need.unit = :unit ORDER BY id"
    return [Glimpse(*row) for row in session.rows(sql, {"unit": unit})]


def slot_of(session: Session, key: str) -> Slot | None:
    found = read(session, Slot, "WHERE key = :key", key=key)
    return found[0] if found else None


def seated_on(session: Session, column: str, name: str) -> list[int]:
    """Which units have a slot of a mutex or a limit."""
    assert column in ("mutex", "limit_key")
    having = "(unit.available_at IS NOT NULL OR unit.holder IS NOT NULL)"
    sql = f"SELECT unit.id FROM unit JOIN body ON body.unit = unit.id WHERE body.{column} = :name AND {having}"
    return [one for (one,) in session.rows(f"{sql} ORDER BY unit.id", {"name": name})]


def workers_seen(session: Session) -> list[tuple[Worker, Unit]]:
    """Every worker that has not shut down, with its unit."""
    both = [f"{kind.table}.{name}" for kind in (Worker, Unit) for name in kind.__struct_fields__]
    sql = f"SELECT {', '.join(both)} FROM worker JOIN unit ON unit.id = worker.unit WHERE unit.outcome IS NULL"
    width, found = len(Worker.__struct_fields__), []
    for row in session.rows(f"{sql} ORDER BY worker.name, worker.unit"):
        worker = Worker(**dict(zip(Worker.__struct_fields__, row[:width], strict=True)))
        found.append((worker, Unit(**dict(zip(Unit.__struct_fields__, row[width:], strict=True)))))
    return found


def counts_by(session: Session, columns: Sequence[str] = ("lifecycle", "state")) -> list[tuple[Any, ...]]:
    """How many units there are of each kind and state."""
    names = ", ".join(columns)
    return session.rows(f"SELECT {names}, count(*) FROM unit GROUP BY {names} ORDER BY {names}")
