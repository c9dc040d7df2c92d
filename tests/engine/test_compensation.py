"""What a job has done is undone, the last first, when it ends without success; its own end stays as it is."""

import msgspec
import pytest

from interlock.kernel.commands import LeaseGrant, Record
from interlock.kernel.errors import InterlockError
from tests.engine.world import World, held


def records(world: World, grant: LeaseGrant, *names: str) -> None:
    for name in names:
        payload = msgspec.json.encode({"task": f"undo {name}", "input": {"of": name}}).decode()
        world.send(Record(held=(held(grant),), kind="compensation", name=name, payload=payload))


def trip(world: World, *names: str, **work: object) -> tuple[int, int, LeaseGrant]:
    """A job that has recorded how to undo what it did, its worker and its lease."""
    job, worker = world.submit(task="trip", correlation="c-7", trace="t-7", **work), world.worker()
    (grant,) = world.claim(worker)
    world.start(grant)
    records(world, grant, *names)
    return job, worker, grant


def undo_all(world: World, worker: int, **outcome: str) -> list[str]:
    """Carries out what there is to undo, one after the other, and tells in which order."""
    order = []
    while grants := world.claim(worker, limit=9):
        (grant,) = grants  # never two at once
        assert (grant.correlation, grant.trace) == ("c-7", "t-7")
        order.append(grant.task)
        world.start(grant)
        world.finish(grant, **outcome)
        world.pass_time(100)
    return order


@pytest.mark.req("X-14", "R2-35")
def test_a_failed_job_is_undone_in_reverse_order(world: World) -> None:
    job, worker, grant = trip(world, "flight", "hotel", "car")
    world.finish(grant, ended="failure", error_class="PermanentError")
    assert undo_all(world, worker) == ["undo car", "undo hotel", "undo flight"]
    assert world.unit(job).state == "failed"
    assert [note.name for note in world.notes(job, "compensated")] == ["car", "hotel", "flight"]
    told = world.connection.rows("SELECT type FROM job_event WHERE job_id = :job ORDER BY ts, id", {"job": job})
    assert [kind for (kind,) in told].count("job_compensated") == 3


@pytest.mark.parametrize("end", ["cancel", "bury", "exhaust"])
def test_every_end_without_success_is_undone(world: World, end: str) -> None:
    job, worker, grant = trip(world, "flight", attempts=1)
    if end == "cancel":
        world.cancel(job, hard=True)
    elif end == "bury":
        world.pass_time(100)
        world.tick()
    else:
        world.finish(grant, ended="failure")
    assert undo_all(world, worker) == ["undo flight"]


def test_success_is_not_undone(world: World) -> None:
    _, worker, grant = trip(world, "flight")
    world.finish(grant)
    assert undo_all(world, worker) == []


@pytest.mark.req("X-14")
def test_what_a_second_attempt_records_again_is_undone_once(world: World) -> None:
    _, worker, grant = trip(world, "flight", attempts=2)
    world.finish(grant, ended="failure")
    world.pass_time(60)
    (again,) = world.claim(worker)
    world.start(again)
    records(world, again, "flight", "hotel")
    world.finish(again, ended="failure")
    assert undo_all(world, worker) == ["undo hotel", "undo flight"]


@pytest.mark.parametrize("kind", ["TransientError", "PermanentError"])
def test_what_cannot_be_undone_is_a_dead_letter_and_the_rest_goes_on(world: World, kind: str) -> None:
    job, worker, grant = trip(world, "flight", "hotel")
    world.finish(grant, ended="failure", error_class="PermanentError")
    (undo,) = world.claim(worker, limit=9)
    while undo.task == "undo hotel":
        world.start(undo)
        world.finish(undo, ended="failure", error="no room", error_class=kind)
        world.pass_time(100)
        failed = undo.unit
        (undo,) = world.claim(worker, limit=9)
    assert undo.task == "undo flight"
    assert world.unit(failed).state == "dead_lettered"
    letter = msgspec.json.decode(world.events(failed)[-1].payload)
    assert (letter["reason_code"], letter["last_error"]) == ("compensation_failed", "no room")
    assert world.unit(failed).parent == job
    assert world.notes(job, "compensated") == []


@pytest.mark.parametrize("payload", ["1", "{}", '{"task": 1}', '{"task": "a", "more": 1}', "{"])
def test_a_compensation_that_names_no_work_is_refused(world: World, payload: str) -> None:
    _, _, grant = trip(world)
    with pytest.raises(InterlockError, match="a compensation is an object with `task`"):
        world.send(Record(held=(held(grant),), kind="compensation", name="a", payload=payload))


def test_a_job_that_is_cancelled_after_its_worker_was_lost_is_undone_and_plain_no_more(world: World) -> None:
    """Its compensation is a child of it, so that more has to do with it than its own events."""
    job, worker, _ = trip(world, "flight")
    world.pass_time(600)
    world.tick()
    assert world.unit(job).state == "queued"
    world.cancel(job)
    assert world.unit(job).plain == 0
    assert undo_all(world, worker) == ["undo flight"]
