"""Whose word counts, how many it takes, and that a vote stands."""

from typing import Any

import pytest

from interlock.kernel.approvals import Ballot, ballot, triggers_for, waiting
from interlock.kernel.commands import Decide, Finish, LeaseGrant, Outcome, Record, Start, Submit, Vote, Work
from interlock.kernel.errors import InterlockError, NotWanted
from interlock.lifecycles import shipped
from tests.engine.world import World, held


def ship(world: World, **facts: Any) -> int:
    """A run of one approval, submitted by sue."""
    work = (
        Work(task="release", lifecycle="workflow_run", ref="run"),
        Work(task="ship", lifecycle="approval", parent="run", **facts),
    )
    return world.send(Submit(work=work, actor="sue"))[1].unit


def test_who_waits_for_a_person_is_read_from_the_lifecycles() -> None:
    lifecycles = shipped()
    assert {*waiting(lifecycles)} == {
        ("approval", "WAITING_APPROVAL"),
        ("ci_run", "PLANNING"),
        ("workstream", "planned"),
    }
    assert triggers_for(lifecycles["approval"], "WAITING_APPROVAL") == ("approve", "reject")
    assert triggers_for(lifecycles["workflow_run"], "WAITING_APPROVAL") == ()  # its approval waits, and is asked
    assert triggers_for(lifecycles["agent_run"], "failed") == ()  # it has ended, whoever may resume it


def test_only_an_approver_may_vote_by_name_or_by_role(world: World) -> None:
    unit = ship(world, approvers=("ann", "ops"), quorum=2)
    version = world.unit(unit).version
    for word in ({"voter": "eve"}, {"voter": "eve", "roles": ("dev",)}, {"voter": "eve", "approve": False}):
        with pytest.raises(InterlockError, match="NOT_AN_APPROVER: 'eve' has no vote here; these have: ann, ops"):
            world.send(Vote(unit=unit, **word))  # type: ignore[arg-type]
    assert (world.unit(unit).version, world.notes(unit, "vote")) == (version, [])
    world.send(Vote(unit=unit, voter="ann", reason="looks good"))
    world.send(Vote(unit=unit, voter="bob", roles=("dev", "ops")))
    assert world.unit(unit).state == "SUCCEEDED"
    words = {note.name: ballot(note.payload) for note in world.notes(unit, "vote")}
    assert words == {"ann": Ballot(True, "looks good"), "bob": Ballot(True, "", ("dev", "ops"))}


def test_whoever_submitted_a_run_has_no_vote(world: World) -> None:
    unit = ship(world, not_submitter=True)
    with pytest.raises(InterlockError, match="NOT_AN_APPROVER: 'sue' submitted this"):
        world.send(Vote(unit=unit, voter="sue"))
    assert world.send(Vote(unit=unit, voter="ann")).state == "SUCCEEDED"


def test_the_same_vote_again_changes_nothing(world: World) -> None:
    unit = ship(world, quorum=2)
    assert world.send(Vote(unit=unit, voter="ann")).applied
    assert world.send(Vote(unit=unit, voter="ann")).applied is False
    world.send(Vote(unit=unit, voter="bob"))
    done = world.unit(unit)
    assert world.send(Vote(unit=unit, voter="bob")).applied is False  # its answer was lost, say
    assert world.send(Vote(unit=unit, voter="eve")).applied is False  # nothing waits any more (A1-12)
    assert world.unit(unit) == done


def test_a_single_order_does_not_go_past_the_votes(world: World) -> None:
    unit = ship(world, quorum=2)
    assert world.send(Decide(unit=unit, trigger="approve", actor="ann")).state == "WAITING_APPROVAL"
    with pytest.raises(InterlockError, match="NOT_AN_APPROVER"):
        world.send(Decide(unit=ship(world, approvers=("ann",)), trigger="reject", actor="eve"))
    assert world.send(Decide(unit=ship(world), trigger="approve")).state == "SUCCEEDED"


def test_a_vote_of_the_first_form_is_still_one() -> None:
    assert [ballot("true"), ballot("false")] == [Ballot(True), Ballot(False)]


def test_a_vote_reaches_what_waits_further_below(world: World) -> None:
    """The question of a step is below the step, and that of an agent below its job: one names the run."""
    work = (
        Work(task="release", lifecycle="workflow_run", ref="run"),
        Work(task="part", lifecycle="workflow_run", ref="part", parent="run"),
        Work(task="ship", lifecycle="approval", parent="part", quorum=2),
    )
    run, _, ship = (made.unit for made in world.send(Submit(work=work)))
    assert world.send(Vote(unit=run, voter="ann")).unit == ship
    assert world.send(Vote(unit=run, voter="ann")).applied is False
    world.send(Vote(unit=run, voter="bob"))
    assert world.unit(ship).state == "SUCCEEDED"


@pytest.mark.req("R1-15")
def test_a_vote_for_a_run_opens_the_first_of_its_own_gates(world: World) -> None:
    work = (
        Work(task="release", lifecycle="workflow_run", ref="run"),
        Work(task="ship", lifecycle="approval", parent="run"),
        Work(task="tell", lifecycle="approval", parent="run"),
    )
    run, ship, tell = (made.unit for made in world.send(Submit(work=work)))
    assert world.send(Vote(unit=run, voter="ann")).unit == ship
    assert [world.unit(unit).state for unit in (ship, tell)] == ["SUCCEEDED", "WAITING_APPROVAL"]


def test_a_vote_that_several_questions_further_below_wait_for_is_refused(world: World) -> None:
    work = (
        Work(task="release", lifecycle="workflow_run", ref="run"),
        Work(task="part", lifecycle="workflow_run", ref="part", parent="run"),
        Work(task="ship", lifecycle="approval", parent="part", ref="a"),
        Work(task="tell", lifecycle="approval", parent="part"),
    )
    made = [made.unit for made in world.send(Submit(work=work))]
    run, ship, tell = made[0], made[-2], made[-1]
    before = [world.unit(unit) for unit in made]
    with pytest.raises(NotWanted, match=r"2 approvals wait there: approval_\w+, approval_\w+; name one of them"):
        world.send(Vote(unit=run, voter="ann"))
    assert [world.unit(unit) for unit in made] == before
    world.send(Vote(unit=tell, voter="ann"))
    assert (world.unit(ship).state, world.unit(tell).state) == ("WAITING_APPROVAL", "SUCCEEDED")
    assert world.send(Vote(unit=run, voter="ann")).unit == ship


def hold_parent(world: World) -> LeaseGrant:
    """A job that a worker holds."""
    world.submit()
    (grant,) = world.claim(world.worker())
    world.send(Start(held=(held(grant),)))
    return grant


def test_a_rejected_question_of_a_handler_decides_nothing_about_its_job(world: World) -> None:
    """Whatever it says of its run: a child of a handler decides nothing, and the handler is told what came of it."""
    grant = hold_parent(world)
    question = '{"task": "ok?", "lifecycle": "approval"}'
    world.send(Record(held=(held(grant),), kind="child", name="ok?", payload=question))
    assert world.send(Vote(unit=grant.unit, voter="ann", approve=False)).state == "CANCELED"
    assert world.unit(grant.unit).holder is not None
    (answer,) = world.send(Finish(outcomes=(Outcome(held=held(grant)),)))
    assert (answer.accepted, world.unit(grant.unit).outcome) == (True, "success")


def test_a_rejected_approval_below_a_job_that_is_held_takes_it_from_its_holder(world: World) -> None:
    grant = hold_parent(world)
    (ship,) = world.send(Submit(work=(Work(task="ship", lifecycle="approval", parent=grant.unit),)))
    assert world.send(Vote(unit=ship.unit, voter="ann", approve=False)).state == "CANCELED"
    job = world.unit(grant.unit)
    assert (job.outcome, job.holder) == ("cancelled", None)
    (answer,) = world.send(Finish(outcomes=(Outcome(held=held(grant)),)))
    assert not answer.accepted
