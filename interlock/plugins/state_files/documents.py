"""What the documents of a state folder say: counts and open tasks, metrics, and the graph of each workstream."""

from itertools import islice

import msgspec

from interlock.audit.log.checker import TASK, WORKER, WORKSTREAM
from interlock.kernel.ids import format_id
from interlock.kernel.paths import LISTED
from interlock.lifecycles import shipped
from interlock.plugins.state_files.folder import format_instant
from interlock.plugins.state_files.queries import (
    LAST_ACTS,
    MOVES,
    NEEDS_BELOW,
    OPEN_BELOW,
    OPEN_TASKS,
    OPEN_WORKSTREAMS,
    TASKS_BELOW,
    WORKER_LOADS,
    WORKSTREAM_FACTS,
)
from interlock.store.cache import NUMBERS
from interlock.store.connection import Connection
from interlock.store.queries.feed import PLACE_MAX, format_cursor, parse_cursor
from interlock.store.queries.lists import LAST, find_births, iterate_births, refs_of
from interlock.store.queries.snapshots import PAGE, read_epoch, read_horizon
from interlock.store.queries.views import Filter
from interlock.store.query import list_params, list_placeholders
from interlock.store.retention import split_ids

OPEN_MAX = 1_000  # open tasks that are listed one by one
ACTS_COUNTED = 5_000  # acts whose transitions are counted together
# The states of a task in which lists find it although nobody holds it and it has not ended.
WAITING = [name for name, state in shipped()[TASK].states.items() if state.category in LISTED and not state.settled]


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


class CountedMoves(msgspec.Struct):
    """By how much there are more or fewer units in each state, by kind; `next` is the cursor to go on with."""

    counts: dict[str, dict[str, int]]
    next: str
    more: bool  # there is more to count already


class Overview(msgspec.Struct):
    """How what is open stands at one moment."""

    at: str
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


def count_moves(
    connection: Connection, tenant: int, cursor: str | None = None, limit: int = ACTS_COUNTED
) -> CountedMoves:
    """Counts what tasks, workstreams and workers have become since a cursor (None: since the first one).

    Raises:
        InterlockError: it is no cursor of this database.
    """
    after, _ = parse_cursor(connection, cursor)
    horizon = read_horizon(connection)
    given = {"tenant": tenant, "act": after, "horizon": horizon, "most": limit}
    bound = connection.rows(LAST_ACTS, given)
    last = bound[0][0] if bound else max(horizon - 1, after)
    counts: dict[str, dict[str, int]] = {TASK: {}, WORKSTREAM: {}, WORKER: {}}
    for lifecycle, source, target, count in connection.rows(MOVES, {"tenant": tenant, "act": after, "last": last}):
        for state, change in ((source, -count), (target, count)):
            if state is not None:
                counts[lifecycle][state] = counts[lifecycle].get(state, 0) + change
    return CountedMoves(counts, format_cursor(read_epoch(connection) or "", (last, PLACE_MAX)), bool(bound))


def read_overview(connection: Connection, tenant: int, workstreams: list[int]) -> Overview:
    """Returns how open tasks, workers, and those of these workstreams that are open stand.

    At most a thousand open tasks are listed. What has ended is not read, however much it is.
    """
    now, given = connection.now(), {"tenant": tenant}
    lanes = {"first": tenant * NUMBERS, "end": (tenant + 1) * NUMBERS, "limit": OPEN_MAX}
    loads = connection.rows(WORKER_LOADS, given)
    holders = [unit for unit, _, _, holding, _ in loads if holding]
    open_tasks = connection.rows(
        OPEN_TASKS.format(states=list_placeholders(WAITING)),
        {**given, **lanes, **list_params(WAITING), "ids": holders},
    )
    streams = [
        UnfinishedWorkstream(
            format_id(WORKSTREAM, unit), name, state, None if began is None else max(0, now - began) / 1_000_000,
            *numbers,
        )
        for part in split_ids(sorted(workstreams))
        for unit, name, state, began, *numbers in connection.rows(OPEN_WORKSTREAMS, {**given, "ids": part})
    ]  # fmt: skip
    workers = [
        WorkerLoad(format_id(WORKER, unit), name, state, holding, capacity, round(holding / capacity, 4))
        for unit, name, state, holding, capacity in loads
    ]
    return Overview(format_instant(now), [make_open_task(*row) for row in open_tasks], streams, workers)


def make_open_task(
    unit: int, parent: int | None, state: str, attempt: int, since: int, holder: int | None, unmet: int, task: str,
    name: str | None,
) -> UnfinishedTask:  # fmt: skip
    """Makes an open task of its row."""
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
    kinds, listed = find_births(connection, (), Filter(lifecycle=WORKSTREAM)), list[int]()
    births = iterate_births(connection, tenant, kinds, (LAST, LAST, LAST)) if kinds else iter(())
    while page := list(islice(births, PAGE)):
        refs = refs_of(connection, tenant, [unit for unit, *_ in page])
        listed += [ref.unit for ref in refs if ref.ended is ended]
    return sorted(listed)


def can_be_archived(connection: Connection, tenant: int, unit: int) -> bool | None:
    """Whether a workstream and all below it have ended; None if it is gone, or is a part of something else."""
    ((units, unfinished, parent),) = connection.rows(OPEN_BELOW, {"tenant": tenant, "unit": unit})
    return None if not units or parent is not None else not unfinished
