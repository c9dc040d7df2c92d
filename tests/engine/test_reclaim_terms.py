"""Document 001's reclaim_after for workers that cannot beat: their lease lasts until the step may be reclaimed (A1-8)."""

import pytest

from interlock.kernel.commands import Submit, Work
from tests.engine.world import SECOND, World


def run_of(world: World, **step: int | bool) -> int:
    """A run that says when its steps may be reclaimed, with one silent step."""
    top = Work(task="release", lifecycle="workflow_run", ref="run", reclaim_after_us=300 * SECOND)
    build = Work(task="build", lifecycle="step", parent="run", silent=True, **step)
    return world.send(Submit(work=(top, build)))[1].unit


@pytest.mark.req("R1-28")
def test_a_silent_step_is_reclaimed_at_reclaim_after_and_not_before(world: World) -> None:
    step = run_of(world)
    one = world.worker("one")
    (grant,) = world.claim(one)
    assert (grant.unit, grant.ttl_us, grant.beat_us) == (step, 300 * SECOND, 0)
    world.pass_time(299)
    assert world.claim(world.worker("two")) == []
    world.pass_time(1)
    (again,) = world.claim(world.worker("three"))
    assert (again.unit, again.attempt) == (step, 2)


def test_a_lease_that_a_step_names_itself_stands(world: World) -> None:
    run_of(world, ttl_us=60 * SECOND)
    (grant,) = world.claim(world.worker())
    assert grant.ttl_us == 60 * SECOND


@pytest.mark.parametrize(("after", "ttl"), [(1, 5), (10 * 86_400, 86_400)])
def test_what_no_lease_may_last_is_clamped(world: World, after: int, ttl: int) -> None:
    run_of(world, reclaim_after_us=after * SECOND)
    (grant,) = world.claim(world.worker())
    assert grant.ttl_us == ttl * SECOND
