"""Terms of a unit or a run: its own clocks, its loss budget, when the verdict on it falls, and what it does again."""

from typing import Any

import pytest

from interlock.kernel.commands import Decide, Submit, Work
from interlock.kernel.errors import InterlockError, Unknown
from interlock.kernel.rows import Unit
from tests.engine.world import SECOND, World

STEPS = ("a", "b", "c")


def make_run(world: World, lifecycle: str = "workflow_run", child: str = "step", **terms: Any) -> list[int]:
    """A run of three steps that need nothing."""
    steps = [Work(task=name, lifecycle=child, parent="run", queue=name, attempts=1) for name in STEPS]
    run = Work(task="run", lifecycle=lifecycle, ref="run", **terms)
    return [made.unit for made in world.send(Submit(work=(run, *steps)))]


def end(world: World, name: str, **facts: Any) -> Unit:
    """A worker takes the step of that name, and ends it."""
    (grant,) = world.claim(world.worker(name), queues=(name,))
    world.start(grant)
    assert world.finish(grant, **facts).accepted
    return world.unit(grant.unit)


LOST: dict[str, Any] = {"ended": "failure", "error": "no", "error_class": "PermanentError"}


@pytest.mark.parametrize("clock", ["timeout_us", "queue_timeout_us", "plan_timeout_us", "cancel_timeout_us"])
def test_a_workflow_run_has_no_clock_of_its_own_and_says_so(world: World, clock: str) -> None:
    """The document gives it none: its steps have them."""
    with pytest.raises(InterlockError, match=f"{clock} is not allowed for a workflow_run.*it is for its steps"):
        make_run(world, **{clock: SECOND})
    assert world.count("unit") == 0
    assert make_run(world, "ci_run", "ci_job", timeout_us=SECOND, queue_timeout_us=SECOND)


def test_by_default_the_first_lost_step_ends_a_run(world: World) -> None:
    run, _, b, c = make_run(world)
    end(world, "a", **LOST)
    assert world.unit(run).state == "FAILED"
    assert [world.unit(step).outcome for step in (b, c)] == ["cancelled", "cancelled"]


def test_a_run_that_settles_by_all_fails_when_all_steps_have_ended(world: World) -> None:
    run, _, b, _ = make_run(world, settle="all")
    end(world, "a", **LOST)
    assert world.unit(run).outcome is None
    assert end(world, "b").outcome == "success"
    assert world.unit(run).outcome is None
    end(world, "c")
    assert world.unit(run).state == "FAILED"
    assert world.unit(b).outcome == "success"


def test_a_run_that_settles_by_all_succeeds_as_ever(world: World) -> None:
    run, *_ = make_run(world, settle="all")
    for name in STEPS:
        end(world, name)
    assert world.unit(run).state == "SUCCEEDED"


def test_steps_that_need_a_lost_one_do_not_hold_the_verdict(world: World) -> None:
    work = (
        Work(task="run", lifecycle="workflow_run", ref="run", settle="all"),
        Work(task="a", lifecycle="step", parent="run", ref="a", queue="a", attempts=1),
        Work(task="b", lifecycle="step", parent="run", queue="b"),
        Work(task="c", lifecycle="step", parent="run", queue="c", needs=("a",)),
    )
    run, *_, c = [made.unit for made in world.send(Submit(work=work))]
    end(world, "a", **LOST)
    assert world.unit(run).outcome is None
    end(world, "b")
    assert world.unit(run).state == "FAILED"
    assert world.unit(c).outcome == "cancelled"


def test_optional_jobs_are_waited_for_if_a_ci_run_settles_by_all(world: World) -> None:
    for settle, waits in ((None, False), ("all", True)):
        work = (
            Work(task="ci", lifecycle="ci_run", ref="run", settle=settle),
            Work(task="a", lifecycle="ci_job", parent="run", queue=f"a{settle}"),
            Work(task="b", lifecycle="ci_job", parent="run", queue=f"b{settle}", decides=False),
        )
        run, *_ = [made.unit for made in world.send(Submit(work=work))]
        world.send(Decide(unit=run, trigger="plan"))
        end(world, f"a{settle}")
        assert (world.unit(run).outcome is None) == waits
        if waits:
            end(world, f"b{settle}", **LOST)
        assert world.unit(run).outcome == "success"


def test_a_critical_task_that_was_lost_before_the_plan_fails_its_workstream(world: World) -> None:
    """No child moves any more that would tell its parent."""
    work = (Work(task="ws", lifecycle="workstream", ref="ws"), Work(task="a", lifecycle="task", parent="ws"))
    stream, task = [made.unit for made in world.send(Submit(work=work))]
    world.cancel(task)
    assert world.unit(stream).state == "planned"
    world.send(Decide(unit=stream, trigger="plan"))
    assert world.unit(stream).state == "failed"


def test_the_plan_and_the_queue_have_clocks_of_their_own(world: World) -> None:
    terms = {"plan_timeout_us": 5 * SECOND, "queue_timeout_us": 60 * SECOND}
    late, *_ = make_run(world, "ci_run", "ci_job", **terms)
    planned, *_ = make_run(world, "ci_run", "ci_job", **terms)
    world.send(Decide(unit=planned, trigger="plan"))
    world.pass_time(5)
    world.tick()
    assert (world.unit(late).state, world.unit(planned).state) == ("FAILED", "QUEUED")
    world.pass_time(54)
    world.tick()
    assert world.unit(planned).state == "QUEUED"
    world.pass_time(1)
    world.tick()
    assert world.unit(planned).state != "QUEUED"


def test_without_a_clock_of_its_own_the_plan_has_that_of_the_queue(world: World) -> None:
    run, *_ = make_run(world, "ci_run", "ci_job", queue_timeout_us=5 * SECOND)
    world.pass_time(5)
    world.tick()
    assert world.unit(run).state == "FAILED"


@pytest.mark.parametrize(("own", "lasts"), [(None, 30), (5 * SECOND, 5), (40 * SECOND, 40)])
def test_a_holder_has_so_long_to_stop(world: World, own: int | None, lasts: int) -> None:
    job = world.submit(cancel_timeout_us=own, ttl_us=120 * SECOND)
    (grant,) = world.claim(world.worker())
    world.start(grant)
    world.cancel(job)
    world.pass_time(lasts / 2)
    world.beat(grant)
    world.pass_time(lasts / 2 - 1)
    world.tick()
    assert world.unit(job).outcome is None
    world.pass_time(1)
    world.tick()
    assert world.unit(job).outcome == "cancelled"


def test_a_run_that_is_cancelled_in_two_phases_has_so_long(world: World) -> None:
    run, *_ = make_run(world, "ci_run", "ci_job", cancel_timeout_us=5 * SECOND)
    world.send(Decide(unit=run, trigger="plan"))
    (grant,) = world.claim(world.worker(), queues=("a",))
    world.start(grant)
    world.cancel(run)
    assert world.unit(run).state == "CANCEL_REQUESTED"
    world.pass_time(5)
    world.tick()
    assert world.unit(run).outcome == "cancelled"


def test_lost_leases_have_a_budget_of_their_own(world: World) -> None:
    shared, own = world.submit(attempts=2), world.submit(attempts=2, losses=4)
    for turn in range(4):
        world.claim(world.worker(incarnation=f"lost {turn}"), 2)
        world.pass_time(3600)
        world.tick()
        world.pass_time(3600)
        world.tick()
    assert (world.unit(shared).category, world.unit(shared).losses) == ("dead", 2)
    assert (world.unit(own).category, world.unit(own).losses) == ("dead", 4)
    failing = world.submit(attempts=2, losses=9)
    for turn in range(2):
        (grant,) = world.claim(world.worker(incarnation=f"failing {turn}"))
        world.start(grant)
        world.finish(grant, ended="failure", error="no")
        world.pass_time(3600)
        world.tick()
    assert (world.unit(failing).category, world.unit(failing).failures) == ("dead", 2)


def test_a_run_made_anew_names_the_one_that_it_does_again(world: World) -> None:
    old, *_ = make_run(world)
    world.cancel(old)
    new, *_ = make_run(world, retry_of=old)
    assert world.body(new).retry_of == old


def test_what_cannot_be_done_again(world: World) -> None:
    old, step, *_ = make_run(world)
    with pytest.raises(InterlockError, match=r"retry_of names workflow_run_.*, which is PENDING; allowed is one that"):
        make_run(world, retry_of=old)
    with pytest.raises(InterlockError, match=r"retry_of names step_.*; allowed is a workflow_run"):
        make_run(world, retry_of=step)
    with pytest.raises(Unknown):
        make_run(world, retry_of=999_999)


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ({"settle": "any"}, "settle = 'any' is not allowed; allowed are first, all"),
        ({"settle": "all"}, "settle is not allowed for a job; it is for a run"),
        ({"lifecycle": "workstream", "settle": "all"}, "settle 'all' is not allowed for a workstream: a critical task"),
        ({"losses": 0}, "losses = 0 is not allowed"),
        ({"plan_timeout_us": 0}, "plan_timeout_us = 0 is not allowed"),
        ({"cancel_timeout_us": -1}, "cancel_timeout_us = -1 is not allowed"),
    ],
)
def test_wrong_terms_are_refused(world: World, terms: dict[str, Any], said: str) -> None:
    with pytest.raises(InterlockError, match=said):
        world.submit(**terms)
    assert world.count("unit") == 0
