"""A tree as it was is the fold of its events: at each instant what they say, and now what the rows say."""

import pytest
from msgspec.structs import replace

from interlock.client.trees import LATER, TreeSnapshot, build_tree_snapshot, read_tree_rows, read_tree_snapshot
from interlock.kernel.commands import Vote
from interlock.kernel.rows import Event, Unit
from interlock.store.queries import trees
from interlock.store.queries.snapshots import read_rows
from tests.engine.test_families import do, workflow
from tests.engine.test_rebuild import much_work
from tests.engine.world import World
from tests.store.databases import declare


def seen(world: World, unit: int, at: int | None = None) -> TreeSnapshot:
    declare(world.connection, 1)
    return read_tree_snapshot(world.connection, 1, world.lifecycles, unit, at)


@pytest.mark.parametrize("seed", [1, 2])
def test_the_past_is_what_events_say_and_the_present_what_rows_say(seed: int, world: World) -> None:
    much_work(world, seed, commands=250)
    units = {unit.id: unit for unit in read_rows(world.connection, Unit, "ORDER BY id")}
    events: dict[int, list[Event]] = {one: world.events(one) for one in units}
    tops = [unit for unit in units.values() if unit.parent is None]
    assert len(tops) > 20
    shown = 0
    for top in tops:
        for now in (seen(world, top.id), seen(world, top.id, LATER)):
            for node in now.nodes:
                row = units[node.unit]
                assert (node.state, node.category, node.outcome, node.version, node.attempt, node.parent) == (
                    row.state, row.category, row.outcome, row.version, row.attempt, row.parent,
                )  # fmt: skip
        for at in sorted({event.at for node in now.nodes for event in events[node.unit]}):
            for instant in (at - 1, at):
                then = {node.unit: node for node in seen(world, top.id, instant).nodes}
                for node in now.nodes:
                    before = [event for event in events[node.unit] if event.at <= instant]
                    found = then.get(node.unit)
                    assert (found and (found.state, found.version)) == (
                        (before[-1].target, before[-1].version) if before else None
                    )
                    shown += found is not None
    assert shown > 200


def test_a_tree_says_how_long_each_took_and_what_it_waits_for(world: World) -> None:
    start = world.now_us
    run, build, ship, deploy = workflow(world, "build", "ship", "deploy", quorum=2)
    worker = world.worker("ann")
    world.pass_time(5)
    (grant,) = world.claim(worker)
    world.pass_time(10)

    def told(at: int | None = None) -> list[tuple[int, str, int | None, str]]:
        now = seen(world, run, at)
        return [(node.depth, node.state, now.duration_us(node), node.waits_for) for node in now.nodes]

    assert told() == [
        (0, "RUNNING", 10_000_000, "3 of 3 children"), (1, "RUNNING", 10_000_000, ""), (1, "PENDING", None, "build"),
        (1, "PENDING", None, "ship"),
    ]  # fmt: skip
    assert [node.worker for node in seen(world, run).nodes] == [None, "ann", None, None]
    world.finish(grant)
    world.pass_time(60)
    world.send(Vote(unit=ship, voter="ann"))
    waiting = [
        (0, "WAITING_APPROVAL", 70_000_000, "2 of 3 children"), (1, "SUCCEEDED", 10_000_000, ""),
        (1, "WAITING_APPROVAL", 60_000_000, "a person to say approve or reject (1 of 2 votes)"), (1, "PENDING", None, "ship"),
    ]  # fmt: skip
    assert told() == waiting
    voted = world.now_us
    world.pass_time(1)
    world.send(Vote(unit=ship, voter="bob"))
    assert told()[3] == (1, "PENDING", None, "a worker")
    assert do(world, worker) == deploy
    assert told()[0] == (0, "SUCCEEDED", 71_000_000, "")
    assert told(voted) == waiting
    assert told(voted - 1)[2][3] == "a person to say approve or reject (0 of 2 votes)"
    assert told(start - 1) == []
    assert build


def test_what_attempts_cost_is_summed_up_the_tree(world: World) -> None:
    run, build, *_ = workflow(world, "build", "deploy")
    do(world, world.worker())
    declare(world.connection, 1)
    read_of = read_tree_rows(world.connection, 1, run, None)
    paid = [replace(event, payload='{"cost": 0.25}') for event in read_of.events[build]]
    shown = build_tree_snapshot(replace(read_of, events={**read_of.events, build: paid}), world.lifecycles)
    assert [node.cost for node in shown.nodes] == [len(paid) / 4, len(paid) / 4, 0]


def test_a_large_tree_is_cut_and_says_so(world: World) -> None:
    run, *steps = workflow(world, *"abcdef")
    declare(world.connection, 1)
    part = trees.read_tree(world.connection, 1, run, 3)
    assert (part.ids, part.cut) == ([run, *steps[:2]], True)
    whole = trees.read_tree(world.connection, 1, run, 7)
    assert (whole.ids, whole.cut) == ([run, *steps], False)
    assert [(need.unit, need.needs) for need in whole.needs] == list(zip(steps[1:], steps, strict=False))
