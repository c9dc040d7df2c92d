"""The plan of a graph of tasks: order, stages, width, critical path, blocked tasks, estimated duration.

Everything here takes time in proportion to tasks and needs, so that a graph of 100,000 tasks is planned in a second. A
graph is a mapping from each task to the tasks that it needs; needs that are no tasks of the graph are left out. Times
are microseconds.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Generic, TypeVar

import msgspec

from interlock.kernel.graph import ranks
from interlock.kernel.workflow_graph import refuse_cycle

N = TypeVar("N", bound=Hashable)


class StagePlan(msgspec.Struct, Generic[N], frozen=True):
    """The stages of a graph, each behind those that it needs, and its longest chain."""

    stages: tuple[tuple[N, ...], ...]
    critical_path: tuple[N, ...]  # the chain of tasks that takes longest; of equally long ones, one with most tasks
    length_us: int  # of the critical path

    @property
    def order(self) -> list[N]:
        """All tasks, each behind those that it needs."""
        return [task for stage in self.stages for task in stage]

    @property
    def width(self) -> int:
        """How many tasks the largest stage has: so many workers can be busy at the same time."""
        return max(map(len, self.stages), default=0)


def make_plan(needs: Mapping[N, Iterable[N]], lasts_us: Mapping[N, int] | None = None) -> StagePlan[N]:
    """StagePlan a graph. A task is in the stage behind the last of its needs; in a stage, tasks keep their order.

    Parameters:
        needs: by task, the tasks that it needs.
        lasts_us: how long tasks take; those that are left out take no time.

    Raises:
        InterlockError: there is a cycle, which it names in order.
    """
    inside = {task: [need for need in some if need in needs] for task, some in needs.items()}
    refuse_cycle((str(task), str(need)) for task, some in inside.items() for need in some)
    stages: list[list[N]] = []
    for task, rank in ranks(inside, ((need, task) for task, some in inside.items() for need in some)).items():
        while len(stages) <= rank:
            stages.append([])
        stages[rank].append(task)
    path, length_us = find_critical_path((task for stage in stages for task in stage), inside, lasts_us or {})
    return StagePlan(tuple(map(tuple, stages)), tuple(path), length_us)


def find_critical_path(
    order: Iterable[N], needs: Mapping[N, Iterable[N]], lasts_us: Mapping[N, int]
) -> tuple[list[N], int]:
    """Return the chain of needs that takes longest, in order, and how long it takes.

    Parameters:
        order: the tasks, each behind those that it needs. Needs that are not in it count as met.
        lasts_us: how long tasks take, or have left to take; those that are left out take no time.
    """
    ends: dict[N, tuple[int, int]] = {}  # by task: when it ends if it begins as soon as it can, and its place there
    before: dict[N, N] = {}
    for task in order:
        begin = (0, 0)
        for need in needs.get(task, ()):
            if (end := ends.get(need)) is not None and end > begin:
                begin, before[task] = end, need
        ends[task] = (begin[0] + lasts_us.get(task, 0), begin[1] + 1)
    if not ends:
        return [], 0
    path = [max(ends, key=ends.__getitem__)]
    while path[-1] in before:
        path.append(before[path[-1]])
    return path[::-1], ends[path[0]][0]


def find_blocked(order: Iterable[N], needs: Mapping[N, Iterable[N]], lost: Collection[N]) -> dict[N, list[N]]:
    """Return the tasks that can never begin, each with those of `lost` or of the blocked ones that it needs.

    Parameters:
        order: the tasks that are open, each behind those that it needs.
        lost: the tasks that have ended without success.
    """
    blocked: dict[N, list[N]] = {}
    for task in order:
        if by := [need for need in needs.get(task, ()) if need in lost or need in blocked]:
            blocked[task] = by
    return blocked


def estimate_left_us(length_us: int, work_us: int, at_once: int) -> int:
    """Return how long tasks take that are begun as soon as they can: no less than the critical path that is left, and
    no less than all work that is left, shared among as many as may run at once.
    """
    return max(length_us, -(-work_us // max(at_once, 1)))


class Durations:
    """How long tasks take, learnt from those that have ended: the mean by name, or else of all."""

    def __init__(self) -> None:
        self.by_name: dict[str, tuple[int, int]] = {}  # the sum, and of how many
        self.sum_us, self.count = 0, 0

    def add(self, name: str, took_us: int, count: int = 1) -> None:
        """Take in that `count` tasks of a name took `took_us` in all."""
        sum_us, before = self.by_name.get(name, (0, 0))
        self.by_name[name] = (sum_us + took_us, before + count)
        self.sum_us, self.count = self.sum_us + took_us, self.count + count

    def estimate_us(self, name: str) -> int | None:
        """Return how long a task of this name takes; None if nothing has ended yet."""
        sum_us, count = self.by_name.get(name, (self.sum_us, self.count))
        return round(sum_us / count) if count else None
