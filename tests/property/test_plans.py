"""A plan says of any graph what counting out every chain of it says."""

from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.kernel.errors import InterlockError
from interlock.kernel.plan import Durations, estimate_left_us, find_blocked, make_plan

NAMES = "abcdefgh"
Graph = dict[str, list[str]]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Graphs without a cycle, their tasks in any order; a need may be no task of the graph."""
    names = draw(st.permutations(NAMES[: draw(st.integers(0, len(NAMES)))]))
    needs = {
        name: draw(st.lists(st.sampled_from([*names[:place], "outside"]), max_size=3, unique=True))
        for place, name in enumerate(names)
    }
    return {name: needs[name] for name in draw(st.permutations(names))}


def chains_to(graph: Graph, name: str) -> list[list[str]]:
    """Every chain of needs that ends in a task."""
    before = [chain for need in graph[name] if need in graph for chain in chains_to(graph, need)]
    return [[name], *([*chain, name] for chain in before)]


@given(graphs(), st.lists(st.integers(0, 5), min_size=len(NAMES), max_size=len(NAMES)))
def test_a_plan_is_what_all_chains_say(graph: Graph, lengths: list[int]) -> None:
    lasts = dict(zip(NAMES, lengths, strict=True))
    plan = make_plan(graph, lasts)
    chains = [chain for name in graph for chain in chains_to(graph, name)]
    for number, stage in enumerate(plan.stages):
        assert stage == tuple(name for name in graph if max(map(len, chains_to(graph, name))) == number + 1)
    assert sorted(plan.order) == sorted(graph)
    assert plan.width == max(map(len, plan.stages), default=0)
    longest = max(((sum(map(lasts.__getitem__, chain)), len(chain)) for chain in chains), default=(0, 0))
    assert (plan.length_us, len(plan.critical_path)) == longest
    assert not graph or list(plan.critical_path) in chains


@given(graphs(), st.sets(st.sampled_from(NAMES)))
def test_blocked_is_whoever_is_behind_a_lost_task(graph: Graph, lost: set[str]) -> None:
    is_open = [name for name in make_plan(graph).order if name not in lost]

    @cache
    def is_blocked(name: str) -> bool:
        return any(need in lost or (need in graph and is_blocked(need)) for need in graph[name])

    blocked = find_blocked(is_open, graph, lost & graph.keys())
    assert set(blocked) == {name for name in is_open if is_blocked(name)}
    for name, by in blocked.items():
        assert by == [need for need in graph[name] if need in lost or need in blocked]


@given(st.dictionaries(st.sampled_from(NAMES), st.lists(st.sampled_from(NAMES), max_size=3)))
def test_a_cycle_is_named_and_nothing_else_is_refused(graph: Graph) -> None:
    def reaches(source: str, target: str, beyond: frozenset[str]) -> bool:
        return any(
            need == target or (need not in beyond and reaches(need, target, beyond | {need}))
            for need in graph.get(source, ())
        )

    if not any(reaches(name, name, frozenset()) for name in graph):
        make_plan(graph)
        return
    with pytest.raises(InterlockError, match="a circle of needs: ") as refusal:
        make_plan(graph)
    names = str(refusal.value).removeprefix("a circle of needs: ").partition(";")[0].split(" needs ")
    assert names[0] == names[-1]
    assert all(need in graph[name] for name, need in pairwise(names))


@given(graphs(), st.lists(st.integers(0, 9), min_size=len(NAMES), max_size=len(NAMES)), st.integers(1, 4))
def test_the_estimate_is_within_what_workers_need(graph: Graph, lengths: list[int], at_once: int) -> None:
    """Workers that begin whatever can begin take no less than the estimate, and no more than twice as long."""
    lasts = dict(zip(NAMES, lengths, strict=True))
    plan = make_plan(graph, lasts)
    estimate = estimate_left_us(plan.length_us, sum(lasts[name] for name in graph), at_once)
    now, done, left = 0, set[str](), {name: [need for need in some if need in graph] for name, some in graph.items()}
    running: dict[str, int] = {}
    while left or running:
        for name in [name for name, some in left.items() if done.issuperset(some)][: at_once - len(running)]:
            running[name] = now + lasts[name]
            del left[name]
        now = min(running.values())
        done |= {name for name, end in running.items() if end == now}
        running = {name: end for name, end in running.items() if end > now}
    assert estimate <= now <= 2 * estimate


def test_durations_are_means_by_name_or_else_of_all() -> None:
    durations = Durations()
    assert durations.estimate_us("build") is None
    durations.add("build", 10)
    durations.add("build", 30)
    durations.add("lint", 400, count=2)
    assert [durations.estimate_us(name) for name in ("build", "lint", "docs")] == [20, 200, 110]
