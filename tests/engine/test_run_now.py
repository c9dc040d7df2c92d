"""An operator ends the wait of a job for its time: a delay, a backoff, a snooze; nothing else."""

import msgspec
import pytest

from interlock.kernel.commands import Decide, Release, RunNow, Signal, Submit, Work
from interlock.kernel.errors import NotWanted, Unknown
from tests.engine.test_operators import WORKSTREAM
from tests.engine.world import World, held

HOUR_US = 3_600_000_000


def test_a_delay_a_backoff_and_a_snooze_are_ended_and_a_note_says_by_whom(world: World) -> None:
    job, worker = world.submit(delay_us=HOUR_US, backoff_us=HOUR_US), world.worker()
    due_at = world.unit(job).due_at
    assert world.claim(worker) == []
    answer = world.send(RunNow(unit=job, actor="ann", reason="it is urgent"))
    assert (answer.applied, answer.state, answer.version) == (True, "queued", world.unit(job).version)
    assert world.send(RunNow(unit=job, actor="bob")).applied is False
    (note,) = world.notes(job, "run_now")
    assert msgspec.json.decode(note.payload) == {"by": "ann", "reason": "it is urgent", "due_at": due_at}

    (grant,) = world.claim(worker)
    assert world.send(RunNow(unit=job)).applied is False  # a second click came late
    world.start(grant)
    world.finish(grant, ended="failure", error="no route")
    assert (world.unit(job).state, world.claim(worker)) == ("queued", [])
    assert world.send(RunNow(unit=job, actor="ann", vouched_by="ci")).applied
    assert msgspec.json.decode(world.notes(job, "run_now")[-1].payload)["by"] == "ann (vouched for by ci)"

    (grant,) = world.claim(worker)
    world.start(grant)
    world.send(Release(held=(held(grant),), snooze_us=HOUR_US))
    assert world.send(RunNow(unit=job)).applied
    (grant,) = world.claim(worker)
    assert grant.attempt == 3
    world.start(grant)
    world.finish(grant)
    with pytest.raises(NotWanted, match="is succeeded and does not wait for its time; allowed for what is delayed"):
        world.send(RunNow(unit=job))
    assert len(world.notes(job, "run_now")) == 3


def test_the_wait_of_a_task_ends_by_its_listed_move(world: World) -> None:
    stream, task = (made.unit for made in world.send(Submit(work=WORKSTREAM)))
    world.send(Decide(unit=stream, trigger="plan"))
    worker = world.worker()
    (grant,) = world.claim(worker)
    world.start(grant)
    world.finish(grant, ended="failure", error="no route")
    assert world.unit(task).state == "retrying"
    assert world.send(RunNow(unit=task, actor="ann", reason="now")).state == "queued"
    last = world.events(task)[-1]
    assert (last.trigger, last.actor, last.reason) == ("due", "ann", "now")
    assert [grant.unit for grant in world.claim(worker)] == [task]


def test_what_waits_for_something_else_is_refused_and_stays_as_it_is(world: World) -> None:
    first, second = world.send(Submit(work=(Work(task="a", ref="a", queue="none"), Work(task="b", needs=("a",)))))
    job, worker = world.submit(), world.worker()
    (grant,) = world.claim(worker)
    world.start(grant)
    world.send(Release(held=(held(grant),), signal="paid", snooze_us=HOUR_US))
    stopped, running = world.submit(delay_us=HOUR_US), world.submit()
    world.cancel(stopped)
    world.claim(worker)
    before = {unit: world.unit(unit) for unit in (first.unit, second.unit, job, stopped, running, worker)}
    assert before[running].state == "assigned"
    for unit in before:
        with pytest.raises(NotWanted, match="does not wait for its time"):
            world.send(RunNow(unit=unit))
    with pytest.raises(Unknown):
        world.send(RunNow(unit=2**40))
    assert {unit: world.unit(unit) for unit in before} == before
    world.send(Signal(unit=job, name="paid"))
    assert [grant.unit for grant in world.claim(worker)] == [job]

    late = world.send(Submit(work=(Work(task="c", ref="c"), Work(task="d", needs=("c",), delay_us=HOUR_US))))[1].unit
    assert world.send(RunNow(unit=late)).applied
    assert late not in [grant.unit for grant in world.claim(worker, 10)]  # what it needs has not ended
