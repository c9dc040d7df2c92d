"""Draw a large workstream by stage instead of by task."""

from collections import Counter
from collections.abc import Sequence

from interlock.client.progress import TaskGraph, read_task_graph
from interlock.client.trees import TreeNode, TreeSnapshot
from interlock.kernel.lifecycle import SETTLED, Category
from interlock.kernel.policy import LEASED
from interlock.store.connection import Connection
from interlock.store.queries.task_graphs import GraphTask

BOXES_MAX = 200  # stages beyond so many share boxes
STATES_MAX = 3  # that are named in a box


def read_stage_snapshot(connection: Connection, tenant: int, unit: int) -> TreeSnapshot:
    """Reads a workstream with its stages below it.

    Raises:
        Unknown: there is no such workstream.
    """
    return make_stage_snapshot(read_task_graph(connection, tenant, unit))


def make_stage_snapshot(graph: TaskGraph) -> TreeSnapshot:
    """Makes a tree of a workstream: its stages are the nodes below it, and needs lead from stage to stage."""
    stages = graph.plan.stages
    per_box = -(-len(stages) // BOXES_MAX) or 1
    boxes = [stages[first : first + per_box] for first in range(0, len(stages), per_box)]
    box_of = {unit: number for number, box in enumerate(boxes, 1) for stage in box for unit in stage}
    needed: dict[int, set[int]] = {}
    for unit, number in box_of.items():
        needed.setdefault(number, set()).update(box_of[need] for need in graph.needs[unit] if need in box_of)
    top = graph.top.unit
    nodes = [make_node(0, graph.id, graph.top.body.task, top.state, top.category, graph.top.body.created_at)]
    for number, box in enumerate(boxes, 1):
        tasks = [graph.tasks[unit] for stage in box for unit in stage]
        first, last = (number - 1) * per_box + 1, (number - 1) * per_box + len(box)
        name = f"stage {first}" if first == last else f"stages {first} to {last}"
        nodes.append(make_box(number, name, tasks, tuple(sorted(needed[number] - {number}))))
    return TreeSnapshot(graph.now, tuple(nodes), cut=False)


def make_box(number: int, name: str, tasks: Sequence[GraphTask], needs: tuple[int, ...]) -> TreeNode:
    """Makes the node of a stage: how many tasks it has, and how many are in which state."""
    states = Counter(task.state for task in tasks).most_common()
    words = [f"{count:,} {state}" for state, count in states[:STATES_MAX]]
    state = ", ".join([*words, "…"] if len(states) > STATES_MAX else words)
    started = [task.started_at for task in tasks if task.started_at is not None]
    is_over = all(task.outcome is not None for task in tasks)
    return make_node(
        number, name, f"{name}: {len(tasks):,} tasks", state, find_category(tasks),
        0, began_at=min(started, default=None), ended_at=max(task.changed_at for task in tasks) if is_over else None,
        needs=needs,
    )  # fmt: skip


def find_category(tasks: Sequence[GraphTask]) -> str:
    """Returns what stands for a stage: failed if a task has, else running, done, ready or waiting."""
    categories = {Category(task.category) for task in tasks}
    if lost := categories & (SETTLED - {Category.SUCCESS}):
        return Category.FAILURE if Category.FAILURE in lost else min(lost)
    if categories & {*LEASED, Category.GATE}:
        return Category.ACTIVE
    if categories == {Category.SUCCESS}:
        return Category.SUCCESS
    return Category.READY if Category.READY in categories else Category.WAITING


def make_node(
    number: int, name: str, task: str, state: str, category: str, born_at: int, *, began_at: int | None = None,
    ended_at: int | None = None, needs: tuple[int, ...] = (),
) -> TreeNode:  # fmt: skip
    """Makes a node of a tree that stands for a stage, or for a task of one."""
    return TreeNode(
        unit=number, id=name, parent=0 if number else None, depth=min(number, 1), task=task, lifecycle="workstream",
        state=state, category=category, outcome=None, attempt=1, version=0, born_at=born_at, began_at=began_at,
        ended_at=ended_at, cost=0.0, worker=None, waits_for="", needs=needs,
    )  # fmt: skip
