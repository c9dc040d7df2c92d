"""The stories of a CI run: jobs that follow their attempts, two budgets, two-phase cancel, by raw commands."""

from typing import Any

import pytest

from interlock.kernel.commands import Decide, Enter, Submit, Work
from interlock.kernel.errors import Refused
from tests.engine.world import World, held


def pipeline(world: World, *jobs: tuple[str, bool, tuple[str, ...]], **facts: Any) -> list[int]:
    """A run, planned into jobs; each is born with its first attempt."""
    work = [Work(task="run", lifecycle="ci_run", ref="run")]
    for name, required, needs in jobs:
        job = {"lifecycle": "ci_job", "parent": "run", "ref": name, "needs": needs, "decides": required}
        work.append(Work(task=name, **{"attempts": 1, **job, **facts}))
    return [one.unit for one in world.send(Submit(work=tuple(work)))]


def started(world: World, *jobs: tuple[str, bool, tuple[str, ...]], **facts: Any) -> list[int]:
    units = pipeline(world, *jobs, **facts)
    world.send(Decide(unit=units[0], trigger="plan"))
    return units


def states(world: World, units: list[int]) -> list[str]:
    return [world.unit(one).state for one in units]


BUILD = ("build", True, ())


def test_a_run_is_planned_executed_and_reported(world: World) -> None:
    units = run, build, test = pipeline(world, BUILD, ("test", True, ("build",)))
    worker = world.worker()
    assert states(world, units) == ["PLANNING", "CREATED", "CREATED"]
    assert world.claim(worker) == []  # nothing runs before the plan is there
    world.send(Decide(unit=run, trigger="plan"))
    assert states(world, units) == ["QUEUED", "QUEUED", "CREATED"]
    for job in (build, test):
        (grant,) = world.claim(worker)
        assert world.unit(job).state == "LEASED"
        assert world.finish(grant).accepted is False  # not acknowledged yet
        assert world.beat(grant).accepted is False
        world.start(grant)
        assert world.unit(job).state == "STARTING"
        assert world.beat(grant).state == "RUNNING"
        world.send(Enter(held=(held(grant),), phase="upload"))
        assert world.unit(job).state == "UPLOADING"
        world.finish(grant)
        assert world.unit(job).state == "SUCCEEDED"
    assert world.unit(run).state == "SUCCESS"
    world.send(Decide(unit=run, trigger="report"))
    assert (world.unit(run).state, world.unit(run).outcome) == ("REPORTED", "success")
    assert world.path(run) == ["CREATED", "PLANNING", "QUEUED", "RUNNING", "SUCCESS", "REPORTED"]


def test_a_failure_before_the_acknowledgement_uses_nothing_up(world: World) -> None:
    _, build = started(world, BUILD, attempts=3)
    (grant,) = world.claim(world.worker())
    heard = world.finish(grant, ended="failure")
    assert (heard.accepted, "no 'fail' from 'LEASED'" in heard.why) == (False, True)
    assert (world.unit(build).state, world.unit(build).failures) == ("LEASED", 0)
    world.start(grant)
    assert world.finish(grant, ended="failure").accepted
    assert (world.unit(build).state, world.unit(build).failures) == ("QUEUED", 1)


def test_a_lost_runner_costs_an_attempt_and_the_job_is_queued_again(world: World) -> None:
    run, build = started(world, BUILD)
    worker = world.worker()
    for _ in range(2):
        (grant,) = world.claim(worker)
        world.start(grant)
        world.pass_time(120)
        world.tick()
        assert world.unit(grant.unit).state == "STALE"
        assert states(world, [run, build]) == ["RUNNING", "QUEUED"]
    assert (world.unit(build).losses, world.unit(build).failures, world.unit(build).attempt) == (2, 0, 3)
    (grant,) = world.claim(worker)
    world.pass_time(120)
    world.tick()
    assert states(world, [run, build]) == ["FAILED", "FAILED"]  # the third loss of three is final


def test_a_lease_that_nobody_acknowledges_is_revoked_at_its_window(world: World) -> None:
    _, build = started(world, BUILD)
    (grant,) = world.claim(world.worker())
    world.pass_time(29.9)
    world.tick()
    assert world.unit(build).state == "LEASED"
    world.pass_time(0.1)
    world.tick()
    assert (world.unit(grant.unit).state, world.unit(grant.unit).lease) == ("STALE", "REVOKED")
    assert world.unit(build).state == "QUEUED"
    assert world.start(grant).why == "LEASE_REVOKED"


def test_failures_have_a_budget_of_their_own(world: World) -> None:
    run, build = started(world, BUILD, attempts=2)
    worker = world.worker()
    (grant,) = world.claim(worker)
    world.start(grant)
    world.finish(grant, ended="failure")
    assert states(world, [run, build, grant.unit]) == ["RUNNING", "QUEUED", "FAILED"]
    assert world.path(build)[-4:] == ["RUNNING", "UPLOADING", "FAILED", "QUEUED"]
    (again,) = world.claim(worker)
    assert again.unit != grant.unit
    world.start(again)
    world.finish(again, ended="failure", error_class="PermanentError")
    assert states(world, [run, build]) == ["FAILED", "FAILED"]


def test_a_job_that_is_not_required_may_fail(world: World) -> None:
    run, build, lint = started(world, BUILD, ("lint", False, ()))
    worker = world.worker()
    first, second = world.claim(worker, limit=2)
    for grant, ended in ((second, "failure"), (first, "success")):
        world.start(grant)
        world.finish(grant, ended=ended)
    assert states(world, [run, build, lint]) == ["SUCCESS", "SUCCEEDED", "FAILED"]


def test_a_run_succeeds_with_its_last_required_job_and_stops_the_others(world: World) -> None:
    run, build, lint, docs = started(world, BUILD, ("lint", False, ()), ("docs", False, ("lint",)))
    first, second = world.claim(world.worker(), limit=2)
    world.start(second)
    world.beat(second)
    world.start(first)
    world.finish(first)
    assert states(world, [run, build, lint, docs]) == ["SUCCESS", "SUCCEEDED", "CANCEL_REQUESTED", "CANCELED"]
    assert world.finish(second, ended="cancelled").accepted
    assert states(world, [run, lint]) == ["SUCCESS", "CANCELED"]


def test_cancel_is_asked_for_and_then_answered(world: World) -> None:
    units = run, *_ = started(world, BUILD, ("test", True, ("build",)))
    (grant,) = world.claim(world.worker())
    world.start(grant)
    assert world.cancel(run).state == "CANCEL_REQUESTED"
    assert states(world, units) == ["CANCEL_REQUESTED", "CANCEL_REQUESTED", "CANCELED"]
    assert world.beat(grant).cancel
    assert world.finish(grant, ended="cancelled").accepted
    assert states(world, units) == ["CANCELED"] * 3
    assert world.unit(grant.unit).lease == "CANCELED"


def test_a_complete_under_a_cancel_is_its_answer(world: World) -> None:
    run, build = started(world, BUILD)
    (grant,) = world.claim(world.worker())
    world.start(grant)
    world.cancel(run)
    assert world.finish(grant).state == "CANCELED"
    assert states(world, [run, build]) == ["CANCELED", "CANCELED"]
    assert world.unit(grant.unit).lease == "CANCELED"


def test_a_cancel_that_nobody_answers_is_forced(world: World) -> None:
    run, build = started(world, BUILD)
    (grant,) = world.claim(world.worker())
    world.start(grant)
    world.cancel(run)
    world.pass_time(30)
    world.tick()
    assert states(world, [run, build]) == ["CANCELED", "CANCELED"]
    assert world.finish(grant).why == "LEASE_REVOKED"


def test_a_cancel_during_the_plan_is_kept_until_there_is_one(world: World) -> None:
    run, build = pipeline(world, BUILD)
    assert world.cancel(run).state == "PLANNING"
    world.send(Decide(unit=run, trigger="plan"))
    assert states(world, [run, build]) == ["CANCELED", "CANCELED"]
    assert world.path(run)[-3:] == ["QUEUED", "CANCEL_REQUESTED", "CANCELED"]


def test_a_plan_that_takes_too_long_fails_the_run(world: World) -> None:
    run, build = pipeline(world, BUILD)
    world.pass_time(300)
    world.tick()
    assert states(world, [run, build]) == ["FAILED", "CANCELED"]
    assert "PLAN_FAILED" in world.path(run)


def test_the_clock_of_a_job_runs_through_each_attempt_and_its_upload(world: World) -> None:
    run, build = started(world, BUILD, attempts=2, timeout_us=60_000_000)
    worker = world.worker()
    for upload in (False, True):
        (grant,) = world.claim(worker)
        world.start(grant)
        world.pass_time(20)  # its environment is prepared
        world.beat(grant)
        world.pass_time(30)
        if upload:
            world.send(Enter(held=(held(grant),), phase="upload"))
        world.pass_time(29)
        world.tick()
        assert world.beat(grant).accepted
        world.pass_time(1)
        world.tick()
        assert world.unit(grant.unit).state == "TIMED_OUT"
    assert states(world, [run, build]) == ["FAILED", "TIMED_OUT"]


def test_a_cancel_that_a_plan_never_follows_stops_no_clock(world: World) -> None:
    run, build = pipeline(world, BUILD)
    job = world.submit()
    world.cancel(run)
    world.pass_time(300)
    world.tick()
    assert states(world, [run, build]) == ["FAILED", "CANCELED"]
    assert [grant.unit for grant in world.claim(world.worker())] == [job]


def test_a_job_is_cancelled_with_its_attempt(world: World) -> None:
    run, build = started(world, BUILD)
    assert world.cancel(build).applied
    assert states(world, [run, build]) == ["FAILED", "CANCELED"]
    with pytest.raises(Refused):
        world.cancel(run)
