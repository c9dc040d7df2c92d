"""Progress and plan of a workstream: done, running, blocked, the critical path, and the estimated end.

All of it is read from one moment of the database. How long a task will take is what it says of itself (`takes_us`), or
what tasks of the same name took in the same workstream; before any has ended, what the others took. Without any of
these, without a worker, and while the workstream is paused, nobody knows when it ends.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from interlock.client.durations import format_time
from interlock.kernel.errors import Unknown
from interlock.kernel.ids import format_id
from interlock.kernel.lifecycle import SETTLED, Category
from interlock.kernel.plan import Durations, StagePlan, estimate_left_us, find_blocked, find_critical_path, make_plan
from interlock.kernel.policy import LEASED
from interlock.plugins.pauses.queries import find_pauses_over
from interlock.plugins.workstreams.options import WorkstreamOptions, decode_stream_options
from interlock.store.connection import Connection
from interlock.store.queries.task_graphs import (
    GraphTask,
    count_handlers,
    read_graph_needs,
    read_graph_tasks,
    read_place_names,
)
from interlock.store.queries.views import View, view

WORKSTREAM, TASK = "workstream", "task"  # lifecycles: a workstream is made of tasks
SHOWN_MAX = 20  # blocked tasks that are named in a progress
PATH_MAX = 1_000  # tasks of a critical path that are named
PAGE = 1_000  # tasks of a plan
MILLION = 1_000_000


class BlockedTask(msgspec.Struct, frozen=True):
    """A task that cannot begin, because tasks before it ended without success; `by` are those that it needs."""

    id: str
    name: str
    by: tuple[str, ...]


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a workstream is. The counts from `done` to `blocked` add up to the tasks that there are."""

    id: str
    state: str
    of: int  # tasks, those that are still expected included
    done: int
    failed: int  # or cancelled
    running: int
    checking: int  # done by their workers, and not yet checked
    ready: int  # wait for a worker
    waiting: int  # for what they need, or for their next attempt
    blocked: int
    blocked_tasks: tuple[BlockedTask, ...]  # the first 20
    critical_path: tuple[str, ...]  # names of the tasks that are left on it, the next one first; at most 1,000
    started_at: str | None  # when its first task was started
    elapsed_seconds: float  # since then, until it ended
    left_seconds: float | None  # None: nobody knows
    eta: str | None
    paused: bool


class PlannedTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task in a plan."""

    id: str
    name: str
    stage: int  # from 1 on
    state: str
    needs: tuple[str, ...]  # names
    critical: bool  # its failure is the workstream's
    on_critical_path: bool
    seconds: float | None  # that it took, or is expected to take


class ExecutionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The execution plan of a workstream: its stages, and what is left of it."""

    id: str
    state: str
    at: str  # when it was read
    count: int  # tasks
    stages: int
    width: int  # tasks of the largest stage
    critical_path: tuple[str, ...]  # names, from the first task to the last; at most 1,000
    length_seconds: float | None  # of the critical path
    eta: str | None
    tasks: tuple[PlannedTask, ...]  # in order: each behind those that it needs
    next: int | None  # the place from which on there are more


def read_progress(connection: Connection, tenant: int, unit: int) -> Progress:
    """Reads how far a workstream is.

    Raises:
        Unknown: there is no such workstream.
    """
    return make_progress(read_task_graph(connection, tenant, unit))


def read_plan(connection: Connection, tenant: int, unit: int, first: int = 0, limit: int = PAGE) -> ExecutionPlan:
    """Reads the execution plan of a workstream, with at most `limit` tasks of it from the place `first` on.

    Raises:
        Unknown: there is no such workstream.
    """
    return make_execution_plan(read_task_graph(connection, tenant, unit), first, limit)


class TaskGraph:
    """The tasks of a workstream as they stand at one moment, and what follows from that."""

    def __init__(
        self, top: View, now: int, tasks: Mapping[int, GraphTask], needs: Mapping[int, Sequence[tuple[int, bool]]],
        others: Mapping[int, str], handlers: int, *, paused: bool,
    ) -> None:  # fmt: skip
        self.top, self.now, self.tasks, self.handlers, self.paused = top, now, tasks, handlers, paused
        self.names = {**others, **{unit: task.name or task.task for unit, task in tasks.items()}}
        self.needs = {unit: [need for need, _ in needs.get(unit, ())] for unit in self.tasks}
        self.hard_needs = {unit: [need for need, by_end in needs.get(unit, ()) if not by_end] for unit in self.tasks}
        self.options = decode_stream_options(top.body.policy) or WorkstreamOptions()
        self.takes_us = self.estimate_durations()
        self.plan: StagePlan[int] = make_plan(self.needs, {unit: took or 0 for unit, took in self.takes_us.items()})
        self.open = [unit for unit in self.plan.order if self.tasks[unit].outcome is None]
        lost = {unit for unit, task in self.tasks.items() if task.outcome not in (None, Category.SUCCESS)}
        self.blocked = find_blocked(self.open, self.hard_needs, lost)
        self.path_left, self.left_us = self.estimate_left()

    @property
    def id(self) -> str:
        return format_id(self.top.unit.lifecycle, self.top.unit.id)

    @property
    def is_settled(self) -> bool:
        return self.top.unit.category in SETTLED

    @property
    def eta(self) -> str | None:
        return None if self.left_us is None else format_time(self.now + self.left_us)

    def estimate_durations(self) -> dict[int, int | None]:
        """By task: how long it took, or will take; None if nobody knows."""
        durations = Durations()
        took_us = {
            unit: task.changed_at - task.started_at
            for unit, task in self.tasks.items()
            if task.outcome == Category.SUCCESS and task.started_at is not None
        }
        for unit, length_us in took_us.items():
            durations.add(self.tasks[unit].task, length_us)
        return {
            unit: took_us[unit] if unit in took_us else estimate_duration(task, durations)
            for unit, task in self.tasks.items()
        }

    def estimate_left(self) -> tuple[list[int], int | None]:
        """The critical path of what can still be done, and how long all of that will take; None if nobody knows."""
        to_do = [unit for unit in self.open if unit not in self.blocked]
        left_us = {unit: self.estimate_task_left(unit) for unit in to_do}
        known_us = {unit: left for unit, left in left_us.items() if left is not None}
        path, length_us = find_critical_path(to_do, self.needs, known_us)
        at_once = min(self.handlers, self.options.at_once or self.handlers)
        if self.is_settled or self.paused or not at_once or not to_do or len(known_us) < len(to_do):
            return path, None
        return path, estimate_left_us(length_us, sum(known_us.values()), at_once)

    def estimate_task_left(self, unit: int) -> int | None:
        """How much longer a task will take, from now on, if it runs already."""
        takes_us, task = self.takes_us[unit], self.tasks[unit]
        if takes_us is None or task.started_at is None or task.category not in (*LEASED, Category.GATE):
            return takes_us
        return max(0, takes_us - (self.now - task.started_at))


def estimate_duration(task: GraphTask, durations: Durations) -> int | None:
    """How long a task that has not succeeded will take: as it says, as others of its name did, or as all did."""
    if (
        "takes_us" in task.policy
        and (own := decode_stream_options(task.policy)) is not None
        and own.takes_us is not None
    ):
        return own.takes_us
    return durations.estimate_us(task.task)


def read_task_graph(connection: Connection, tenant: int, unit: int) -> TaskGraph:
    """Reads the tasks of a workstream and their needs.

    Raises:
        Unknown: there is no such workstream.
    """
    top, now = view(connection, tenant, unit), connection.now()
    if top.unit.lifecycle != WORKSTREAM:
        raise Unknown(f"{format_id(top.unit.lifecycle, unit)} is no workstream, and only these have a plan")
    tasks = {task.unit: task for task in read_graph_tasks(connection, tenant, unit, TASK)}
    needs: dict[int, list[tuple[int, bool]]] = {}
    for task, need, by_end in read_graph_needs(connection, tenant, unit):
        needs.setdefault(task, []).append((need, by_end))
    outside = {need for some in needs.values() for need, _ in some if need not in tasks}
    others, handlers = read_place_names(connection, tenant, outside), count_handlers(connection, tenant)
    return TaskGraph(
        top, now, tasks, needs, others, handlers, paused=bool(find_pauses_over(connection, top, now))
    )  # fmt: skip


def make_progress(graph: TaskGraph) -> Progress:
    """Says how far a workstream is."""
    counts = Counter(find_standing(task) for unit, task in graph.tasks.items() if unit not in graph.blocked)
    top = graph.top.unit
    until = top.changed_at if graph.is_settled else graph.now
    return Progress(
        id=graph.id, state=top.state, of=max(len(graph.tasks), graph.options.expects or 0),
        done=counts[Category.SUCCESS], failed=counts[Category.FAILURE], running=counts[Category.ACTIVE],
        checking=counts[Category.GATE], ready=counts[Category.READY], waiting=counts[Category.WAITING],
        blocked=len(graph.blocked),
        blocked_tasks=tuple(
            BlockedTask(format_id(TASK, unit), graph.names[unit], name_all(graph, by))
            for unit, by in list(graph.blocked.items())[:SHOWN_MAX]
        ),
        critical_path=name_all(graph, graph.path_left[:PATH_MAX]),
        started_at=format_time(top.started_at),
        elapsed_seconds=0.0 if top.started_at is None else (until - top.started_at) / MILLION,
        left_seconds=None if graph.left_us is None else graph.left_us / MILLION, eta=graph.eta, paused=graph.paused,
    )  # fmt: skip


def find_standing(task: GraphTask) -> Category:
    """Returns as what a task that is not blocked is counted."""
    if task.outcome is not None:
        return Category.SUCCESS if task.outcome == Category.SUCCESS else Category.FAILURE
    if task.category in LEASED:
        return Category.ACTIVE
    return Category(task.category) if task.category in (Category.GATE, Category.READY) else Category.WAITING


def name_all(graph: TaskGraph, units: Sequence[int]) -> tuple[str, ...]:
    """Names tasks by their names in the workstream, or else by their ids."""
    return tuple(graph.names.get(unit) or format_id(TASK, unit) for unit in units)


def make_execution_plan(graph: TaskGraph, first: int = 0, limit: int | None = None) -> ExecutionPlan:
    """Makes the execution plan of a workstream, with at most `limit` tasks (None: all) from the place `first` on."""
    plan, critical = graph.plan, set(graph.plan.critical_path)
    placed = [(number, unit) for number, stage in enumerate(plan.stages, 1) for unit in stage]
    end = len(placed) if limit is None else first + limit
    known = all(took is not None for took in graph.takes_us.values())
    return ExecutionPlan(
        id=graph.id, state=graph.top.unit.state, at=format_time(graph.now), count=len(placed),
        stages=len(plan.stages), width=plan.width, critical_path=name_all(graph, plan.critical_path[:PATH_MAX]),
        length_seconds=plan.length_us / MILLION if known else None, eta=graph.eta,
        tasks=tuple(make_planned_task(graph, unit, stage, unit in critical) for stage, unit in placed[first:end]),
        next=end if end < len(placed) else None,
    )  # fmt: skip


def make_planned_task(graph: TaskGraph, unit: int, stage: int, on_critical_path: bool) -> PlannedTask:
    """Makes a task of an execution plan."""
    task, took_us = graph.tasks[unit], graph.takes_us[unit]
    return PlannedTask(
        id=format_id(TASK, unit), name=graph.names[unit], stage=stage, state=task.state,
        needs=name_all(graph, graph.needs[unit]), critical=bool(task.decides), on_critical_path=on_critical_path,
        seconds=None if took_us is None else took_us / MILLION,
    )  # fmt: skip


def make_plan_document(plan: ExecutionPlan) -> dict[str, Any]:
    """Makes the document of a whole execution plan: its tasks stage by stage. Equal plans make equal documents."""
    stages: dict[int, list[dict[str, Any]]] = {}
    for task in plan.tasks:
        fields = {**msgspec.structs.asdict(task), "needs": list(task.needs)}
        stages.setdefault(fields.pop("stage"), []).append(fields)
    return {
        "workstream_id": plan.id, "state": plan.state, "generated_at": plan.at, "tasks": plan.count,
        "width": plan.width, "critical_path": list(plan.critical_path), "length_seconds": plan.length_seconds,
        "eta": plan.eta, "stages": [{"stage": number, "tasks": stages[number]} for number in sorted(stages)],
    }  # fmt: skip
