"""Runs whose steps come with the request: their gates, and what a step knows of those before it."""

from typing import Any

import pytest

from interlock.kernel.commands import DefineTemplate, LeaseGrant, Submit, Vote, Work
from interlock.kernel.errors import InterlockError
from tests.engine.test_waiting_001 import no_lease_ever
from tests.engine.world import World

DONE, GATE, OPEN = "SUCCEEDED", "WAITING_APPROVAL", "PENDING"


def submit_run(world: World, *steps: Work) -> tuple[int, list[int]]:
    """A run and its steps, in the order in which they are given."""
    top = Work(task="release", lifecycle="workflow_run", ref="\0run")
    run, *below = world.send(Submit(work=(top, *steps)))
    return run.unit, [step.unit for step in below]


def step(task: str, *needs: str, **facts: Any) -> Work:
    return Work(**{"task": task, "lifecycle": "step", "ref": task, "needs": needs, "parent": "\0run", **facts})


def claim_one(world: World) -> LeaseGrant:
    (grant,) = world.claim(world.worker(), limit=9)
    return grant


def outputs_of(grant: LeaseGrant) -> dict[str, str]:
    assert grant.outputs is not None
    return dict(grant.outputs)


@pytest.mark.req("R1-31")
@pytest.mark.parametrize("named_by", ["task", "ref"])
def test_a_step_called_approval_is_a_gate(world: World, named_by: str) -> None:
    """Document 001: a worker never executes the step APPROVAL."""
    task, ref = ("APPROVAL", "sign") if named_by == "task" else ("sign", "APPROVAL")
    run, (build, gate, _) = submit_run(world, step("build"), step(task, "build", ref=ref), step("ship", ref))
    assert (world.unit(gate).lifecycle, world.unit(gate).state) == ("approval", OPEN)
    grant = claim_one(world)
    assert grant.unit == build
    world.finish(grant)
    assert [world.unit(one).state for one in (run, gate)] == [GATE, GATE]
    assert world.claim(world.worker(), limit=9) == []
    assert world.send(Vote(unit=run, voter="ann")).applied
    world.finish(claim_one(world))
    assert world.unit(run).state == DONE
    assert no_lease_ever(world, gate)


@pytest.mark.req("R1-31")
def test_a_template_s_step_called_approval_is_a_gate(world: World) -> None:
    steps = (
        Work(task="build", lifecycle="step", ref="build"),
        Work(task="APPROVAL", lifecycle="step", ref="APPROVAL", needs=("build",)),
    )
    world.send(DefineTemplate(name="release", steps=steps))
    run = world.submit("release", lifecycle="workflow_run", template="release")
    world.finish(claim_one(world))
    assert world.unit(run).state == GATE
    assert world.claim(world.worker(), limit=9) == []
    assert world.send(Vote(unit=run, voter="ann")).applied
    assert world.unit(run).state == DONE
    assert world.count("unit", "lifecycle = 'approval' AND fence = 0") == 1


def test_only_the_document_s_own_word_makes_a_gate(world: World) -> None:
    """In other letters it is a task's name, and so it is for a lifecycle that is no step."""
    for work in (step("approval"), step("Approval"), step("APPROVALS")):
        _, (unit,) = submit_run(world, work)
        assert world.unit(unit).lifecycle == "step"
    assert world.unit(world.submit("APPROVAL")).lifecycle == "job"


def test_what_no_gate_can_keep_is_refused_for_one_too(world: World) -> None:
    with pytest.raises(InterlockError, match="reclaim_after is not allowed for a approval"):
        submit_run(world, step("APPROVAL", reclaim_after_us=1_000_000))
    assert world.count("unit") == 0


def test_a_step_gets_the_outputs_of_those_before_it(world: World) -> None:
    """By their refs, or else by their tasks; as in a run of a template."""
    nameless = step("test", "build", ref="\0" + "1")
    _, below = submit_run(world, step("build"), nameless, step("APPROVAL", "\0" + "1"), step("ship", "APPROVAL"))
    build = claim_one(world)
    assert outputs_of(build) == {}
    world.finish(build, result='{"tag": "v7"}')
    test = claim_one(world)
    assert outputs_of(test) == {"build": '{"tag": "v7"}'}
    world.finish(test)
    world.send(Vote(unit=below[2], voter="ann", reason="go"))
    ship = outputs_of(claim_one(world))
    assert ship == {"build": '{"tag": "v7"}', "test": "null", "APPROVAL": '{"by":["ann"],"comment":"go"}'}


def test_a_step_that_is_added_later_gets_them_too(world: World) -> None:
    run, _ = submit_run(world, step("build"), step("wait", "build"))
    world.finish(claim_one(world), result="7")
    world.submit("tell", lifecycle="step", parent=run)
    grants = {grant.task: outputs_of(grant) for grant in world.claim(world.worker(), limit=9)}
    assert grants == {"wait": {"build": "7"}, "tell": {"build": "7"}}


def test_an_attempt_after_a_failure_gets_them_again(world: World) -> None:
    submit_run(world, step("build"), step("ship", "build"))
    world.finish(claim_one(world), result="7")
    world.finish(claim_one(world), ended="failure", error="no route")
    world.pass_time(60)
    assert outputs_of(claim_one(world)) == {"build": "7"}


def test_a_unit_that_is_no_step_of_a_run_gets_none(world: World) -> None:
    world.submit("mail")
    assert claim_one(world).outputs is None


def test_a_condition_of_a_step_reads_them(world: World) -> None:
    tag = ('build.tag == "v7"', 'build.tag == "v8"')
    run, (_, wanted, skipped) = submit_run(
        world, step("build"), step("ship", "build", when=tag[0]), step("tell", "build", when=tag[1])
    )
    world.finish(claim_one(world), result='{"tag": "v7"}')
    assert (world.unit(skipped).state, world.unit(skipped).fence) == (DONE, 0)
    grant = claim_one(world)
    assert grant.unit == wanted
    world.finish(grant)
    assert world.unit(run).state == DONE
