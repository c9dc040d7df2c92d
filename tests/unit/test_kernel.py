"""The kernel's small parts: durations, graphs, lifecycles and the refusals that they give."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.kernel.commands import Work
from interlock.kernel.durations import format_us, microseconds
from interlock.kernel.errors import Refused
from interlock.kernel.graph import arrange, cycle, ranks, reachable, reaching
from interlock.kernel.workflow_graph import above
from interlock.lifecycles import find, shipped

DIAMOND = [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("d", "e"), ("x", "y")]


@pytest.mark.parametrize(
    ("text", "length_us"),
    [("500ms", 500_000), ("60s", 60_000_000), ("1h 30m", 5_400_000_000), ("1.5s", 1_500_000), ("2d", 172_800_000_000)],
)
def test_durations_are_read(text: str, length_us: int) -> None:
    assert microseconds(text) == length_us


@pytest.mark.parametrize("text", ["", "60", "s", "5 moons", "-5s", "1h and 2m", "1e3s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="allowed is a number and one of ms, s, m, h, d"):
        microseconds(text)


@given(st.integers(min_value=0, max_value=10**9).map(lambda ms: ms * 1_000))
def test_a_duration_is_read_as_it_is_spoken(length_us: int) -> None:
    assert microseconds(format_us(length_us)) == length_us


def test_what_can_be_reached() -> None:
    assert reachable(["b"], DIAMOND) == {"b", "d", "e"}
    assert reaching(["d"], DIAMOND) == {"a", "b", "c", "d"}


def test_cycles() -> None:
    assert cycle(DIAMOND) == []
    assert cycle([*DIAMOND, ("e", "b")]) == ["b", "d", "e", "b"]
    assert cycle([("a", "a")]) == ["a", "a"]


@given(st.sets(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=20))
def test_a_cycle_is_found_exactly_where_there_is_one(edges: set[tuple[int, int]]) -> None:
    returns = any(a in reachable([b], edges) for a, b in edges)
    found = cycle(edges)
    assert bool(found) == returns
    assert all(pair in edges for pair in pairwise(found))


@given(st.sets(st.tuples(st.integers(0, 9), st.integers(0, 9)).filter(lambda pair: pair[0] < pair[1])))
def test_every_edge_leads_to_a_higher_rank(edges: set[tuple[int, int]]) -> None:
    rank = ranks(range(10), edges)
    assert all(rank[b] > rank[a] for a, b in edges)


def test_a_trigger_that_is_not_listed_is_refused_with_those_that_are() -> None:
    with pytest.raises(Refused) as refused:
        shipped()["job"].move("queued", "complete")
    assert str(refused.value) == "job: no 'complete' from 'queued'; listed there: claim, cancel, bury, time_out"
    with pytest.raises(Refused, match="it is an end"):
        shipped()["job"].move("succeeded", "cancel")


def test_birth_is_a_move_like_any_other() -> None:
    worker = find("worker")
    assert worker.move(None, "register").path == ("initializing", "idle")
    assert (worker.initial, worker.birth.path[-1]) == ("initializing", "idle")


def test_which_lifecycles_workers_claim() -> None:
    claimed = {name for name, lifecycle in shipped().items() if lifecycle.leased}
    assert claimed == {"agent_job", "step", "job", "task", "ci_attempt"}


def test_a_path_is_one_hop_a_state() -> None:
    hops = find("ci_attempt").move("STARTING", "fail").hops
    assert [(hop.source, hop.target, hop.severity) for hop in hops] == [
        ("STARTING", "RUNNING", "info"),
        ("RUNNING", "UPLOADING", "info"),
        ("UPLOADING", "FAILED", "error"),
    ]


def test_a_hop_is_an_extension_only_if_every_move_that_makes_it_is() -> None:
    """CREATED to CANCEL_REQUESTED is ours; the hop behind it is the document's, from every other state."""
    hops = {(hop.source, hop.target): hop.extension for hop in find("ci_attempt").hops if hop.trigger == "cancel"}
    assert hops["CREATED", "CANCEL_REQUESTED"]
    assert not hops["CANCEL_REQUESTED", "CANCELED"]


def test_a_graph_of_many_nodes_is_looked_at_once() -> None:
    """Whoever compares every node with every other would be at it for hours."""
    many = 100_000
    chain = [(node, node + 1) for node in range(many)]
    backwards = chain[::-1]
    assert ranks(range(many + 1), backwards)[many] == many
    assert cycle(backwards) == []
    assert len(cycle([*backwards, (many, 0)])) == many + 2
    assert len(arrange([[node - 1] if node else [] for node in range(many)])) == many
    steps = [Work(task="t", ref=f"s{n}", needs=(f"s{n - 1}",) if n else ()) for n in range(many)]
    before = above(steps, {"s7", "page"})
    assert (before["s7"], before["s8"], before[f"s{many - 1}"]) == (set(), {"s7"}, {"s7"})
