"""The stories of agent runs: what decides them, what survives a resume, and what nobody may do."""

import msgspec
import pytest

from interlock.kernel.commands import Decide, Enter, LeaseGrant, Record, Release, Signal, Standing, Submit, Vote, Work
from interlock.kernel.errors import InterlockError, NotWanted
from tests.engine.world import World, held


def start_run(world: World, **own: object) -> tuple[int, int]:
    """An agent run with its job: their ids. `own` are its options."""
    options = msgspec.json.encode({"agents": own}).decode() if own else None
    run = Work(task="goal", lifecycle="agent_run", ref="run", options=options)
    made = world.send(Submit(work=(run, Work(task="goal", lifecycle="agent_job", parent="run"))))
    return made[0].unit, made[1].unit


def begin(world: World, worker: int) -> LeaseGrant:
    (grant,) = world.claim(worker)
    assert world.start(grant).accepted
    return grant


def record(world: World, grant: LeaseGrant, kind: str, name: str, payload: str) -> None:
    assert world.send(Record(held=(held(grant),), kind=kind, name=name, payload=payload))[0].accepted, kind


def enter(world: World, grant: LeaseGrant, phase: str) -> str:
    """Empty if the phase was entered, else why not."""
    return world.send(Enter(held=(held(grant),), phase=phase))[0].why


def resume(world: World, run: int, actor: str = "ann", reason: str = "the disk was full") -> Standing:
    return world.send(Decide(unit=run, trigger="resume", actor=actor, reason=reason))


def states(world: World, *units: int) -> list[str]:
    return [world.unit(unit).state for unit in units]


def child_of(world: World, parent: int) -> int:
    return int(world.connection.rows("SELECT max(id) FROM unit WHERE parent = :p", {"p": parent})[0][0])


@pytest.mark.req("R0-20")
def test_a_resumed_run_goes_on_with_what_it_has_recorded_and_its_fence_grows(world: World) -> None:
    run, job = start_run(world)
    worker = world.worker()
    first = begin(world, worker)
    record(world, first, "step", "plan", '"paid"')
    record(world, first, "checkpoint", "", "1")
    record(world, first, "checkpoint", "", "2")
    record(world, first, "effect", "charge", '{"state": "begun", "place": "1", "by": ""}')
    record(world, first, "effect_result", "charge", "7")
    record(world, first, "effect", "open", '{"state": "begun", "place": "1", "by": ""}')
    record(world, first, "child", "yes?", '{"task": "ask", "lifecycle": "approval"}')
    world.send(Vote(unit=child_of(world, job), voter="bob"))
    record(world, first, "child", "again?", '{"task": "ask", "lifecycle": "approval"}')
    world.send(Signal(unit=job, name="go", payload="3"))
    world.release(first)
    second = begin(world, worker)
    assert (second.fence, second.fence_base, dict(second.steps)) == (2, 0, {"plan": '"paid"'})
    world.finish(second, ended="failure", error_class="PermanentError")
    assert states(world, run, job) == ["failed", "failed"]
    world.tick()
    assert world.claim(worker) == []  # resume is explicit
    assert resume(world, run).applied
    third = begin(world, worker)
    assert third.unit != job
    assert (third.fence, third.fence_base) == (1, 2)  # so outside systems are shown 3
    assert (dict(third.steps), third.checkpoint, dict(third.signals)) == ({"plan": '"paid"'}, "2", {"go": "3"})
    assert [(effect.name, effect.result, effect.is_open) for effect in third.effects] == [
        ("charge", "7", False), ("open", None, True),
    ]  # fmt: skip
    assert [(child.name, child.outcome) for child in third.children] == [
        ("yes?", "success")
    ]  # the other is asked again
    record(world, third, "step", "act", "1")
    world.finish(third, ended="failure", error_class="PermanentError")
    resume(world, run, reason="once more")
    fourth = begin(world, worker)
    assert (fourth.fence, fourth.fence_base, sorted(dict(fourth.steps))) == (1, 3, ["act", "plan"])
    world.finish(fourth)
    assert states(world, run) == ["complete"]


@pytest.mark.req("R0-22")
@pytest.mark.parametrize(("actor", "reason", "missing"), [("local", "why", "a name"), ("ann", " ", "a reason")])
def test_a_resume_has_a_name_and_a_reason(world: World, actor: str, reason: str, missing: str) -> None:
    run, _ = start_run(world)
    world.cancel(run)
    with pytest.raises(InterlockError, match=f"is resumed by somebody, for a reason; {missing} is missing"):
        resume(world, run, actor, reason)
    assert states(world, run) == ["cancelled"]
    assert resume(world, run).applied
    assert [event.actor for event in world.events(run) if event.trigger == "resume"] == ["ann"]


@pytest.mark.req("R0-23")
def test_a_resume_after_a_failed_check_does_the_agents_job_again(world: World) -> None:
    checks = msgspec.json.encode({"checks": {"jobs": ["lint"]}}).decode()
    work = (
        Work(task="goal", lifecycle="agent_run", ref="run", options=checks),
        Work(task="goal", lifecycle="agent_job", parent="run"),
    )
    run = world.send(Submit(work=work))[0].unit
    worker = world.worker()
    assert enter(world, begin(world, worker), "check") == ""
    with pytest.raises(InterlockError, match="no 'resume' from 'validating'"):
        resume(world, run)
    world.finish(begin(world, worker), ended="failure", error_class="PermanentError")
    assert states(world, run) == ["failed"]
    resume(world, run)
    again = begin(world, worker)
    assert (again.task, again.lifecycle, states(world, run)) == ("goal", "agent_job", ["running"])


def test_only_its_job_decides_a_run(world: World) -> None:
    run, job = start_run(world)
    approval = world.submit("sign", lifecycle="approval", parent=run)
    helper = world.submit("help", lifecycle="job", parent=run)
    with pytest.raises(InterlockError, match="has an open child already; agent_run has one at a time"):
        world.submit("goal", lifecycle="agent_job", parent=run)
    grant, other = world.claim(world.worker(), limit=2)
    assert (grant.unit, other.unit) == (job, helper)
    world.start(other)
    world.finish(other, ended="failure", error_class="PermanentError")
    world.send(Vote(unit=approval, voter="ann"))
    assert states(world, run, job) == ["running", "claimed"]
    world.finish(grant)
    assert states(world, run, job) == ["complete", "complete"]


@pytest.mark.parametrize(("trigger", "ends"), [("valid", ["complete", "complete"]), ("invalid", ["failed", "failed"])])
def test_a_verdict_ends_the_job_as_it_ends_the_run_and_is_never_the_holders(
    world: World, trigger: str, ends: list[str]
) -> None:
    run, job = start_run(world)
    grant = begin(world, world.worker("maker"))
    assert enter(world, grant, "check") == ""
    assert "never the holder" in enter(world, grant, trigger)
    with pytest.raises(NotWanted, match="never the holder of the work, and 'maker' holds it"):
        world.send(Decide(unit=run, trigger=trigger, actor="maker"))
    assert states(world, run, job) == ["validating", "running"]
    world.send(Decide(unit=run, trigger=trigger, actor="ann"))
    assert states(world, run, job) == ends
    assert not world.finish(grant, ended="failure").accepted


def test_corrections_and_optimizations_have_caps_that_survive_a_resume(world: World) -> None:
    run, _ = start_run(world, corrections=2, optimizations=0)
    worker = world.worker()
    grant = begin(world, worker)
    assert "has used 0 of its 0 optimizations" in enter(world, grant, "optimize")
    assert enter(world, grant, "correct") == ""
    assert "no 'correct' from 'correcting'" in enter(world, grant, "correct")  # counts nothing
    assert enter(world, grant, "check") == ""
    world.send(Decide(unit=run, trigger="correct", actor="ann"))
    assert states(world, run) == ["correcting"]
    assert enter(world, grant, "check") == ""
    with pytest.raises(NotWanted, match="has used 2 of its 2 corrections"):
        world.send(Decide(unit=run, trigger="correct", actor="ann"))
    assert states(world, run) == ["validating"]
    world.cancel(run)
    resume(world, run)
    grant = begin(world, worker)
    assert "has used 2 of its 2 corrections" in enter(world, grant, "correct")
    world.finish(grant)
    assert states(world, run) == ["complete"]


@pytest.mark.parametrize(
    ("lifecycle", "own", "why"),
    [
        ("job", '{"corrections": 1}', "option 'agents' is not allowed for a job; it is for an agent_run"),
        ("agent_run", '{"corrections": -1}', "corrections = -1 is not allowed; allowed is 0 to 1000"),
        ("agent_run", '{"optimizations": 1001}', "optimizations = 1001 is not allowed"),
        ("agent_run", '{"corrections": "two"}', "option 'agents'"),
        ("agent_run", '{"fixes": 1}', "option 'agents'.*fixes"),
        ("agent_run", "[]", "option 'agents'"),
    ],
)
def test_options_that_cannot_be_are_refused(world: World, lifecycle: str, own: str, why: str) -> None:
    with pytest.raises(InterlockError, match=why):
        world.submit("goal", lifecycle=lifecycle, options=f'{{"agents": {own}}}')
    assert world.count("unit") == 0


def test_a_run_waits_without_a_worker_and_its_clock_stands(world: World) -> None:
    run, job = start_run(world)
    worker = world.worker()
    grant = begin(world, worker)
    assert world.send(Release(held=(held(grant),), signals=("go",)))[0].accepted
    world.pass_time(100 * 3_600)
    world.tick()
    assert (states(world, run, job), world.claim(world.worker("other"))) == (["running", "running"], [])
    world.send(Signal(unit=job, name="go"))
    world.finish(begin(world, world.worker("third")))
    assert states(world, run) == ["complete"]
