"""Queries of one tenant's units for people: one unit, or many, with notes and artifacts.

Every view names its tenant itself: PostgreSQL hides the rows of others, a SQLite file does not.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from interlock.kernel.errors import Corrupt, Unknown
from interlock.kernel.ids import format_id
from interlock.kernel.lifecycle import Category
from interlock.kernel.rows import Artifact, Body, Event, Note, Schedule, Skipped, Slot, Unit, WorkerRow
from interlock.kernel.rows import columns as columns_of
from interlock.kernel.workflow_graph import Template
from interlock.store.connection import Connection
from interlock.store.queries.snapshots import read_events_beyond, read_heads, read_leases, read_rows
from interlock.store.query import list_columns, list_params, list_placeholders

SUMMARY = (  # what has no body can still be looked at
    "SELECT id, lifecycle, state, category, outcome, result, error FROM unit LEFT JOIN body ON body.unit = unit.id"
)
# A run that waits is in a gate too: the gates themselves are those with none below them.
OPEN_GATES = f"""
WITH RECURSIVE open_unit (id) AS (
    SELECT id FROM unit WHERE id = :unit AND tenant = :tenant AND outcome IS NULL
    UNION ALL
    SELECT unit.id FROM open_unit JOIN unit ON unit.parent = open_unit.id WHERE unit.outcome IS NULL
)
SELECT unit.id, unit.lifecycle FROM open_unit JOIN unit ON unit.id = open_unit.id
WHERE unit.category = '{Category.GATE}' AND unit.gates = 0 ORDER BY unit.id
"""
AHEAD_MAX = 1_000  # units in line that are counted one by one
YET_TO_COME = "yet to come"  # instead of a state: somebody needs the name of a child that is not there
NAMED_MAX, NAME_SHOWN = 20, 80  # names in a message, and characters of a name that was not found


class UnitSummary(msgspec.Struct, frozen=True):
    """The state of a unit, and its outcome."""

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
    above: str | None  # the lifecycle of its parent


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of units; without fields it selects all."""

    states: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    lifecycle: str | None = None
    lifecycles: tuple[str, ...] = ()
    task: str | None = None
    queue: str | None = None
    parent: int | None = None
    key: str | None = None
    correlation: str | None = None
    holder: str | None = None
    error: str | None = None  # with which the last error begins
    settled_before: int | None = None  # microseconds
    top: bool = False  # only units without a parent

    @property
    def empty(self) -> bool:
        return self == Filter()


def read_summary(connection: Connection, tenant: int, unit: int) -> UnitSummary:
    """Where a unit stands.

    Raises:
        Unknown: there is none.
    """
    rows = connection.rows(f"{SUMMARY} WHERE id = :unit AND unit.tenant = :tenant", {"unit": unit, "tenant": tenant})
    if not rows:
        raise Unknown(f"no job, run or step {unit}")
    return UnitSummary(*rows[0])


def view(connection: Connection, tenant: int, unit: int) -> View:
    """A unit and its body.

    Raises:
        Unknown: there is none.
        Corrupt: it has no body.
    """
    rows = select_views(connection, tenant, ["unit.id = :unit"], {"unit": unit}, 1)
    if not rows:
        row = read_unit(connection, tenant, unit)
        raise Corrupt(f"the body of {format_id(row.lifecycle, unit)} is missing; `interlock audit` finds what else is")
    return rows[0]


def read_unit(connection: Connection, tenant: int, unit: int) -> Unit:
    """A unit without its body, which may be missing.

    Raises:
        Unknown: there is none.
    """
    rows = read_rows(connection, Unit, "WHERE id = :unit AND tenant = :tenant", unit=unit, tenant=tenant)
    if not rows:
        raise Unknown(f"no job, run or step {unit}")
    return rows[0]


def views_of(connection: Connection, tenant: int, units: Sequence[int]) -> dict[int, View]:
    """These units and their bodies, by id; those that do not exist are left out."""
    wanted = sorted(set(units))
    rows = (
        select_views(
            connection, tenant, [f"unit.id IN ({list_placeholders(wanted)})"], list_params(wanted), len(wanted)
        )
        if wanted
        else ()
    )
    return {row.unit.id: row for row in rows}


def listing(connection: Connection, tenant: int, wanted: Filter, limit: int, after: int | None = None) -> list[View]:
    """The units that a filter means, the highest id first, from `after` on; `lists.newest` goes by time."""
    where, params = list_conditions(wanted)
    if after is not None:
        where, params = [*where, "unit.id < :after"], {**params, "after": after}
    return select_views(connection, tenant, where, params, limit)


def find_matching(connection: Connection, tenant: int, wanted: Filter, limit: int | None = None) -> list[int]:
    """The ids of the units that a filter means, the oldest first."""
    where, params = list_conditions(wanted)
    sql = f"SELECT unit.id {FROM} WHERE {' AND '.join([OWN, *where])} ORDER BY unit.id"
    params |= {"tenant": tenant}
    rows = connection.rows(f"{sql} LIMIT :limit" if limit else sql, {**params, "limit": limit} if limit else params)
    return [unit for (unit,) in rows]


OWN = "unit.tenant = :tenant"
FROM = (
    "FROM unit JOIN body ON body.unit = unit.id LEFT JOIN lane ON lane.id = unit.lane "
    "LEFT JOIN worker ON worker.unit = unit.holder"
)


def list_conditions(wanted: Filter) -> tuple[list[str], dict[str, Any]]:
    """The conditions of a filter in SQL, and their parameters."""
    columns = {
        "lifecycle": "unit.lifecycle", "task": "body.task", "queue": "lane.queue", "parent": "unit.parent",
        "key": "body.key", "correlation": "body.correlation", "holder": "worker.name",
    }  # fmt: skip
    params = {name: getattr(wanted, name) for name in columns if getattr(wanted, name) is not None}
    where = [f"{columns[name]} = :{name}" for name in params]
    for column, words in (
        ("state", wanted.states), ("category", wanted.categories), ("lifecycle", wanted.lifecycles),
    ):  # fmt: skip
        if words:
            names = {f"{column}_{place}": word for place, word in enumerate(words)}
            where.append(f"unit.{column} IN ({', '.join(f':{name}' for name in names)})")
            params |= names
    if wanted.lifecycle is None:
        where.append("unit.lane > 0")  # workers are units too, but not work: they are in no lane
    if wanted.error is not None:
        where.append("substr(body.error, 1, :error_length) = :error")
        params |= {"error": wanted.error, "error_length": len(wanted.error)}
    if wanted.top:
        where.append("unit.parent IS NULL")
    if wanted.settled_before is not None:
        where.append("unit.outcome IS NOT NULL AND unit.changed_at < :settled_before")
        params["settled_before"] = wanted.settled_before
    return where, params


def select_views(
    connection: Connection,
    tenant: int,
    where: Sequence[str],
    params: Mapping[str, Any],
    limit: int,
    by: str = "unit.id DESC",
    source: str = FROM,
) -> list[View]:
    """Returns views of units that fit these conditions, at most `limit`, in the order of `by`; `source` is the FROM."""
    parent = "(SELECT above.lifecycle FROM unit AS above WHERE above.id = unit.parent)"
    columns = f"{list_columns(Unit)}, {list_columns(Body)}, lane.queue, lane.capabilities, worker.name, {parent}"
    sql = f"SELECT {columns} {source} WHERE {' AND '.join([OWN, *where])} ORDER BY {by} LIMIT :limit"
    views = []
    of_unit, of_body = len(columns_of(Unit)), len(columns_of(Body))
    for row in connection.rows(sql, {**params, "tenant": tenant, "limit": limit}):
        unit, body = Unit(*row[:of_unit]), Body(*row[of_unit : of_unit + of_body])
        queue, capabilities, holder, above = row[of_unit + of_body :]
        needed = tuple(filter(None, (capabilities or "").split(",")))
        views.append(View(unit, body, queue or "", needed, holder, above))
    units = [view.unit for view in views]
    read_leases(connection, units)
    read_heads(connection, units)
    return views


def events_of(connection: Connection, tenant: int, unit: int, after: int = 0, limit: int | None = None) -> list[Event]:
    """What happened to a unit, from the version `after` on, all of it or so much."""
    rest = "WHERE unit = :unit AND tenant = :tenant AND version > :after ORDER BY version"
    given = {"unit": unit, "tenant": tenant, "after": after}
    if after:
        return [event for event in read_events_beyond(connection, unit, after) if event.tenant == tenant][:limit]
    if limit is None:
        return read_rows(connection, Event, rest, **given)
    return read_rows(connection, Event, f"{rest} LIMIT :limit", **given, limit=limit)


def read_newest_version(connection: Connection, tenant: int, unit: int) -> int:
    """The version of a unit.

    Raises:
        Unknown: there is none.
    """
    rows = connection.rows(f"SELECT version FROM unit WHERE {OWN} AND id = :unit", {"tenant": tenant, "unit": unit})
    if not rows:
        raise Unknown(f"no job, run or step {unit}")
    return int(rows[0][0])


def find_moved_since(connection: Connection, tenant: int, versions: Mapping[int, int]) -> list[tuple[int, int, bool]]:
    """Those of these units that are past the given version or have ended: each with its version, and whether it has.

    One that is not there any more has ended.
    """
    sql = "SELECT id, version, outcome FROM unit WHERE tenant = :tenant AND id {ids}"
    rows = connection.rows(sql, {"tenant": tenant, "ids": list(versions)})
    gone = [(unit, versions[unit], True) for unit in versions.keys() - {row[0] for row in rows}]
    return gone + [(row[0], row[1], row[2] is not None) for row in rows if row[1] > versions[row[0]] or row[2]]


def find_cause(connection: Connection, tenant: int, unit: int) -> str | None:
    """What led to the birth of a unit."""
    sql = "SELECT cause FROM act JOIN unit ON unit.born = act.id WHERE unit.id = :unit AND unit.tenant = :tenant"
    rows = connection.rows(sql, {"unit": unit, "tenant": tenant})
    return rows[0][0] if rows else None


def last_event(connection: Connection, tenant: int, unit: int) -> Event | None:
    """The last move of a unit; a hop of its lease alone is none."""
    rest = "WHERE unit = :unit AND tenant = :tenant AND (source IS NULL OR source <> target OR trigger <> 'self')"
    rows = read_rows(connection, Event, f"{rest} ORDER BY version DESC LIMIT 1", unit=unit, tenant=tenant)
    return rows[0] if rows else None


def notes_of(connection: Connection, tenant: int, unit: int) -> list[Note]:
    """The notes of a unit, in the order in which they were made."""
    return read_rows(connection, Note, "WHERE unit = :unit AND tenant = :tenant ORDER BY id", unit=unit, tenant=tenant)


def read_newest_notes(connection: Connection, tenant: int, unit: int, limit: int) -> list[Note]:
    """The last notes of a unit, so many, in the order in which they were made."""
    rest = "WHERE unit = :unit AND tenant = :tenant ORDER BY id DESC LIMIT :limit"
    return read_rows(connection, Note, rest, unit=unit, tenant=tenant, limit=limit)[::-1]


def read_last_tracebacks(connection: Connection, tenant: int, units: Sequence[int]) -> dict[int, Note]:
    """By unit, the traceback of its last failed attempt; units that have none are left out."""
    wanted = sorted(set(units))
    if not wanted:
        return {}
    rest = f"WHERE unit IN ({list_placeholders(wanted)}) AND kind = 'traceback' AND tenant = :tenant ORDER BY id"
    return {note.unit: note for note in read_rows(connection, Note, rest, tenant=tenant, **list_params(wanted))}


def artifacts_of(connection: Connection, tenant: int, unit: int) -> list[Artifact]:
    """The artifacts of a unit, by attempt and name."""
    rest = "WHERE unit = :unit AND tenant = :tenant ORDER BY attempt, name"
    return read_rows(connection, Artifact, rest, unit=unit, tenant=tenant)


def children_of(connection: Connection, tenant: int, unit: int) -> list[View]:
    """The first thousand children of a unit, in the order of their ids."""
    return list(reversed(listing(connection, tenant, Filter(parent=unit), 1_000)))


def find_lost_children(connection: Connection, tenant: int, parent: int, limit: int) -> list[int]:
    """The children that ended without success: those first that decide over their parent, and that ended first."""
    sql = (
        f"SELECT id FROM unit WHERE {OWN} AND parent = :parent AND outcome IS NOT NULL AND outcome <> :success "
        "ORDER BY decides DESC, changed_at, id LIMIT :limit"
    )
    given = {"tenant": tenant, "parent": parent, "success": Category.SUCCESS, "limit": limit}
    return [child for (child,) in connection.rows(sql, given)]


class Needed(UnitSummary, frozen=True):
    """A unit that another one needs, by its success or by its end. One that is yet to come has its id already."""

    name: str | None = None  # in its parent
    by_end: bool = False

    @property
    def is_met(self) -> bool:
        """Whether nothing is to be waited for any more."""
        return self.outcome == Category.SUCCESS or (self.by_end and self.outcome is not None)

    @property
    def called(self) -> str:
        """What people call it: its id, or its name while it is yet to come."""
        return f"'{self.name}'" if self.state == YET_TO_COME else format_id(self.lifecycle, self.unit)


def needs_of(connection: Connection, tenant: int, unit: int) -> list[Needed]:
    """What a unit needs."""
    stand = f"coalesce(unit.lifecycle, 'unit'), coalesce(state, '{YET_TO_COME}'), coalesce(category, 'waiting')"
    sql = (
        f"SELECT need.needs, {stand}, outcome, body.result, body.error, place.name, need.by_end = 1 FROM need "
        "LEFT JOIN unit ON unit.id = need.needs LEFT JOIN body ON body.unit = need.needs "
        "LEFT JOIN place ON place.unit = need.needs "
        "WHERE need.unit = :unit AND need.tenant = :tenant ORDER BY need.needs"
    )
    rows = connection.rows(sql, {"unit": unit, "tenant": tenant})
    return [Needed(*(*row[:-1], bool(row[-1]))) for row in rows]


def child_named(connection: Connection, tenant: int, unit: int, name: str) -> UnitSummary:
    """The child of a unit that has this name in it.

    Raises:
        Unknown: the text says what the names are.
    """
    own = "place.parent = :parent AND place.tenant = :tenant"
    given = {"parent": unit, "tenant": tenant}
    sql = f"{SUMMARY} JOIN place ON place.unit = unit.id WHERE {own} AND place.name = :name"
    rows = [] if "\0" in name else connection.rows(sql, {**given, "name": name})
    if rows:
        return UnitSummary(*rows[0])
    parent = format_id(read_summary(connection, tenant, unit).lifecycle, unit)
    sql = f"SELECT name FROM place JOIN unit ON unit.id = place.unit WHERE {own} ORDER BY unit.id LIMIT {NAMED_MAX}"
    names = connection.rows(sql, given)
    there = ", ".join(f"'{name}'" for (name,) in names)
    more = ", …" if len(names) == NAMED_MAX else ""
    raise Unknown(f"{parent} has no child '{name[:NAME_SHOWN]}'; it has {there or 'none with a name'}{more}")


def find_open_gates(connection: Connection, tenant: int, unit: int) -> list[tuple[int, str]]:
    """The gates at a unit or below it that are open, each with its lifecycle, the oldest first."""
    return [(gate, lifecycle) for gate, lifecycle in connection.rows(OPEN_GATES, {"unit": unit, "tenant": tenant})]


def read_slot(connection: Connection, tenant: int, key: str) -> Slot | None:
    """A mutex or a limit, by its whole name (`mutex:…`, `limit:…`)."""
    rows = read_rows(connection, Slot, "WHERE key = :key AND tenant = :tenant", key=key, tenant=tenant)
    return rows[0] if rows else None


def find_slot_holders(connection: Connection, tenant: int, column: str, name: str) -> list[View]:
    """Which units have a slot of a mutex or a limit, or a token of a rate, the oldest first."""
    assert column in ("mutex", "limit_key", "rate_key")
    held = "" if column == "rate_key" else " OR unit.holder IS NOT NULL"
    having = f"(unit.available_at IS NOT NULL{held})"
    return select_views(connection, tenant, [f"body.{column} = :name", having], {"name": name}, 1_000)[::-1]


def find_next_token(connection: Connection, tenant: int, key: str) -> int | None:
    """When the first token of a rate that is away comes back; `key` is what a unit is parked on."""
    sql = "SELECT min(back_at) FROM token WHERE key = :key AND tenant = :tenant"
    back_at: int | None = connection.rows(sql, {"key": key, "tenant": tenant})[0][0]
    return back_at


def count_ahead(connection: Connection, tenant: int, unit: Unit) -> int:
    """How many units of the same lane are claimed before this one; many are counted as AHEAD_MAX."""
    before = "(priority > :priority OR (priority = :priority AND (available_at, id) < (:at, :id)))"
    sql = f"SELECT 1 FROM unit WHERE {OWN} AND lane = :lane AND available_at IS NOT NULL AND {before} LIMIT {AHEAD_MAX}"
    params = {"tenant": tenant, "lane": unit.lane, "priority": unit.priority, "at": unit.available_at, "id": unit.id}
    return len(connection.rows(sql, params))


def schedules_of(connection: Connection, tenant: int) -> list[Schedule]:
    """The schedules of a tenant that were not removed, by name."""
    return read_rows(connection, Schedule, "WHERE tenant = :tenant AND removed_at IS NULL ORDER BY name", tenant=tenant)


def read_templates(connection: Connection, tenant: int) -> list[Template]:
    """The newest version of each template of a tenant, by name."""
    newest = (
        "(SELECT max(version) FROM template AS one WHERE one.tenant = template.tenant AND one.name = template.name)"
    )
    return read_rows(
        connection, Template, f"WHERE tenant = :tenant AND version = {newest} ORDER BY name", tenant=tenant
    )


def read_template(connection: Connection, tenant: int, name: str, version: int | None) -> Template | None:
    """A version of a template, or the newest one."""
    given = {"tenant": tenant, "name": name, "version": version or 0}
    rest = "WHERE tenant = :tenant AND name = :name AND :version IN (0, version) ORDER BY version DESC LIMIT 1"
    rows = read_rows(connection, Template, rest, **given)
    return rows[0] if rows else None


def schedule_of(connection: Connection, tenant: int, name: str) -> Schedule | None:
    """A schedule by its name, also one that was removed."""
    rows = read_rows(connection, Schedule, "WHERE tenant = :tenant AND name = :name", tenant=tenant, name=name)
    return rows[0] if rows else None


def read_skipped(connection: Connection, tenant: int, name: str, limit: int) -> list[Skipped]:
    """The instants for which a schedule made nothing, the latest first."""
    rest = "WHERE tenant = :tenant AND schedule = :name ORDER BY id DESC LIMIT :limit"
    return read_rows(connection, Skipped, rest, tenant=tenant, name=name, limit=limit)


def workers_seen(connection: Connection, tenant: int, ended: bool = False) -> list[tuple[WorkerRow, Unit]]:
    """Every worker that has not shut down, or every worker, with its unit."""
    sql = f"SELECT {list_columns(WorkerRow)}, {list_columns(Unit)} FROM worker JOIN unit ON unit.id = worker.unit"
    sql += " WHERE worker.tenant = :tenant" + ("" if ended else f" AND unit.category <> '{Category.CLOSED}'")
    rows = connection.rows(f"{sql} ORDER BY worker.name, worker.unit", {"tenant": tenant})
    width = len(columns_of(WorkerRow))
    return [(WorkerRow(*row[:width]), Unit(*row[width:])) for row in rows]


def read_done_again(connection: Connection, tenant: int, units: Sequence[int]) -> dict[int, int]:
    """Those of these units that were done again, each with the last unit that does it again."""
    own = "tenant = :tenant AND retry_of IS NOT NULL AND retry_of {ids}"
    sql = f"SELECT retry_of, max(unit) FROM body WHERE {own} GROUP BY retry_of"
    return dict(connection.rows(sql, {"tenant": tenant, "ids": list(units)}))


def count_by(
    connection: Connection, tenant: int, columns: Sequence[str] = ("lifecycle", "state")
) -> list[tuple[Any, ...]]:
    """How many units there are of each kind and state."""
    names = ", ".join(columns)
    sql = f"SELECT {names}, count(*) FROM unit WHERE tenant = :tenant GROUP BY {names} ORDER BY {names}"
    return connection.rows(sql, {"tenant": tenant})


def find_archive(connection: Connection, tenant: int, unit: int) -> str | None:
    """The file that holds a unit which has left the database."""
    sql = "SELECT file FROM archived WHERE unit = :unit AND tenant = :tenant"
    rows = connection.rows(sql, {"unit": unit, "tenant": tenant})
    return str(rows[0][0]) if rows else None
