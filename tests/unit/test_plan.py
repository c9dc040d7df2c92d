"""Plans of graphs that are large: they are made in one pass over tasks and needs."""

from collections.abc import Iterator

import pytest

from interlock.kernel.errors import InterlockError
from interlock.kernel.plan import find_blocked, make_plan

LARGE = 100_000


class CountedNeeds(list[int]):
    """Needs that count how often they are read."""

    reads = 0

    def __iter__(self) -> Iterator[int]:
        CountedNeeds.reads += 1
        return super().__iter__()


@pytest.mark.parametrize("shape", ["chain", "layers", "star", "independent"])
def test_a_graph_of_a_hundred_thousand_tasks(shape: str) -> None:
    needs = {
        "chain": lambda task: [task - 1] if task else [],
        "layers": lambda task: [task - 100, task - 101] if task > 100 else [],
        "star": lambda task: [0] if task else [],
        "independent": lambda task: [],
    }[shape]
    plan = make_plan({task: needs(task) for task in range(LARGE)}, dict.fromkeys(range(LARGE), 3))
    stages = {"chain": LARGE, "layers": LARGE // 100, "star": 2, "independent": 1}[shape]
    assert (len(plan.stages), len(plan.critical_path), plan.length_us) == (stages, stages, 3 * stages)
    assert plan.width == {"chain": 1, "layers": 101, "star": LARGE - 1, "independent": LARGE}[shape]


def test_every_need_is_read_a_fixed_number_of_times() -> None:
    """However long the chain is: linear, not by what a clock says."""
    reads = []
    for tasks in (100, 10_000):
        CountedNeeds.reads = 0
        make_plan({task: CountedNeeds([task - 1] if task else []) for task in range(tasks)})
        reads.append(CountedNeeds.reads / tasks)
    assert reads == [1, 1]


def test_a_long_cycle_is_named_and_cut() -> None:
    with pytest.raises(InterlockError, match=r"^a circle of needs: 0 needs 4999 needs .*… \(5,001 in all\);"):
        make_plan({task: [task - 1 if task else 4_999] for task in range(5_000)})


def test_what_is_behind_a_lost_task_is_blocked_to_the_end_of_the_chain() -> None:
    needs = {task: [task - 1] if task else [] for task in range(LARGE)}
    blocked = find_blocked(range(1, LARGE), needs, {0})
    assert (len(blocked), blocked[1], blocked[LARGE - 1]) == (LARGE - 1, [0], [LARGE - 2])
