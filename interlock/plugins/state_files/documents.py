"""What the documents of a state folder say: counts and open tasks, metrics, and the graph of each workstream."""

import msgspec

from interlock.audit.log.checker import TASK, WORKER, WORKSTREAM
from interlock.kernel.ids import format_id
from interlock.plugins.state_files.folder import format_instant
from interlock.plugins.state_files.queries import (
    COUNTS,
    NEEDS_BELOW,
    OPEN_BELOW,
    OPEN_TASKS,
    OPEN_WORKSTREAMS,
    TASKS_BELOW,
    WORKER_LOADS,
    WORKSTREAM_FACTS,
)
from interlock.store.connection import Connection
from interlock.store.queries.lists import LAST, find_births, read_born, refs_of
from interlock.store.queries.snapshots import PAGE
from interlock.store.queries.views import Filter
from interlock.store.retention import split_ids

OPEN_MAX = 1_000  # open tasks that are listed one by one


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


class StoredTask(msgspec.Struct):
    """A task of a workstream, and the tasks that it needs."""

    id: str
    name: str
    task: str
    state: str
    critical: bool
    needs: list[str]


class StoredGraph(msgspec.Struct):
    """A workstream as a graph of tasks, in the order in which they were made."""

    id: str
    name: str
    state: str
    has_ended: bool
    created_at: str
    tasks: list[StoredTask]


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
        for part in split_ids(list_workstreams(connection, tenant))
        for unit, name, state, began, *numbers in connection.rows(OPEN_WORKSTREAMS, {**given, "ids": part})
    ]  # fmt: skip
    workers = [
        WorkerLoad(format_id(WORKER, unit), name, state, holding, capacity, round(holding / capacity, 4))
        for unit, name, state, holding, capacity in connection.rows(WORKER_LOADS, given)
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


def read_graph(connection: Connection, tenant: int, unit: int) -> StoredGraph | None:
    """Returns a workstream with its tasks and what they need; None if there is none of this number."""
    given = {"tenant": tenant, "unit": unit}
    if not (top := connection.rows(WORKSTREAM_FACTS, given)):
        return None
    ((name, state, outcome, created_at),) = top
    needs: dict[int, list[str]] = {}
    for task, needed in connection.rows(NEEDS_BELOW, given):
        needs.setdefault(task, []).append(format_id(TASK, needed))
    tasks = [
        StoredTask(format_id(TASK, task), place or kind, kind, at, bool(decides), needs.get(task, []))
        for task, at, decides, kind, place in connection.rows(TASKS_BELOW, given)
    ]
    return StoredGraph(
        format_id(WORKSTREAM, unit), name, state, outcome is not None, format_instant(created_at), tasks
    )  # fmt: skip


def list_workstreams(connection: Connection, tenant: int, ended: bool = False) -> list[int]:
    """Returns the workstreams that have ended, or those that have not; no other units are read."""
    births, place, listed = find_births(connection, (), Filter(lifecycle=WORKSTREAM)), (LAST, LAST, LAST), list[int]()
    while page := read_born(connection, tenant, births, place, PAGE) if births else []:
        refs = refs_of(connection, tenant, [unit for unit, *_ in page])
        listed += [ref.unit for ref in refs if ref.ended is ended]
        place = page[-1][2:]
    return sorted(listed)


def can_be_archived(connection: Connection, tenant: int, unit: int) -> bool | None:
    """Whether a workstream and all below it have ended; None if it is gone, or is a part of something else."""
    ((units, unfinished, parent),) = connection.rows(OPEN_BELOW, {"tenant": tenant, "unit": unit})
    return None if not units or parent is not None else not unfinished
