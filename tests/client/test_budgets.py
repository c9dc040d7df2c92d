"""Budgets as a program uses them: what a run has used, what is left, and what happens at a cap."""

from typing import Any

import pytest

import interlock
from interlock import InterlockError
from interlock.testing import Stage


class Costly(OSError):
    """A call that failed, and cost something."""

    def __init__(self) -> None:
        super().__init__("the network is away")
        self.usage = {"tokens": 50}


def test_a_run_ends_at_its_cap_and_goes_on_from_there_when_it_is_raised(stage: Stage) -> None:
    app, calls, left = stage.app, list[str](), list[Any]()

    async def model(prompt: str) -> dict[str, Any]:
        calls.append(prompt)
        if calls.count(prompt) == 1 and prompt == "shaky":
            raise Costly
        return {"text": prompt, "tokens": 300}

    def usage_of(answer: dict[str, Any]) -> dict[str, float]:
        return {"tokens": answer["tokens"], "usd": answer["tokens"] / 1e6}

    @app.agent(budget=interlock.budget(usd=5, tokens=1_000, steps=60, active="30m"))
    async def fix(ctx: interlock.AgentContext) -> dict[str, float]:
        for prompt in ("one", "shaky", "three", "four"):
            left.append(ctx.left("tokens"))
            await ctx.step(prompt, lambda prompt=prompt: model(prompt), usage=usage_of, retry=2)
        return ctx.spent

    run = fix.submit()
    with pytest.raises(interlock.Failed, match=r"BUDGET_EXHAUSTED tokens 1,250 of 1,000"):
        run.wait()
    assert calls == ["one", "shaky", "shaky", "three", "four"]
    assert left == [1_000, 700, 350, 50]
    assert (run.spent["tokens"], run.spent["usd"], run.spent["steps"]) == (1_250, 0.0012, 4)
    assert (run.left("tokens"), run.left("steps"), run.left("pages")) == (0, 56, None)
    for budget, why in (
        ({"tokens": 1_200}, "the budget tokens = 1,200 is not allowed; 1,250 are used already"),
        ({"tokens": float("nan")}, "tokens = nan is not allowed"),
        ({"tokens": {"most": 3}}, "budget: .*most"),
        (7, "budget = 7 is not allowed"),
    ):
        with pytest.raises(InterlockError, match=why):
            run.resume(by="ann", reason="raised", budget=budget)  # type: ignore[arg-type]
    assert run.state == "failed"
    run.resume(by="ann", reason="raised", budget=interlock.budget(tokens=2_000))
    assert run.wait()["tokens"] == 1_250
    assert calls == ["one", "shaky", "shaky", "three", "four"]


def test_a_soft_cap_is_a_question_and_nobody_works_meanwhile(stage: Stage) -> None:
    app, calls = stage.app, list[int]()

    @app.agent(budget=interlock.budget(usd=5, soft=4))
    async def spend(ctx: interlock.AgentContext) -> int:
        for n in range(4):
            await ctx.step(f"s{n}", lambda n=n: calls.append(n) or n, usage={"usd": 1.5})
        return len(calls)

    def reach_the_cap(**options: Any) -> interlock.AgentRun:
        calls.clear()
        run = spend.submit(**options)
        stage.drain()
        assert (calls, run.state) == ([0, 1, 2], "running")
        return run

    run = reach_the_cap()
    (question,) = app.inbox()
    assert question.task == "budget usd 4"
    question.approve(by="ann", arguments={"hard": 10})
    assert (run.wait(), run.left("usd")) == (4, 4.0)
    run = reach_the_cap()
    app.inbox()[0].reject(by="ann", comment="enough")
    with pytest.raises(interlock.Failed, match=r"BUDGET_EXHAUSTED usd 4\.5 of 4"):
        run.wait()
    run = reach_the_cap(budget=interlock.budget(usd=9, soft={"usd": 4.4}))
    assert app.inbox()[0].task == "budget usd 4.4"


def test_budgets_that_cannot_be_are_refused(stage: Stage) -> None:
    for terms, why in (
        ({"usd": -1}, "usd = -1 is not allowed"),
        ({"usd": True}, "usd = True is not allowed"),
        ({"usd": 1, "soft": 2}, "soft = 2 is not allowed; allowed is at most hard = 1"),
        ({"tokens": 1.5}, "without a fraction"),
        ({"active": "soon"}, "active"),
        ({"a b": 1}, "usage called 'a b' is not allowed"),
    ):
        with pytest.raises(InterlockError, match=why):
            interlock.budget(**terms)  # type: ignore[arg-type]

    @stage.app.agent
    def work(ctx: interlock.AgentContext) -> None:
        ctx.step("a", lambda: 1, usage={"tokens": -1})

    with pytest.raises(InterlockError, match=r"budget = 3 is not allowed; allowed is interlock\.budget"):
        work.submit(budget=3)
    with pytest.raises(interlock.Failed, match="usage of 'a': tokens = -1 is not allowed"):
        work.submit().wait()
