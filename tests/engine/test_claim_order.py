"""Which units a claim takes: by urgency inside a queue, in fair shares between queues, never twice."""

import random
from typing import Any

import pytest

from interlock.kernel.commands import Claim, LeaseGrant, Submit, Work
from interlock.kernel.errors import InterlockError
from tests.engine.world import World


def submit(world: World, *work: Work) -> list[int]:
    return [done.unit for done in world.send(Submit(work=work))]


def units(grants: list[LeaseGrant]) -> list[int]:
    return [grant.unit for grant in grants]


@pytest.mark.parametrize("seed", range(4))
def test_inside_a_queue_the_lanes_are_merged_by_urgency(world: World, seed: int) -> None:
    """Compared with a plain list that is sorted."""
    chance = random.Random(seed)
    able: list[tuple[int, int, int]] = []
    for _ in range(4):
        world.pass_time(1)
        demands = [tuple(chance.sample(["a", "b", "x"], chance.randrange(3))) for _ in range(12)]
        work = [Work(task="mail", capabilities=asked, priority=chance.randrange(3)) for asked in demands]
        made = zip(submit(world, *work), work, strict=True)
        able += [(-one.priority, world.now_us, unit) for unit, one in made if "x" not in one.capabilities]
    worker = world.worker(capabilities=("a", "b"))
    able.sort()
    while able:
        limit = chance.randrange(1, 12)
        assert units(world.claim(worker, limit)) == [unit for _, _, unit in able[:limit]]
        able = able[limit:]
    assert world.claim(worker) == []


def test_a_queue_that_is_full_does_not_starve_another(world: World) -> None:
    submit(world, *[Work(task="mail", queue="flood", priority=9)] * 40)
    calm = submit(world, *[Work(task="mail", queue="calm")] * 8)
    worker = world.worker()
    both = {"queues": ("flood", "calm")}
    got = units(world.claim(worker, 10, **both))
    assert len(got) == 10
    assert set(calm) & set(got) == set(calm[:5])  # a fair share, the oldest of its queue
    one_by_one = [one for _ in range(16) for one in units(world.claim(worker, 1, **both))]
    assert len(one_by_one) == 16
    assert set(calm[5:]) < set(one_by_one)


def test_what_a_queue_leaves_goes_to_the_others(world: World) -> None:
    for queue, count in {"a": 1, "b": 2, "c": 9}.items():
        submit(world, *[Work(task="mail", queue=queue)] * count)
    assert len(world.claim(world.worker(), 10, queues=("a", "b", "c", "none"))) == 10


def test_a_claim_of_one_queue_keeps_strict_priority(world: World) -> None:
    low, high = submit(world, Work(task="mail"), Work(task="mail", priority=1, capabilities=("a",)))
    assert units(world.claim(world.worker(capabilities=("a",)), 2)) == [high, low]


def together(world: World, *commands: Any) -> list[Any]:
    """These commands in one group, and so in one transaction."""
    futures = [world.engine.committer.put(command) for command in commands]
    assert world.engine.committer.step() == len(commands)
    return [future.result() for future in futures]


def test_claims_of_one_group_share_what_there_is(world: World) -> None:
    """The database has not seen what the first of them took."""
    made = submit(world, *[Work(task="mail", capabilities=(cap,) if cap else ()) for cap in ("", "a", "b") * 8])
    workers = [world.worker(f"w{number}", capabilities=("a", "b")) for number in range(8)]
    answers = together(world, *(Claim(worker=one, key="k", nonce=f"{one:0>16}", limit=3) for one in workers))
    assert [units(grants) for grants in answers] == [made[start : start + 3] for start in range(0, 24, 3)]
    assert world.claim(workers[0]) == []


def test_a_claim_finds_what_its_group_has_submitted(world: World) -> None:
    worker = world.worker(capabilities=("a",))
    work = (Work(task="mail"), Work(task="mail", capabilities=("a",), priority=1))
    made, got = together(world, Submit(work=work), Claim(worker=worker, key="k", nonce="n" * 16, limit=2))
    assert units(got) == [made[1].unit, made[0].unit]


def test_a_lane_that_was_never_committed_is_forgotten(world: World) -> None:
    """The next lane gets its number."""
    with pytest.raises(InterlockError, match="no such job, run or step"):
        world.send(Submit(work=(Work(task="mail", queue="lost"), Work(task="mail", after=(999,)))))
    worker = world.worker()
    found = submit(world, Work(task="mail", queue="found"))
    lost = submit(world, Work(task="mail", queue="lost"))
    assert units(world.claim(worker, 5, queues=("lost",))) == lost
    assert units(world.claim(worker, 5, queues=("found",))) == found
    assert world.connection.rows("SELECT queue FROM lane ORDER BY id") == [("found",), ("lost",)]
