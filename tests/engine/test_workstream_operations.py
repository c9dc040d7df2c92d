"""What operators do to tasks of a workstream: retry, skip, reassign; and what is done again when it has ended."""

import pytest

from interlock.client.why import explain
from interlock.kernel.commands import AddTasks, Decide, Drain, Force, ReassignTask, Rerun, RetryTask, SkipTask, Submit
from interlock.kernel.errors import InterlockError, Refused, Unknown
from tests.engine.streams import do, fail, named, options, states, stream, task
from tests.engine.world import World, held

# Retry.


def failed_docs(world: World) -> tuple[int, int, int]:
    """A workstream whose optional task `docs` has failed, with `site` behind it, while `build` runs; and a worker."""
    ws, *_ = stream(
        world,
        task("docs", "ws", decides=False, priority=9, key="d1"),
        task("build", "ws"),
        task("site", "ws", needs=("docs", "build")),
    )
    worker = world.worker()
    fail(world, worker, "docs")
    assert states(world, ws) == {"docs": "failed", "build": "queued", "site": "pending"}
    return ws, named(world, ws, "docs"), worker


@pytest.mark.req("X-18")
def test_a_failed_task_is_retried_by_a_new_one_in_its_place(world: World) -> None:
    ws, old, worker = failed_docs(world)
    made = world.send(RetryTask(unit=old, actor="ann", reason="paper is there"))
    assert (made.created, made.replaced, named(world, ws, "docs")) == (True, True, made.unit)
    assert (world.body(made.unit).retry_of, world.body(old).replaced_by) == (old, made.unit)
    assert (world.body(made.unit).key, world.body(old).key) == ("d1", None)
    birth = world.events(made.unit)[0]
    assert (birth.actor, birth.reason) == ("ann", "paper is there")
    assert len(world.notes(old, "retried")) == 1
    assert (world.unit(ws).total, world.unit(ws).lost, world.unit(old).state) == (3, 0, "failed")
    do(world, worker, "docs", result='"text"')
    do(world, worker, "build")
    (grant,) = world.claim(worker)
    assert dict(grant.needed)["docs"] == '"text"'
    world.start(grant)
    world.finish(grant)
    assert world.unit(ws).state == "completed"


def test_a_task_may_be_retried_more_than_once_but_not_twice_at_a_time(world: World) -> None:
    ws, first, worker = failed_docs(world)
    second = world.send(RetryTask(unit=first)).unit
    with pytest.raises(InterlockError, match="was retried already: task_"):
        world.send(RetryTask(unit=first))
    with pytest.raises(InterlockError, match="is queued; only a task that failed or was cancelled can be retried"):
        world.send(RetryTask(unit=second))
    world.cancel(second)
    third = world.send(RetryTask(unit=second)).unit
    assert named(world, ws, "docs") == third
    for name in ("docs", "build", "site"):
        do(world, worker, name)
    assert (world.unit(ws).state, world.unit(ws).total) == ("completed", 3)


def test_needs_by_name_lead_to_the_new_task(world: World) -> None:
    ws, old, worker = failed_docs(world)
    made = world.send(RetryTask(unit=old)).unit
    world.send(Submit(work=(task("print", ws, needs=("docs",)),)))
    rows = world.connection.rows("SELECT unit FROM need WHERE needs = :id ORDER BY unit", {"id": made})
    assert [unit for (unit,) in rows] == [named(world, ws, "site"), named(world, ws, "print")]
    for name in ("docs", "build", "site", "print"):
        do(world, worker, name)
    assert world.unit(ws).state == "completed"


def test_a_task_that_needs_a_retried_one_is_retried_behind_it(world: World) -> None:
    ws, old, worker = failed_docs(world)
    world.send(Submit(work=(task("print", ws, needs=("docs",), decides=False),)))
    world.cancel(print_ := named(world, ws, "print"))
    docs = world.send(RetryTask(unit=old)).unit
    again = world.send(RetryTask(unit=print_)).unit
    assert world.connection.rows("SELECT needs FROM need WHERE unit = :id", {"id": again}) == [(docs,)]
    for name in ("docs", "build", "site", "print"):
        do(world, worker, name)
    assert world.unit(ws).state == "completed"


def test_a_critical_task_and_one_of_an_ended_workstream_are_not_retried(world: World) -> None:
    ws, a, _ = stream(world, task("a", "ws"), task("b", "ws"))
    fail(world, world.worker(), "a")
    assert world.unit(ws).state == "failed"
    with pytest.raises(InterlockError, match="is failed: nothing of it is changed any more; rerun it"):
        world.send(RetryTask(unit=a))
    job = world.submit()
    with pytest.raises(InterlockError, match="is no task of a workstream"):
        world.send(RetryTask(unit=job))
    with pytest.raises(Unknown):
        world.send(RetryTask(unit=10**9))


def test_a_critical_task_that_was_cancelled_before_the_plan_is_retried(world: World) -> None:
    (ws,) = stream(world, expects=2)
    (a,) = (made.unit for made in world.send(Submit(work=(task("a", ws),))))
    world.cancel(a)
    world.send(RetryTask(unit=a))
    world.send(Submit(work=(task("b", ws),)))
    worker = world.worker()
    do(world, worker, "a")
    do(world, worker, "b")
    assert world.unit(ws).state == "completed"


# Skip.


@pytest.mark.req("X-18")
def test_a_task_that_has_not_started_is_skipped(world: World) -> None:
    ws, a, b = stream(world, task("a", "ws"), task("b", "ws", needs=("a",)))
    standing = world.send(SkipTask(unit=a, actor="ann", reason="not needed"))
    assert (standing.state, standing.applied) == ("completed", True)
    event = world.events(a)[-1]
    assert (event.name, event.actor, event.reason) == ("task_skipped", "ann", "not needed")
    assert (world.unit(ws).state, world.unit(b).state) == ("executing", "queued")
    do(world, world.worker(), "b")
    assert world.unit(ws).state == "completed"


def test_a_workstream_of_which_all_is_skipped_is_completed(world: World) -> None:
    ws, a = stream(world, task("a", "ws"))
    world.send(SkipTask(unit=a))
    assert world.path(ws) == ["planned", "ready", "executing", "validating", "completed"]


def test_a_blocked_task_is_not_skipped_and_the_refusal_says_what_to_do_first(world: World) -> None:
    ws, _, worker = failed_docs(world)
    site = named(world, ws, "site")
    with pytest.raises(InterlockError, match="waits for 'docs', 'build'; retry or skip that first"):
        world.send(SkipTask(unit=site))
    (grant,) = world.claim(worker)
    with pytest.raises(
        InterlockError,
        match=r"has started \(running\); only a task that has not started can be skipped; cancel it instead",
    ):
        world.send(SkipTask(unit=grant.unit))
    world.start(grant)
    world.finish(grant)
    with pytest.raises(InterlockError, match="is failed: nothing of it"):
        world.send(SkipTask(unit=grant.unit))


def test_a_task_without_a_plan_is_not_skipped(world: World) -> None:
    (ws,) = stream(world, expects=2)
    (a,) = (made.unit for made in world.send(Submit(work=(task("a", ws),))))
    with pytest.raises(InterlockError, match="is planned: it has no plan yet"):
        world.send(SkipTask(unit=a))
    with pytest.raises(Refused):
        world.send(Decide(unit=a, trigger="skip"))


def test_nobody_skips_by_a_verdict(world: World) -> None:
    _, a = stream(world, task("a", "ws"))
    with pytest.raises(InterlockError, match="the command SkipTask does it"):
        world.send(Decide(unit=a, trigger="skip"))


# Reassign.


@pytest.mark.req("X-18")
def test_a_running_task_is_reassigned_without_using_up_an_attempt(world: World) -> None:
    ws, a = stream(world, task("a", "ws", attempts=1))
    (grant,) = world.claim(world.worker("slow"))
    world.start(grant)
    world.send(ReassignTask(unit=a, actor="ann", reason="it hangs"))
    assert (world.unit(a).state, world.unit(a).losses, world.unit(a).failures) == ("queued", 0, 0)
    assert [(event.actor, event.reason) for event in world.events(a)][-2:] == [("ann", "it hangs")] * 2
    assert not world.finish(grant).accepted
    with pytest.raises(InterlockError, match="is queued: nobody holds it"):
        world.send(ReassignTask(unit=a))
    do(world, world.worker("fast"), "a")
    assert world.unit(ws).state == "completed"
    with pytest.raises(InterlockError, match=r"has ended \(completed\)$"):
        world.send(ReassignTask(unit=a))


def test_its_holder_is_told_that_it_was_taken_and_not_that_it_gave_it_back(world: World) -> None:
    _, a = stream(world, task("a", "ws"))
    worker = world.worker("slow")
    (grant,) = world.claim(worker)
    world.start(grant)
    world.send(ReassignTask(unit=a, actor="ann"))
    assert [world.release(grant, actor="slow").why for _ in range(2)] == ["LEASE_REVOKED"] * 2
    (grant,) = world.claim(world.worker("fast"))
    world.start(grant)
    assert [world.release(grant, actor="fast").accepted for _ in range(2)] == [True, True]


def test_a_reassigned_task_goes_to_another_worker_while_there_is_one_that_can_do_it(world: World) -> None:
    ws, a, _ = stream(world, task("a", "ws", priority=9, capabilities=("node",)), task("b", "ws"))
    slow, lame = world.worker("slow", capabilities=("node",)), world.worker("lame")
    (grant,) = world.claim(slow)
    assert (grant.unit, world.claim(lame, limit=1)[0].task) == (a, "b")
    world.send(ReassignTask(unit=a))
    (again,) = world.claim(slow)  # nobody else could
    assert again.unit == a
    fast = world.worker("fast", capabilities=("node",))
    assert world.claim(fast) == []  # it serves the queue from now on
    world.send(ReassignTask(unit=a, reason="its disk is full"))
    world.send(Submit(work=(task("c", ws),)))
    assert [grant.task for grant in world.claim(slow, limit=9)] == ["c"]
    slow = world.worker("slow", incarnation="2", capabilities=("node",))
    assert world.claim(slow) == []
    why = explain(world.connection, 1, world.lifecycles, a)
    assert why.answer.endswith("is ready, and fast has room for it: it is the next of its kind")
    assert why.details == ("fast holds 0 of 100", "slow leaves it to others: it was reassigned")
    (other,) = world.claim(fast)
    world.send(ReassignTask(unit=a))
    (back,) = world.claim(slow)  # it was taken from each of them
    assert (other.unit, back.unit, back.fence) == (a, a, 4)


def test_a_reassigned_task_comes_back_when_the_others_are_gone(world: World) -> None:
    _, a = stream(world, task("a", "ws"))
    slow, fast = world.worker("slow"), world.worker("fast")
    world.claim(slow)
    assert world.claim(fast) == []
    world.send(ReassignTask(unit=a))
    assert world.claim(slow) == []
    world.send(Drain(worker=fast))
    (back,) = world.claim(slow)
    assert world.claim(world.worker("silent")) == []
    world.send(ReassignTask(unit=a))
    assert world.claim(slow) == []
    world.pass_time(61)  # it does not ask for work any more
    assert [grant.unit for grant in world.claim(slow)] == [back.unit]


# Rerun.


def ended_graph(world: World) -> tuple[int, int]:
    """A workstream in which `fetch` and `lint` were completed, `build` has failed and `ship` was cancelled."""
    ws, *_ = stream(
        world,
        task("fetch", "ws", priority=9),
        task("lint", "ws", priority=8, needs=("fetch",)),
        task("build", "ws", priority=7, needs=("fetch",)),
        task("ship", "ws", needs=("lint", "build")),
        at_once=3,
    )
    worker = world.worker()
    do(world, worker, "fetch", result='"tree"')
    do(world, worker, "lint", result='"clean"')
    fail(world, worker, "build")
    assert states(world, ws) == {"fetch": "completed", "lint": "completed", "build": "failed", "ship": "cancelled"}
    return ws, worker


def test_what_failed_is_done_again_and_the_rest_is_taken_over(world: World) -> None:
    old, worker = ended_graph(world)
    made = world.send(Rerun(unit=old, failed=True, actor="ann", reason="paper is there"))
    assert world.body(made.unit).retry_of == old
    assert states(world, made.unit) == {
        "fetch": "completed", "lint": "completed", "build": "queued", "ship": "pending",
    }  # fmt: skip
    lint = named(world, made.unit, "lint")
    assert (world.names(lint)[-1], world.body(lint).retry_of) == ("task_taken_over", named(world, old, "lint"))
    (grant,) = world.claim(worker)
    assert (grant.task, dict(grant.needed)) == ("build", {"fetch": '"tree"'})
    world.start(grant)
    world.finish(grant)
    (grant,) = world.claim(worker)
    assert dict(grant.needed)["lint"] == '"clean"'
    world.start(grant)
    world.finish(grant)
    assert world.unit(made.unit).state == "completed"
    assert world.unit(old).state == "failed"


def test_all_is_done_again_or_what_comes_after_a_task(world: World) -> None:
    old, worker = ended_graph(world)
    whole = world.send(Rerun(unit=old)).unit
    assert set(states(world, whole).values()) == {"queued", "pending"}
    world.cancel(whole)
    by_step = world.send(Rerun(unit=old, step="lint")).unit  # the steps of a workstream are its tasks
    assert states(world, by_step)["fetch"] == "completed"
    world.cancel(by_step)
    part = world.send(Rerun(unit=old, from_task="lint")).unit
    assert states(world, part) == {"fetch": "completed", "lint": "queued", "build": "queued", "ship": "pending"}
    for parts in ({"from_task": "ship"}, {"step": "ship"}):
        with pytest.raises(InterlockError, match="failed and a step or task to begin at are not allowed together"):
            world.send(Rerun(unit=old, failed=True, **parts))
    with pytest.raises(InterlockError, match="step and from_task are not allowed together"):
        world.send(Rerun(unit=old, step="ship", from_task="ship"))
    with pytest.raises(InterlockError, match="there is no task 'x'; there are 'fetch', 'lint', 'build', 'ship'"):
        world.send(Rerun(unit=old, from_task="x"))
    for name in ("lint", "build", "ship"):
        do(world, worker, name)
    assert world.unit(part).state == "completed"
    again = world.send(Rerun(unit=part, failed=True)).unit  # nothing is left to be done
    assert world.unit(again).state == "completed"


def test_a_task_that_was_retried_is_done_again_once(world: World) -> None:
    ws, old, _ = failed_docs(world)
    world.send(RetryTask(unit=old))
    world.cancel(ws)
    again = world.send(Rerun(unit=ws, failed=True)).unit
    assert states(world, again) == {"docs": "queued", "build": "queued", "site": "pending"}
    assert world.unit(again).total == 3


def test_what_is_no_ended_workstream_is_not_done_again_in_parts(world: World) -> None:
    ws, _ = stream(world, task("a", "ws"))
    with pytest.raises(Refused):
        world.send(Rerun(unit=ws, failed=True))
    job = world.submit()
    world.cancel(job)
    for part in (Rerun(unit=job, failed=True), Rerun(unit=job, step="a")):
        with pytest.raises(InterlockError, match="is rerun as a whole: a step, or failed, is for workflow runs and"):
            world.send(part)


def test_what_a_holder_added_is_retried_too(world: World) -> None:
    ws, _ = stream(world, task("a", "ws"))
    worker = world.worker()
    (grant,) = world.claim(worker)
    world.start(grant)
    work = task("b", ws, decides=False, options=options())
    (made,) = world.send(AddTasks(lease=held(grant), work=(work,)))
    fail(world, worker, "b")
    world.send(RetryTask(unit=made.unit))
    world.finish(grant)
    do(world, worker, "b")
    assert world.unit(ws).state == "completed"


def test_a_workstream_that_ended_before_its_tasks_were_there_is_not_rerun(world: World) -> None:
    (ws,) = stream(world, expects=2)
    with pytest.raises(InterlockError):
        world.send(Rerun(unit=ws))
    world.send(Submit(work=(task("a", ws),)))
    world.cancel(ws)
    with pytest.raises(InterlockError, match="ended with 1 of the 2 tasks that it expects; submit it anew"):
        world.send(Rerun(unit=ws))


def test_a_workstream_that_was_forced_to_its_end_is_not_found_by_the_laws(world: World) -> None:
    ws, _ = stream(world, task("a", "ws"))
    world.send(Force(unit=ws, state="completed", reason="shipped by hand"))
    assert world.unit(ws).state == "completed"
