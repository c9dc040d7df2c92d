"""Rates: at most so many units of a key begin in any stretch of time, and all of them begin in the end."""

import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pytest

from interlock.audit.laws import audit
from interlock.kernel.commands import Cancel, Claim, Command, Finish, Force, Outcome, Release, Start, Submit, Tick, Work
from interlock.kernel.errors import InterlockError, Refused
from interlock.lifecycles import shipped
from tests.engine.world import SECOND, World, held
from tests.store.databases import declare, fresh

A = TypeVar("A")
PER = 10 * SECOND  # shorter than a lease


class Trusting(World):
    """A world in which the laws are asked once, at the end."""

    def send(self, command: Command[A]) -> A:
        return self.engine.send(command)

    def judged(self) -> list[object]:
        declare(self.connection, 1, 2)
        return list(audit(self.connection, self.lifecycles))


def rated(world: World, rate: int = 2, per_us: int = PER, **more: object) -> int:
    return world.submit(rate_key="api", rate=rate, rate_per_us=per_us, **more)


def test_so_many_begin_in_any_stretch_of_time(world: World) -> None:
    units = [rated(world) for _ in range(5)]
    worker = world.worker()
    assert [grant.unit for grant in world.claim(worker, limit=9)] == units[:2]
    assert world.unit(units[2]).parked_on == "rate:api"
    world.pass_time(9.999_999)
    world.tick()
    assert world.claim(worker, limit=9) == []
    world.pass_time(0.000_001)
    assert [grant.unit for grant in world.claim(worker, limit=9)] == units[2:4]
    world.pass_time(10)
    assert [grant.unit for grant in world.claim(worker, limit=9)] == units[4:]
    assert world.count("token") == 1


def test_the_end_of_a_unit_brings_no_token_back(world: World) -> None:
    for _ in range(3):
        rated(world, rate=1)
    worker = world.worker()
    (grant,) = world.claim(worker, limit=9)
    world.start(grant)
    world.finish(grant)
    assert world.claim(worker, limit=9) == []


def test_time_counts_from_the_grant_and_not_from_being_available(world: World) -> None:
    rated(world, rate=1)
    second = rated(world, rate=1)
    worker = world.worker()
    world.pass_time(3600)
    assert len(world.claim(worker, limit=9)) == 1
    world.pass_time(9)
    assert world.claim(worker, limit=9) == []
    world.pass_time(1)
    assert [grant.unit for grant in world.claim(worker, limit=9)] == [second]


@pytest.mark.parametrize("end", ["cancel", "time out", "force", "bury", "replaced"])
def test_who_leaves_without_a_grant_gives_the_token_back_at_once(world: World, end: str) -> None:
    first = rated(world, rate=1, queue_timeout_us=SECOND if end == "time out" else None, key="k")
    second = rated(world, rate=1)
    assert world.unit(second).parked_on == "rate:api"
    if end == "cancel":
        world.send(Cancel(unit=first))
    elif end == "time out":
        world.pass_time(1)
        world.tick()
    elif end == "force":
        world.send(Force(unit=first, state="failed", reason="test"))
    elif end == "bury":
        world.cancel(first, hard=True)
    else:
        second = rated(world, rate=1, key="k", input="2", on_duplicate="replace")
        world.cancel(world.unit(second).id - 1)
    assert world.count("token") == 0
    assert len(world.claim(world.worker(), limit=9)) == 1


def test_a_retry_needs_a_token_of_its_own(world: World) -> None:
    first, second = rated(world, rate=1, backoff_us=SECOND), rated(world, rate=1)
    worker = world.worker()
    (grant,) = world.claim(worker, limit=9)
    world.start(grant)
    world.finish(grant, ended="failure", after_us=SECOND)
    world.pass_time(2)
    world.tick()
    assert world.unit(first).parked_on == "rate:api"
    assert world.claim(worker, limit=9) == []
    world.pass_time(10)
    assert [one.unit for one in world.claim(worker, limit=9)] == [first]  # it is the older one
    world.pass_time(10)
    assert [one.unit for one in world.claim(worker, limit=9)] == [second]


def test_a_lease_that_is_lost_in_place_needs_another_token(world: World) -> None:
    """A step waits for the next worker in the state in which it was: it gives its mutex up meanwhile."""
    run = world.submit(lifecycle="workflow_run")
    facts = {"lifecycle": "step", "parent": run, "rate_key": "api", "rate": 1, "rate_per_us": 3600 * SECOND}
    step, other = world.submit(mutex="m", **facts), world.submit(mutex="m")
    worker = world.worker()
    (grant,) = world.claim(worker, limit=9)
    assert grant.unit == step
    world.pass_time(600)
    world.tick()
    assert (world.unit(step).parked_on, world.unit(step).available_at) == ("rate:api", None)
    assert [one.unit for one in world.claim(world.worker("v"), limit=9)] == [other]
    world.pass_time(3600)
    world.tick()
    assert world.unit(step).parked_on == "mutex:m" or world.unit(step).available_at is not None


def test_a_rate_is_what_was_said_last(world: World) -> None:
    for _ in range(4):
        rated(world, rate=1)
    rated(world, rate=3)
    worker = world.worker()
    assert len(world.claim(worker, limit=9)) == 3
    world.pass_time(10)
    rated(world, rate=1)
    assert len(world.claim(worker, limit=9)) == 1


def test_a_limit_a_mutex_and_a_rate_hold_together(world: World) -> None:
    every = {"limit_key": "l", "limit": 2, "rate_key": "r", "rate": 2, "rate_per_us": 10 * SECOND}
    units = [world.submit(mutex="m" if place % 2 else None, **every) for place in range(8)]
    worker, begun, order = world.worker(), [], []
    while len(order) < len(units):
        grants = world.claim(worker, limit=9)
        assert len(grants) <= 2
        begun += [world.now_us] * len(grants)
        order += [grant.unit for grant in grants]
        for grant in grants:
            world.start(grant)
            world.finish(grant)
        world.pass_time(4)
    assert within(begun, 2, 10 * SECOND)
    assert sorted(order) == units


def test_another_tenants_rate_is_another_rate(world: World) -> None:
    facts = {"rate_key": "api", "rate": 1, "rate_per_us": PER}
    rated(world, rate=1)
    world.send(Submit(tenant=2, work=(Work(task="mail", **facts),)))
    assert world.count("unit", "parked_on IS NOT NULL") == 0


TOGETHER = "rate_key, rate and rate_per_us belong together"
WHOLE = {"rate_key": "k", "rate": 1, "rate_per_us": 1}
REFUSED: list[tuple[dict[str, object], str]] = [
    ({"rate": 2}, TOGETHER),
    ({"rate_key": "k"}, TOGETHER),
    ({"rate_per_us": 1}, TOGETHER),
    ({"rate_key": "k", "rate": 2}, TOGETHER),
    ({"rate": 2, "rate_per_us": 1}, TOGETHER),
    ({"rate_key": "k", "rate_per_us": 1}, TOGETHER),
    ({**WHOLE, "rate": 0}, "rate = 0 is not allowed; allowed is 1 to 2147483647"),
    ({**WHOLE, "rate": 2**31}, "rate = 2147483648 is not allowed"),
    ({**WHOLE, "rate_per_us": 0}, "rate_per_us = 0 is not allowed"),
    ({**WHOLE, "rate_key": ""}, "rate_key = '' is not allowed"),
]


def test_a_rate_that_could_never_hold_is_refused(world: World) -> None:
    for work, said in REFUSED:
        with pytest.raises(InterlockError) as refused:
            world.submit(**work)
        assert said in str(refused.value)
    assert world.count("unit") == 0


def within(times: Sequence[int], rate: int, per_us: int) -> bool:
    """Whether no stretch of time has too many of them: a stretch ends where the next one begins."""
    ordered = sorted(times)
    return all(later - first >= per_us for first, later in zip(ordered, ordered[rate:], strict=False))


def live_at_random(world: Trusting, seed: int, number: int) -> None:
    """Units of two rates are submitted, claimed, finished, lost, given back and cancelled at random times."""
    chance = random.Random(seed)
    rates = {"a": (chance.randrange(1, 4), 10 * SECOND), "b": (chance.randrange(1, 6), 3 * SECOND)}
    worker, open_, begun = world.worker(), {}, {key: [] for key in rates}
    keys: dict[int, str] = {}

    def begin() -> None:
        world.claims += 1
        command = Claim(worker=worker, key=f"c{world.claims}", nonce="n" * 16, limit=chance.choice((1, 3, 9)))
        for grant in world.send(command):
            begun[keys[grant.unit]].append(world.now_us)
            open_[grant.unit] = grant

    def end() -> None:
        unit = chance.choice(list(open_))
        grant = open_.pop(unit)
        what = chance.choice(("success", "failure", "give back", "vanish"))
        if what == "give back":
            world.send(Release(held=(held(grant),)))
        elif what != "vanish":
            world.send(Start(held=(held(grant),)))
            world.send(Finish(outcomes=(Outcome(held=held(grant), ended=what, after_us=SECOND),)))

    for place in range(number):
        key = chance.choice("ab")
        rate, per_us = rates[key]
        more = {"mutex": chance.choice((None, None, "m")), "delay_us": chance.choice((0, 0, SECOND)), "attempts": 100}
        unit = world.submit(rate_key=key, rate=rate, rate_per_us=per_us, priority=chance.randrange(2), **more)
        keys[unit] = key
        if chance.random() < 0.1:
            with suppress(Refused):  # it has ended
                world.cancel(chance.choice(list(keys)))
        for _ in range(chance.randrange(3)):
            world.pass_time(chance.choice((0, 0, 0.001, 0.5, 1, 2.999_999, 3, 9.5, 31)))
            chance.choice((begin, begin, end if open_ else begin, lambda: world.send(Tick())))()
        if place % 10 == 9:
            assert world.judged() == []
    for _ in range(20 * number):  # everything begins in the end, and what was lost comes back
        world.pass_time(1.5)
        world.claims += 1
        grants = world.send(Claim(worker=worker, key=f"c{world.claims}", nonce="n" * 16, limit=9))
        for grant in grants:
            begun[keys[grant.unit]].append(world.now_us)
        if grants:
            world.send(Start(held=tuple(map(held, grants))))
            world.send(Finish(outcomes=tuple(Outcome(held=held(grant)) for grant in grants)))
        if not world.count("unit", "lifecycle = 'job' AND outcome IS NULL"):
            break
    assert world.count("unit", "lifecycle = 'job' AND outcome IS NULL") == 0
    for key, (rate, per_us) in rates.items():
        assert within(begun[key], rate, per_us), (key, rate, begun[key])
    assert world.judged() == []


@pytest.mark.parametrize("seed", range(6))
def test_no_window_has_too_many_and_nobody_starves(seed: int, tmp_path: Path) -> None:
    with fresh("sqlite memory", tmp_path, "") as connection:
        live_at_random(Trusting(connection, shipped()), seed, 60)


def test_the_same_on_postgresql(tmp_path: Path, server: str) -> None:
    with fresh("postgres", tmp_path, server) as connection:
        live_at_random(Trusting(connection, shipped()), 99, 40)


@pytest.mark.proof
def test_no_window_has_too_many_in_two_hundred_lives(tmp_path: Path) -> None:
    for seed in range(200, 400):
        with fresh("sqlite memory", tmp_path, "") as connection:
            live_at_random(Trusting(connection, shipped()), seed, 150)
