"""Needs that are met by success or by an end, and those that can never be met any more: nothing hangs."""

import pytest

from interlock.kernel.commands import Decide, Submit, Work
from interlock.kernel.ids import format_id
from tests.engine.world import World

FAIL = {"ended": "failure", "error": "boom", "error_class": "PermanentError"}


def run_one(world: World, unit: int, **facts: str) -> None:
    """A worker does one unit, which must be the only one that can be claimed."""
    (grant,) = world.claim(world.worker(), limit=9)
    assert grant.unit == unit
    world.start(grant)
    world.finish(grant, **facts)


def test_an_end_is_enough_for_whoever_says_so(world: World) -> None:
    first = world.submit()
    cleanup, report = world.submit(after_end=(first,)), world.submit(after=(first,), after_end=(first,))
    assert [world.unit(unit).unmet for unit in (cleanup, report)] == [1, 1]
    run_one(world, first, **FAIL)
    assert (world.unit(cleanup).unmet, world.unit(cleanup).state) == (0, "queued")
    assert world.unit(report).state == "cancelled", "its success was asked for as well"
    run_one(world, cleanup)


def test_a_success_is_an_end_too(world: World) -> None:
    first = world.submit()
    second = world.submit(after_end=(first,))
    run_one(world, first)
    run_one(world, second)


def test_what_has_ended_already_is_met(world: World) -> None:
    first = world.submit()
    world.cancel(first)
    assert world.unit(world.submit(after_end=(first,))).available_at is not None


def test_a_need_that_is_lost_cancels_its_unit_and_says_why(world: World) -> None:
    first = world.submit()
    second = world.submit(after=(first,))
    third, last = world.submit(after=(second,)), world.submit(after_end=(second,))
    run_one(world, first, **FAIL)
    assert [world.unit(unit).state for unit in (second, third)] == ["cancelled", "cancelled"]
    assert world.events(second)[-1].reason == f"it needs {format_id('job', first)}, which is failed"
    assert world.events(third)[-1].reason == f"it needs {format_id('job', second)}, which is cancelled"
    assert world.events(second)[-1].actor == "engine"
    run_one(world, last)


@pytest.mark.parametrize("end", ["dead_lettered", "cancelled"])
def test_every_end_without_success_is_one(world: World, end: str) -> None:
    first = world.submit(attempts=1)
    second = world.submit(after=(first,))
    if end == "cancelled":
        world.cancel(first)
    else:
        run_one(world, first, ended="failure", error="boom")
    assert (world.unit(first).state, world.unit(second).state) == (end, "cancelled")


def test_a_failure_that_is_tried_again_loses_nothing(world: World) -> None:
    first = world.submit()
    second = world.submit(after=(first,))
    run_one(world, first, ended="failure", error="boom")
    assert world.unit(second).state == "queued"
    world.pass_time(60)
    run_one(world, first)
    run_one(world, second)


def test_what_is_lost_already_cancels_at_once(world: World) -> None:
    first = world.submit()
    world.cancel(first)
    second = world.submit(after=(first,))
    assert world.unit(second).state == "cancelled"
    assert world.events(second)[-1].reason == f"it needs {format_id('job', first)}, which is cancelled"


def test_a_long_chain_ends_in_one_transaction_and_in_order(world: World) -> None:
    chain = [world.submit()]
    for _ in range(30):
        chain.append(world.engine.send(Submit(work=(Work(task="mail", after=(chain[-1],)),)))[0].unit)
    world.cancel(chain[0])
    assert {world.unit(unit).state for unit in chain} == {"cancelled"}
    acts = [world.unit(unit).act for unit in chain]
    assert acts == sorted(acts), "no effect is told before its cause"


def test_an_agent_run_that_a_person_may_resume_is_not_lost(world: World) -> None:
    run = world.submit("goal", lifecycle="agent_run")
    job = world.submit("goal", lifecycle="agent_job", parent=run)
    report = world.submit(after=(run,))
    run_one(world, job, **FAIL)
    assert (world.unit(run).state, world.unit(report).state) == ("failed", "queued")
    world.send(Decide(unit=run, trigger="resume", actor="ann", reason="again"))
    (grant,) = world.claim(world.worker(), limit=9)
    world.start(grant)
    world.finish(grant)
    assert world.unit(report).available_at is not None


# Families.


def ci_run(world: World, **required: bool) -> dict[str, int]:
    """A CI run of three jobs in a chain, and one that only waits for the end of the first."""
    names = ("lint", "test", "ship")
    jobs = [
        Work(
            task=name, lifecycle="ci_job", parent="run", ref=name, step=name, decides=required.get(name, True),
            needs=names[place - 1 : place] if place else (),
        )
        for place, name in enumerate(names)
    ]  # fmt: skip
    notify = Work(
        task="notify", lifecycle="ci_job", parent="run", ref="notify", step="notify", needs_end=("lint",), decides=False
    )
    made = world.send(Submit(work=(Work(task="ci", lifecycle="ci_run", ref="run"), *jobs, notify)))
    world.send(Decide(unit=made[0].unit, trigger="plan"))
    return dict(zip(("run", *names, "notify"), (answer.unit for answer in made), strict=True))


def test_a_ci_job_whose_need_failed_is_cancelled_and_its_run_goes_on(world: World) -> None:
    units = ci_run(world, lint=False, test=False, ship=False)
    (grant,) = world.claim(world.worker(), limit=9)
    world.start(grant)
    world.beat(grant)
    world.finish(grant, **FAIL)
    assert [world.unit(units[name]).state for name in ("lint", "test", "ship")] == ["FAILED", "CANCELED", "CANCELED"]
    assert "it needs 'lint', which is FAILED" in world.events(units["test"])[-1].payload
    assert (world.unit(units["notify"]).state, world.unit(units["run"]).state) == ("QUEUED", "RUNNING")


def test_a_required_job_that_is_lost_fails_its_run(world: World) -> None:
    units = ci_run(world, lint=False)
    (grant,) = world.claim(world.worker(), limit=9)
    world.start(grant)
    world.beat(grant)
    world.finish(grant, **FAIL)
    assert world.unit(units["run"]).state == "FAILED", "nothing waits for a clock"
    assert world.unit(units["notify"]).outcome == "cancelled"


def test_a_task_of_a_workstream_stays_blocked(world: World) -> None:
    parent = world.submit("site", lifecycle="workstream")
    works = [
        Work(task=name, lifecycle="task", parent=parent, step=name, needs=needs, decides=False)
        for name, needs in (("a", ()), ("b", ("a",)), ("c", ()))
    ]
    first, blocked, other = (answer.unit for answer in world.send(Submit(work=tuple(works))))
    world.send(Decide(unit=parent, trigger="plan"))
    for grant in world.claim(world.worker(), limit=9):
        world.start(grant)
        if grant.unit == first:
            world.finish(grant, **FAIL)
    assert [world.unit(unit).state for unit in (first, blocked)] == ["failed", "pending"]
    late = world.submit("late", lifecycle="task", parent=parent, step="late", needs=("a",))
    assert world.unit(late).state == "pending"
    assert world.unit(other).state == "running"


def test_the_end_of_a_run_still_says_that_its_parent_ended(world: World) -> None:
    work = (
        Work(task="run", lifecycle="workflow_run", ref="run"),
        Work(task="a", lifecycle="step", parent="run", ref="a"),
        Work(task="b", lifecycle="step", parent="run", ref="b", needs=("a",)),
    )
    run, first, second = (answer.unit for answer in world.send(Submit(work=work)))
    run_one(world, first, **FAIL)
    assert (world.unit(run).state, world.unit(second).state) == ("FAILED", "CANCELED")
    assert world.events(second)[-1].reason == "its parent ended"


def test_a_step_behind_an_optional_one_that_failed_is_stopped_and_its_run_ends(world: World) -> None:
    work = (
        Work(task="run", lifecycle="workflow_run", ref="run"),
        Work(task="a", lifecycle="step", parent="run", ref="a", decides=False),
        Work(task="b", lifecycle="step", parent="run", ref="b", needs=("a",)),
    )
    run, first, second = (answer.unit for answer in world.send(Submit(work=work)))
    run_one(world, first, **FAIL)
    assert (world.unit(run).state, world.unit(second).state) == ("FAILED", "CANCELED")
    assert world.events(second)[-1].reason == "it needs 'a', which is FAILED"
