"""What a handler submits belongs to what the handler was called for: correlation, trace and cause go on."""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.client.app import App
from interlock.kernel.commands import Submit, Work
from interlock.kernel.errors import InterlockError
from interlock.kernel.rows import Body
from interlock.lifecycles import shipped
from interlock.plugins import open_engine
from interlock.store.queries.views import events_of, view
from interlock.testing import Stage
from tests.worker.stage import opened, until, working

OUTSIDE = {"correlation": "order-7", "trace": "00-abc-def-01"}


def body(job: interlock.Job) -> Body:
    return job.app.read(view, job.unit).body


def grant_of(job: interlock.Job, attempt: int = 1) -> str:
    """The event by which a job was handed to the worker that ran this attempt of it."""
    granted = [one for one in job.app.read(events_of, job.unit) if one.trigger == "claim" and one.attempt == attempt]
    return f"{job.id}:{granted[-1].version}"


def first_cause(job: interlock.Job) -> str | None:
    return job.app.read(events_of, job.unit)[0].cause


def assert_made_by(parent: interlock.Job, ids: list[str], **expected: str) -> None:
    """Every job of these has what it should have of its maker."""
    assert ids
    for one in map(parent.app.job, ids):
        assert {name: getattr(body(one), name) for name in expected} == expected
        assert {event.correlation for event in parent.app.read(events_of, one.unit)} == {expected["correlation"]}
        assert first_cause(one) == grant_of(parent)


def define(app: App) -> dict[str, Any]:
    """Handlers that submit, each in its own way."""

    @app.task
    def child(n: int, ctx: interlock.Context) -> list[str]:
        return [ctx.correlation, ctx.trace]

    flow = app.workflow("flow", steps=["child"])

    @app.task
    def plain(ctx: interlock.Context) -> list[str]:
        made = [child.submit(n=1), *child.submit_many([{"n": 2}, {"n": 3}]), flow.submit(n=4)]
        assert [ctx.correlation, ctx.trace] == list(OUTSIDE.values())
        return [job.id for job in made]

    @app.task
    async def awaits() -> list[str]:
        made = [await child.submit.aio(n=1), await asyncio.to_thread(child.submit, n=2)]
        made += await asyncio.gather(child.submit.aio(n=3), child.submit.aio(n=4))
        return [job.id for job in made]

    @app.task
    def threaded() -> list[str]:
        made: list[str] = []
        context = contextvars.copy_context()
        thread = threading.Thread(target=context.run, args=(lambda: made.append(child.submit(n=1).id),))
        thread.start()
        thread.join()
        return made

    @app.task
    def says(ctx: interlock.Context) -> list[str]:
        return [child.submit(n=1, correlation="mine", trace="t").id]

    return {name: app.tasks[name] for name in ("plain", "awaits", "threaded", "says", "child")}


@pytest.mark.parametrize("name", ["plain", "awaits", "threaded"])
def test_what_a_handler_submits_inherits_and_names_its_cause(url: str, name: str) -> None:
    async def story() -> None:
        with opened(url) as app:
            tasks = define(app)
            async with working(app):
                parent = await tasks[name].submit.aio(**OUTSIDE)
                ids = await parent.wait.aio(60)
                assert_made_by(parent, ids, **OUTSIDE)
                jobs = [app.job(one) for one in ids]
                await until(lambda: {job.state for job in jobs} <= {"succeeded", "SUCCEEDED"})
            child = next(job for job in jobs if job.id.startswith("job"))
            assert child.wait() == list(OUTSIDE.values())
            # Outside of a handler nothing is inherited, also where one has run before.
            alone = tasks["child"].submit(n=1)
            assert (body(alone).correlation, body(alone).trace) == (str(alone.unit), "")
            assert grant_of(parent).partition(":")[0] not in (first_cause(alone) or "")

    asyncio.run(story())


def test_what_a_submit_says_itself_counts(url: str) -> None:
    async def story() -> None:
        with opened(url) as app:
            tasks = define(app)
            async with working(app):
                parent = await tasks["says"].submit.aio(**OUTSIDE)
                assert_made_by(parent, await parent.wait.aio(60), correlation="mine", trace="t")

    asyncio.run(story())


def test_jobs_that_run_beside_each_other_are_not_taken_for_one(url: str) -> None:
    async def story() -> None:
        with opened(url) as app:
            tasks = define(app)
            async with working(app, 20):
                for name in ("awaits", "threaded"):
                    parents = [await tasks[name].submit.aio(correlation=f"{name}{n}") for n in range(8)]
                    for n, parent in enumerate(parents):
                        assert_made_by(parent, await parent.wait.aio(60), correlation=f"{name}{n}")

    asyncio.run(story())


def test_a_handler_on_the_stage_too(interlock_app: Callable[[], Stage]) -> None:
    stage = interlock_app()
    tasks = define(stage.app)
    for name in ("plain", "awaits", "threaded"):
        parent = tasks[name].submit(**OUTSIDE)
        stage.drain()
        assert_made_by(parent, parent.wait(), **OUTSIDE)
    alone = tasks["child"].submit(n=1)
    assert (body(alone).correlation, first_cause(alone)) == (str(alone.unit), None)


def test_another_app_gets_the_correlation_but_no_cause(interlock_app: Callable[[], Stage]) -> None:
    """An event of one database means nothing in another."""
    here, there = interlock_app(), interlock_app()
    there.app.task(name="far")(lambda: None)

    @here.app.task
    def near() -> str:
        return there.app.tasks["far"].submit().id

    parent = near.submit(**OUTSIDE)
    here.drain()
    made = there.app.job(parent.wait())
    assert (body(made).correlation, first_cause(made)) == ("order-7", None)


@pytest.mark.parametrize("cause", ["job_4r1", "job_4r1:", ":3", "x" * 300 + ":1", "job_\0:1", "job_4r1:-1"])
def test_a_cause_that_is_no_event_is_refused(tmp_path: Path, cause: str) -> None:
    with open_engine(f"sqlite:///{tmp_path}/work.db", shipped()) as engine:
        with pytest.raises(InterlockError, match=r"an event, as in job_4r1:3"):
            engine.send(Submit(work=(Work(task="mail"), Work(task="mail", cause=cause))))
        assert engine.read(lambda connection: connection.rows("SELECT count(*) FROM unit")) == [(0,)]
