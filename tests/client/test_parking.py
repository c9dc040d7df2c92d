"""Handlers that wait: for signals, for a time, for children of their own and for people, with nobody at work."""

import asyncio
from typing import Any

import pytest

import interlock
from interlock import InterlockError
from interlock.store.queries.views import children_of, view
from interlock.testing import Stage


def unit_of(stage: Stage, job: interlock.Job) -> Any:
    return stage.app.read(view, job.unit).unit


def begin(stage: Stage, task: interlock.Task[..., Any], *, of_a_run: bool, **arguments: Any) -> interlock.Job:
    """A job of this task, or a run of which it is the only step, that has come as far as it could."""
    made = stage.app.workflow("flow", steps=[task]) if of_a_run else task
    job: interlock.Job = made.submit(**arguments)
    stage.drain()
    return job


def result_of(job: interlock.Job, task: interlock.Task[..., Any]) -> Any:
    result = job.wait()
    return result[task.name] if isinstance(result, dict) and task.name in result else result


def is_parked(stage: Stage, job: interlock.Job) -> bool:
    """Whether the job, or the only step of the run, waits without a lease."""
    unit = unit_of(stage, job)
    below = [] if unit.lifecycle == "job" else stage.app.read(children_of, job.unit)
    parked = below[0].unit if below else unit
    return parked.parked_on is not None and parked.holder is None and parked.available_at is None


@pytest.mark.parametrize("of_a_run", [True, False])
def test_a_child_is_made_once_and_waited_for(stage: Stage, of_a_run: bool) -> None:
    did = []

    @stage.app.task
    def double(n: int) -> int:
        did.append(n)
        return 2 * n

    @stage.app.task
    def parent(ctx: interlock.Context) -> list[int]:
        children = [ctx.spawn(f"double {n}", double, n=n) for n in (1, 2, 3)]
        return [child.wait() for child in children]

    job = begin(stage, parent, of_a_run=of_a_run)
    assert result_of(job, parent) == [2, 4, 6]
    assert sorted(did) == [1, 2, 3]


def test_a_parent_is_parked_until_its_child_has_ended(stage: Stage) -> None:
    @stage.app.task(queue="slow")
    def child() -> str:
        return "done"

    @stage.app.task(queue_timeout="1h")
    def parent(ctx: interlock.Context) -> Any:
        return ctx.spawn(child, delay="3h").wait()

    job = begin(stage, parent, of_a_run=False)
    assert is_parked(stage, job)
    assert "waits until its child 'child' has ended" in stage.app.why(job.unit)
    stage.advance("2h")  # its own clock stands still meanwhile
    assert is_parked(stage, job)
    stage.advance("1h")
    assert job.wait() == "done"
    row = unit_of(stage, job)
    assert (row.failures, row.losses, row.snoozes) == (0, 0, 0)


def test_a_child_that_fails_is_told_to_its_parent(stage: Stage) -> None:
    @stage.app.task(attempts=1)
    def child() -> None:
        raise interlock.Reject("no")

    @stage.app.task
    def parent(ctx: interlock.Context) -> str:
        try:
            ctx.spawn(child).wait()
        except interlock.Failed as failed:
            return f"{failed.state}: {failed.error}"
        return "?"

    assert parent.submit().wait() == "failed: Reject: no"


def test_a_parent_gives_up_a_child_that_takes_too_long(stage: Stage) -> None:
    @stage.app.task
    def child() -> None: ...

    @stage.app.task
    def parent(ctx: interlock.Context) -> str:
        try:
            ctx.spawn(child, delay="9h").wait(timeout="1h")
        except interlock.StillWaiting as late:
            return str(late)
        return "?"

    job = begin(stage, parent, of_a_run=False)
    stage.advance("1h")
    assert job.wait() == "the child 'child' has not ended in time"
    (below,) = stage.app.read(children_of, job.unit)
    assert below.unit.outcome == "cancelled"  # it is stopped with its parent


def test_a_lost_worker_makes_no_child_twice(stage: Stage) -> None:
    did = []

    @stage.app.task
    def child() -> None:
        did.append("child")

    @stage.app.task
    def parent(ctx: interlock.Context) -> str:
        ctx.spawn(child)
        ctx.step("between", lambda: None)
        ctx.spawn(child).wait()
        return "done"

    job = parent.submit()
    stage.lose_worker(after_step="between")
    stage.advance("5m")
    assert job.wait() == "done"
    assert did == ["child"]


def test_one_name_means_one_child(stage: Stage) -> None:
    @stage.app.task
    def child(n: int) -> None: ...

    @stage.app.task
    def parent(ctx: interlock.Context) -> None:
        ctx.spawn(child, n=1)
        ctx.spawn(child, n=2)

    job = parent.submit()
    with pytest.raises(interlock.Failed, match="the child 'child' was made for task 'child' with other arguments"):
        job.wait()


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda ctx, task: ctx.spawn(3), r"ctx.spawn\(3, …\) is not allowed; allowed is ctx.spawn\(task, …\)"),
        (lambda ctx, task: ctx.spawn("name"), "allowed is"),
        (lambda ctx, task: ctx.spawn(task, m=1), "'m'"),
        (lambda ctx, task: ctx.spawn(task, n=1, key="k"), "ctx.spawn has no option 'key'"),
        (lambda ctx, task: ctx.spawn("x" * 300, task, n=1), "allowed are 1 to 194 characters"),
        (lambda ctx, task: ctx.sleep("nap", "soon"), "soon"),
        (lambda ctx, task: ctx.ask("?", quorum=0), "quorum = 0 is not allowed"),
        (lambda ctx, task: ctx.wait_any(*map(str, range(30))), "the number of signals = 30 is not allowed"),
    ],
)
def test_what_is_wrong_is_refused_and_says_what_is_allowed(stage: Stage, call: Any, text: str) -> None:
    @stage.app.task
    def child(n: int) -> None: ...

    @stage.app.task(attempts=1)
    def parent(ctx: interlock.Context) -> None:
        call(ctx, child)

    job = parent.submit()
    with pytest.raises(interlock.Failed, match=text):
        job.wait()
    assert stage.app.read(children_of, job.unit) == []


def test_a_workflow_is_a_child(stage: Stage) -> None:
    @stage.app.task
    def build(version: str) -> str:
        return f"app:{version}"

    release = stage.app.workflow("release", steps=[build])

    @stage.app.task
    async def parent(ctx: interlock.Context) -> Any:
        child = await ctx.spawn.aio("first", release, version="1")
        return child.wait()

    assert parent.submit().wait() is None  # a run has no result of its own
    assert [run.state for run in stage.app.jobs(lifecycle="workflow_run")] == ["SUCCEEDED"]


@pytest.mark.parametrize("of_a_run", [True, False])
def test_a_handler_sleeps_without_a_worker(stage: Stage, of_a_run: bool) -> None:
    did = []

    @stage.app.task
    def nap(ctx: interlock.Context) -> str:
        did.append(ctx.fence)
        ctx.sleep("first", "1h")
        ctx.sleep("second", "1h")
        return "awake"

    job = begin(stage, nap, of_a_run=of_a_run)
    assert is_parked(stage, job)
    stage.advance("59m")
    assert stage.drain() == 0
    stage.advance("1m")
    assert stage.drain() == 1
    assert is_parked(stage, job)
    stage.advance("1h")
    assert result_of(job, nap) == "awake"
    assert len(did) == 3


@pytest.mark.parametrize("of_a_run", [True, False])
def test_the_first_of_several_signals_wakes(stage: Stage, of_a_run: bool) -> None:
    @stage.app.task
    def order(ctx: interlock.Context) -> Any:
        return ctx.wait_any("paid", "declined", timeout="1d")

    job = begin(stage, order, of_a_run=of_a_run)
    assert "waits for the signal 'paid' or 'declined'" in stage.app.why(job.unit) or of_a_run
    assert job.signal("other").applied
    assert is_parked(stage, job)
    assert job.signal("declined", 7).applied
    assert result_of(job, order) == ["declined", 7]


def test_none_of_several_signals_comes(stage: Stage) -> None:
    @stage.app.task
    def order(ctx: interlock.Context) -> Any:
        return ctx.wait_any("paid", "declined", timeout="1h")

    job = begin(stage, order, of_a_run=False)
    stage.advance("1h")
    with pytest.raises(interlock.Failed, match="'paid' or 'declined' has not come in time"):
        job.wait()


def test_nobody_sends_what_the_engine_says(stage: Stage) -> None:
    @stage.app.task
    def order() -> None: ...

    for name in ("child:x", "sleep:x"):
        with pytest.raises(InterlockError, match="begin names of the engine"):
            order.submit().signal(name)


# People.


def asking(stage: Stage, **terms: Any) -> interlock.Task[..., Any]:
    @stage.app.task
    def clean(ctx: interlock.Context) -> Any:
        try:
            return ctx.ask("delete?", {"branch": "old"}, **terms)
        except interlock.Rejected as rejected:
            return [rejected.by, rejected.comment]
        except interlock.NoAnswer as late:
            return str(late)

    return clean


@pytest.mark.parametrize("of_a_run", [True, False])
def test_a_handler_asks_people_and_nobody_works_meanwhile(stage: Stage, of_a_run: bool) -> None:
    clean = asking(stage, approvers=["ops"])
    job = begin(stage, clean, of_a_run=of_a_run)
    assert is_parked(stage, job)
    (item,) = stage.app.inbox(role="ops")
    assert (item.task, item.input, item.words) == ("delete?", {"branch": "old"}, ("approve", "reject"))
    with pytest.raises(InterlockError, match="NOT_AN_APPROVER"):
        item.approve(by="eve")
    item.approve(by="ann", role="ops")
    assert result_of(job, clean) == {"branch": "old"}
    assert stage.app.inbox() == []


def test_what_is_asked_may_be_approved_with_other_arguments(stage: Stage) -> None:
    clean = asking(stage)
    job = begin(stage, clean, of_a_run=False)
    stage.app.inbox.approve(job.unit, by="ann", arguments={"branch": "older"})
    assert job.wait() == {"branch": "older"}


def test_a_quorum_approves_one_thing(stage: Stage) -> None:
    clean = asking(stage, quorum=2)
    job = begin(stage, clean, of_a_run=False)
    stage.app.inbox.approve(job.unit, by="ann", arguments=None)
    for other in ({"arguments": 3}, {}):
        with pytest.raises(InterlockError, match="OTHER_ARGUMENTS: others have approved null"):
            stage.app.inbox.approve(job.unit, by="bob", **other)
    stage.app.inbox.approve(job.unit, by="bob", arguments=None)
    assert job.wait() is None


def test_a_rejection_is_for_the_handler_to_answer(stage: Stage) -> None:
    clean = asking(stage)
    job = begin(stage, clean, of_a_run=False)
    stage.app.inbox.reject(job.unit, by="ann", comment="not today")
    assert job.wait() == ["ann", "not today"]


def test_a_question_expires(stage: Stage) -> None:
    clean = asking(stage, expires="8h")
    job = begin(stage, clean, of_a_run=False)
    stage.advance("8h")
    assert job.wait() == "'delete?' was not decided in time"


def test_whoever_submitted_a_run_does_not_answer_its_step(stage: Stage) -> None:
    flow = stage.app.workflow("flow", steps=[asking(stage, not_submitter=True)])
    run = flow.submit(by="ann")
    stage.drain()
    with pytest.raises(InterlockError, match="'ann' submitted this"):
        stage.app.inbox.approve(run.unit, by="ann")
    stage.app.inbox.approve(run.unit, by="bob")
    assert run.wait() == {"clean": {"branch": "old"}}


@pytest.mark.parametrize("is_async", [True, False])
def test_several_questions_are_asked_at_once(stage: Stage, is_async: bool) -> None:
    questions = {f"delete {n}?": n for n in range(3)}

    @stage.app.task(name="clean")
    def clean(ctx: interlock.Context) -> Any:
        return ctx.ask.all(questions, approvers=["ops"])

    @stage.app.task(name="clean later")
    async def clean_later(ctx: interlock.Context) -> Any:
        return await ctx.ask.all_aio(questions, approvers=["ops"])

    job = begin(stage, clean_later if is_async else clean, of_a_run=False)
    items = stage.app.inbox()
    assert [item.task for item in items] == list(questions)
    for item in reversed(items):
        asyncio.run(item.approve.aio(by="ann", role="ops", arguments=item.input + 10))
    assert job.wait() == {"delete 0?": 10, "delete 1?": 11, "delete 2?": 12}


def test_a_job_that_is_cancelled_takes_its_questions_along(stage: Stage) -> None:
    job = begin(stage, asking(stage), of_a_run=False)
    job.cancel()
    assert stage.app.inbox() == []
