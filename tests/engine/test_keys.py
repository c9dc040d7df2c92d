"""Users' keys: one unit a key, one answer a request, one holder a mutex, so many a limit."""

import pytest

from interlock.kernel.commands import Cancel, Claim, Force, Heartbeat, Submit, Tick, Work
from interlock.kernel.errors import InterlockError
from tests.engine.world import World, held


def submit(world: World, **work: object) -> object:
    return world.send(Submit(work=(Work(task="mail", **work),)))[0]  # type: ignore[arg-type]


def test_a_key_that_is_taken_gives_the_unit_that_has_it(world: World) -> None:
    first = submit(world, key="k", input="1")
    again = submit(world, key="k", input="1")
    assert (first.created, again.created, again.unit) == (True, False, first.unit)
    assert len(world.events(first.unit)) == 1


def test_another_body_under_a_key_is_a_conflict(world: World) -> None:
    submit(world, key="k", input="1")
    with pytest.raises(InterlockError, match="IDEMPOTENCY_CONFLICT"):
        submit(world, key="k", input="2")


def test_a_duplicate_may_be_rejected(world: World) -> None:
    submit(world, key="k", input="1")
    with pytest.raises(InterlockError, match="DUPLICATE_KEY: task 'mail' has a job under the key 'k'"):
        submit(world, key="k", input="1", on_duplicate="reject")
    with pytest.raises(InterlockError, match="DUPLICATE_KEY"):
        world.send(Submit(work=(Work(task="a", key="x", on_duplicate="reject"),) * 2))


def test_an_unstarted_unit_may_be_replaced(world: World) -> None:
    old = submit(world, key="k", input="1")
    new = submit(world, key="k", input="2", on_duplicate="replace")
    assert (new.created, new.replaced) == (True, True)
    assert world.unit(old.unit).state == "cancelled"
    assert world.events(old.unit)[-1].reason == "replaced"
    assert world.body(old.unit).replaced_by == new.unit
    assert submit(world, key="k", input="2").unit == new.unit
    (grant,) = world.claim(world.worker(), limit=5)
    assert (grant.unit, grant.input) == (new.unit, "2")


def test_a_started_unit_is_not_replaced(world: World) -> None:
    old = submit(world, key="k", input="1")
    world.claim(world.worker())
    again = submit(world, key="k", input="2", on_duplicate="replace")
    assert (again.unit, again.created, again.replaced) == (old.unit, False, False)


def test_replacing_twice_in_one_command_leaves_the_last(world: World) -> None:
    works = tuple(Work(task="mail", key="k", input=str(n), on_duplicate="replace") for n in range(3))
    *old, last = [one.unit for one in world.send(Submit(work=works))]
    assert [world.unit(one).state for one in (*old, last)] == ["cancelled", "cancelled", "queued"]


@pytest.mark.req("R2-21", "R2-48")
def test_the_same_request_is_answered_once_more_and_changes_nothing(world: World) -> None:
    made = world.send(Submit(work=(Work(task="mail"),), idempotency_key="a"))
    assert world.send(Submit(work=(Work(task="mail"),), idempotency_key="a")) == made
    (grant,) = world.claim(world.worker())
    world.start(grant)
    asked = world.send(Cancel(unit=grant.unit, hard=True, idempotency_key="b"))
    version = world.unit(grant.unit).version
    assert asked.applied
    assert world.send(Cancel(unit=grant.unit, hard=True, idempotency_key="b", actor="another process")) == asked
    assert world.unit(grant.unit).version == version


def test_another_request_under_the_same_key_is_a_conflict(world: World) -> None:
    world.send(Submit(work=(Work(task="mail"),), idempotency_key="a"))
    with pytest.raises(InterlockError, match="IDEMPOTENCY_CONFLICT: the key 'a' stands for another request"):
        world.send(Submit(work=(Work(task="other"),), idempotency_key="a"))
    world.send(Submit(work=(Work(task="other"),), idempotency_key="a", key_scope="another client"))
    world.send(Submit(work=(Work(task="other"),), idempotency_key="a", tenant=2))


def test_an_answer_is_kept_for_a_day(world: World) -> None:
    made = world.send(Submit(work=(Work(task="mail"),), idempotency_key="a"))
    world.pass_time(86_399)
    world.send(Tick())
    assert world.send(Submit(work=(Work(task="mail"),), idempotency_key="a")) == made
    world.pass_time(2)
    assert world.send(Submit(work=(Work(task="mail"),), idempotency_key="a")) != made
    world.pass_time(86_401)
    world.send(Tick())
    assert world.count("answer") == 0


def test_worker_verbs_take_no_idempotency_key(world: World) -> None:
    worker = world.worker()
    for command in (
        Claim(worker=worker, key="a", nonce="a" * 16, idempotency_key="k"),
        Heartbeat(held=(), idempotency_key="k"),
    ):
        with pytest.raises(InterlockError, match="needs no idempotency_key"):
            world.send(command)


def test_one_at_a_time_under_a_mutex(world: World) -> None:
    first, second, other = world.submit(mutex="m"), world.submit(mutex="m"), world.submit(mutex="n")
    worker = world.worker()
    grants = world.claim(worker, limit=9)
    assert [grant.unit for grant in grants] == [first, other]
    assert world.unit(second).parked_on == "mutex:m"
    world.start(grants[0])
    world.finish(grants[0])
    assert [grant.unit for grant in world.claim(worker, limit=9)] == [second]


def test_what_is_parked_comes_by_priority_then_by_age(world: World) -> None:
    world.submit(mutex="m")
    low, high, higher = [world.submit(mutex="m", priority=number) for number in (0, 1, 2)]
    worker, order = world.worker(), []
    for _ in range(4):
        (grant,) = world.claim(worker, limit=9)
        order.append(grant.unit)
        world.start(grant)
        world.finish(grant)
    assert order[1:] == [higher, high, low]


@pytest.mark.parametrize("end", ["lost", "cancel", "bury", "release", "retry", "force", "cancelled while parked"])
def test_every_way_to_an_end_gives_the_slot_back(world: World, end: str) -> None:
    one, two = world.submit(mutex="m", attempts=1), world.submit(mutex="m")
    worker = world.worker()
    (grant,) = world.claim(worker)
    world.start(grant)
    if end == "lost":
        world.pass_time(41)
        world.tick()
    elif end == "cancel":
        world.cancel(one, hard=True)
    elif end == "bury":
        world.finish(grant, ended="failure")
    elif end == "release":
        world.cancel(two)
        world.release(grant)
        two = one  # it is first again
    elif end == "retry":
        world.cancel(two)
        two = world.submit(mutex="m", attempts=2)
        world.finish(grant)
        (grant,) = world.claim(worker)
        world.start(grant)
        world.finish(grant, ended="failure")
        world.pass_time(60)
    elif end == "force":
        world.send(Force(unit=one, state="failed", reason="test"))
    else:
        world.cancel(two)
        two = world.submit(mutex="m")
        world.finish(grant)
    assert [one.unit for one in world.claim(worker, limit=9)] == [two]


def test_while_it_backs_off_another_one_may_run(world: World) -> None:
    one, two = world.submit(mutex="m"), world.submit(mutex="m")
    worker = world.worker()
    (grant,) = world.claim(worker)
    world.start(grant)
    world.finish(grant, ended="failure")
    (other,) = world.claim(worker, limit=9)
    assert other.unit == two
    world.pass_time(20)
    assert world.claim(worker, limit=9) == []
    assert world.unit(one).parked_on == "mutex:m"
    world.start(other)
    world.finish(other)
    assert [grant.unit for grant in world.claim(worker, limit=9)] == [one]


def test_so_many_at_a_time_under_a_limit(world: World) -> None:
    for _ in range(5):
        world.submit(limit_key="api", limit=2)
    worker = world.worker()
    grants = world.claim(worker, limit=9)
    assert len(grants) == 2
    for grant in grants:
        world.start(grant)
        world.finish(grant)
    assert len(world.claim(worker, limit=9)) == 2


def test_a_limit_is_what_was_said_last(world: World) -> None:
    for _ in range(4):
        world.submit(limit_key="api", limit=1)
    world.submit(limit_key="api", limit=3)
    worker = world.worker()
    assert len(world.claim(worker, limit=9)) == 3
    assert world.count("unit", "parked_on IS NOT NULL") == 2
    world.submit(limit_key="api", limit=1)
    assert world.claim(worker, limit=9) == []


def test_a_limit_and_a_mutex_hold_together(world: World) -> None:
    both = [world.submit(limit_key="l", limit=2, mutex="m") for _ in range(3)]
    only = [world.submit(limit_key="l", limit=2) for _ in range(2)]
    worker, order = world.worker(), []
    while grants := world.claim(worker, limit=9):
        assert len(grants) <= 2
        assert len({grant.unit for grant in grants} & set(both)) <= 1
        for grant in grants:
            order.append(grant.unit)
            world.start(grant)
            world.finish(grant)
    assert sorted(order) == both + only


def test_another_tenants_mutex_is_another_mutex(world: World) -> None:
    world.submit(mutex="m")
    world.send(Submit(tenant=2, work=(Work(task="mail", mutex="m"),)))
    assert len(world.claim(world.worker())) == 1
    assert world.count("unit", "parked_on IS NOT NULL") == 0


def test_a_held_mutex_outlives_a_beat(world: World) -> None:
    world.submit(mutex="m")
    world.submit(mutex="m")
    worker = world.worker()
    (grant,) = world.claim(worker)
    for _ in range(5):
        world.pass_time(15)
        assert world.send(Heartbeat(held=(held(grant),)))[0].accepted
        assert world.claim(worker, limit=9) == []


@pytest.mark.parametrize(
    ("work", "said"),
    [
        ({"limit": 2}, "limit_key and limit belong together"),
        ({"limit_key": "l"}, "limit_key and limit belong together"),
        ({"limit_key": "l", "limit": 0}, "limit = 0 is not allowed; allowed is 1 to 2147483647"),
        ({"mutex": ""}, "mutex = '' is not allowed"),
        ({"key": "k" * 201}, "key = 'kkk"),
        ({"on_duplicate": "maybe"}, "allowed are return, reject, replace"),
        ({"input": "{"}, "input is not JSON"),
        ({"labels": "{"}, "labels is not JSON"),
        ({"priority": 2**31}, "priority = 2147483648 is not allowed"),
        ({"delay_us": -1}, "delay_us = -1 is not allowed; allowed is at least 0"),
        ({"attempts": 0}, "attempts = 0 is not allowed; allowed is at least 1"),
        ({"queue": ""}, "queue = '' is not allowed"),
        ({"capabilities": ("a,b",)}, "the capability 'a,b' has a comma"),
        ({"exhausted": "give up"}, "allowed are exhaust, fail"),
    ],
)
def test_work_that_could_never_be_done_is_refused(world: World, work: dict[str, object], said: str) -> None:
    with pytest.raises(InterlockError) as refused:
        submit(world, **work)
    assert said in str(refused.value)
    assert world.count("unit") == 0
