"""The stories of units with parents and needs: workflows, workstreams and agent runs, by raw commands."""

import pytest

from interlock.kernel.commands import Decide, Enter, Submit, Work
from interlock.kernel.errors import InterlockError, Refused, Unknown
from tests.engine.world import World, held


def workflow(world: World, *steps: str, **facts: object) -> list[int]:
    """A run and its steps in order, each needing the one before; `ship` is an approval."""
    work = [Work(task="release", lifecycle="workflow_run", ref="run")]
    before: tuple[str, ...] = ()
    for name in steps:
        lifecycle = "approval" if name.startswith("ship") else "step"
        own = facts if lifecycle == "approval" else {}
        work.append(Work(task=name, lifecycle=lifecycle, parent="run", needs=before, ref=name, **own))  # type: ignore[arg-type]
        before = (name,)
    return [one.unit for one in world.send(Submit(work=tuple(work)))]


def do(world: World, worker: int) -> int:
    """Claims one unit and completes it."""
    (grant,) = world.claim(worker)
    world.finish(grant)
    return grant.unit


def states(world: World, units: list[int]) -> list[str]:
    return [world.unit(one).state for one in units]


def test_a_workflow_runs_its_steps_in_order_and_waits_for_a_person(world: World) -> None:
    units = run, build, ship, deploy = workflow(world, "build", "ship", "deploy")
    worker = world.worker()
    assert states(world, units) == ["PENDING"] * 4
    assert do(world, worker) == build
    assert states(world, units) == ["WAITING_APPROVAL", "SUCCEEDED", "WAITING_APPROVAL", "PENDING"]
    assert world.claim(worker) == []  # workers never see an approval
    assert world.send(Decide(unit=ship, trigger="approve", actor="ann")).applied
    assert states(world, units) == ["RUNNING", "SUCCEEDED", "SUCCEEDED", "PENDING"]
    assert do(world, worker) == deploy
    assert world.path(run) == ["PENDING", "RUNNING", "WAITING_APPROVAL", "RUNNING", "SUCCEEDED"]
    assert world.events(ship)[-1].actor == "ann"


def test_a_workflow_may_begin_and_end_with_an_approval(world: World) -> None:
    units = run, first, _, last = workflow(world, "ship", "build", "ship again")
    assert states(world, units) == ["WAITING_APPROVAL", "WAITING_APPROVAL", "PENDING", "PENDING"]
    world.send(Decide(unit=first, trigger="approve"))
    do(world, world.worker())
    assert world.unit(run).state == "WAITING_APPROVAL"
    world.send(Decide(unit=last, trigger="approve"))
    assert world.path(run) == ["PENDING", "RUNNING", "WAITING_APPROVAL", "RUNNING", "WAITING_APPROVAL", "SUCCEEDED"]


def test_approving_what_does_not_wait_is_refused_and_changes_nothing(world: World) -> None:
    _, build, ship, _ = workflow(world, "build", "ship", "deploy")
    for unit in (ship, build):
        with pytest.raises(Refused):
            world.send(Decide(unit=unit, trigger="approve"))
        assert world.unit(unit).version == 1


def test_a_rejection_cancels_the_run(world: World) -> None:
    units = workflow(world, "ship", "deploy")
    world.send(Decide(unit=units[1], trigger="reject"))
    assert states(world, units) == ["CANCELED"] * 3


def test_a_rejection_may_fail_the_run_instead(world: World) -> None:
    units = workflow(world, "ship", "deploy", on_reject="fail")
    world.send(Decide(unit=units[1], trigger="reject"))
    assert states(world, units) == ["FAILED", "CANCELED", "CANCELED"]


def test_a_step_that_fails_for_good_takes_its_run_with_it(world: World) -> None:
    units = workflow(world, "build", "test", "deploy")
    (grant,) = world.claim(world.worker())
    world.finish(grant, ended="failure", error_class="PermanentError")
    assert states(world, units) == ["FAILED", "FAILED", "CANCELED", "CANCELED"]
    assert world.claim(world.worker("other"), limit=9) == []


def test_a_step_waits_exactly_two_to_the_attempts(world: World) -> None:
    _, build = workflow(world, "build")
    worker = world.worker()
    for expected in (2, 4):
        (grant,) = world.claim(worker)
        world.finish(grant, ended="failure")
        unit = world.unit(build)
        assert (unit.state, unit.due_at) == ("PENDING", world.now_us + expected * 1_000_000)
        world.pass_time(expected)
    (grant,) = world.claim(worker)
    world.finish(grant, ended="failure")
    assert world.unit(build).state == "FAILED"


def test_a_stale_step_is_taken_over_in_place(world: World) -> None:
    _, build = workflow(world, "build")
    one, two = world.worker("one"), world.worker("two")
    (grant,) = world.claim(one)
    world.pass_time(60)
    (again,) = world.claim(two)
    assert (again.unit, again.fence, again.attempt) == (build, 2, 2)
    assert [(e.source, e.target, e.lease_to) for e in world.events(build)][1:] == [
        ("PENDING", "RUNNING", "GRANTED"),
        ("RUNNING", "RUNNING", "ACTIVE"),
        ("RUNNING", "RUNNING", "EXPIRED"),
        ("RUNNING", "RUNNING", "GRANTED"),
        ("RUNNING", "RUNNING", "ACTIVE"),
    ]
    assert world.finish(grant).accepted is False
    assert world.finish(again).accepted


def test_cancelling_a_run_ends_everything_in_it(world: World) -> None:
    units = run, build, *_ = workflow(world, "build", "ship", "deploy")
    worker = world.worker()
    (grant,) = world.claim(worker)
    assert world.cancel(run).applied
    assert states(world, units) == ["CANCELED"] * 4
    assert world.finish(grant).why == "LEASE_REVOKED"
    assert world.unit(worker).state == "idle"
    assert build == grant.unit


def test_a_failed_step_is_told_apart_from_a_run_that_has_ended(world: World) -> None:
    run, *_ = workflow(world, "build")
    world.cancel(run)
    with pytest.raises(InterlockError, match="has ended"):
        world.submit("late", lifecycle="step", parent=run)
    with pytest.raises(Unknown, match="nothing in this request has the ref 'nobody'"):
        world.submit("odd", needs=("nobody",))
    with pytest.raises(Unknown, match="no such job, run or step"):
        world.submit("odd", after=(987654,))


def workstream(world: World, *tasks: tuple[str, bool, tuple[str, ...]]) -> list[int]:
    work = [Work(task="stream", lifecycle="workstream", ref="stream")]
    for name, critical, needs in tasks:
        work.append(
            Work(task=name, lifecycle="task", parent="stream", ref=name, needs=needs, decides=critical, attempts=1)
        )
    units = [one.unit for one in world.send(Submit(work=tuple(work)))]
    world.send(Decide(unit=units[0], trigger="plan"))
    return units


def test_a_workstream_from_plan_to_merge(world: World) -> None:
    units = stream, one, two = workstream(world, ("one", True, ()), ("two", True, ("one",)))
    worker = world.worker()
    assert states(world, units) == ["ready", "queued", "pending"]
    for task in (one, two):
        assert do(world, worker) == task
        assert world.unit(task).state == "validating"
        world.send(Decide(unit=task, trigger="valid"))
    assert states(world, units) == ["validating", "completed", "completed"]
    with pytest.raises(Refused):
        world.cancel(stream)
    world.send(Decide(unit=stream, trigger="valid"))
    assert world.path(stream) == ["planned", "ready", "executing", "validating", "completed"]
    assert [e.name for e in world.events(one) if e.source != e.target] == [
        "task_created",
        "scheduler_assigned",
        "worker_started",
        "execution_completed",
        "validation_passed",
    ]


def test_a_critical_failure_ends_the_workstream(world: World) -> None:
    units = workstream(world, ("one", True, ()), ("two", False, ()), ("three", False, ("one",)))
    (grant,) = world.claim(world.worker())
    world.finish(grant, ended="failure")
    assert states(world, units) == ["failed", "failed", "cancelled", "cancelled"]
    assert world.events(units[2])[-1].name == "critical_task_failed"
    assert world.events(units[0])[-1].severity == "critical"


def test_other_failures_let_the_rest_go_on_until_nothing_can(world: World) -> None:
    units = stream, one, two, _ = workstream(world, ("one", False, ()), ("two", False, ()), ("three", False, ("one",)))
    worker = world.worker()
    (grant,) = world.claim(worker)
    assert grant.unit == one
    world.finish(grant, ended="failure")
    assert states(world, units) == ["executing", "failed", "queued", "pending"]
    assert do(world, worker) == two
    world.send(Decide(unit=two, trigger="valid"))
    assert states(world, units) == ["failed", "failed", "completed", "cancelled"]
    assert world.events(stream)[-1].name == "stalled_by_failure"


def test_a_plan_without_tasks_is_refused(world: World) -> None:
    stream = world.submit("stream", lifecycle="workstream")
    with pytest.raises(InterlockError, match="at least one"):
        world.send(Decide(unit=stream, trigger="plan"))
    assert world.unit(stream).state == "planned"


def agent(world: World) -> list[int]:
    work = (Work(task="goal", lifecycle="agent_run", ref="run"), Work(task="goal", lifecycle="agent_job", parent="run"))
    return [one.unit for one in world.send(Submit(work=work))]


def test_an_agent_run_goes_round_its_phases(world: World) -> None:
    run, job = agent(world)
    (grant,) = world.claim(world.worker())
    assert states(world, [run, job]) == ["running", "claimed"]
    world.start(grant)
    for phase in ("check", "correct", "run", "optimize", "run"):
        assert world.send(Enter(held=(held(grant),), phase=phase))[0].accepted, phase
    refused = world.send(Enter(held=(held(grant),), phase="upload"))[0]
    assert (refused.accepted, "no 'upload' from 'running'" in refused.why) == (False, True)
    world.finish(grant)
    assert states(world, [run, job]) == ["complete", "complete"]
    assert world.path(run)[:6] == ["queued", "running", "validating", "running", "correcting", "running"]


def test_an_agent_run_has_one_open_job_at_a_time(world: World) -> None:
    run, job = agent(world)
    with pytest.raises(InterlockError, match="has an open child already; agent_run has one at a time"):
        world.submit("goal", lifecycle="agent_job", parent=run)
    twice = (Work(task="goal", lifecycle="agent_job", parent="run"),) * 2
    with pytest.raises(InterlockError, match="has an open child already"):
        world.send(Submit(work=(Work(task="goal", lifecycle="agent_run", ref="run"), *twice)))
    (grant,) = world.claim(world.worker(), limit=10)
    world.finish(grant)
    assert states(world, [run, job]) == ["complete", "complete"]


def test_a_failed_run_is_resumed_by_a_person_with_a_new_job(world: World) -> None:
    run, job = agent(world)
    worker = world.worker()
    (grant,) = world.claim(worker)
    world.finish(grant, ended="failure")
    assert states(world, [run, job]) == ["failed", "failed"]
    assert world.claim(worker) == []
    assert world.send(Decide(unit=run, trigger="resume", actor="ann", reason="try again")).applied
    (again,) = world.claim(worker)
    assert again.unit != job
    assert states(world, [run, job]) == ["running", "failed"]
    world.finish(again)
    assert world.unit(run).state == "complete"
    assert world.unit(run).attempt == 2


def test_a_cancelled_run_fails_its_queued_job_without_a_worker_seeing_it(world: World) -> None:
    run, job = agent(world)
    world.cancel(run)
    assert world.path(job) == ["queued", "claimed", "failed"]
    assert world.claim(world.worker()) == []
