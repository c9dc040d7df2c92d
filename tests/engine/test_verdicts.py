"""Why a verdict is refused: the sentence says whose move it is, and never lists what it has just denied."""

import pytest

from interlock.kernel.commands import Decide
from interlock.kernel.errors import NoVerdict, Refused
from tests.engine.world import World

WHOSE = {
    "claim": "the engine fires it by itself",
    "time_out": "the engine fires it by itself",
    "cancel": "the command Cancel does it",
    "bury": "the command Bury does it",
}


@pytest.mark.parametrize("trigger", WHOSE)
def test_a_listed_move_that_is_no_verdict_is_told_with_whose_it_is(trigger: str, world: World) -> None:
    job = world.submit()
    with pytest.raises(NoVerdict) as refusal:
        world.send(Decide(unit=job, trigger=trigger))
    assert str(refusal.value) == f"job: '{trigger}' from 'queued' is no verdict: {WHOSE[trigger]}; verdicts there: none"
    assert refusal.value.legal == ()
    assert world.unit(job).version == 1


def test_a_holders_move_is_its_holders(world: World) -> None:
    job = world.submit()
    world.start(world.claim(world.worker())[0])
    with pytest.raises(
        NoVerdict, match="'complete' from 'running' is no verdict: the worker that holds the unit fires it"
    ):
        world.send(Decide(unit=job, trigger="complete"))


def test_the_verdicts_that_are_allowed_are_named(world: World) -> None:
    gate = world.submit("ship", lifecycle="approval")
    with pytest.raises(NoVerdict, match=r"; verdicts there: approve, reject$"):
        world.send(Decide(unit=gate, trigger="cancel"))


def test_a_move_that_is_not_listed_names_what_is(world: World) -> None:
    with pytest.raises(Refused, match="job: no 'approve' from 'queued'; listed there: claim, cancel, bury, time_out"):
        world.send(Decide(unit=world.submit(), trigger="approve"))
