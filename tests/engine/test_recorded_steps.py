"""Recorded steps as a worker is handed them: a page with the grant, the others when it asks, each with its request."""

from hashlib import sha256

import msgspec
import pytest

from interlock.kernel.commands import AskedFor, LeaseGrant, LeaseStatus, ReadSteps, Record
from interlock.kernel.errors import InterlockError, Stale
from tests.engine.world import World, held

BIG = '"' + "x" * 40_000 + '"'


def asked(text: str) -> AskedFor:
    return AskedFor(sha256(text.encode()).hexdigest(), text)


def record(
    world: World, grant: LeaseGrant, name: str, payload: str = "1", of: str | None = None, kind: str = "step"
) -> LeaseStatus:
    request = None if of is None else asked(of)
    return world.send(Record(held=(held(grant),), kind=kind, name=name, payload=payload, of=request))[0]


def read(world: World, grant: LeaseGrant, name: str, *, effect: bool = False) -> tuple[list[str], str | None]:
    page = world.send(ReadSteps(held=held(grant), name=name, effect=effect))
    return [step.name for step in page.steps], page.request


def grant_again(world: World, grant: LeaseGrant, worker: int) -> LeaseGrant:
    world.release(grant)
    return world.claim(worker)[0]


def test_a_grant_has_a_page_of_steps_and_the_others_are_read_from_where_the_handler_is(world: World) -> None:
    world.submit()
    worker = world.worker()
    (first,) = world.claim(worker)
    for name in ("a", "b", "c", "d"):
        record(world, first, name, BIG, of=f'"{name}"')
        world.pass_time(1)
    second = grant_again(world, first, worker)
    assert ([name for name, _ in second.steps], second.steps_left) == (["a"], 3)
    assert dict(second.requests) == {"a": asked('"a"').digest}
    assert read(world, second, "b") == (["b"], '"b"')
    assert world.send(ReadSteps(held=held(second), name="b")).steps[0].of == asked('"b"').digest
    record(world, second, "e", "1")
    assert read(world, second, "d") == (["d", "e"], '"d"')
    assert read(world, second, "unknown") == ([], None)
    with pytest.raises(Stale):
        read(world, first, "b")
    with pytest.raises(InterlockError, match="name = '' is not allowed"):
        read(world, second, "")


def test_thousands_of_steps_do_not_ride_in_a_grant(world: World) -> None:
    world.submit()
    worker = world.worker()
    (grant,) = world.claim(worker)
    refs = (held(grant),)
    for number in range(1_200):
        world.engine.send(Record(held=refs, kind="step", name=f"step {number}", payload="1"))
    again = grant_again(world, grant, worker)
    assert len(msgspec.json.encode(again.steps)) < 64 * 1024
    assert (len(again.steps) + again.steps_left, again.steps_left > 0) == (1_200, True)
    names = [name for name, _ in again.steps]
    while len(names) < 1_200:
        page, _ = read(world, again, f"step {len(names)}")
        names += page
    assert names == [f"step {number}" for number in range(1_200)]


def test_another_request_under_the_name_of_a_step_or_an_effect_is_refused(world: World) -> None:
    world.submit()
    (grant,) = world.claim(world.worker())
    assert record(world, grant, "plan", of='"one"').accepted
    assert record(world, grant, "plan", of='"one"').accepted  # the same message again
    refused = record(world, grant, "plan", '"other"', of='"two"')
    assert (refused.accepted, "asked for something else" in refused.why) == (False, True)
    assert [note.payload for note in world.notes(grant.unit, "step")] == ["1"]
    begun = '{"state": "begun", "place": "1"}'
    assert record(world, grant, "charge", begun, '"one"', "effect").accepted
    undone = '{"state": "not_done", "place": "1"}'
    assert record(world, grant, "charge", undone, kind="effect").accepted
    other = record(world, grant, "charge", '{"state": "begun", "place": "2"}', '"two"', "effect")
    assert (other.accepted, "asked for something else" in other.why) == (False, True)
    assert read(world, grant, "charge", effect=True) == ([], '"one"')


@pytest.mark.parametrize(
    ("digest", "text", "why"),
    [
        ("a" * 63, "1", "digest"),
        ("G" * 64, "1", "digest"),
        ("sha256:" + "a" * 64, "1", "the digits alone"),
        ("a" * 64, "a \0 b", "of.text has a NUL"),
        ("a" * 64, "x" * 70_000, "of.text = 70000 is not allowed; allowed is 0 to 65536"),
    ],
)
@pytest.mark.parametrize("kind", ["step", "effect"])
def test_a_request_that_cannot_be_is_refused(world: World, kind: str, digest: str, text: str, why: str) -> None:
    world.submit()
    (grant,) = world.claim(world.worker())
    payload = "1" if kind == "step" else '{"state": "begun"}'
    with pytest.raises(InterlockError, match=why):
        world.send(
            Record(held=(held(grant),), kind=kind, name="plan", payload=payload, of=AskedFor(digest, text))
        )  # fmt: skip
    assert world.notes(grant.unit, kind) == []
