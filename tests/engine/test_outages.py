"""Outages: what depends on something that is away waits, one tries it, and the rest comes back in growing waves."""

from typing import Any

import pytest

from interlock.client.why import explain
from interlock.kernel.commands import LeaseGrant, Release, UnpauseWork
from interlock.kernel.errors import InterlockError
from interlock.plugins.pauses.outages import UNTAKEN_US, OutageDetail, read_detail
from interlock.plugins.pauses.queries import pauses_of
from tests.engine.world import SECOND, World, held
from tests.store.databases import declare

MINUTE = 60


def submit(world: World, count: int) -> list[int]:
    return [world.submit("charge", depends=("stripe",)) for _ in range(count)]


def claim(world: World, limit: int = 100) -> list[LeaseGrant]:
    return world.claim(world.worker(incarnation=str(world.claims), capacity=1000), limit)


def report(world: World, grant: LeaseGrant, retry_after: int = MINUTE) -> None:
    """A holder says that stripe is away."""
    world.start(grant)
    command = Release(
        held=(held(grant),), outage="stripe", snooze_us=retry_after * SECOND, actor="w", reason="stripe is away: 503"
    )
    (answer,) = world.send(command)
    assert answer.accepted


def detail(world: World) -> OutageDetail:
    declare(world.connection, 1)
    (row,) = pauses_of(world.connection, 1)
    assert (row.kind, row.name) == ("outage", "stripe")
    return read_detail(row)


def waves(world: World, sizes: list[int]) -> None:
    """Each wave has so many units, and all of them end well."""
    for size in sizes:
        look(world)
        grants = claim(world)
        assert len(grants) == size
        assert claim(world) == []
        look(world)
        assert claim(world) == [], "the next wave waits for this one"
        for grant in grants:
            world.start(grant)
            world.finish(grant)


def look(world: World) -> None:
    """Time looks at what is let through."""
    world.pass_time(1)
    world.tick()


def why(world: World, unit: int) -> str:
    declare(world.connection, 1)
    return explain(world.connection, 1, world.lifecycles, unit).text


def test_all_that_depends_on_it_waits_and_no_attempt_is_spent(world: World) -> None:
    first, *others = submit(world, 3)
    alone = world.submit("mail")
    (grant,) = claim(world, 1)
    report(world, grant)
    unit = world.unit(first)
    assert (unit.failures, unit.losses, unit.snoozes) == (0, 0, 0)
    (granted,) = claim(world)
    assert granted.unit == alone
    world.start(granted)
    world.finish(granted)
    assert [world.unit(other).parked_on for other in (first, *others)] == ["pause:outage:stripe"] * 3
    world.pass_time(MINUTE - 1)
    world.tick()
    assert claim(world) == []


def test_one_tries_it_and_the_rest_comes_in_growing_waves(world: World) -> None:
    submit(world, 12)
    (grant,) = claim(world, 1)
    report(world, grant)
    claim(world)
    world.pass_time(MINUTE)
    waves(world, [1, 2, 4, 5])
    look(world)
    declare(world.connection, 1)
    assert pauses_of(world.connection, 1) == []
    later = submit(world, 20)
    assert [grant.unit for grant in claim(world)] == later


def test_what_comes_meanwhile_waits_too(world: World) -> None:
    submit(world, 2)
    (grant,) = claim(world, 1)
    report(world, grant)
    claim(world)
    world.pass_time(MINUTE)
    world.tick()
    submit(world, 5)
    assert len(claim(world)) == 1


def test_a_probe_that_finds_it_away_waits_twice_as_long(world: World) -> None:
    submit(world, 3)
    (grant,) = claim(world, 1)
    report(world, grant)
    claim(world)
    for tries, pause in enumerate((1, 2, 4, 8)):
        assert detail(world).tries == tries
        world.pass_time(pause * MINUTE - 1)
        world.tick()
        assert claim(world) == []
        world.pass_time(1)
        world.tick()
        (probe,) = claim(world)
        report(world, probe)
    assert all(world.unit(unit.unit).failures == 0 for unit in (grant, probe))


def test_a_wave_that_finds_it_away_again_ends_the_recovery(world: World) -> None:
    submit(world, 9)
    (grant,) = claim(world, 1)
    report(world, grant)
    claim(world)
    world.pass_time(MINUTE)
    waves(world, [1])
    look(world)
    one, other = claim(world)
    report(world, one)
    world.start(other)
    world.finish(other)
    look(world)
    assert claim(world) == []
    assert detail(world).size == 0
    world.pass_time(2 * MINUTE)
    waves(world, [1, 2])


def test_a_probe_that_fails_by_itself_shows_that_it_is_back(world: World) -> None:
    submit(world, 4)
    (grant,) = claim(world, 1)
    report(world, grant)
    claim(world)
    world.pass_time(MINUTE)
    world.tick()
    (probe,) = claim(world)
    world.start(probe)
    world.finish(probe, ended="failure", error="the card is declined", error_class="PermanentError")
    look(world)
    assert len(claim(world)) == 2


def test_a_lost_probe_shows_nothing_and_another_one_tries(world: World) -> None:
    submit(world, 4)
    (grant,) = claim(world, 1)
    report(world, grant)
    claim(world)
    world.pass_time(MINUTE)
    world.tick()
    (probe,) = claim(world)
    world.pass_time(3 * MINUTE)
    world.tick()
    look(world)
    grants = claim(world)
    assert len(grants) == 1
    assert detail(world).size == 1
    assert probe.unit not in {grant.unit for grant in grants}


def test_one_that_nobody_takes_does_not_keep_the_others(world: World) -> None:
    submit(world, 2)
    (grant,) = claim(world, 1)
    report(world, grant)
    world.submit("charge", depends=("stripe",), queue="other", priority=5)
    assert world.claim(world.worker("of both"), 10, queues=("default", "other")) == []
    world.pass_time(MINUTE)
    world.tick()
    assert claim(world) == [], "the most urgent one is in a queue without workers"
    world.pass_time(UNTAKEN_US / SECOND)
    world.tick()
    assert len(claim(world)) == 1


def test_an_operator_says_that_it_is_back(world: World) -> None:
    units = submit(world, 5)
    (grant,) = claim(world, 1)
    report(world, grant)
    claim(world)
    assert world.send(UnpauseWork(outage="stripe", actor="ann")).changed
    assert [grant.unit for grant in claim(world)] == units
    assert not world.send(UnpauseWork(outage="stripe", actor="ann")).changed


def test_why_says_what_is_away_and_when_it_is_tried(world: World) -> None:
    first, second = submit(world, 2)
    (grant,) = claim(world, 1)
    report(world, grant)
    said = why(world, second)
    assert "waits for 'stripe', which is away, reported by w at 2023-11-14T22:13:20.000Z: stripe is away: 503" in said
    assert "the next try is at 2023-11-14T22:14:20.000Z (in 1m)" in said
    assert "interlock unpause --outage stripe" in said
    claim(world)
    assert why(world, second).splitlines()[0] == said.splitlines()[0]
    world.pass_time(MINUTE)
    world.tick()
    waiting = [unit for unit in (first, second) if world.unit(unit).parked_on]
    assert "1 of those that wait are let through now" in why(world, waiting[0])


def test_away_again_after_it_was_over(world: World) -> None:
    submit(world, 2)
    for _ in range(2):
        grants = claim(world)
        for grant in grants:
            report(world, grant)
        assert claim(world) == []
        world.send(UnpauseWork(outage="stripe"))
    assert len(claim(world)) == 2


@pytest.mark.parametrize(
    ("depends", "said"),
    [
        ((("x" * 201),), "depends = "),
        (("",), "depends = ''"),
        (tuple("abcdefghijk"), "depends has 11 names; at most 10"),
    ],
)
def test_wrong_names_are_refused(world: World, depends: Any, said: str) -> None:
    with pytest.raises(InterlockError, match=said):
        world.submit(depends=depends)


def test_a_wrong_report_changes_nothing(world: World) -> None:
    submit(world, 1)
    (grant,) = claim(world)
    with pytest.raises(InterlockError, match="outage = '' is not allowed"):
        world.send(Release(held=(held(grant),), outage=""))
    assert world.count("pause") == 0
