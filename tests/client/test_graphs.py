"""Graphs as a program writes them: jobs after jobs, children by name, and what a job gets from those that it needs."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import interlock
from interlock import InterlockError
from interlock.client.app import App
from interlock.kernel.commands import Submit, Work
from interlock.kernel.errors import Unknown
from interlock.testing import Stage


class Site:
    """Tasks of a small site, and an empty run for their steps."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.app = stage, stage.app

        @self.app.task
        def fetch(page: str) -> dict[str, Any]:
            if page == "missing":
                raise interlock.Reject("no such page")
            return {"page": page}

        @self.app.task
        def join(ctx: interlock.Context) -> list[str]:
            return sorted(output["page"] for output in ctx.outputs.values())

        @self.app.task
        def title(home: dict[str, Any], loud: bool = False) -> str:
            return str(home["page"]).upper() if loud else str(home["page"])

        self.fetch, self.join, self.title = fetch, join, title

    def run(self, lifecycle: str = "workflow_run") -> interlock.Run:
        (made,) = self.app.send(Submit(work=(Work(task="site", lifecycle=lifecycle),)))
        return self.app.run(made.unit)


@pytest.fixture
def site(stage: Stage) -> Site:
    return Site(stage)


def test_a_job_comes_after_others_and_gets_their_results(site: Site) -> None:
    pages = [site.fetch.submit(page) for page in ("b", "a")]
    joined = site.join.submit(after=pages)
    assert joined.wait("1m") == ["a", "b"]
    by_id = site.join.submit(after=[pages[0].id, pages[1].unit])
    assert by_id.wait("1m") == ["a", "b"]


def test_a_need_that_is_lost_cancels_and_an_end_is_enough(site: Site) -> None:
    lost = site.fetch.submit("missing")
    stopped, tidied = site.join.submit(after=[lost]), site.join.submit(after_end=[lost])
    assert tidied.wait("1m") == []
    assert stopped.state == "cancelled"
    assert f"it needs {lost.id}, which is" in site.app.why(stopped.id)


@pytest.mark.parametrize("wrong", ["job_1", 7, [None], [1.5]])
def test_after_takes_a_list_of_jobs_or_ids(site: Site, wrong: Any) -> None:
    with pytest.raises(InterlockError, match="allowed is a list of jobs or of their ids"):
        site.join.submit(after=wrong)
    with pytest.raises(InterlockError, match="is no id"):
        site.join.submit(after=["not an id"])
    with pytest.raises(Unknown, match="no such job, run or step"):
        site.join.submit(after_end=[999_999])


def test_children_are_added_once_and_found_by_name(site: Site, lawful: Callable[[App], None]) -> None:
    run = site.run()
    last = run.add(site.join, "last", needs=["a", "b"])
    assert (last.created, run.add(site.join, "last", needs=["a", "b"]).created) == (True, False)
    children = [interlock.child(site.fetch, name, {"page": name}) for name in ("a", "b")]
    assert [job.created for job in run.add_many(children)] == [True, True]
    assert [job.created for job in run.add_many(children)] == [False, False]
    assert run.step("last").unit == last.unit
    assert run.wait("1m") == {"a": {"page": "a"}, "b": {"page": "b"}, "last": ["a", "b"]}
    with pytest.raises(Unknown, match="has no child 'c'; it has "):
        run.step("c")
    lawful(site.app)


def test_the_same_can_be_awaited(site: Site) -> None:
    run = site.run()

    async def add() -> list[int]:
        first = await run.add.aio(site.fetch, "a", {"page": "a"})
        others = await run.add_many.aio([interlock.child(site.join, "last", needs=["a"])])
        return [first.unit, *(job.unit for job in others), (await run.step.aio("last")).unit]

    first, last, again = asyncio.run(add())
    assert last == again != first


def test_a_child_gets_its_needs_as_arguments_and_by_name(site: Site) -> None:
    run = site.run("workstream")
    run.add(site.fetch, "home", {"page": "index"})
    title = run.add(site.title, "title", {"loud": True}, needs=["home"])
    assert title.id.startswith("task_")
    with pytest.raises(InterlockError, match="there is no argument 'quiet'; it takes home"):
        run.add(site.title, "other", {"quiet": True}, needs=["home"])
    with pytest.raises(InterlockError, match="argument 'home' is missing"):
        run.add(site.title, "other", {"loud": True})


def test_the_rest_of_the_outputs_is_read_when_asked_for(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    from interlock.plugins.graphs import outputs  # noqa: PLC0415

    monkeypatch.setattr(outputs, "OUTPUTS_MAX", 1)
    pages = [site.fetch.submit(page) for page in ("a", "b")]

    @site.app.task
    def read(ctx: interlock.Context) -> list[Any]:
        return [len(ctx.outputs), *(ctx.output(page.id)["page"] for page in pages)]

    @site.app.task
    async def read_async(ctx: interlock.Context) -> list[Any]:
        return [len(ctx.outputs), *[(await ctx.output.aio(page.id))["page"] for page in pages]]

    assert read.submit(after=pages).wait("1m") == [1, "a", "b"]
    assert read_async.submit(after=pages).wait("1m") == [1, "a", "b"]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "needs": ({"needs": "a"}, "needs = 'a' is not allowed; allowed is a list of names"),
    "no names": ({"needs": [3]}, r"needs = \[3\] is not allowed; allowed is a list of names"),
    "name": ({"name": 3}, "name = 3 is not allowed; allowed is text"),
    "empty name": ({"name": ""}, "1 to 200 characters"),
    "option": ({"colour": "red"}, "add has no option 'colour'"),
    "tx": ({"tx": 1}, "add has no option 'tx'"),
    "task": ({"task": 7}, "7 is no task; allowed is a task, or the name of one"),
    "after": ({"after": "job_1"}, "allowed is a list of jobs or of their ids"),
    "circle": ({"name": "x", "needs": ["x"]}, "a circle of needs: x needs x;"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_is_refused_and_adds_nothing(site: Site, wrong: str) -> None:
    given, text = WRONG[wrong]
    run = site.run()
    with pytest.raises(InterlockError, match=text):
        run.add(**{"task": "any", "name": "x", **given})
    assert run.steps == {}


def test_a_run_that_has_ended_gets_no_more_children(site: Site) -> None:
    run = site.run()
    run.cancel()
    with pytest.raises(InterlockError, match="has ended"):
        run.add(site.join, "late")
