"""Resources: exclusive, shared, counted and rated; all or none, in one order, and given back on every exit."""

from collections.abc import Callable
from typing import Any

import pytest

from interlock.client.why import explain
from interlock.kernel.commands import LeaseGrant, PauseWork, Resource, Submit, Work
from interlock.kernel.errors import InterlockError
from interlock.plugins.concurrency.resources import find_wrong_amounts
from tests.engine.world import SECOND, World
from tests.store.databases import declare

ALONE, SHARED = Resource("db"), Resource("db", "shared")


def gpus(n: int, of: int = 8) -> Resource:
    return Resource("gpu", "counted", n, of)


def rated(n: int, per_s: int = 60) -> Resource:
    return Resource("api", "rated", n, per_us=per_s * SECOND)


def submit(world: World, *resources: Resource, **facts: Any) -> int:
    return world.submit("t", resources=resources, **facts)


def claim(world: World, limit: int = 100) -> list[LeaseGrant]:
    return world.claim(world.worker(incarnation=str(world.claims)), limit)


def take(world: World) -> list[int]:
    return [grant.unit for grant in claim(world)]


def finish(world: World, *grants: LeaseGrant) -> None:
    for grant in grants:
        world.start(grant)
        world.finish(grant)


def taken(world: World, key: str) -> int:
    declare(world.connection, 1)
    return int(world.connection.rows("SELECT taken FROM slot WHERE key = :key", {"key": f"resource:{key}"})[0][0])


@pytest.mark.req("X-17")
def test_one_uses_it_alone_or_many_share_it(world: World) -> None:
    readers = [submit(world, SHARED) for _ in range(3)]
    writer = submit(world, ALONE)
    late = submit(world, SHARED)
    grants = claim(world)
    assert [grant.unit for grant in grants] == readers
    finish(world, *grants[:2])
    assert take(world) == [], "one reader is left, and the late one does not overtake the writer"
    finish(world, grants[2])
    (grant,) = claim(world)
    assert grant.unit == writer
    assert take(world) == []
    finish(world, grant)
    assert take(world) == [late]


def test_a_writer_of_the_same_command_is_not_overtaken(world: World) -> None:
    work = tuple(Work(task="t", resources=(use,)) for use in (SHARED, ALONE, SHARED))
    reader, writer, late = [made.unit for made in world.send(Submit(work=work))]
    (grant,) = claim(world)
    assert grant.unit == reader
    finish(world, grant)
    (grant,) = claim(world)
    assert grant.unit == writer
    finish(world, grant)
    assert take(world) == [late]


@pytest.mark.req("X-17")
def test_so_many_of_it_are_taken_and_no_more(world: World) -> None:
    first, second = submit(world, gpus(5)), submit(world, gpus(3))
    third, small = submit(world, gpus(4)), submit(world, gpus(1))
    grants = claim(world)
    assert [grant.unit for grant in grants] == [first, second]
    assert taken(world, "count:gpu") == 8
    finish(world, grants[1])
    assert take(world) == [], "three are free: the third needs four, and the small one waits behind it"
    finish(world, grants[0])
    assert take(world) == [third, small]


def test_the_urgent_one_comes_first(world: World) -> None:
    submit(world, ALONE)
    (grant,) = claim(world)
    submit(world, ALONE)
    urgent = submit(world, ALONE, priority=9)
    finish(world, grant)
    assert take(world) == [urgent]


def test_more_of_it_lets_others_in(world: World) -> None:
    submit(world, gpus(2, of=2))
    waiting = submit(world, gpus(2, of=2))
    assert len(take(world)) == 1
    more = submit(world, gpus(1, of=5))
    assert take(world) == [waiting, more]


@pytest.mark.req("X-17")
def test_so_many_begin_in_a_time(world: World) -> None:
    jobs = [submit(world, rated(2)) for _ in range(5)]
    grants = claim(world)
    assert [grant.unit for grant in grants] == jobs[:2]
    finish(world, *grants)
    assert take(world) == [], "that they have ended does not matter"
    world.pass_time(60)
    assert take(world) == jobs[2:4]


def test_all_or_none(world: World) -> None:
    both = (ALONE, gpus(1, of=1), rated(100), Resource("disk", "shared"))
    first = submit(world, gpus(1, of=1))
    second, third = submit(world, *both), submit(world, ALONE)
    grants = claim(world)
    assert [grant.unit for grant in grants] == [first, third], "what waits for a card keeps the database for nobody"
    assert taken(world, "lock:disk") == 0
    finish(world, *grants)
    (grant,) = claim(world)
    assert grant.unit == second
    assert [taken(world, key) for key in ("count:gpu", "lock:disk", "rate:api")] == [1, 1, 1]
    finish(world, grant)
    assert [taken(world, key) for key in ("lock:db", "count:gpu", "lock:disk", "rate:api")] == [0, 0, 0, 1]


def lose(world: World, grant: LeaseGrant) -> None:
    world.pass_time(3600)
    world.tick()
    world.pass_time(3600)


def cancel_hard(world: World, grant: LeaseGrant) -> None:
    world.cancel(grant.unit, hard=True)


def fail(world: World, grant: LeaseGrant) -> None:
    world.start(grant)
    world.finish(grant, ended="failure", error="no", error_class="PermanentError")


def retry(world: World, grant: LeaseGrant) -> None:
    world.start(grant)
    world.finish(grant, ended="failure", error="no", after_us=3600 * SECOND)


def snooze(world: World, grant: LeaseGrant) -> None:
    world.start(grant)
    world.release(grant, snooze_us=3600 * SECOND)


@pytest.mark.parametrize("leave", [lose, cancel_hard, fail, retry, snooze])
def test_it_is_given_back_on_every_exit(world: World, leave: Callable[[World, LeaseGrant], None]) -> None:
    submit(world, ALONE, gpus(8), attempts=1 if leave is lose else 3)
    (grant,) = claim(world)
    other = submit(world, ALONE, gpus(8))
    assert take(world) == []
    leave(world, grant)
    assert take(world) == [other]


def test_who_waits_behind_one_that_is_cancelled_goes_on(world: World) -> None:
    reader = submit(world, SHARED)
    assert take(world) == [reader]
    writer, late = submit(world, ALONE), submit(world, SHARED)
    assert take(world) == []
    world.cancel(writer)
    assert take(world) == [late]


def test_what_is_paused_keeps_no_resource(world: World) -> None:
    world.submit("t", resources=(ALONE,))
    other = world.submit("other", resources=(ALONE,))
    world.send(PauseWork(task="t"))
    assert take(world) == [other]


def test_resources_are_a_tenants_own(world: World) -> None:
    submit(world, ALONE)
    world.send(Submit(work=(Work(task="t", resources=(ALONE,)),), tenant=2))
    assert len(take(world)) == 1
    assert world.count("slot", "taken > 0") == 2


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (ALONE, "waits for the resource 'db', which it needs for itself alone: others use it"),
        (gpus(8), "waits for the resource 'gpu', which it needs 8 of: 8 of 8 are taken"),
        (rated(1), "waits for the resource 'api', which it needs at its rate: 1 of 1 have begun, or are about to"),
    ],
)
def test_why_says_what_it_waits_for(world: World, use: Resource, said: str) -> None:
    submit(world, use)
    take(world)
    waiting = submit(world, use)
    declare(world.connection, 1)
    answer = explain(world.connection, 1, world.lifecycles, waiting)
    assert said in answer.text
    assert answer.reason == "resource"
    assert ("the next may begin at" in answer.text) == (use.mode == "rated")


@pytest.mark.parametrize(
    ("resources", "said"),
    [
        ((Resource(""),), "resource = '' is not allowed"),
        (
            (Resource("a", "borrowed"),),
            "mode = 'borrowed' is not allowed; allowed are exclusive, shared, counted, rated",
        ),
        ((Resource("a", "counted", 2),), "the resource 'a' is counted: say of how many"),
        ((Resource("a", "counted", 3, 2),), "of = 2 is not allowed; allowed is 3 to"),
        ((Resource("a", "counted", 0, 2),), "n = 0 is not allowed"),
        ((Resource("a", "rated", 2),), "the resource 'a' is rated: say in which time"),
        ((Resource("a", "rated", 2, per_us=0),), "per_us = 0 is not allowed"),
        ((Resource("a", "shared", 2),), "n is not allowed for the resource 'a', which is shared"),
        ((Resource("a", "exclusive", of=2),), "of is not allowed for the resource 'a', which is exclusive"),
        ((Resource("a", "counted", of=2, per_us=5),), "per is not allowed for the resource 'a', which is counted"),
        ((Resource("a"), Resource("a", "shared")), "the resource 'a' is named twice"),
        (tuple(Resource(str(number)) for number in range(21)), "21 resources are named; at most 20 are allowed"),
    ],
)
def test_wrong_resources_are_refused(world: World, resources: tuple[Resource, ...], said: str) -> None:
    with pytest.raises(InterlockError, match=said):
        submit(world, *resources)
    assert world.count("slot") == 0


def test_the_law_notices_what_is_taken_by_nobody(world: World) -> None:
    submit(world, gpus(3))
    waiting = submit(world, gpus(8))
    declare(world.connection, 1)
    world.connection.rows("UPDATE slot SET taken = 0")
    broken = list(find_wrong_amounts(world.connection))
    assert [unit for unit, _ in broken] == [0, waiting]
    assert "0 of 'resource:count:gpu' of tenant 1 are taken, and those who have it have 3" in broken[0][1]
    world.connection.rows("UPDATE slot SET taken = 3")
