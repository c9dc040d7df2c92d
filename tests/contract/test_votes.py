"""Whose word counts, how many it takes, and that a vote stands."""

from typing import Any

import pytest

from interlock.kernel.commands import Decide, Submit, Vote, Work
from interlock.kernel.errors import NotWanted, Refused
from interlock.kernel.verdicts import Ballot, asked, ballot, waiting
from interlock.lifecycles import shipped
from tests.contract.world import World


def ship(world: World, **facts: Any) -> int:
    """A run of one approval, submitted by sue."""
    work = (
        Work(task="release", lifecycle="workflow_run", ref="run"),
        Work(task="ship", lifecycle="approval", parent="run", **facts),
    )
    return world.send(Submit(work=work, actor="sue"))[1].unit


def test_who_waits_for_a_person_is_read_from_the_lifecycles() -> None:
    lives = shipped()
    assert {*waiting(lives)} == {("approval", "WAITING_APPROVAL"), ("ci_run", "PLANNING"), ("workstream", "planned")}
    assert asked(lives["approval"], "WAITING_APPROVAL") == ("approve", "reject")
    assert asked(lives["workflow_run"], "WAITING_APPROVAL") == ()  # its approval waits, and is asked
    assert asked(lives["agent_run"], "failed") == ()  # it has ended, whoever may resume it


def test_only_an_approver_may_vote_by_name_or_by_role(world: World) -> None:
    unit = ship(world, approvers=("ann", "ops"), quorum=2)
    version = world.unit(unit).version
    for word in ({"voter": "eve"}, {"voter": "eve", "role": "dev"}, {"voter": "eve", "approve": False}):
        with pytest.raises(NotWanted, match="is none of its approvers: ann, ops"):
            world.send(Vote(unit=unit, **word))
    assert (world.unit(unit).version, world.notes(unit, "vote")) == (version, [])
    world.send(Vote(unit=unit, voter="ann", reason="looks good"))
    world.send(Vote(unit=unit, voter="bob", role="ops"))
    assert world.unit(unit).state == "SUCCEEDED"
    words = {note.name: ballot(note.payload) for note in world.notes(unit, "vote")}
    assert words == {"ann": Ballot(True, "", "looks good"), "bob": Ballot(True, "ops")}


def test_whoever_submitted_a_run_may_reject_but_not_approve_it(world: World) -> None:
    unit = ship(world, not_submitter=True)
    with pytest.raises(NotWanted, match="sue has submitted it"):
        world.send(Vote(unit=unit, voter="sue"))
    assert world.send(Vote(unit=ship(world, not_submitter=True), voter="sue", approve=False)).state == "CANCELED"
    assert world.send(Vote(unit=unit, voter="ann")).state == "SUCCEEDED"


def test_the_same_vote_again_changes_nothing_and_another_is_refused(world: World) -> None:
    unit = ship(world, quorum=2)
    assert world.send(Vote(unit=unit, voter="ann")).applied
    assert world.send(Vote(unit=unit, voter="ann")).applied is False
    with pytest.raises(NotWanted, match="ann has said approve already, and a vote stands"):
        world.send(Vote(unit=unit, voter="ann", approve=False))
    world.send(Vote(unit=unit, voter="bob"))
    done = world.unit(unit)
    assert world.send(Vote(unit=unit, voter="bob")).applied is False  # its answer was lost, say
    assert world.unit(unit) == done
    with pytest.raises(Refused):
        world.send(Vote(unit=unit, voter="eve"))


def test_a_single_order_does_not_go_past_the_votes(world: World) -> None:
    for facts in ({"quorum": 2}, {"approvers": ("ann",)}, {"not_submitter": True}):
        unit = ship(world, **facts)
        for trigger in ("approve", "reject"):
            with pytest.raises(NotWanted, match="is decided by votes"):
                world.send(Decide(unit=unit, trigger=trigger))
    assert world.send(Decide(unit=ship(world), trigger="approve")).applied


def test_a_vote_of_the_first_form_is_still_one() -> None:
    assert [ballot("true"), ballot("false")] == [Ballot(True), Ballot(False)]
