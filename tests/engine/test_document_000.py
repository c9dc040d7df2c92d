"""Document 000, its two machines as they are lived: what a run and its one job do, move by move."""

import pytest

from interlock.kernel.commands import Decide, LeaseGrant, Submit, Work
from interlock.kernel.errors import Refused
from tests.engine.world import World


def submit_run(world: World) -> tuple[int, int]:
    """A run and its job."""
    job = Work(task="goal", lifecycle="agent_job", parent="run")
    made = world.send(Submit(work=(Work(task="goal", lifecycle="agent_run", ref="run"), job)))
    return made[0].unit, made[1].unit


def claim(world: World, worker: int) -> LeaseGrant:
    (grant,) = world.claim(worker)
    return grant


def states(world: World, *units: int) -> list[str]:
    return [world.unit(unit).state for unit in units]


@pytest.mark.req("R0-04", "R0-25")
def test_a_run_and_its_job_start_queued(world: World) -> None:
    assert states(world, *submit_run(world)) == ["queued", "queued"]


@pytest.mark.req("R0-05", "R0-26")
def test_a_queued_run_is_cancelled_and_no_worker_ever_sees_its_job(world: World) -> None:
    run, job = submit_run(world)
    assert world.cancel(run).applied
    assert (states(world, run), world.path(job)) == (["cancelled"], ["queued", "claimed", "failed"])
    assert [event.target for event in world.events(run)] == ["queued", "cancelled"]
    assert {event.actor for event in world.events(job)[1:]} == {"engine"}
    assert world.claim(world.worker()) == []


@pytest.mark.req("R0-07", "R0-29", "R0-31")
def test_a_claim_lets_a_run_begin_and_its_job_completes_it(world: World) -> None:
    run, job = submit_run(world)
    grant = claim(world, world.worker())
    assert states(world, run, job) == ["running", "claimed"]
    assert (world.start(grant).accepted, states(world, job)) == (True, ["running"])
    assert (world.finish(grant).accepted, states(world, run, job)) == (True, ["complete", "complete"])


@pytest.mark.req("R0-27")
def test_a_job_completes_without_a_start(world: World) -> None:
    run, job = submit_run(world)
    world.finish(claim(world, world.worker()))
    assert (states(world, run), world.path(job)) == (["complete"], ["queued", "claimed", "complete"])


@pytest.mark.req("R0-28", "R0-32")
@pytest.mark.parametrize("started", [False, True])
def test_a_job_fails_before_and_after_its_start(world: World, started: bool) -> None:
    run, job = submit_run(world)
    grant = claim(world, world.worker())
    if started:
        world.start(grant)
    world.finish(grant, ended="failure", error_class="PermanentError")
    assert states(world, run, job) == ["failed", "failed"]
    assert world.path(job)[1:] == (["claimed", "running", "failed"] if started else ["claimed", "failed"])


@pytest.mark.req("R0-30", "R0-34")
def test_a_lost_holder_is_replaced_in_place_and_has_no_say_any_more(world: World) -> None:
    run, job = submit_run(world)
    first = claim(world, world.worker("a"))
    world.start(first)
    other = world.worker("b")
    assert world.claim(other) == []  # before the lease is over
    world.pass_time(61)
    second = claim(world, other)
    assert (second.unit, second.fence, states(world, run, job)) == (job, 2, ["running", "claimed"])
    assert world.path(job) == ["queued", "claimed", "running", "claimed"]
    for late in (world.beat(first), world.finish(first), world.finish(first, ended="failure")):
        assert not late.accepted
    assert states(world, run, job) == ["running", "claimed"]


@pytest.mark.req("R0-33")
@pytest.mark.parametrize("ended", ["success", "failure"])
def test_an_ended_job_has_no_more_moves(world: World, ended: str) -> None:
    _, job = submit_run(world)
    grant = claim(world, world.worker())
    world.finish(grant, ended=ended, error_class="PermanentError")
    (state,) = states(world, job)
    for late in (world.start(grant), world.beat(grant), world.finish(grant, result="2"), world.release(grant)):
        assert not late.accepted
    with pytest.raises(Refused):
        world.cancel(job)
    assert states(world, job) == [state]


@pytest.mark.req("R0-35")
def test_two_resumes_make_one_job(world: World) -> None:
    run, _ = submit_run(world)
    world.cancel(run)
    order = Decide(unit=run, trigger="resume", actor="ann", reason="again")
    assert world.send(order).applied
    with pytest.raises(Refused):
        world.send(order)
    assert world.count("unit", f"parent = {run} AND outcome IS NULL") == 1
