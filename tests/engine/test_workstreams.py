"""Workstreams: how many tasks are expected, who adds some, and when."""

from typing import Any

import msgspec
import pytest

from interlock.kernel.commands import AddTasks, Decide, Submit, Work
from interlock.kernel.errors import InterlockError, Stale
from interlock.kernel.ids import format_id
from tests.engine.streams import do, options, stream, task
from tests.engine.world import World, held

# How many are expected.


@pytest.mark.req("R3-21", "R3-22")
def test_a_workstream_stays_planned_until_the_last_expected_task_plans_it(world: World) -> None:
    (ws,) = stream(world, expects=3)
    worker = world.worker()
    world.send(Submit(work=(task("b", ws, needs=("a",)), task("c", ws, needs=("b",)))))
    assert world.unit(ws).state == "planned"
    assert world.claim(worker) == []
    (made,) = world.send(Submit(work=(task("a", ws),)))
    assert world.unit(ws).state == "ready"
    (event,) = [event for event in world.events(ws) if event.name == "all_tasks_created"]
    assert (event.actor, event.at) == ("engine", world.events(made.unit)[0].at)
    for name in "abc":
        do(world, worker, name)
    assert world.unit(ws).state == "completed"


def test_a_page_with_too_many_tasks_is_refused_whole(world: World) -> None:
    (ws,) = stream(world, expects=3)
    world.send(Submit(work=(task("a", ws), task("b", ws))))
    with pytest.raises(InterlockError, match="expects 3 tasks and has 2: 2 more are too many, and none was added"):
        world.send(Submit(work=(task("c", ws), task("d", ws))))
    assert (world.unit(ws).total, world.unit(ws).state, world.count("place")) == (2, "planned", 2)
    world.send(Submit(work=(task("c", ws),)))
    assert world.unit(ws).state == "ready"


def test_a_page_that_comes_again_adds_nothing(world: World) -> None:
    (ws,) = stream(world, expects=3)
    page = Submit(work=(task("a", ws), task("b", ws)))
    first, again = world.send(page), world.send(page)
    assert [made.unit for made in first] == [made.unit for made in again]
    assert (world.unit(ws).total, world.unit(ws).state) == (2, "planned")


def test_nobody_plans_a_workstream_that_still_expects_tasks(world: World) -> None:
    (ws,) = stream(world, expects=2)
    world.send(Submit(work=(task("a", ws),)))
    with pytest.raises(InterlockError, match="expects 2 tasks and has 1; the last one plans it"):
        world.send(Decide(unit=ws, trigger="plan"))
    assert world.unit(ws).state == "planned"


def test_the_last_task_does_not_plan_a_workstream_with_a_need_that_nobody_is(world: World) -> None:
    (ws,) = stream(world, expects=2)
    world.send(Submit(work=(task("a", ws, needs=("x",)),)))
    with pytest.raises(InterlockError, match="need x, and no such child"):
        world.send(Submit(work=(task("b", ws),)))
    assert (world.unit(ws).total, world.unit(ws).state) == (1, "planned")


def test_a_workstream_that_comes_whole_is_planned_at_once(world: World) -> None:
    ws, a, b = stream(world, task("a", "ws"), task("b", "ws", needs=("a",)))
    assert [world.unit(unit).state for unit in (ws, a, b)] == ["ready", "queued", "pending"]
    assert len({world.events(unit)[0].at for unit in (ws, a, b)}) == 1
    ws, *_ = stream(world, task("a", "ws"), task("b", "ws"), expects=2)
    assert world.unit(ws).state == "ready"


def test_a_workstream_that_says_nothing_is_planned_by_a_person(world: World) -> None:
    work = Work(task="site", lifecycle="workstream", ref="ws")
    ws, _ = (made.unit for made in world.send(Submit(work=(work, task("a", "ws")))))
    assert world.unit(ws).state == "planned"
    world.send(Decide(unit=ws, trigger="plan"))
    assert world.unit(ws).state == "ready"


@pytest.mark.parametrize(
    ("lifecycle", "own", "wrong"),
    [
        ("workstream", {"expects": 0}, "expects = 0 is not allowed; allowed is 1 to 1000000"),
        ("workstream", {"expects": "3"}, "option 'workstreams': Expected `int | null`"),
        ("workstream", {"expect": 3}, "unknown field `expect`"),
        ("task", {"expects": 3}, "expects is not allowed for a task; it is for a workstream"),
    ],
)
def test_options_that_make_no_sense_are_refused(world: World, lifecycle: str, own: Any, wrong: str) -> None:
    with pytest.raises(InterlockError) as refused:
        world.submit("x", lifecycle=lifecycle, options=options(**own))
    assert wrong in str(refused.value)
    assert world.count("unit") == 0


# Adding.


def test_tasks_are_added_while_it_is_ready_and_executing(world: World) -> None:
    ws, *_ = stream(world, task("a", "ws"), expects=1)
    worker = world.worker()
    world.send(Submit(work=(task("b", ws, needs=("a",)),)))
    do(world, worker, "a")
    assert world.unit(ws).state == "executing"
    world.send(Submit(work=(task("c", ws),)))
    do(world, worker, "b")
    do(world, worker, "c")
    assert (world.unit(ws).state, world.unit(ws).total) == ("completed", 3)


@pytest.mark.req("R3-33")
@pytest.mark.parametrize("facts", [{}, {"decides": False}, {"step": None}])
def test_none_is_added_to_one_that_is_validated(world: World, facts: Any) -> None:
    work = Work(task="site", lifecycle="workstream", ref="ws", options='{"checks": {"jobs": ["smoke"]}}')
    ws = world.send(Submit(work=(work, task("a", "ws"))))[0].unit
    world.send(Decide(unit=ws, trigger="plan"))
    worker = world.worker()
    do(world, worker, "a")
    assert world.unit(ws).state == "validating"
    with pytest.raises(InterlockError, match="is validating: all its tasks have ended, and none is added any more"):
        world.send(Submit(work=(msgspec.structs.replace(task("b", ws), **facts),)))
    do(world, worker, "smoke")
    assert world.unit(ws).state == "completed"
    with pytest.raises(InterlockError, match="has ended"):
        world.send(Submit(work=(task("b", ws),)))


def test_the_holder_of_a_task_adds_tasks_once_per_name(world: World) -> None:
    ws, a = stream(world, task("a", "ws"), expects=1)
    (grant,) = world.claim(world.worker())
    world.start(grant)
    more = (task("b", ws, needs=("a",)), Work(task="c", lifecycle="task", step="c", options=options()))
    first = world.send(AddTasks(lease=held(grant), work=more))
    again = world.send(AddTasks(lease=held(grant), work=more))
    assert [made.unit for made in first] == [made.unit for made in again]
    assert [world.unit(made.unit).state for made in first] == ["pending", "queued"]
    assert world.events(first[0].unit)[0].cause == f"{format_id('task', a)}:{world.unit(a).version}"
    assert world.finish(grant).accepted
    assert (world.unit(ws).total, world.unit(ws).state) == (3, "executing")
    with pytest.raises(Stale):
        world.send(AddTasks(lease=held(grant), work=(task("d", ws),)))
    assert world.unit(ws).total == 3


@pytest.mark.parametrize(
    ("facts", "wrong"),
    [
        ({"step": None}, "task 'b' has no name"),
        ({"lifecycle": "job"}, "a job is not added to a workstream; allowed is a task"),
        ({"parent": 7}, "task 'b' names a parent"),
        ({"needs": ("a", "b")}, "a circle of needs"),
        ({"needs": ("a", "x")}, "is executing, and has no task 'x'; what is added to it needs tasks that are there"),
    ],
)
def test_what_a_holder_may_not_add_is_refused(world: World, facts: Any, wrong: str) -> None:
    ws, _ = stream(world, task("a", "ws"))
    (grant,) = world.claim(world.worker())
    work = msgspec.structs.replace(task("b", ws), **facts)
    world.start(grant)
    with pytest.raises(InterlockError) as refused:
        world.send(AddTasks(lease=held(grant), work=(work,)))
    assert wrong in str(refused.value)
    assert world.unit(ws).total == 1


def test_what_is_added_to_a_planned_workstream_needs_what_is_there_or_comes_with_it(world: World) -> None:
    """While tasks are expected they come in any order; after that, one that needs nothing there would never begin."""
    ws, _ = stream(world, task("a", "ws"))
    before = world.count("unit")
    with pytest.raises(InterlockError, match="is ready, and has no task 'x'; what is added to it needs tasks that are"):
        world.send(Submit(work=(task("c", ws), task("b", ws, needs=("a", "x")))))
    assert world.count("unit") == before
    made = world.send(Submit(work=(task("b", ws, needs=("a", "x")), task("x", ws))))
    assert [world.unit(each.unit).state for each in made] == ["pending", "queued"]


def test_only_the_holder_of_a_task_of_a_workstream_adds_tasks(world: World) -> None:
    world.submit("mail")
    (grant,) = world.claim(world.worker())
    with pytest.raises(InterlockError, match="is no task of a workstream"):
        world.send(AddTasks(lease=held(grant), work=(task("b", 1),)))
