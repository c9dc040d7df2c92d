"""Queries of a graph of tasks: tasks that count, needs, and workers that could run them."""

from collections.abc import Collection
from typing import NamedTuple

from interlock.kernel.lifecycle import Category
from interlock.store.connection import Connection

# Checks of the parent are jobs, and no tasks.
TASKS = (
    "SELECT unit.id, place.name, body.task, unit.state, unit.category, unit.outcome, unit.started_at, unit.changed_at, "
    "unit.decides, body.policy, body.retry_of FROM unit JOIN body ON body.unit = unit.id "
    "LEFT JOIN place ON place.unit = unit.id WHERE unit.parent = :parent AND unit.tenant = :tenant "
    "AND unit.lifecycle = :lifecycle AND body.replaced_by IS NULL ORDER BY unit.id"
)
NEEDS = (
    "SELECT need.unit, need.needs, need.by_end FROM unit JOIN need ON need.unit = unit.id "
    "WHERE unit.parent = :parent AND unit.tenant = :tenant ORDER BY need.unit, need.needs"
)
# What a unit waits for along needs that are not met, down to what has ended without success.
BLOCKERS = """
WITH RECURSIVE below (unit) AS (
    SELECT need.needs FROM need WHERE need.unit = :unit AND need.by_end = 0
    UNION
    SELECT need.needs FROM below JOIN unit ON unit.id = below.unit AND unit.outcome IS NULL AND unit.unmet > 0
    JOIN need ON need.unit = unit.id AND need.by_end = 0
)
SELECT unit.id, unit.lifecycle, unit.state, unit.changed_at, place.name, body.task, body.error FROM below
JOIN unit ON unit.id = below.unit JOIN body ON body.unit = unit.id LEFT JOIN place ON place.unit = unit.id
WHERE unit.tenant = :tenant AND unit.outcome IS NOT NULL AND unit.outcome <> :success
ORDER BY unit.changed_at, unit.id LIMIT :limit
"""
HANDLERS = "CASE WHEN concurrency > 0 THEN concurrency ELSE capacity END"


class GraphTask(NamedTuple):
    """A task of a graph, and how it stands. Times are microseconds UTC."""

    unit: int
    name: str | None  # in its parent
    task: str
    state: str
    category: str
    outcome: str | None
    started_at: int | None  # of its last attempt
    changed_at: int
    decides: int
    policy: str
    retry_of: int | None


class Blocker(NamedTuple):
    """A unit that has ended without success, and that another one waits for, by itself or through others."""

    unit: int
    lifecycle: str
    state: str
    changed_at: int
    name: str | None  # in its parent
    task: str
    error: str | None


def find_blockers(connection: Connection, tenant: int, unit: int, limit: int) -> list[Blocker]:
    """What keeps a unit from ever beginning: the first that ended first."""
    given = {"unit": unit, "tenant": tenant, "success": Category.SUCCESS, "limit": limit}
    return [Blocker(*row) for row in connection.rows(BLOCKERS, given)]


def read_graph_tasks(connection: Connection, tenant: int, parent: int, lifecycle: str) -> list[GraphTask]:
    """The children of a lifecycle that a unit has, the oldest first, without those that were replaced."""
    rows = connection.rows(TASKS, {"parent": parent, "tenant": tenant, "lifecycle": lifecycle})
    replaced = {row[-1] for row in rows}
    return [GraphTask(*row) for row in rows if row[0] not in replaced]


def read_graph_needs(connection: Connection, tenant: int, parent: int) -> list[tuple[int, int, bool]]:
    """What the children of a unit need: the child, its need, and whether the need is met by any end."""
    rows = connection.rows(NEEDS, {"parent": parent, "tenant": tenant})
    return [(unit, needs, bool(by_end)) for unit, needs, by_end in rows]


def read_place_names(connection: Connection, tenant: int, units: Collection[int]) -> dict[int, str]:
    """The names of places, by the unit that is there or is yet to come."""
    if not units:
        return {}
    sql = "SELECT unit, name FROM place WHERE tenant = :tenant AND unit {ids}"
    return dict(connection.rows(sql, {"tenant": tenant, "ids": sorted(units)}))


def count_handlers(connection: Connection, tenant: int) -> int:
    """How many jobs the workers that answer and take new work can run at the same time."""
    sql = (
        f"SELECT coalesce(sum({HANDLERS}), 0) FROM worker JOIN unit ON unit.id = worker.unit "
        "WHERE worker.tenant = :tenant AND draining = 0 AND unit.category NOT IN (:closing, :closed)"
    )
    given = {"tenant": tenant, "closing": Category.CLOSING, "closed": Category.CLOSED}
    return int(connection.rows(sql, given)[0][0])
