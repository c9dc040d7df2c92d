"""`ctx.tool`: tools of the contract are called once, as steps or effects, and after people have approved them."""

import asyncio
from typing import Any

import pytest

import interlock
from interlock.testing import Stage


def search(query: str, limit: int = 10) -> list[str]:
    """Searches."""
    return [query] * limit


async def fetch(page: str) -> str:
    """Fetches a page."""
    await asyncio.sleep(0)
    return f"text of {page}"


class Library:
    """Tools of libraries have a name, and their function with them."""

    name, function = "look", staticmethod(lambda place: f"looked at {place}")


class Deletions:
    """A tool that cannot be taken back, which fails so often, and whose worker is lost in its call."""

    def __init__(self, stage: Stage, failures: int = 0) -> None:
        self.stage, self.failures = stage, failures
        self.calls = list[str]()

    def __call__(self, branch: str) -> str:
        self.calls.append(branch)
        if len(self.calls) <= self.failures:
            raise OSError("the connection is gone")
        return f"{branch} is gone"


def define_delete(deletions: Deletions, **terms: Any) -> Any:
    def delete(branch: str) -> str:
        return deletions(branch)

    return interlock.tool(delete, **terms)


def test_tools_are_called_once_by_their_number_or_the_id_of_the_call(stage: Stage) -> None:
    calls, resumed = list[str](), list[str]()

    def count(word: str) -> int:
        calls.append(word)
        return len(word)

    @stage.app.agent(tools=[count, fetch, Library()])
    async def read(ctx: interlock.AgentContext) -> list[Any]:
        several = await asyncio.gather(*(ctx.tool("count", word=word) for word in ("a", "bb")))
        found = [*several, await ctx.tool("fetch", "call_7", page="p"), await ctx.tool("look", place="x")]
        if not resumed:
            raise OSError
        return found

    run = read.submit()
    with pytest.raises(interlock.Failed):
        run.wait()
    resumed.append("now")
    run.resume(by="ann", reason="again")
    assert run.wait() == [1, 2, "text of p", "looked at x"]
    assert calls == ["a", "bb"]
    assert list(run.steps) == ["count 1", "count 2", "fetch call_7", "look 1"]
    assert (stage.replay(run), calls) == ([1, 2, "text of p", "looked at x"], ["a", "bb"])


@pytest.mark.parametrize(
    ("name", "call", "arguments", "why"),
    [
        ("rm", "", {}, "the tool 'rm' is not in the contract of agent 'wrong'; allowed are 'search'"),
        ("raw", "", {}, "the contract only describes the tool 'raw'; those that can be called are 'search'"),
        ("search", "", {"limt": 1}, "the tool 'search' cannot be called so: .*; it takes query, limit"),
        ("search", "", {}, "missing a required argument: 'query'; it takes query, limit"),
        ("search", "a", {"query": "x"}, "the call 'a' of the tool 'search' is there twice; give each call its own id"),
        ("search", "", {"query": object()}, "'search 1' is asked .* cannot be kept as JSON"),
    ],
)
def test_what_the_contract_does_not_have_is_refused_with_what_is_allowed(
    stage: Stage, name: str, call: str, arguments: dict[str, Any], why: str
) -> None:
    @stage.app.agent(tools=[search, {"name": "raw", "input_schema": {}}], name="wrong")
    def wrong(ctx: interlock.AgentContext) -> None:
        ctx.tool("search", "a", query="x")
        ctx.tool(name, call, **arguments)

    run = wrong.submit()
    with pytest.raises(interlock.Failed, match=why):
        run.wait()
    assert list(run.steps) == ["search a"]


def test_who_has_no_tools_is_told_so(stage: Stage) -> None:
    @stage.app.agent
    def bare(ctx: interlock.AgentContext) -> None:
        ctx.tool("search", query="x")

    with pytest.raises(interlock.Failed, match="is not in the contract of agent 'bare'; allowed are none"):
        bare.submit().wait()

    def plain(ctx: interlock.AgentContext) -> None:
        ctx.tool("search", query="x")

    with pytest.raises(interlock.Failed, match=r"ctx\.tool calls tools of an agent, and this is no job of one"):
        stage.app.task(plain).submit().wait()


def test_a_call_waits_for_those_who_approve_it_and_takes_what_they_approved(stage: Stage) -> None:
    deletions = Deletions(stage)
    delete = define_delete(deletions, approvers=["ops"], expires="8h")

    @stage.app.agent(tools=[delete])
    async def tidy(branches: list[str], ctx: interlock.AgentContext) -> list[str]:
        ended = []
        for branch in branches:
            try:
                ended.append(await ctx.tool("delete", branch=branch))
            except interlock.Rejected as rejected:
                ended.append(str(rejected))
        return ended

    run = tidy.submit(["old", "main"])
    stage.drain()
    (question,) = stage.app.inbox()
    assert (question.task, deletions.calls) == ("delete 1?", [])
    with pytest.raises(interlock.InterlockError, match="ops"):
        question.approve(by="bob", role="dev")
    question.approve(by="ann", role="ops", arguments={"branch": "older"})
    stage.drain()
    (question,) = stage.app.inbox()
    question.reject(by="ann", role="ops", comment="never")
    gone, kept = run.wait()
    assert (gone, deletions.calls) == ("older is gone", ["older"])
    assert kept.startswith("'delete 2?'")
    assert "never" in kept
    assert (stage.replay(run), deletions.calls) == ([gone, kept], ["older"])


def test_arguments_that_were_approved_and_do_not_fit_call_nothing(stage: Stage) -> None:
    deletions = Deletions(stage)
    delete = define_delete(deletions, approvers=["ops"])

    @stage.app.agent(tools=[delete])
    def tidy(ctx: interlock.AgentContext) -> Any:
        return ctx.tool("delete", branch="old")

    for arguments, why in (({"tree": "x"}, "it takes branch"), (["x"], "allowed is an object by name")):
        run = tidy.submit()
        stage.drain()
        stage.app.inbox()[0].approve(by="ann", role="ops", arguments=arguments)
        with pytest.raises(interlock.Failed, match=why):
            run.wait()
    assert deletions.calls == []


def test_an_approval_is_for_the_arguments_that_were_asked_about(stage: Stage) -> None:
    deletions, asked = Deletions(stage), ["old"]
    delete = define_delete(deletions, approvers=["ops"])

    @stage.app.agent(tools=[delete])
    def tidy(ctx: interlock.AgentContext) -> Any:
        return ctx.tool("delete", branch=asked[0])

    run = tidy.submit()
    stage.drain()
    asked[0] = "main"  # as if another program came, under the same contract
    stage.app.inbox()[0].approve(by="ann", role="ops")
    stage.drain()
    (question,) = stage.app.inbox()
    assert (question.task, deletions.calls) == ("delete 1?", [])
    question.approve(by="ann", role="ops")
    assert (run.wait(), deletions.calls) == ("main is gone", ["main"])


def test_a_tool_that_changes_something_is_never_called_again_in_silence(stage: Stage) -> None:
    deletions, looks = Deletions(stage, failures=1), list[str]()

    def look(branch: str) -> str | None:
        looks.append(branch)
        return f"{branch} was gone"

    delete = define_delete(deletions, effect=True, check=look)

    @stage.app.agent(tools=[delete])
    def tidy(ctx: interlock.AgentContext) -> Any:
        return ctx.tool("delete", branch="old")

    assert tidy.contract.tools[0].approval is None
    run = tidy.submit()
    with pytest.raises(interlock.Failed, match="the connection is gone"):
        run.wait()
    run.resume(by="ann", reason="again")
    assert run.wait() == "old was gone"
    assert (deletions.calls, looks, run.steps) == (["old"], ["old"], {})


def test_a_tool_with_a_check_that_cannot_be_is_refused() -> None:
    for wrong in ({"check": search}, {"check": 3, "effect": True}):
        with pytest.raises(interlock.InterlockError, match="allowed is a function, with effect=True"):
            interlock.tool(search, **wrong)  # type: ignore[arg-type]
