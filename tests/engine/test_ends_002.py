"""How a job ends, as document 002 has it: what leads to which end, what is refused, cancels and dead letters."""

from collections.abc import Callable

import msgspec
import pytest

from interlock.kernel.commands import REASONS, Bury, LeaseGrant, LeaseStatus, Record, Standing
from interlock.kernel.errors import InterlockError, Refused
from tests.engine.world import SECOND, World, held

# Document 002, line 45. Written out: a code that is added or left out is noticed here.
EIGHT = {
    "parse_error", "validation_failed", "dependency_unavailable", "timeout", "exhausted_retries",
    "policy_violation", "infrastructure_failure", "compensation_failed",
}  # fmt: skip
OPEN = ("queued", "assigned", "running")
ENDED = ("succeeded", "failed", "cancelled", "dead_lettered")


def running(world: World, **work: object) -> LeaseGrant:
    world.submit(**work)
    (grant,) = world.claim(world.worker())
    assert world.start(grant).accepted
    return grant


def in_state(world: World, state: str) -> LeaseGrant:
    """A job in this state and the lease that it has, had, or never had."""
    if state == "queued":
        unit = world.submit()
        return LeaseGrant(unit, "mail", "null", 1, 1, "0" * 64, 0, 0, 0, "", "")
    if state == "assigned":
        world.submit()
        (grant,) = world.claim(world.worker())
        return grant
    grant = running(world)
    if state == "succeeded":
        world.finish(grant, result='"first"')
    elif state == "failed":
        world.finish(grant, ended="failure", error="first", error_class="PermanentError")
    elif state == "cancelled":
        world.cancel(grant.unit, hard=True)
    elif state == "dead_lettered":
        world.send(Bury(unit=grant.unit, reason="timeout"))
    return grant


def ask_for_success(world: World, grant: LeaseGrant) -> LeaseStatus:
    return world.finish(grant, result='"another"')


def ask_for_failure(world: World, grant: LeaseGrant) -> LeaseStatus:
    return world.finish(grant, ended="failure", error="another", error_class="PermanentError")


def ask_for_stop(world: World, grant: LeaseGrant) -> LeaseStatus:
    return world.finish(grant, ended="cancelled")


def cancel_hard(world: World, grant: LeaseGrant) -> Standing:
    return world.cancel(grant.unit, hard=True)


def start(world: World, grant: LeaseGrant) -> LeaseStatus:
    return world.start(grant)


def bury(world: World, grant: LeaseGrant) -> Standing:
    return world.send(Bury(unit=grant.unit, reason="policy_violation"))


ASKED: dict[Callable[[World, LeaseGrant], LeaseStatus | Standing], dict[str, str]] = {
    # By what is asked: from which states it leads where. Everything that is not listed is refused.
    ask_for_success: {"running": "succeeded"},
    ask_for_failure: {"running": "failed", "assigned": "dead_lettered"},  # A2-4: there is no assigned to failed
    ask_for_stop: {},  # nobody has asked for a cancel
    cancel_hard: dict.fromkeys(OPEN, "cancelled"),
    start: {"assigned": "running"},
    bury: dict.fromkeys(OPEN, "dead_lettered"),
}


@pytest.mark.req("R2-13")
@pytest.mark.parametrize("ask", ASKED, ids=lambda ask: ask.__name__)
@pytest.mark.parametrize("state", [*OPEN, *ENDED])
def test_what_is_listed_is_one_event_and_all_else_is_none(world: World, state: str, ask: Callable[..., object]) -> None:
    """The sweep: from every state everything that a holder, a person or an operator can ask for."""
    grant = in_state(world, state)
    before, events = world.unit(grant.unit), world.events(grant.unit)
    assert before.state == state
    target = ASKED[ask].get(state)
    try:
        ask(world, grant)
    except (Refused, InterlockError):
        assert target is None
    after = world.events(grant.unit)
    if target is None:
        assert (world.unit(grant.unit), after) == (before, events)
        return
    assert world.unit(grant.unit).state == target
    assert [(event.source, event.target) for event in after[len(events) :]] == [(state, target)]


@pytest.mark.req("R2-31", "R2-13")
@pytest.mark.parametrize("state", ["assigned", "running"])
def test_a_holder_that_stops_unasked_is_refused(world: World, state: str) -> None:
    """Only the answer to a cancel is heard: else a worker could drop work, and nobody would do it."""
    grant = in_state(world, state)
    before = world.unit(grant.unit)
    heard = world.finish(grant, ended="cancelled")
    assert not heard.accepted
    assert "no 'stopped' from" in heard.why
    assert world.unit(grant.unit) == before
    assert world.finish(grant, ended="failure", error_class="TransientError").state == "queued"  # it may still fail


@pytest.mark.req("R2-31")
def test_a_soft_cancel_is_told_by_the_next_beat_and_its_checkpoint_stays(world: World) -> None:
    grant, other = running(world), running(world)
    assert not world.beat(grant).cancel
    assert world.cancel(grant.unit, actor="ann", reason="no longer wanted").state == "running"
    assert world.unit(grant.unit).lease == "ACTIVE"  # softly: the holder goes on under its lease
    assert world.beat(grant).cancel
    assert not world.beat(other).cancel
    (kept,) = world.send(Record(held=(held(grant),), kind="checkpoint", payload='{"page": 7}'))
    assert (kept.accepted, kept.cancel) == (True, True)
    ended = world.finish(grant, ended="cancelled")
    assert (ended.accepted, ended.state) == (True, "cancelled")
    assert world.events(grant.unit)[-1].trigger == "stopped"
    (checkpoint,) = world.notes(grant.unit, "checkpoint")
    assert (checkpoint.payload, checkpoint.fence, checkpoint.expires) == ('{"page": 7}', grant.fence, None)
    world.pass_time(30 * 86_400)
    world.tick()
    assert [note.payload for note in world.notes(grant.unit, "checkpoint")] == ['{"page": 7}']


@pytest.mark.req("R2-31")
def test_a_soft_cancel_that_nobody_answers_becomes_a_hard_one(world: World) -> None:
    grant = running(world)
    world.cancel(grant.unit)
    world.pass_time(29)
    world.beat(grant)
    world.tick()
    assert world.unit(grant.unit).state == "running"
    world.pass_time(1)
    world.tick()
    assert world.unit(grant.unit).state == "cancelled"
    assert world.finish(grant).why == "LEASE_REVOKED"


@pytest.mark.req("R2-33")
def test_there_are_eight_reason_codes(world: World) -> None:
    assert set(REASONS) == EIGHT
    assert len(REASONS) == 8
    for code in ("unknown", "", "TIMEOUT", "timeout "):
        unit, grant = world.submit(queue="other"), running(world)
        for unknown in (
            lambda code=code, unit=unit: world.send(Bury(unit=unit, reason=code)),
            lambda code=code, grant=grant: world.finish(grant, ended="failure", reason_code=code),
        ):
            with pytest.raises(InterlockError) as refused:
                unknown()
            assert all(known in str(refused.value) for known in EIGHT)
        assert (world.unit(unit).state, world.unit(grant.unit).state) == ("queued", "running")


def lost_for_good(world: World) -> int:
    grant = running(world, attempts=1)
    world.pass_time(41)
    world.tick()
    return grant.unit


def waited_too_long(world: World) -> int:
    unit = world.submit(queue_timeout_us=5 * SECOND)
    world.pass_time(6)
    world.tick()
    return unit


def failed_for_good(world: World, **outcome: object) -> int:
    """Before it began, so that it has no `failed` to go to (A2-4)."""
    world.submit()
    (grant,) = world.claim(world.worker())
    world.finish(grant, ended="failure", **outcome)
    return grant.unit


def not_undone(world: World) -> int:
    grant = running(world)
    undo = msgspec.json.encode({"task": "undo"}).decode()
    world.send(Record(held=(held(grant),), kind="compensation", name="flight", payload=undo))
    world.finish(grant, ended="failure", error_class="PermanentError")
    (again,) = world.claim(world.worker("other"))
    world.start(again)
    world.finish(again, ended="failure", error_class="PermanentError")
    return again.unit


SCENARIOS: dict[str, Callable[[World], int]] = {
    "parse_error": lambda world: failed_for_good(
        world, error_class="ValidationError", reason_code="parse_error", stage="input"
    ),
    "validation_failed": lambda world: failed_for_good(world, error_class="ValidationError"),
    "dependency_unavailable": lambda world: failed_for_good(
        world, error_class="PermanentError", reason_code="dependency_unavailable"
    ),
    "timeout": waited_too_long,
    "exhausted_retries": lost_for_good,
    "policy_violation": lambda world: failed_for_good(world, error_class="PermanentError"),
    "infrastructure_failure": lambda world: failed_for_good(
        world, error_class="PermanentError", reason_code="infrastructure_failure"
    ),
    "compensation_failed": not_undone,
}


@pytest.mark.req("R2-33")
@pytest.mark.parametrize("code", sorted(EIGHT))
def test_every_reason_code_comes_from_a_story(world: World, code: str) -> None:
    unit = SCENARIOS[code](world)
    assert world.unit(unit).state == "dead_lettered"
    assert msgspec.json.decode(world.events(unit)[-1].payload)["reason_code"] == code
