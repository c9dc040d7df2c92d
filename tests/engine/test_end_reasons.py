"""What the record says of how a unit ended: who asked it to stop, which step failed a run, and no old error."""

import json
from typing import Any

import pytest

from interlock.client.why import Why, explain
from interlock.kernel.commands import Cancel, Finish, Outcome, PauseWork, Submit, Work
from interlock.store.queries.views import notes_of, read_summary
from tests.engine.test_ci_plans import fail, make_job, plan, start, submit_run
from tests.engine.test_families import workflow, workstream
from tests.engine.world import SECOND, World, held
from tests.store.databases import declare


def why(world: World, unit: int) -> Why:
    declare(world.connection, 1)
    return explain(world.connection, 1, world.lifecycles, unit)


def asked(world: World, unit: int) -> Any:
    """What the last event of a unit says of who asked for it."""
    return json.loads(world.events(unit)[-1].payload).get("asked")


def begun(world: World, **work: Any) -> tuple[int, Any]:
    job = world.submit(**work)
    (grant,) = world.claim(world.worker())
    world.start(grant)
    return job, grant


def test_a_handler_that_stops_names_who_asked_it_to(world: World) -> None:
    job, grant = begun(world)
    world.send(Cancel(unit=job, actor="ann", reason="too expensive"))
    at = world.now_us
    world.pass_time(1)
    assert world.finish(grant, ended="cancelled").accepted
    assert asked(world, job) == {"by": "ann", "reason": "too expensive", "at": at}
    told = why(world, job)
    assert "ann" in told.text
    assert "too expensive" in told.text
    assert world.finish(grant, ended="cancelled").accepted, "said again, it is known again"


def test_a_cancel_and_a_stop_in_one_transaction_name_who_asked(world: World) -> None:
    job, grant = begun(world)
    committer = world.engine.committer
    futures = [
        committer.put(Cancel(unit=job, actor="ann", reason="too late")),
        committer.put(Finish(outcomes=(Outcome(held=held(grant), ended="cancelled"),))),
    ]
    committer.step()
    assert all(future.result() for future in futures)
    assert asked(world, job)["by"] == "ann"


def test_a_cancel_that_is_forced_names_who_asked(world: World) -> None:
    job, _ = begun(world)
    world.send(Cancel(unit=job, actor="ann", reason="too slow"))
    until = world.unit(job).asked_by
    assert until
    world.pass_time((until - world.now_us) / SECOND)
    world.tick()
    last = world.events(job)[-1]
    assert (last.actor, asked(world, job)["by"], asked(world, job)["reason"]) == ("clock", "ann", "too slow")


def test_a_cancel_at_once_is_its_askers_own_event(world: World) -> None:
    job = world.submit()
    world.send(Cancel(unit=job, actor="ann", reason="a mistake"))
    last = world.events(job)[-1]
    assert (last.actor, last.reason, asked(world, job)) == ("ann", "a mistake", None)


def test_one_who_asks_again_in_vain_is_not_named(world: World) -> None:
    job, grant = begun(world)
    world.send(Cancel(unit=job, actor="ann", reason="first"))
    assert not world.send(Cancel(unit=job, actor="bob", reason="second")).applied
    world.finish(grant, ended="cancelled")
    assert asked(world, job)["by"] == "ann"


def test_the_children_of_a_run_name_who_cancelled_it(world: World) -> None:
    run, *steps = workflow(world, "one", "two")
    world.send(Cancel(unit=run, actor="ann", reason="not today"))
    for unit in steps:
        assert asked(world, unit)["by"] == "ann", world.events(unit)
        assert asked(world, unit)["reason"] == "not today"


@pytest.mark.parametrize("deep", [False, True])
def test_why_of_a_failed_run_names_the_step_and_its_error(world: World, deep: bool) -> None:
    run = failed_run(world, deep)
    told = why(world, run)
    assert told.state == "FAILED"
    assert "step 'charge'" in told.answer
    assert "CardError: no funds" in told.answer
    assert told.traceback == "Traceback: in charge"
    assert "Traceback: in charge" in told.text


def failed_run(world: World, deep: bool) -> int:
    """A run whose second step has failed, perhaps below a run of its own, and whose third was stopped by that."""
    above = (Work(task="above", lifecycle="workflow_run", ref="above"),) if deep else ()
    of = "above" if deep else None
    work = (
        *above,
        Work(task="pay", lifecycle="workflow_run", ref="run", parent=of),
        Work(task="book", lifecycle="step", parent="run", ref="book", step="book"),
        Work(task="charge", lifecycle="step", parent="run", ref="charge", step="charge", attempts=1),
        Work(task="tell", lifecycle="step", parent="run", needs=("charge",), step="tell"),
    )
    made = world.send(Submit(work=work))
    worker = world.worker()
    for grant in world.claim(worker, 2):
        world.start(grant)
        if grant.task == "book":
            world.finish(grant)
        else:
            world.finish(
                grant, ended="failure", error="CardError: no funds", error_class="PermanentError",
                traceback="Traceback: in charge",
            )  # fmt: skip
    return made[0].unit


@pytest.mark.parametrize("decides", [True, False])
def test_a_child_that_decides_is_named_before_others(world: World, decides: bool) -> None:
    """The first child that fails is not critical; the second one ends the run, critical or because it is the last."""
    run, extra, core = workstream(world, ("extra", False, ()), ("core", decides, ()))
    worker = world.worker()
    for child in (extra, core):
        (grant,) = world.claim(worker)
        assert grant.unit == child
        world.start(grant)
        world.finish(grant, ended="failure", error=f"{grant.task} broke", error_class="PermanentError")
        world.pass_time(1)
    assert world.unit(run).outcome == "failure"
    named = "core" if decides else "extra"
    assert f": task '{named}': " in why(world, run).answer
    assert f"{named} broke" in why(world, run).answer


def test_what_ended_a_run_is_called_what_it_is(world: World) -> None:
    worker = world.worker(capacity=9)
    agent = (Work(task="w", lifecycle="agent_run", ref="r"), Work(task="w", lifecycle="agent_job", parent="r"))
    job = world.send(Submit(work=agent))
    (grant,) = world.claim(worker)
    world.start(grant)
    world.finish(grant, ended="failure", error="lost the thread", error_class="PermanentError")
    assert f": agent job 'w': agent_job_{job[1].unit} failed at " in why(world, job[0].unit).answer
    run = submit_run(world)
    plan(world, run, make_job("lint", attempts=1))
    fail(world, start(world, worker), exit_code=1)
    assert ": CI job 'lint': ci_job_" in why(world, run).answer


def test_why_of_a_paused_run_calls_what_goes_on_by_its_name(world: World) -> None:
    """A workstream has tasks, a workflow has steps; and one of them is one."""
    runs = [(workstream(world, ("a", True, ()), ("b", True, ())), "tasks"), (workflow(world, "x", "y"), "steps")]
    worker = world.worker()
    for (run, *_), kind in runs:
        grants = world.claim(worker, 2)
        for grant in grants:
            world.start(grant)
        world.send(PauseWork(unit=run))
        count = len(grants)
        goes_on = f"{count} of its {kind} {'have begun, and go on' if count > 1 else 'has begun, and goes on'}"
        assert goes_on in why(world, run).details


def test_a_job_that_has_succeeded_has_no_old_error(world: World) -> None:
    job, grant = begun(world, backoff_us=SECOND)
    world.finish(grant, ended="failure", error="ValueError: once", traceback="Traceback: once")
    declare(world.connection, 1)
    assert read_summary(world.connection, 1, job).error == "ValueError: once"
    assert why(world, job).traceback == "Traceback: once"
    world.pass_time(3_600)
    (again,) = world.claim(world.worker())
    world.start(again)
    world.finish(again)
    declare(world.connection, 1)
    assert read_summary(world.connection, 1, job).error is None
    told = why(world, job)
    assert told.traceback is None
    assert any("ValueError: once" in event.payload for event in world.events(job)), "its history still has it"
    assert [note.name for note in notes_of(world.connection, 1, job) if note.kind == "traceback"] == ["1"]


def test_a_report_that_comes_twice_keeps_one_traceback(world: World) -> None:
    job, grant = begun(world)
    for _ in range(2):
        assert world.finish(grant, ended="failure", error="no", traceback="Traceback: no").accepted
    declare(world.connection, 1)
    assert [note.kind for note in notes_of(world.connection, 1, job)] == ["traceback"]


def test_a_damaged_note_keeps_nothing_from_being_cancelled(world: World) -> None:
    job, grant = begun(world)
    world.send(Cancel(unit=job, actor="ann"))
    declare(world.connection, 1)
    world.connection.rows("UPDATE note SET payload = 'no' WHERE unit = :unit RETURNING id", {"unit": job})
    assert world.finish(grant, ended="cancelled").accepted
    assert asked(world, job) is None
