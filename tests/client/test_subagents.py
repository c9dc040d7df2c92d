"""Agents that spawn agents: child runs with contracts and budgets of their own, and the whole example of the issue."""

import asyncio
from typing import Any

import pytest

import interlock
from interlock import InterlockError
from interlock.testing import Stage

PROMPT = "mend it"


def usage_of(answer: dict[str, Any]) -> dict[str, float]:
    return {"tokens": 10, "usd": 0.5}


def search(query: str) -> list[str]:
    """Searches."""
    return [query]


def test_the_example_runs_as_it_is_written(stage: Stage) -> None:
    app, paid, deleted, verdicts = stage.app, list[str](), list[str](), ["still red", ""]

    async def llm(prompt: Any) -> dict[str, Any]:
        await asyncio.sleep(0)
        paid.append(str(prompt))
        return {"call": {"branch": "old"}}

    def delete_branch(branch: str) -> str:
        deleted.append(branch)
        return f"{branch} is gone"

    @app.task
    def tests(result: dict[str, Any]) -> None:
        if error := verdicts.pop(0):
            raise interlock.Reject(error)

    @app.agent(version="1")
    async def reviewer(goal: str, ctx: interlock.AgentContext) -> str:
        await ctx.step("read", lambda: llm(f"review {goal}"), usage=usage_of)
        return "looks good"

    @app.agent(model="m", instructions=PROMPT, tools=[search, delete_branch], version="3",
               budget=interlock.budget(usd=5, soft=4, tokens=400_000, steps=60, active="30m"),
               corrections=2, validation="enforce", checks=[tests])  # fmt: skip
    async def fix(goal: str, ctx: interlock.AgentContext) -> dict[str, Any]:
        plan = await ctx.step("plan", lambda: llm(goal), usage=usage_of)
        call = await ctx.ask("delete?", plan["call"], approvers=["ops"], expires="8h")
        done = await ctx.effect("delete", lambda: delete_branch(**call), of=call)
        review = await ctx.spawn("review", reviewer, goal=goal, budget=interlock.budget(usd=1))
        while findings := await ctx.validate({"done": done}):
            done = await ctx.step(f"mend-{ctx.corrections}", lambda f=findings: llm(f), usage=usage_of, of=findings)
        return {"done": done, "review": review}

    run = fix.submit(goal="green")
    stage.drain()
    (question,) = app.inbox()
    question.approve(by="ann", role="ops", arguments={"branch": "older"})
    assert run.wait() == {"done": {"call": {"branch": "old"}}, "review": "looks good"}
    assert (deleted, sorted(paid)[:2]) == (["older"], ["[{'check': 'tests', 'error': 'Reject: still red'}]", "green"])
    assert (len(paid), run.spent["usd"], run.spent["tokens"], run.spent["steps"]) == (3, 1.5, 30, 3)
    assert stage.transitions(run)[-3:] == ["validating", "running", "complete"]


def define_family(stage: Stage, calls: list[str]) -> tuple[Any, Any]:
    @stage.app.agent(budget=interlock.budget(tokens=100))
    def helper(goal: str, ctx: interlock.AgentContext) -> str:
        ctx.step("look", lambda: calls.append(goal), usage={"tokens": 40})
        if goal == "dear":
            ctx.step("more", lambda: calls.append("more"), usage={"tokens": 90})
        if goal == "wait":
            ctx.wait_signal("go")
        if goal == "fail":
            raise interlock.PermanentError("helpless")
        return f"{goal} done"

    @stage.app.agent(budget=interlock.budget(tokens=1_000))
    async def lead(goals: list[str], ctx: interlock.AgentContext) -> Any:
        children = await asyncio.gather(*(ctx.spawn(goal, helper, goal=goal) for goal in goals))
        ended = []
        for child in children:
            try:
                ended.append(child.wait())
            except interlock.Failed as failed:
                ended.append(str(failed))
        return ended

    return lead, helper


def test_costs_go_up_and_a_child_over_its_budget_fails_alone(stage: Stage) -> None:
    calls = list[str]()
    lead, _ = define_family(stage, calls)
    run = lead.submit(["one", "dear", "fail"])
    one, dear, fail = run.wait()
    assert (one, "BUDGET_EXHAUSTED tokens 130 of 100" in dear, "helpless" in fail) == ("one done", True, True)
    assert (run.spent["tokens"], run.spent["steps"], run.state) == (210, 4, "complete")


def test_a_cancel_goes_down_and_a_resume_pays_nothing_again(stage: Stage) -> None:
    calls = list[str]()
    lead, _ = define_family(stage, calls)
    run = lead.submit(["one", "wait"])
    stage.drain()
    assert sorted(calls) == ["one", "wait"]
    run.cancel()
    below = [each.state for each in find_runs(stage) if each.unit != run.unit]
    assert sorted(below) == ["cancelled", "complete"]
    assert stage.drain() == 0
    run.resume(by="ann", reason="it was a mistake")
    stage.drain()
    (open_run,) = [
        each for each in find_runs(stage) if each.state not in ("complete", "cancelled") and each.unit != run.unit
    ]
    open_run.signal("go")
    assert run.wait() == ["one done", "wait done"]
    assert sorted(calls) == ["one", "wait"]
    assert run.spent["tokens"] == 80


def find_runs(stage: Stage) -> list[Any]:
    ids = [event.unit for event in stage.app.events() if event.name.startswith("agent_run")]
    return [stage.app.run(each) for each in dict.fromkeys(ids)]


def test_a_child_that_is_spawned_again_is_the_same_and_one_of_another_agent_is_refused(stage: Stage) -> None:
    calls = list[str]()
    _, helper = define_family(stage, calls)

    @stage.app.agent
    def twice(ctx: interlock.AgentContext) -> Any:
        first, again = (ctx.spawn("one", helper, "x") for _ in range(2))
        return [first, again]

    assert twice.submit().wait() == ["x done", "x done"]

    @stage.app.agent
    def other(ctx: interlock.AgentContext) -> Any:
        ctx.spawn("one", helper, "x")
        ctx.spawn("one", helper, "y")

    with pytest.raises(interlock.Failed, match="was made for task 'helper' with other arguments; take another name"):
        other.submit().wait()

    @stage.app.agent
    def keyed(ctx: interlock.AgentContext) -> Any:
        ctx.spawn("one", helper, "x", key="k")

    with pytest.raises(interlock.Failed, match=r"ctx\.spawn has no option 'key'"):
        keyed.submit().wait()
    assert isinstance(helper("local", FakeContext()), str)
    assert issubclass(InterlockError, Exception)


class FakeContext:
    def step(self, name: str, fn: Any, **more: Any) -> Any:
        return fn()


def test_agents_are_at_most_five_runs_deep_and_one_run_spawns_at_most_a_hundred(stage: Stage) -> None:
    @stage.app.agent
    def deep(level: int, ctx: interlock.AgentContext) -> Any:
        return level if level == 0 else ctx.spawn("next", deep, level - 1).wait()

    assert deep.submit(4).wait() == 0
    run = deep.submit(5)
    with pytest.raises(interlock.Failed, match="is 5 runs deep, and cannot spawn an agent"):
        run.wait()

    @stage.app.agent
    def leaf(n: int) -> int:
        return n

    @stage.app.agent
    def wide(count: int, ctx: interlock.AgentContext) -> int:
        children = [ctx.spawn(f"leaf-{n}", leaf, n) for n in range(count)]
        return sum(child.wait() for child in children)

    with pytest.raises(interlock.Failed, match="has spawned 100 agents, and at most 100 are allowed"):
        wide.submit(101).wait()
