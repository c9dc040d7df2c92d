"""What the documents of a state folder say: counts and open tasks, metrics, and the graph of each workstream."""

from typing import Any

import msgspec

from interlock.audit.log.checker import TASK, WORKER, WORKSTREAM
from interlock.kernel.ids import format_id
from interlock.plugins.state_files.folder import format_instant
from interlock.store.connection import Connection
from interlock.store.queries.snapshots import PAGE

OPEN_MAX = 1_000  # open tasks that are listed one by one
COUNTS = """
SELECT lifecycle, state, count(*) FROM unit
WHERE tenant = :tenant AND lifecycle IN ('task', 'workstream', 'worker') GROUP BY lifecycle, state ORDER BY 1, 2
"""
OPEN_TASKS = """
SELECT unit.id, unit.parent, unit.state, unit.attempt, unit.changed_at, unit.holder, unit.unmet, body.task, place.name
FROM unit JOIN body ON body.unit = unit.id LEFT JOIN place ON place.unit = unit.id
WHERE unit.tenant = :tenant AND unit.lifecycle = 'task' AND unit.outcome IS NULL ORDER BY unit.id LIMIT :limit
"""
WORKERS = """
SELECT unit.id, worker.name, unit.state, worker.holding, worker.capacity FROM worker JOIN unit ON unit.id = worker.unit
WHERE unit.tenant = :tenant AND unit.outcome IS NULL AND unit.category <> 'closed' ORDER BY unit.id
"""
OPEN_WORKSTREAMS = """
SELECT unit.id, body.task, unit.state, unit.started_at, unit.total, unit.succeeded, unit.lost
FROM unit JOIN body ON body.unit = unit.id
WHERE unit.tenant = :tenant AND unit.lifecycle = 'workstream' AND unit.outcome IS NULL ORDER BY unit.id
"""
IDS = """
SELECT id, outcome FROM unit
WHERE tenant = :tenant AND lifecycle = 'workstream' AND id > :last ORDER BY id LIMIT :page
"""
TOP = """
SELECT body.task, unit.state, unit.outcome, body.created_at FROM unit JOIN body ON body.unit = unit.id
WHERE unit.tenant = :tenant AND unit.id = :unit AND unit.lifecycle = 'workstream'
"""
TASKS = """
SELECT unit.id, unit.state, unit.decides, body.task, place.name FROM unit JOIN body ON body.unit = unit.id
LEFT JOIN place ON place.unit = unit.id
WHERE unit.tenant = :tenant AND unit.parent = :unit AND unit.lifecycle = 'task' ORDER BY unit.id
"""
OPEN_BELOW = """
WITH RECURSIVE below (id, outcome) AS (
    SELECT id, outcome FROM unit WHERE tenant = :tenant AND id = :unit
    UNION ALL SELECT unit.id, unit.outcome FROM unit JOIN below ON unit.parent = below.id)
SELECT count(*), sum(CASE WHEN outcome IS NULL THEN 1 ELSE 0 END), (SELECT parent FROM unit WHERE id = :unit) FROM below
"""
NEEDS = """
SELECT need.unit, need.needs FROM need JOIN unit ON unit.id = need.unit
WHERE unit.tenant = :tenant AND unit.parent = :unit ORDER BY need.unit, need.needs
"""


class UnfinishedTask(msgspec.Struct):
    """A task that has not ended."""

    id: str
    workstream_id: str | None
    name: str | None
    task: str
    state: str
    attempt: int
    since: str
    worker_id: str | None
    unmet_dependencies: int


class UnfinishedWorkstream(msgspec.Struct):
    """A workstream that has not ended, and how its tasks stand. Its time counts from the start of its first task."""

    id: str
    name: str
    state: str
    elapsed_seconds: float | None
    tasks: int
    completed: int
    failed: int


class WorkerLoad(msgspec.Struct):
    """A worker, and how much of it is in use."""

    id: str
    name: str
    state: str
    holding: int
    capacity: int
    utilisation: float


class Overview(msgspec.Struct):
    """How everything stands at one moment."""

    at: str
    counts: dict[str, dict[str, int]]  # by kind and state
    open_tasks: list[UnfinishedTask]
    workstreams: list[UnfinishedWorkstream]
    workers: list[WorkerLoad]


class GraphTask(msgspec.Struct):
    """A task of a workstream, and the tasks that it needs."""

    id: str
    name: str
    task: str
    state: str
    critical: bool
    needs: list[str]


class TaskGraph(msgspec.Struct):
    """A workstream as a graph of tasks, in the order in which they were made."""

    id: str
    name: str
    state: str
    has_ended: bool
    created_at: str
    tasks: list[GraphTask]


def read_overview(connection: Connection, tenant: int) -> Overview:
    """Returns how tasks, workstreams and workers stand; at most a thousand open tasks are listed."""
    now, given = connection.now(), {"tenant": tenant}
    counts: dict[str, dict[str, int]] = {TASK: {}, WORKSTREAM: {}, WORKER: {}}
    for lifecycle, state, count in connection.rows(COUNTS, given):
        counts[lifecycle][state] = count
    tasks = [make_open_task(*row) for row in connection.rows(OPEN_TASKS, {**given, "limit": OPEN_MAX})]
    workstreams = [
        UnfinishedWorkstream(
            format_id(WORKSTREAM, unit), name, state, None if began is None else max(0, now - began) / 1_000_000,
            *numbers,
        )
        for unit, name, state, began, *numbers in connection.rows(OPEN_WORKSTREAMS, given)
    ]  # fmt: skip
    workers = [
        WorkerLoad(format_id(WORKER, unit), name, state, holding, capacity, round(holding / capacity, 4))
        for unit, name, state, holding, capacity in connection.rows(WORKERS, given)
    ]
    return Overview(format_instant(now), counts, tasks, workstreams, workers)


def make_open_task(
    unit: int, parent: int | None, state: str, attempt: int, since: int, holder: int | None, unmet: int, task: str,
    name: str | None,
) -> UnfinishedTask:  # fmt: skip
    workstream = None if parent is None else format_id(WORKSTREAM, parent)
    worker = None if holder is None else format_id(WORKER, holder)
    return UnfinishedTask(
        format_id(TASK, unit), workstream, name, task, state, attempt, format_instant(since), worker, unmet
    )  # fmt: skip


def read_graph(connection: Connection, tenant: int, unit: int) -> TaskGraph | None:
    """Returns a workstream with its tasks and what they need; None if there is none of this number."""
    given = {"tenant": tenant, "unit": unit}
    if not (top := connection.rows(TOP, given)):
        return None
    ((name, state, outcome, created_at),) = top
    needs: dict[int, list[str]] = {}
    for task, needed in connection.rows(NEEDS, given):
        needs.setdefault(task, []).append(format_id(TASK, needed))
    tasks = [
        GraphTask(format_id(TASK, task), place or kind, kind, at, bool(decides), needs.get(task, []))
        for task, at, decides, kind, place in connection.rows(TASKS, given)
    ]
    return TaskGraph(
        format_id(WORKSTREAM, unit), name, state, outcome is not None, format_instant(created_at), tasks
    )  # fmt: skip


def list_workstreams(connection: Connection, tenant: int, ended: bool = False) -> list[int]:
    """Returns the workstreams that have ended, or those that have not."""
    rows = list[tuple[Any, ...]]()
    last = 0
    while page := connection.rows(IDS, {"tenant": tenant, "last": last, "page": PAGE}):
        rows += page
        last = page[-1][0]
    return [unit for unit, outcome in rows if (outcome is not None) is ended]


def can_be_archived(connection: Connection, tenant: int, unit: int) -> bool | None:
    """Whether a workstream and all below it have ended; None if it is gone, or is a part of something else."""
    ((units, unfinished, parent),) = connection.rows(OPEN_BELOW, {"tenant": tenant, "unit": unit})
    return None if not units or parent is not None else not unfinished
