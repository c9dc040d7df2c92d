"""What workstreams read and write beside the rows of units: children, needs, names and results."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from interlock.kernel.lifecycle import Category
from interlock.kernel.rows import Body, Need, Unit, WorkerRow
from interlock.plugins.workstreams.options import WorkstreamOptions, decode_stream_options
from interlock.store.connection import Connection
from interlock.store.queries.for_verbs import UNIT_UNLOCKED
from interlock.store.query import list_columns, select
from interlock.store.unit_of_work import UnitOfWork

AT_ONCE = 500  # names in one question
CHILDREN = select(Unit, "WHERE parent = :parent ORDER BY id")
CHILD_BODIES = select(Body, "JOIN unit ON unit.id = body.unit WHERE unit.parent = :parent ORDER BY body.unit")
WAITING = select(
    Need, "JOIN unit ON unit.id = need.unit WHERE need.needs = :needs AND need.by_end = 0 AND unit.outcome IS NULL"
)
UNMET = (
    "SELECT coalesce(place.name, 'job ' || need.needs) FROM need LEFT JOIN unit ON unit.id = need.needs "
    "LEFT JOIN place ON place.unit = need.needs WHERE need.unit = :unit AND (unit.outcome IS NULL "
    "OR (need.by_end = 0 AND unit.outcome <> 'success')) ORDER BY need.needs LIMIT :limit"
)
NEEDS_OF_CHILDREN = (
    "SELECT need.unit, need.needs, need.tenant, need.by_end, "
    "CASE WHEN needed.parent = :parent THEN 1 ELSE 0 END FROM unit JOIN need ON need.unit = unit.id "
    "LEFT JOIN unit AS needed ON needed.id = need.needs WHERE unit.parent = :parent ORDER BY need.unit, need.needs"
)


READY_WORKERS = (
    f"SELECT {list_columns(WorkerRow)} FROM worker JOIN unit ON unit.id = worker.unit "
    "WHERE worker.tenant = :tenant AND draining = 0 AND seen_at >= :since AND category NOT IN (:closing, :closed)"
)


class Unplanned(NamedTuple):
    """A unit as it is now, and what it says of itself as a workstream; others may change it."""

    row: Unit
    options: WorkstreamOptions | None


def read_unplanned(tx: UnitOfWork, unit: int) -> Unplanned | None:
    """A unit of this tenant and what it says of itself, read without a lock: its children are locked before it."""
    rows = [row for row in tx.run(UNIT_UNLOCKED.bind(id=unit)) if row.tenant == tx.tenant]
    if not rows:
        return None
    policies = tx.connection.rows("SELECT policy FROM body WHERE unit = :unit", {"unit": unit})
    return Unplanned(rows[0], decode_stream_options(policies[0][0]) if policies else None)


# For operations on tasks.


def read_waiting(tx: UnitOfWork, unit: int) -> list[Need]:
    """The needs of open units for the success of a unit."""
    return tx.run(WAITING.bind(needs=unit))


def read_needs(tx: UnitOfWork, unit: int) -> dict[int, bool]:
    """What a unit needs, each with whether the end is enough."""
    sql = "SELECT needs, by_end FROM need WHERE unit = :unit ORDER BY needs"
    return {needs: bool(by_end) for needs, by_end in tx.connection.rows(sql, {"unit": unit})}


def read_unmet_names(tx: UnitOfWork, unit: int) -> list[str]:
    """The names of what a unit needs and has not got, at most ten."""
    return [name for (name,) in tx.connection.rows(UNMET, {"unit": unit, "limit": 10})]


def forget_needs(tx: UnitOfWork, needs: Iterable[Need]) -> None:
    """Needs are deleted: others take their place."""
    rows = [{"unit": need.unit, "needs": need.needs} for need in needs]
    if rows:
        tx.connection.many("DELETE FROM need WHERE unit = :unit AND needs = :needs", rows)


def forget_place(tx: UnitOfWork, unit: int) -> None:
    """The name of a unit in its parent is free: another one takes it."""
    tx.connection.rows("DELETE FROM place WHERE unit = :unit", {"unit": unit})


def read_worker_name(tx: UnitOfWork, worker: int) -> str:
    """The name of a worker."""
    rows = tx.connection.rows("SELECT name FROM worker WHERE unit = :unit", {"unit": worker})
    return str(rows[0][0]) if rows else ""


def read_ready_workers(tx: UnitOfWork, heard_us: int) -> list[WorkerRow]:
    """The workers that take new work, and were heard within so many microseconds."""
    given = {"tenant": tx.tenant, "since": tx.now - heard_us, "closing": Category.CLOSING, "closed": Category.CLOSED}
    return [WorkerRow(*row) for row in tx.connection.rows(READY_WORKERS, given)]


# For reruns.


def read_children(tx: UnitOfWork, parent: int) -> Iterator[tuple[Unit, Body]]:
    """The children of a unit that has ended, with their bodies; they do not change any more."""
    bodies = {body.unit: body for body in tx.run(CHILD_BODIES.bind(parent=parent))}
    yield from ((unit, bodies[unit.id]) for unit in tx.run(CHILDREN.bind(parent=parent)) if unit.id in bodies)


def read_needs_of_children(tx: UnitOfWork, parent: int) -> list[tuple[Need, bool]]:
    """What the children of a unit need, each with whether that is a child of it too."""
    rows = tx.connection.rows(NEEDS_OF_CHILDREN, {"parent": parent})
    return [(Need(unit, needs, tenant, by_end), bool(sibling)) for unit, needs, tenant, by_end, sibling in rows]


# For maps.


def read_result(tx: UnitOfWork, unit: int) -> str | None:
    """The result of a unit, as the database keeps it."""
    if unit in tx.rows.bodies:
        return tx.rows.bodies[unit].result
    rows = tx.connection.rows("SELECT result FROM body WHERE unit = :unit", {"unit": unit})
    return rows[0][0] if rows else None


def read_named_results(tx: UnitOfWork, parent: int, names: Sequence[str]) -> dict[str, str | None]:
    """The results of children, by name."""
    sql = (
        "SELECT place.name, body.result FROM place JOIN body ON body.unit = place.unit "
        "WHERE place.parent = :parent AND place.name {ids}"
    )
    results: dict[str, str | None] = {}
    for start in range(0, len(names), AT_ONCE):
        some = list(names[start : start + AT_ONCE])
        results |= dict(tx.connection.rows(sql, {"parent": parent, "ids": some}))
    return results


class DoneItem(NamedTuple):
    """A completed task: what it was given, and what it came to."""

    unit: int
    input: str
    result: str | None


def read_done_items(tx: UnitOfWork, parent: int, names: Sequence[str]) -> dict[str, DoneItem]:
    """The completed children of a unit, by name."""
    sql = (
        "SELECT place.name, unit.id, body.input, body.result FROM place JOIN unit ON unit.id = place.unit "
        "JOIN body ON body.unit = unit.id WHERE place.parent = :parent AND unit.outcome = 'success' "
        "AND place.name {ids}"
    )
    done: dict[str, DoneItem] = {}
    for start in range(0, len(names), AT_ONCE):
        rows = tx.connection.rows(sql, {"parent": parent, "ids": list(names[start : start + AT_ONCE])})
        done |= {name: DoneItem(*row) for name, *row in rows}
    return done


# For people and stories.


class TaskStatus(NamedTuple):
    """A task of a workstream that counts, as it is now."""

    unit: int
    name: str
    state: str
    outcome: str | None
    held: bool


def list_named_tasks(connection: Connection, tenant: int, workstream: int) -> list[TaskStatus]:
    """The tasks of a workstream that have a name and count, by name."""
    sql = (
        "SELECT unit.id, place.name, unit.state, unit.outcome, CASE WHEN unit.holder IS NULL THEN 0 ELSE 1 END "
        "FROM place JOIN unit ON unit.id = place.unit WHERE place.parent = :parent AND unit.tenant = :tenant "
        "ORDER BY place.name"
    )
    rows = connection.rows(sql, {"parent": workstream, "tenant": tenant})
    return [TaskStatus(unit, name, state, outcome, bool(held)) for unit, name, state, outcome, held in rows]


# For laws. A task that another one replaced has `replaced_by` in its body, and that one names it as `retry_of`.


def find_not_completed(connection: Connection) -> list[tuple[int, int, str]]:
    """Completed workstreams, each with a task that counts and is not completed, and the state of that."""
    sql = (
        "SELECT stream.id, unit.id, unit.state FROM unit AS stream JOIN unit ON unit.parent = stream.id "
        "JOIN body ON body.unit = unit.id WHERE stream.lifecycle = 'workstream' AND stream.outcome = 'success' "
        "AND unit.lifecycle = 'task' AND coalesce(unit.outcome, '') <> 'success' AND NOT EXISTS "
        "(SELECT 1 FROM body AS fresh WHERE fresh.unit = body.replaced_by AND fresh.retry_of = body.unit) "
        "AND NOT EXISTS (SELECT 1 FROM forced_move WHERE forced_move.unit IN (stream.id, unit.id))"
    )
    return [(stream, task, state) for stream, task, state in connection.rows(sql)]


def find_not_failed(connection: Connection) -> list[tuple[int, str, int]]:
    """Workstreams that did not fail, each with its state and a critical task that counts and has failed."""
    sql = (
        "SELECT stream.id, stream.state, unit.id FROM unit AS stream JOIN unit ON unit.parent = stream.id "
        "JOIN body ON body.unit = unit.id WHERE stream.lifecycle = 'workstream' "
        "AND coalesce(stream.outcome, '') <> 'failure' AND unit.lifecycle = 'task' AND unit.decides = 1 "
        "AND unit.outcome = 'failure' AND NOT EXISTS "
        "(SELECT 1 FROM body AS fresh WHERE fresh.unit = body.replaced_by AND fresh.retry_of = body.unit) "
        "AND NOT EXISTS (SELECT 1 FROM forced_move WHERE forced_move.unit IN (stream.id, unit.id))"
    )
    return [(stream, state, task) for stream, state, task in connection.rows(sql)]


def read_expecting(connection: Connection, plugin: str) -> list[tuple[int, int, int, str | None, str]]:
    """Workstreams that expect a number of tasks: id, version, tasks, outcome and policy."""
    sql = (
        "SELECT unit.id, unit.version, unit.total, unit.outcome, body.policy FROM unit "
        "JOIN body ON body.unit = unit.id WHERE unit.lifecycle = 'workstream' AND body.policy LIKE :named "
        "AND NOT EXISTS (SELECT 1 FROM forced_move WHERE forced_move.unit = unit.id)"
    )
    rows = connection.rows(sql, {"named": f"%{plugin}%expects%"})
    return [(unit, version, total, outcome, policy) for unit, version, total, outcome, policy in rows]


REPLACED = (
    "FROM body AS fresh JOIN body AS old ON old.unit = fresh.retry_of AND old.replaced_by = fresh.unit "
    "JOIN unit AS was ON was.id = old.unit"
)


def read_replacements(connection: Connection) -> list[tuple[int, int, str | None, int | None, int | None]]:
    """Tasks that were replaced: id, the one in its place, outcome, parent, and the parent of the other."""
    sql = (
        f"SELECT old.unit, old.replaced_by, was.outcome, was.parent, unit.parent {REPLACED} "
        "JOIN unit ON unit.id = fresh.unit WHERE fresh.retry_of IS NOT NULL"
    )
    return [(old, fresh, outcome, parent, other) for old, fresh, outcome, parent, other in connection.rows(sql)]


def read_needs_of_replaced(connection: Connection) -> list[tuple[int, int]]:
    """Open units that wait for the success of a task that was replaced, each with that task."""
    sql = (
        f"SELECT need.unit, need.needs {REPLACED} JOIN need ON need.needs = old.unit AND need.by_end = 0 "
        "JOIN unit ON unit.id = need.unit WHERE fresh.retry_of IS NOT NULL AND unit.outcome IS NULL"
    )
    return [(unit, needs) for unit, needs in connection.rows(sql)]


def read_maps(connection: Connection, kind: str) -> list[tuple[int, str | None, str, str, str | None]]:
    """Maps that have made their tasks: id, outcome, name, what the note of this kind says, and result."""
    sql = (
        "SELECT unit.id, unit.outcome, place.name, note.payload, body.result FROM note "
        "JOIN unit ON unit.id = note.unit JOIN body ON body.unit = unit.id JOIN place ON place.unit = unit.id "
        "WHERE note.kind = :kind"
    )
    rows = connection.rows(sql, {"kind": kind})
    return [(unit, outcome, name, payload, result) for unit, outcome, name, payload, result in rows]


def is_needed_by_name(connection: Connection, unit: int, name: str) -> bool:
    """Whether a unit needs something of this name."""
    sql = "SELECT 1 FROM need JOIN place ON place.unit = need.needs WHERE need.unit = :unit AND place.name = :name"
    return bool(connection.rows(sql, {"unit": unit, "name": name}))
