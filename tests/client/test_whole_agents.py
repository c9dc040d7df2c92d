"""Agents whole: one handler that plans, asks, deletes, spawns, is judged and mends; and every edge of document 000."""

import asyncio
from typing import Any

import pytest

import interlock
from interlock.kernel.commands import Claim, Finish, LeaseRef, Outcome, Register
from interlock.store.queries.views import children_of, events_of
from interlock.testing import ScriptedModel, Stage, usage_of
from tests.client.test_validations import decide
from tests.server.test_document_000 import JOB_EXITS, RUN_EXITS

SCRIPT = {"review": "fine", "#17": {"branch": "old"}, "tests fail": "mended"}


def define_fix(stage: Stage, model: ScriptedModel, outside: dict[str, list[str]]) -> Any:
    """An agent that uses what there is, and an outside world that it changes."""
    app = stage.app

    async def llm(prompt: Any) -> Any:
        said = await model(str(prompt))
        return {**said, "call": said["answer"]}

    def search(word: str) -> list[str]:
        return [word]

    def delete_branch(branch: str) -> str:
        outside["deleted"].append(branch)
        return f"{branch} is gone"

    @app.task
    def tests(result: dict[str, Any]) -> None:
        if outside["failures"]:
            raise interlock.Reject(outside["failures"].pop())

    @app.agent(model="m")
    async def reviewer(goal: str, ctx: interlock.AgentContext) -> str:
        return str((await ctx.step("look", lambda: llm(f"review {goal}"), usage=usage_of))["answer"])

    @app.agent(model="m", instructions="Mend it.", tools=[search, delete_branch], version="3",
               budget=interlock.budget(usd=5, soft=4, tokens=400_000, steps=60, active="30m"),
               corrections=2, validation="enforce", checks=[tests])  # fmt: skip
    async def fix(goal: str, ctx: interlock.AgentContext) -> dict[str, Any]:
        plan = await ctx.step("plan", lambda: llm(goal), usage=usage_of)
        call = await ctx.ask("delete?", plan["call"], approvers=["ops"], expires="8h")
        done = await ctx.effect("delete", lambda: delete_branch(**call), of=call)
        review = await ctx.spawn("review", reviewer, goal=goal, budget=interlock.budget(usd=1))
        while findings := await ctx.validate({"done": done}):
            done = await ctx.step(f"mend-{ctx.corrections}", lambda: llm(findings), usage=usage_of, of=findings)
        return {"done": done["answer"], "review": review}

    return fix


def test_one_handler_plans_asks_deletes_spawns_is_judged_mends_and_is_replayed(stage: Stage) -> None:
    model = ScriptedModel(SCRIPT, tokens=100, usd=0.01)
    outside: dict[str, list[str]] = {"deleted": [], "failures": ["3 tests fail"]}
    run = define_fix(stage, model, outside).submit(goal="#17")
    stage.lose_worker(after_step="plan")
    stage.advance("2m")
    stage.drain()
    (question,) = stage.app.inbox()
    with pytest.raises(interlock.InterlockError, match="'joe' has no vote here; these have: ops"):
        question.approve(by="joe")
    question.approve(by="ann", role="ops", arguments={"branch": "older"})
    assert run.wait() == {"done": "mended", "review": "fine"}
    paid = ["#17", "review #17", str([{"check": "tests", "error": "Reject: 3 tests fail"}])]
    assert (model.prompts, outside["deleted"]) == (paid, ["older"])
    assert stage.transitions(run) == [
        "queued", "running", "validating", "running", "correcting", "validating", "running", "complete",
    ]  # fmt: skip
    assert {name: run.spent[name] for name in ("usd", "tokens", "steps")} == {"usd": 0.03, "tokens": 300, "steps": 3}
    assert (run.decision().decision, run.decision().reasons) == ("PASS", [])
    assert stage.replay(run) == run.wait()  # a child in what it returns stands for what it came to, here too
    assert (model.prompts, outside["deleted"]) == (paid, ["older"])


def test_a_handler_that_leaves_the_gate_by_itself_is_not_validated(stage: Stage) -> None:
    @stage.app.agent(model="m")
    async def judge(word: str, ctx: interlock.AgentContext) -> str:
        await ctx.phase("validating")
        await ctx.phase(word)
        return word

    for word in ("optimizing", "running"):
        run = judge.submit(word)
        run.wait()
        assert (run.decision().decision, run.decision().reasons) == ("FAIL", ["RUN_NOT_VALIDATED"]), word
        phases = [entry.name for entry in run.transcript() if entry.what == "moved" and entry.fence == 1]
        assert phases == ["validating", word]


# Every edge.


def test_all_edges_of_the_document_are_taken_through_the_plugin(stage: Stage) -> None:
    app, taken = stage.app, {"agent_run": set[tuple[str, str]](), "agent_job": set[tuple[str, str]]()}
    runs: list[Any] = []

    @app.agent
    async def walk(words: list[str], ctx: interlock.AgentContext) -> list[str]:
        """Enters phases; `wait` waits for a signal, `break` fails, `lose` loses its worker."""
        for place, word in enumerate(words):
            if word == "wait":
                ctx.wait_signal(f"go {place}")
            elif word == "break":
                raise interlock.PermanentError("as told")
            elif word == "lose" and ctx.attempt == 1:
                stage.lose_worker()
            elif word == "judge":
                await ctx.validate(words)
            elif word != "lose":
                await ctx.phase(word)
        await asyncio.sleep(0)
        return words

    def submit(*words: str) -> Any:
        runs.append(walk.submit(list(words)))
        return runs[-1]

    def play(*words: str) -> Any:
        run = submit(*words)
        stage.drain()
        return run

    for phase in ("running", "correcting", "optimizing", "validating"):
        way = () if phase == "running" else (phase,)
        play(*way)  # to complete: from correcting through running
        play(*way, "break")
        play(*way, "wait").cancel()
        for target in RUN_EXITS[phase].split():
            if target in ("running", "correcting", "optimizing", "validating"):
                play(*way, target)
    play("judge").cancel()
    decide(stage, play("judge"), "valid", "ann")
    decide(stage, play("judge"), "invalid", "ann")
    lost = submit("lose")
    stage.drain()
    stage.advance("2m")
    stage.drain()
    assert lost.outcome is not None
    stopped = submit()
    stopped.cancel()
    stopped.resume(by="ann", reason="after all")
    stage.drain()
    failed = play("break")
    failed.resume(by="ann", reason="once more", budget={"steps": 9})
    runs.append(app.agent(name="late", queue_timeout="1m", capabilities=["none"])(lambda: None).submit())
    stage.advance("2m")
    stage.drain()
    for ended in ("success", "failure"):
        finish_unstarted(stage, submit(), ended)
    for run in runs:
        for unit in (run.unit, *(child.unit.id for child in app.read(children_of, run.unit))):
            for event in app.read(events_of, unit):
                if event.source not in (None, event.target):
                    taken[event.lifecycle].add((event.source, event.target))
    for lifecycle, exits, count in (("agent_run", RUN_EXITS, 25), ("agent_job", JOB_EXITS, 7)):
        listed = {(state, target) for state, targets in exits.items() for target in targets.split()}
        assert len(listed) == count
        assert taken[lifecycle] == listed


def finish_unstarted(stage: Stage, run: Any, ended: str) -> None:
    """A worker that speaks for itself ends a job that it has only claimed."""
    tenant, name = stage.app.tenant, f"raw {ended}"
    worker = stage.app.send(
        Register(tenant=tenant, name=name, incarnation="1", capacity=1, capabilities=contracts(stage))
    )
    (grant,) = stage.app.send(Claim(tenant=tenant, worker=worker, key=name, nonce=f"{name:0>16}", limit=1))
    held = LeaseRef(grant.unit, grant.fence, grant.lease)
    outcome = Outcome(held=held, ended=ended, error_class="PermanentError")
    assert stage.app.send(Finish(tenant=tenant, outcomes=(outcome,)))[0].accepted
    assert run.outcome == ended


def contracts(stage: Stage) -> tuple[str, ...]:
    return tuple(f"contract:{task.agent.digest}" for task in stage.app.tasks.values() if task.agent)
