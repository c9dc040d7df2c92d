"""Agents as a program uses them: runs that wait, fail and are resumed, and pay for nothing twice."""

import asyncio
from typing import Any

import pytest

import interlock
from interlock import InterlockError
from interlock.testing import Stage


def test_a_run_pays_for_nothing_twice_however_often_it_is_called_lost_and_resumed(stage: Stage) -> None:
    app, calls, fences, broken = stage.app, list[str](), list[int](), [True]

    async def model(prompt: str) -> dict[str, str]:
        await asyncio.sleep(0)
        calls.append(prompt)
        return {"text": prompt.upper()}

    @app.agent(corrections=1, optimizations=0)
    async def fix(goal: str, ctx: interlock.AgentContext) -> dict[str, Any]:
        fences.append(ctx.fence)
        plan = await ctx.step("plan", lambda: model(goal))
        await ctx.phase("correcting")
        await asyncio.gather(*(ctx.step(f"tool-{n}", lambda n=n: model(f"tool {n}")) for n in range(2)))
        await ctx.phase("run")
        what = await ctx.ask.aio("delete?", {"branch": "old"})
        charged = await ctx.effect.aio("charge", lambda: model("charge"))
        if broken:
            raise interlock.PermanentError("the disk is full")
        with pytest.raises(interlock.PermanentError, match="has used 0 of its 0 optimizations"):
            await ctx.phase("optimizing")
        with pytest.raises(interlock.PermanentError, match="'resting' is no phase; allowed are running"):
            await ctx.phase("resting")
        return {"plan": plan["text"], "what": what, "charged": charged["text"]}

    run = fix.submit("mend", key="monday", labels={"team": "a"})
    again = fix.submit("mend", key="monday")
    assert (run.unit, run.created, again.created) == (again.unit, True, False)
    stage.lose_worker(after_step="plan")
    stage.advance("2m")
    stage.drain()
    assert (run.state, app.why(run.id).count("agent_job")) == ("running", 1)
    with pytest.raises(InterlockError, match="no 'resume' from 'running'"):
        run.resume(by="ann", reason="impatience")
    (question,) = app.inbox()
    question.approve(by="bob", arguments={"branch": "older"})
    with pytest.raises(interlock.Failed, match="the disk is full"):
        run.wait()
    paid = ["mend", "tool 0", "tool 1", "charge"]
    assert (run.state, sorted(calls), list(run.steps)) == ("failed", sorted(paid), ["plan", "tool-0", "tool-1"])
    for by, reason, missing in (("", "why", "a name"), ("ann", " ", "a reason")):
        with pytest.raises(InterlockError, match=f"{missing} is missing"):
            run.resume(by=by or "local", reason=reason)
    broken.clear()
    assert run.resume(by="ann", reason="it has room again").state == "queued"
    found = app.run(run.id)
    assert isinstance(found, interlock.AgentRun)
    assert found.wait() == {"plan": "MEND", "what": {"branch": "older"}, "charged": "CHARGE"}
    assert (sorted(calls), app.inbox()) == (sorted(paid), [])
    assert fences == sorted(set(fences))  # each grant has a higher one, over both jobs
    assert found.steps["plan"] == {"text": "MEND"}
    phases = ["queued", "running", "correcting", "running", "failed", "queued", "running", "complete"]
    assert stage.transitions(run) == phases


def test_a_plain_agent_and_a_signal_to_its_run(stage: Stage) -> None:
    app = stage.app

    @app.agent
    def watch(ctx: interlock.AgentContext) -> list[Any]:
        ctx.phase("optimizing")
        first = ctx.step("look", lambda: 1)
        return [first, ctx.wait_signal("go")]

    run = watch.submit()
    stage.drain()
    assert run.state == "optimizing"
    run.signal("go", 7)
    assert run.wait() == [1, 7]
    job = app.task(name="plain")(enter_a_phase).submit()
    with pytest.raises(interlock.Failed, match="is no job of an agent run, and has no phases"):
        job.wait()


def enter_a_phase(ctx: interlock.AgentContext) -> None:
    ctx.phase("run")


def test_agents_that_cannot_be_are_refused(stage: Stage) -> None:
    app = stage.app

    def work(ctx: interlock.AgentContext) -> None:
        """Does nothing."""

    for rules, why in (
        ({"corrections": -1}, "agent 'work': corrections = -1 is not allowed; allowed is 0 to 1000"),
        ({"optimizations": 1_001}, "optimizations = 1001 is not allowed"),
        ({"budget": 3}, "there is no rule 'budget'"),
    ):
        with pytest.raises(InterlockError, match=why):
            app.agent(**rules)(work)
    agent = app.agent(work)  # nothing is left of those that were refused
    with pytest.raises(InterlockError, match="already"):
        app.agent(work)
    with pytest.raises(InterlockError, match="on_duplicate = 'replace' is not allowed for an agent"):
        agent.submit(key="k", on_duplicate="replace")
    with pytest.raises(InterlockError):
        agent.submit(goal="unknown")
    assert agent(None) is None
