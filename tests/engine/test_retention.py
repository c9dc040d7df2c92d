"""What is kept for a while, and for how long: a tenant's setting for verbose notes, and keys that stand for ever."""

from pathlib import Path

import msgspec
import pytest

from interlock.audit import anchors
from interlock.audit.laws import audit
from interlock.core.notes import READ_AGAIN_US
from interlock.kernel.commands import Cancel, Claim, Heartbeat, Record, Register, SetTenant, Start, Submit, Work
from interlock.kernel.errors import InterlockError
from interlock.store.queries.snapshots import read_due_tenants, snapshot
from tests.engine.tamper import behind_the_guard
from tests.engine.world import SECOND, World, held

DAY = 86_400


def left(world: World) -> list[str]:
    """The verbose notes that there are."""
    rows = world.connection.rows("SELECT kind FROM note WHERE kind IN ('beat', 'progress') ORDER BY kind")
    return [kind for (kind,) in rows]


def busy(world: World) -> int:
    """A job whose worker has beaten and told how far it is."""
    unit = world.submit()
    (grant,) = world.claim(world.worker())
    world.start(grant)
    world.pass_time(10)
    world.beat(grant)
    world.send(Record(held=(held(grant),), kind="progress", payload="0.5"))
    world.finish(grant)
    return unit


@pytest.mark.req("R2-38")
def test_how_long_verbose_notes_are_kept_is_a_setting_of_the_tenant(world: World) -> None:
    world.send(SetTenant(tenant=1, keep_beats_us=60 * SECOND, keep_verbose_us=120 * SECOND))
    unit = busy(world)
    moves = world.names(unit)
    found = []
    for _ in range(3):
        found.append(left(world))
        world.pass_time(60)
        world.tick()
    assert found == [["beat", "progress"], ["progress"], []]
    assert world.names(unit) == moves


@pytest.mark.req("R2-38")
def test_without_a_setting_beats_last_two_days_and_the_rest_fourteen(world: World) -> None:
    busy(world)
    found = []
    for days in (2, 12):
        found.append(left(world))
        world.pass_time(days * DAY)
        world.tick()
    assert [*found, left(world)] == [["beat", "progress"], ["progress"], []]


def test_a_new_setting_is_obeyed_within_seconds_and_only_by_its_tenant(world: World) -> None:
    busy(world)  # what holds for the tenant is known now
    world.send(SetTenant(tenant=1, keep_beats_us=SECOND))
    world.send(SetTenant(tenant=2, name="other"))
    world.pass_time(READ_AGAIN_US / SECOND)
    expires = {}
    for tenant in (1, 2):
        mine = {"tenant": tenant}
        world.send(Submit(work=(Work(task="a"),), **mine))
        worker = world.send(Register(name="x", incarnation="1", **mine))
        (grant,) = world.send(Claim(worker=worker, key="k", nonce="n" * 32, **mine))
        world.send(Start(held=(held(grant),), **mine))
        world.send(Heartbeat(held=(held(grant),), **mine))
        (row,) = world.connection.rows(
            "SELECT expires FROM note WHERE unit = :unit AND kind = 'beat'", {"unit": worker}
        )
        expires[tenant] = row[0] - world.now_us
    assert expires == {1: SECOND, 2: 2 * DAY * SECOND}


@pytest.mark.parametrize("wrong", [0, -1, 999_999, 2**60])
def test_a_time_that_is_none_is_refused(world: World, wrong: int) -> None:
    with pytest.raises(InterlockError, match=r"keep_beats_us = .* is not allowed; 1s to 3660d is"):
        world.send(SetTenant(tenant=1, keep_beats_us=wrong))


@pytest.mark.req("R1-42", "R2-21")
def test_a_key_of_what_makes_a_unit_lasts_for_ever_if_it_is_told_to(world: World) -> None:
    """A client's own key, with which it asks again what got no answer, lasts for a day, and so does any other."""
    work = (Work(task="mail"),)
    lasting = Submit(work=work, idempotency_key="run-1", key_lasts=True)
    short = Submit(work=work, idempotency_key="call-1")
    first, second = world.send(lasting), world.send(short)
    cancel = Cancel(unit=first[0].unit, idempotency_key="stop-1", key_lasts=True)
    world.send(cancel)
    for _ in range(3):
        world.pass_time(100 * DAY)  # not past the real clock, by which the guard bounds acts
        world.tick()
        assert world.send(lasting) == first
        with pytest.raises(InterlockError, match="IDEMPOTENCY_CONFLICT"):
            world.send(Submit(work=(Work(task="other"),), idempotency_key="run-1", key_lasts=True))
    assert world.count("answer", "key = 'stop-1'") == 0
    assert world.send(short) != second


def test_leases_that_were_taken_are_forgotten_after_a_day_by_whoever_ticks(world: World) -> None:
    """Until then its holder is told how it ended; then nobody knows the lease any more. Live ones stay."""
    busy(world)  # what its holder finishes leaves no row
    taken, worker = world.submit(), world.worker()
    (grant,) = world.claim(worker)
    world.release(grant)
    world.cancel(taken)
    world.pass_time(DAY - 1)
    live = world.submit()
    world.claim(worker)
    world.tick()
    known = "SELECT unit FROM lease WHERE ended_at IS NOT NULL UNION SELECT unit FROM live_lease ORDER BY unit"
    assert world.connection.rows(known) == [(taken,), (live,)]
    world.pass_time(1)
    with snapshot(world.connection):
        assert read_due_tenants(world.connection) == [1]
    world.tick()
    assert world.connection.rows(known) == [(live,)]


@pytest.mark.parametrize("ended", ["success", "failure"])
def test_a_lease_that_its_holder_has_finished_is_known_for_a_day_by_its_acts(world: World, ended: str) -> None:
    """Whoever says the same again is told that it was heard, and a guess is refused; its row went with the end."""
    unit = world.submit(attempts=2)
    (lost,) = world.claim(world.worker())
    world.release(lost)
    (grant,) = world.claim(world.worker())
    world.start(grant)
    assert world.finish(grant, ended=ended).accepted
    assert world.connection.rows("SELECT unit FROM lease WHERE ended_at IS NULL") == []
    world.pass_time(DAY - 1)
    world.tick()
    again = world.finish(grant, ended=ended)
    assert (again.unit, again.accepted) == (unit, True)
    assert world.beat(grant).why == "LEASE_ENDED"
    guess = msgspec.structs.replace(grant, lease="0" * 64)
    assert (world.finish(guess).why, world.finish(lost).why) == ("UNKNOWN_LEASE", "LEASE_SUPERSEDED")
    world.pass_time(1)
    world.tick()
    assert world.finish(grant, ended=ended).why == "UNKNOWN_LEASE"


def test_what_was_told_of_a_unit_can_be_dropped_and_no_digest_breaks(world: World, server: str, tmp_path: Path) -> None:
    """The owner may have to erase an error. The event, its act and its seals stay whole: only the words are gone."""
    unit = world.submit(attempts=1)
    (grant,) = world.claim(world.worker())
    world.start(grant)
    world.finish(grant, ended="failure", error="the password was hunter2", cost=0.25)
    world.pass_time(1)
    world.tick()
    told = world.events(unit)
    assert "hunter2" in told[-1].payload
    with snapshot(world.connection):
        anchors.write(world.connection, tmp_path / "anchor")
    with behind_the_guard(world.connection, server) as owner:
        owner.rows("DELETE FROM act_detail WHERE unit = :unit", {"unit": unit})
    assert [event.payload for event in world.events(unit)] == [
        "{}" if "hunter2" in event.payload else event.payload for event in told
    ]
    with snapshot(world.connection):
        assert list(audit(world.connection, world.lifecycles, rebuild=True)) == []
        assert list(anchors.since(world.connection, tmp_path / "anchor")) == []
