"""Whether a program understands what waits: lifecycles, and what is no problem."""

from typing import Any

import pytest

import interlock
from interlock.client.deploy import check_deploy
from interlock.kernel.commands import Submit, Work
from interlock.plugins.tasks.queries import read_edges


@pytest.fixture
def app() -> Any:
    with interlock.open("sqlite://:memory:") as app:

        @app.task
        async def known(n: int = 1) -> None: ...

        yield app


def read_without(app: interlock.App, lifecycle: str, trigger: str) -> Any:
    """What the database would say if it did not know a transition."""

    def read(query: Any, *args: Any) -> Any:
        rows = app.read(query, *args)
        return (
            [row for row in rows if row.lifecycle != lifecycle or row.trigger != trigger]
            if query is read_edges
            else rows
        )

    return read


def test_a_lifecycle_that_differs_is_a_problem_while_work_of_it_is_open(app: interlock.App) -> None:
    read = read_without(app, "job", "bury")
    assert check_deploy(app, read).ok
    job = app.tasks["known"].submit()
    (problem,) = check_deploy(app, read).problems
    assert (problem.kind, problem.name, problem.waiting) == ("lifecycle_differs", "job", 1)
    assert "by bury" in problem.text
    assert check_deploy(app).ok
    job.cancel()
    assert check_deploy(app, read).ok


def test_a_step_that_waits_takes_what_it_names(app: interlock.App) -> None:
    """Its input is the whole input of its run."""
    app.workflow("flow", steps=["known"])
    run = Work(task="flow", lifecycle="workflow_run", ref="r")
    step = Work(task="known", lifecycle="step", parent="r", input='{"n": 1, "other": 2}')
    app.send(Submit(work=(run, step)))
    report = check_deploy(app)
    assert (report.ok, report.waiting, report.running) == (True, 1, 0)


def test_jobs_without_arguments_are_understood(app: interlock.App) -> None:
    app.send(Submit(work=(Work(task="known"), Work(task="known", input="{}"))))
    assert check_deploy(app).ok


def test_what_has_ended_does_not_matter(app: interlock.App) -> None:
    (made,) = app.send(Submit(work=(Work(task="strange"),)))
    assert not check_deploy(app).ok
    app.job(made.unit).cancel()
    assert check_deploy(app).ok
