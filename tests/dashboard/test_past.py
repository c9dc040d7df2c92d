"""What pages show of the past is what the events tell, for lives of the simulation; and buttons are the listed moves."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import pytest

from interlock.audit.draw import draw_lifecycle
from interlock.client.timelines import WIDTH, list_attempts, list_leases, list_spans, make_scale
from interlock.client.tree_history import build_past_tree, read_tree_history
from interlock.dashboard.job_pages import AGAIN, get_button, list_buttons
from interlock.dashboard.panels import find_standing, list_live_states, make_tabs, make_timeline, make_waterfall
from interlock.dashboard.site import ACTIONS
from interlock.kernel.api_keys import SCOPES, allows
from interlock.kernel.lifecycle import Lifecycle
from interlock.kernel.rows import Event
from interlock.lifecycles import shipped
from interlock.plugins import STANDARD
from interlock.store.queries.snapshots import read_rows, snapshot
from interlock.testing.simulation.runner import Play
from interlock.testing.simulation.world import World, silence_logs

SPACE = "{http://www.w3.org/2000/svg}"
LIVES, MANY_LIVES = 100, 1_000


def play(seed: int) -> tuple[World, dict[int, list[Event]]]:
    """A world after one seed, and the events of each unit in it."""
    with silence_logs():
        world = World(seed, (), None, STANDARD)
        world.loop.run_until_complete(Play(world).run())
    by_unit: dict[int, list[Event]] = {}
    with snapshot(world.eye):
        for event in read_rows(world.eye, Event, "ORDER BY unit, version"):
            by_unit.setdefault(event.unit, []).append(event)
    return world, by_unit


def fold_by_hand(lifecycle: Lifecycle, events: Sequence[Event]) -> dict[str, Any]:
    """What events make of a job, counted anew from the lifecycle file."""
    opening = {(hop.source, hop.trigger, hop.target) for hop in lifecycle.hops if hop.opens_attempt}
    attempt, fence, moves = 1, 0, Counter[tuple[str, str]]()
    for event in events:
        attempt += (event.source, event.trigger, event.target) in opening
        fence += event.lease_to is not None and event.lease_from is None
        if event.source is not None and event.source != event.target:
            moves[event.source, event.target] += 1
    state = events[-1].target
    return {
        "state": state, "category": lifecycle.states[state].category.value, "version": len(events),
        "attempt": attempt, "fence": fence, "at": events[-1].at, "taken": dict(moves),
    }  # fmt: skip


def read_drawing(text: str) -> tuple[list[str], dict[tuple[str, str], int]]:
    """The states that are lit in a drawing, and the transitions that it says were taken, with how often."""
    root = ElementTree.fromstring(text)
    lit = [
        group.findtext(f"{SPACE}text") or ""
        for group in root.iter(f"{SPACE}g")
        if "lit" in str(group.get("class")).split()
    ]
    taken = {}
    for path in root.iter(f"{SPACE}path"):
        if "taken" in str(path.get("class")).split():
            match = re.fullmatch(r"(\S+) → (\S+): .*; taken (?:once|(\d+) times)", path.findtext(f"{SPACE}title") or "")
            assert match
            taken[match[1], match[2]] = int(match[3] or 1)
    return lit, taken


def check_lives(count: int) -> None:
    lives, seed = 0, 0
    while lives < count:
        seed += 1
        world, by_unit = play(seed)
        live = list_live_states(world.lifecycles)
        for events in by_unit.values():
            lifecycle = world.lifecycles[events[0].lifecycle]
            lives += 1
            for version in range(1, len(events) + 1):
                past = events[:version]
                expected = fold_by_hand(lifecycle, past)
                assert dict(find_standing(past, lifecycle)._asdict()) == expected
                if version == len(events) or version % 3 == 1:  # drawing is the slow part
                    drawing = draw_lifecycle(lifecycle, lit=expected["state"], taken=expected["taken"], styled=False)
                    assert read_drawing(drawing) == ([expected["state"]], expected["taken"])
                check_panels(past, lifecycle, live, expected)
        world.close()


def check_panels(past: Sequence[Event], lifecycle: Lifecycle, live: Sequence[str], expected: dict[str, Any]) -> None:
    """The other panels of the same version fit what the events make."""
    until = past[-1].at
    assert [attempt.number for attempt in list_attempts(past, lifecycle)] == list(range(1, expected["attempt"] + 1))
    leases = list_leases(past, live)
    assert [lease.fence for lease in leases] == list(range(1, expected["fence"] + 1))
    assert all(lease.ended_at is not None for lease in leases[:-1])
    spans = list_spans(past, lifecycle, until)
    assert all(before.end <= after.begin for before, after in pairwise(spans))
    assert not spans or (spans[0].begin >= past[0].at and spans[-1].end <= until)
    tabs = make_tabs(past, lifecycle, live, [], [], [], until)
    assert [row["version"] for row in tabs["events"]] == [event.version for event in reversed(past)]
    assert all(tabs.values())
    for row in make_timeline(past, lifecycle, live, [], until):
        assert all(bar.x >= 0 and bar.width > 0 and bar.x + bar.width <= WIDTH + 0.2 for bar in row.bars)


def test_every_version_shows_what_its_events_fold_to() -> None:
    check_lives(LIVES)


@pytest.mark.proof
def test_every_version_of_a_thousand_lives_shows_what_its_events_fold_to() -> None:
    check_lives(MANY_LIVES)


def test_each_event_of_a_tree_shows_the_tree_that_the_events_up_to_it_make() -> None:
    looked = 0
    for seed in range(1, 9):
        world, by_unit = play(seed)
        tops = [
            events[0] for events in by_unit.values() if world.lifecycles[events[0].lifecycle].options.roll_up != "none"
        ]
        for top in tops[:3]:
            with snapshot(world.eye):
                history = read_tree_history(world.eye, top.tenant, top.unit)
            assert Counter(event.unit for event in history.events) == Counter(
                {unit: len(by_unit[unit]) for unit in history.rows.tree.ids}
            )
            for count in range(history.first, len(history.events) + 1):
                last: dict[int, str] = {event.unit: event.target for event in history.events[:count]}
                tree = build_past_tree(history, count, world.lifecycles)
                assert {node.unit: node.state for node in tree.nodes} == last
                assert tree.nodes[0].unit == top.unit
                for cut_idle in (False, True):
                    fall = make_waterfall(tree, history.rows, world.lifecycles, slice(None), cut_idle=cut_idle)
                    assert [row.node.unit for row in fall.rows] == [node.unit for node in tree.nodes]
            looked += 1
        world.close()
    assert looked > 3


def test_idle_time_is_cut_out_and_nothing_else() -> None:
    hour = 3_600_000_000
    busy = [(0, hour), (hour // 2, 2 * hour), (100 * hour, 101 * hour)]
    whole, cut = make_scale(0, 200 * hour), make_scale(0, 200 * hour, busy)
    assert whole.place(100 * hour) == WIDTH / 2
    assert [length for _, length in cut.cuts] == [98 * hour, 99 * hour]
    assert cut.place(2 * hour) > 600  # two of the three hours of work
    assert cut.place(101 * hour) - cut.place(100 * hour) == pytest.approx(cut.place(hour) - cut.place(0))
    places = [cut.place(instant) for instant in range(0, 200 * hour, hour // 4)]
    assert places == sorted(places)
    assert (places[0], cut.place(200 * hour)) == (0, WIDTH)
    for given in ([], [(5, 5)], [(0, 10)], [(-5, 3), (4, 99)]):
        scale = make_scale(0, 10, given)
        assert (scale.place(0), scale.place(10)) == (0, WIDTH)
        assert [scale.place(at) for at in range(11)] == sorted(scale.place(at) for at in range(11))


def every_state() -> Iterator[tuple[Lifecycle, str]]:
    for lifecycle in shipped().values():
        for state in lifecycle.states:
            yield lifecycle, state


def test_buttons_are_the_listed_moves_of_a_person_and_the_scopes_of_the_key() -> None:
    paths = {action.path for action in ACTIONS} | {"/jobs/{id}/bury"}
    for lifecycle, state in every_state():
        listed = {
            trigger for (source, trigger), move in lifecycle.moves.items() if source == state and move.owner == "person"
        }
        is_run = lifecycle.options.roll_up not in ("none", "follow")
        for scope in ("", *SCOPES):
            scopes = (scope,) if scope else ()
            buttons = list_buttons(lifecycle, state, lambda wanted, scopes=scopes: allows(scopes, wanted))  # type: ignore[misc]
            moves = [button for button in buttons if button.verb not in ("requeue", "rerun", "again")]
            assert {button.word or button.verb for button in moves} == listed, (lifecycle.name, state)
            for button in buttons:
                wanted = {"approve": "approve", "reject": "approve"}.get(button.verb, button.scope)
                assert button.allowed == (scope in (wanted, "admin")), (lifecycle.name, state, button, scope)
                assert f"/{'runs' if is_run else 'jobs'}/{{id}}/{button.verb}" in paths, (lifecycle.name, button.verb)
        again = [button for button in buttons if button.verb in ("requeue", "rerun")]
        settled = lifecycle.settled(state) and lifecycle.birth.trigger == "submit"
        assert bool(again) == settled
        assert all((button.verb == "requeue") == (lifecycle.category(state) in AGAIN) for button in again)
    assert get_button("hand_over").word == "hand_over"  # of somebody's own lifecycle: decided by its name
