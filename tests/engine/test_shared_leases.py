"""Units that were claimed together share the row of their lease; what is done with one of them concerns no other one."""

from collections.abc import Sequence

import pytest

from interlock.kernel.commands import (
    Cancel,
    Finish,
    Heartbeat,
    LeaseGrant,
    LeaseStatus,
    Outcome,
    Revoke,
    Start,
    Submit,
    Work,
)
from interlock.store.queries.tenants import count_held
from tests.engine.world import SECOND, World, held
from tests.store.databases import declare

MANY = 100
ROWS = "SELECT unit, units, until FROM lease WHERE ended_at IS NULL ORDER BY unit"


def claim_many(world: World, count: int) -> list[LeaseGrant]:
    worker = world.worker()
    world.send(Submit(work=tuple(Work(task="mail", attempts=3) for _ in range(count))))
    return sorted(world.claim(worker, count), key=lambda grant: grant.unit)


def beat(world: World, grants: Sequence[LeaseGrant]) -> list[LeaseStatus]:
    statuses = world.send(Heartbeat(held=tuple(map(held, grants)), running=False))
    assert all(status.accepted for status in statuses)
    return statuses


def finish(world: World, grants: Sequence[LeaseGrant]) -> None:
    refs = tuple(map(held, grants))
    committer = world.engine.committer
    started = committer.put(Start(held=refs))
    ended = committer.put(Finish(outcomes=tuple(Outcome(held=ref) for ref in refs)))
    while committer.step():
        pass
    assert all(status.accepted for status in (*started.result(), *ended.result()))
    world.tick()  # the laws are asked


def live_rows(world: World) -> list[tuple[int, int]]:
    """Rows of live leases: the unit (0: of many), and how many are under it."""
    declare(world.connection, 1)
    return [(unit, units) for unit, units, _ in world.connection.rows(ROWS)]


def ends(world: World, grants: Sequence[LeaseGrant]) -> list[int | None]:
    return [world.unit(grant.unit).lease_until for grant in grants]


def held_units(world: World) -> list[int]:
    declare(world.connection, 1)
    rows = world.connection.rows("SELECT unit FROM live_lease ORDER BY unit")
    assert count_held(world.connection, 1) == len(rows)
    return [unit for (unit,) in rows]


def test_a_claim_writes_one_row_and_the_last_end_takes_it_away(world: World) -> None:
    grants = claim_many(world, MANY)
    assert live_rows(world) == [(0, MANY)]
    assert len({grant.lease for grant in grants}) == MANY  # each has a secret that speaks for nobody else
    finish(world, grants[:30])
    assert live_rows(world) == [(0, MANY - 30)]
    finish(world, grants[30:-1])
    assert live_rows(world) == [(0, 1)]
    assert held_units(world) == [grants[-1].unit]
    finish(world, grants[-1:])
    assert live_rows(world) == []


def test_nobody_speaks_for_another_unit_of_the_same_claim(world: World) -> None:
    one, other = claim_many(world, 2)
    wrong = held(one)
    wrong = type(wrong)(unit=other.unit, fence=wrong.fence, lease=wrong.lease)
    (status,) = world.send(Heartbeat(held=(wrong,)))
    assert (status.accepted, status.why) == (False, "WRONG_LEASE") or not status.accepted
    assert not world.send(Finish(outcomes=(Outcome(held=wrong),)))[0].accepted
    assert live_rows(world) == [(0, 2)]


def test_of_a_hundred_units_the_silent_one_expires_alone(world: World) -> None:
    grants = claim_many(world, MANY)
    silent, loud = grants[37], [*grants[:37], *grants[38:]]
    before = world.unit(silent.unit).lease_until
    world.pass_time(30)
    beat(world, loud)
    assert live_rows(world) == [(0, MANY), (silent.unit, 1)]
    assert world.unit(silent.unit).lease_until == before
    assert all(end == (before or 0) + 30 * SECOND for end in ends(world, loud))
    world.pass_time(11)
    world.tick()
    assert world.unit(silent.unit).state == "queued"
    assert held_units(world) == [grant.unit for grant in loud]
    assert world.beat(silent).why == "LEASE_ENDED"
    beat(world, loud)


def test_a_renewal_that_names_a_few_leaves_the_others_as_they_were(world: World) -> None:
    grants = claim_many(world, 10)
    before = ends(world, grants)
    world.pass_time(5)
    beat(world, grants[:3])
    assert live_rows(world) == [(0, 10), *((grant.unit, 1) for grant in grants[:3])]
    assert ends(world, grants[3:]) == before[3:]
    world.pass_time(5)
    beat(world, grants[2:9])  # one with a row of its own, and six of the seven that share theirs
    assert live_rows(world) == [(0, 10), *((grant.unit, 1) for grant in [*grants[:3], grants[9]])]
    start = before[0] or 0
    later = [5, 5, 10, 10, 10, 10, 10, 10, 10, 0]
    assert ends(world, grants) == [start + seconds * SECOND for seconds in later]
    finish(world, grants[3:9])  # who shared the row has left it, and those with rows of their own hold on
    assert live_rows(world) == [(grant.unit, 1) for grant in [*grants[:3], grants[9]]]
    assert held_units(world) == [grant.unit for grant in [*grants[:3], grants[9]]]
    beat(world, [*grants[:3], grants[9]])
    finish(world, [*grants[:3], grants[9]])
    assert live_rows(world) == []


def test_a_renewal_of_all_changes_one_row(world: World) -> None:
    grants = claim_many(world, 10)
    before = ends(world, grants)
    world.pass_time(5)
    beat(world, grants)
    assert live_rows(world) == [(0, 10)]
    assert ends(world, grants) == [(end or 0) + 5 * SECOND for end in before]


@pytest.mark.parametrize("apart", [False, True], ids=["shared", "apart"])
@pytest.mark.parametrize("how", ["revoked", "cancelled", "finished", "failed", "released"])
def test_one_leaves_alone(world: World, how: str, apart: bool) -> None:
    grants = claim_many(world, 5)
    one, others = grants[2], [*grants[:2], *grants[3:]]
    world.pass_time(1)
    if apart:
        beat(world, [one])
    if how == "revoked":
        world.send(Revoke(unit=one.unit, actor="op", reason="why not"))
    elif how == "cancelled":
        world.send(Cancel(unit=one.unit, hard=True))
    elif how == "finished":
        finish(world, [one])
    elif how == "failed":
        world.start(one)
        assert world.finish(one, ended="failure", error="no").accepted
    else:
        assert world.release(one).accepted
    assert world.unit(one.unit).holder is None
    assert held_units(world) == [grant.unit for grant in others]
    assert live_rows(world) == [(0, 4)]
    beat(world, others)
    assert not world.beat(one).accepted
    finish(world, others)
    assert live_rows(world) == []


def test_a_late_end_is_answered_again_and_a_guess_is_not(world: World) -> None:
    grants = claim_many(world, 3)
    finish(world, grants[:1])
    assert world.finish(grants[0]).accepted
    finish(world, grants[1:])
    assert all(world.finish(grant).accepted for grant in grants)  # when the row is gone too
    guess = held(grants[0])
    guess = type(guess)(unit=guess.unit, fence=guess.fence, lease=held(grants[1]).lease)
    assert not world.send(Finish(outcomes=(Outcome(held=guess),)))[0].accepted


def test_a_claim_that_is_repeated_is_answered_with_what_is_left(world: World) -> None:
    worker = world.worker()
    world.send(Submit(work=tuple(Work(task="mail") for _ in range(4))))
    grants = world.claim(worker, 4, key="again")
    world.pass_time(1)
    beat(world, grants[:1])
    finish(world, grants[1:2])
    again = world.claim(worker, 4, key="again")
    assert sorted((grant.unit, grant.lease) for grant in again) == sorted(
        (grant.unit, grant.lease) for grant in (grants[0], *grants[2:])
    )


def test_all_that_a_dead_worker_held_expires_at_once(world: World) -> None:
    grants = claim_many(world, MANY)
    world.pass_time(1)
    beat(world, grants[:3])
    world.pass_time(42)
    while world.tick():
        pass
    assert held_units(world) == []
    assert live_rows(world) == []
    assert {world.unit(grant.unit).state for grant in grants} == {"queued"}
    assert all(world.beat(grant).why == "LEASE_ENDED" for grant in grants[::33])
