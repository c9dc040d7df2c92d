"""A worker that lost its lease by silence does not answer; nobody says that it has completed its task."""

import pytest

from interlock.cli.worker import describe_state
from interlock.client import json_views
from interlock.kernel.commands import Heartbeat, Register, Revoke, Tick
from interlock.store.queries.views import workers_seen
from tests.engine.world import World, held
from tests.store.databases import declare


@pytest.mark.parametrize("starts", [True, False])
def test_a_worker_that_is_lost_is_unresponsive_with_the_end_of_its_lease(world: World, starts: bool) -> None:
    worker = world.worker()
    job = world.submit()
    (grant,) = world.claim(worker)
    if starts:
        world.start(grant)
    world.pass_time(61)
    world.tick()
    assert world.unit(job).state == "queued"
    assert world.unit(worker).state == "unresponsive"
    assert world.names(worker)[-2:] == ["task_assigned", "health_check_timeout"]
    assert "task_completed" not in world.names(worker)
    world.pass_time(181)
    world.tick()
    assert world.unit(worker).state == "shutdown"


def test_a_lost_worker_that_speaks_again_comes_back_empty(world: World) -> None:
    worker = world.worker()
    world.submit()
    (grant,) = world.claim(worker)
    world.pass_time(61)
    world.tick()
    (again,) = world.claim(worker)
    assert again.unit == grant.unit
    assert world.names(worker)[-3:] == ["health_check_timeout", "health_check_recovered", "task_assigned"]


def test_a_worker_that_claims_while_its_lease_is_over_is_no_longer_silent(world: World) -> None:
    """Its claim lets time pass, and it is that claim which finds its own lease over."""
    worker = world.worker()
    world.submit()
    world.claim(worker)
    world.pass_time(61)
    world.claim(worker, queues=("other",))
    assert world.unit(worker).state == "idle"
    assert world.names(worker)[-2:] == ["health_check_timeout", "health_check_recovered"]
    assert "task_completed" not in world.names(worker)


def test_a_lease_that_is_never_acknowledged_is_lost_by_silence_too(world: World) -> None:
    worker = world.worker()
    world.submit(lifecycle="ci_job")
    assert world.claim(worker)
    world.pass_time(61)
    world.tick()
    assert world.unit(worker).state == "unresponsive"
    assert "task_completed" not in world.names(worker)


def test_a_worker_that_still_holds_something_is_busy(world: World) -> None:
    worker = world.worker()
    world.submit()
    world.submit()
    lost, kept = world.claim(worker, limit=2)
    for grant in (lost, kept):
        world.start(grant)
    world.pass_time(30)
    world.send(Heartbeat(held=(held(kept),)))
    world.pass_time(31)
    world.tick()
    assert (world.unit(lost.unit).state, world.unit(kept.unit).state) == ("queued", "running")
    assert world.unit(worker).state == "busy"
    world.finish(kept)
    assert world.names(worker)[-1] == "task_completed"


def test_a_lease_that_an_operator_takes_makes_no_worker_silent(world: World) -> None:
    worker = world.worker()
    job = world.submit()
    world.claim(worker)
    world.send(Revoke(unit=job))
    assert world.unit(worker).state == "idle"


def test_the_list_says_who_is_silent_and_how_many_it_runs_at_a_time(world: World) -> None:
    worker = world.send(Register(name="w", incarnation="1", capacity=100, concurrency=4))
    world.submit()
    world.claim(worker)
    world.pass_time(61)
    world.engine.send(Tick())
    declare(world.connection, 1)
    ((row, unit),) = workers_seen(world.connection, 1)
    assert describe_state(row, unit).startswith("unresponsive, silent since 2023-11-14")
    told = json_views.make_worker(row, unit)
    assert (told.silent, told.concurrency, told.capacity) == (True, 4, 100)
