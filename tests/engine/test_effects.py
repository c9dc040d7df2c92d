"""Effects as the engine keeps them: whoever begins one twice, or ends one that was not begun, is refused."""

import json

import pytest

from interlock.kernel.commands import LeaseGrant, LeaseStatus, Record
from interlock.kernel.errors import InterlockError
from tests.engine.world import World, held


def say(world: World, grant: LeaseGrant, said: str, place: str = "1") -> LeaseStatus:
    payload = json.dumps({"state": said, "place": place})
    return world.send(Record(held=(held(grant),), kind="effect", name="charge", payload=payload))[0]


def end(world: World, grant: LeaseGrant, result: str = "7") -> LeaseStatus:
    return world.send(Record(held=(held(grant),), kind="effect_result", name="charge", payload=result))[0]


def begun(world: World) -> LeaseGrant:
    world.submit()
    (grant,) = world.claim(world.worker())
    world.start(grant)
    return grant


def test_an_effect_is_begun_once_and_ends_once(world: World) -> None:
    grant = begun(world)
    assert say(world, grant, "begun").accepted
    assert say(world, grant, "begun").accepted  # the same message, whose answer was lost
    refused = say(world, grant, "begun", "2")
    assert (refused.accepted, "nobody has said what came of it" in refused.why) == (False, True)
    assert end(world, grant).accepted
    assert end(world, grant, "8").accepted  # the first one stays
    assert [note.payload for note in world.notes(grant.unit, "effect_result")] == ["7"]
    refused = say(world, grant, "begun", "3")
    assert (refused.accepted, "has a result already" in refused.why) == (False, True)
    assert len(world.notes(grant.unit, "effect")) == 1


def test_an_effect_that_was_not_done_may_be_begun_again(world: World) -> None:
    grant = begun(world)
    assert not say(world, grant, "not_done").accepted
    assert not end(world, grant).accepted
    for number in (1, 2, 3):
        assert say(world, grant, "begun", f"b{number}").accepted
        assert say(world, grant, "not_done", f"n{number}").accepted
    assert not end(world, grant).accepted
    world.release(grant)
    (again,) = world.claim(world.worker("other"))
    (status,) = again.effects
    assert (status.name, status.begun, status.undone, status.result) == ("charge", 3, 3, None)


def test_a_holder_that_was_lost_begins_nothing(world: World) -> None:
    grant = begun(world)
    world.pass_time(3_600)
    world.tick()
    answers = say(world, grant, "begun"), end(world, grant)
    assert [answer.accepted for answer in answers] == [False, False]
    (again,) = world.claim(world.worker("other"))
    assert again.effects == ()


def test_an_open_effect_is_told_to_the_next_holder(world: World) -> None:
    grant = begun(world)
    say(world, grant, "begun")
    world.pass_time(3_600)
    world.tick()
    (again,) = world.claim(world.worker("other"))
    (status,) = again.effects
    assert status.is_open
    assert not say(world, again, "begun", "2").accepted


@pytest.mark.parametrize("payload", ["null", "3", '{"state": "done"}', '{"state": "begun", "more": 1}'])
def test_what_is_no_word_about_an_effect_is_refused(world: World, payload: str) -> None:
    grant = begun(world)
    with pytest.raises(InterlockError, match="an effect is"):
        world.send(Record(held=(held(grant),), kind="effect", name="charge", payload=payload))
    assert world.notes(grant.unit, "effect") == []
