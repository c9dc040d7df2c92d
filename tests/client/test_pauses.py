"""Pauses by a program, beside a database and over HTTP, waiting and awaited."""

import asyncio

import pytest

import interlock
from interlock.client.app import App
from interlock.kernel.errors import InterlockError, Unknown
from interlock.testing import Stage


@pytest.fixture
def app(stage: Stage) -> App:
    stage.app.task(name="mail")(lambda: "sent")
    stage.app.task(name="report")(lambda: "done")
    return stage.app


def test_a_task_is_paused_and_unpaused(app: App, stage: Stage) -> None:
    mail, report = app.tasks["mail"].submit(), app.tasks["report"].submit()
    told = app.pause(task="mail", reason="the provider is down", until="1h", by="local")
    assert (told.kind, told.name, told.paused, told.changed) == ("task", "mail", True, True)
    assert report.wait(60) == "done"
    assert mail.look().outcome is None
    assert "is paused by " in app.why(mail.id)
    (pause,) = app.pauses()
    assert (pause.kind, pause.name, pause.reason) == ("task", "mail", "the provider is down")
    assert app.unpause(task="mail").changed
    assert mail.wait(60) == "sent"
    assert app.pauses() == []
    assert len(app.pauses(ended=True)) == 1


def test_a_job_is_paused_by_itself_and_awaited(app: App, stage: Stage) -> None:
    async def play() -> None:
        job = await app.tasks["mail"].submit.aio()
        assert (await job.pause.aio(reason="not yet")).changed
        assert (await app.pause.aio(queue="other", reason="x")).name == "other"
        assert (await app.unpause.aio(queue="other")).changed
        assert (await job.unpause.aio()).changed
        assert await job.wait.aio(60) == "sent"

    asyncio.run(play())


def test_a_run_is_paused(app: App, stage: Stage) -> None:
    run = app.workflow("both", [app.tasks["mail"], app.tasks["report"]]).submit()
    assert run.pause(until="1h").paused
    assert app.run(run.unit).look().outcome is None
    assert "is paused by " in app.why(run.id)
    assert run.unpause().changed
    assert run.wait(60) == {"mail": "sent", "report": "done"}


def test_what_depends_on_something_that_is_away_waits_and_comes_back(app: App, stage: Stage) -> None:
    away = [True]

    def charge() -> str:
        if away:
            raise interlock.Outage("stripe", "503", retry_after="1m")
        return "paid"

    charges = app.task(name="charge", depends="stripe")(charge)
    jobs = [charges.submit() for _ in range(4)]
    assert app.tasks["mail"].submit().wait(1) == "sent"
    assert all("waits for 'stripe', which is away" in app.why(job.unit) for job in jobs)
    assert all(job.look().outcome is None for job in jobs)
    assert [pause.name for pause in app.pauses()] == ["stripe"]
    away.clear()
    assert [job.wait("1h") for job in jobs] == ["paid"] * 4
    with pytest.raises(interlock.InterlockError, match="depends = 5 is not allowed; allowed is a name or a list"):
        app.task(name="odd", depends=5)(charge)


def test_a_wrong_pause_is_refused(app: App) -> None:
    with pytest.raises(InterlockError, match="name one thing to pause"):
        app.pause()
    with pytest.raises(InterlockError, match="until = 'soon' is not allowed"):
        app.pause(queue="a", until="soon")
    with pytest.raises(Unknown):
        app.job(987_654).pause()
    assert app.pauses(ended=True) == []
