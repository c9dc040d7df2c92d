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
        ({"budget": 3}, "budget = 3 is not allowed; allowed is interlock.budget"),
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


def test_questions_that_wait_side_by_side_are_all_asked_and_none_is_answered_for_another(stage: Stage) -> None:
    app, calls = stage.app, list[str]()

    @app.agent
    async def clean(ctx: interlock.AgentContext) -> list[Any]:
        async def delete(branch: str) -> Any:
            what = await ctx.ask(f"delete {branch}?", {"branch": branch}, approvers=["ops"])
            return await ctx.effect(f"delete {branch}", lambda: calls.append(branch) or what["branch"], of=what)

        async def look() -> str:
            await asyncio.sleep(0)
            first = await ctx.step("look", lambda: calls.append("look") or "seen")
            return await ctx.step("look again", lambda: calls.append("look again") or first)

        return await asyncio.gather(delete("a"), delete("b"), look())

    run = clean.submit()
    stage.drain()
    assert calls == ["look", "look again"]  # what else was under way came to its end
    one, two = app.inbox()
    assert (one.task, two.task) == ("delete a?", "delete b?")
    two.approve(by="ann", role="ops", arguments={"branch": "b2"})
    stage.drain()
    assert (run.state, calls) == ("running", ["look", "look again", "b"])
    one.approve(by="ann", role="ops")
    assert run.wait() == ["a", "b2", "seen"]
    assert calls == ["look", "look again", "b", "a"]


def test_a_rejected_question_is_an_exception(stage: Stage) -> None:
    @stage.app.agent
    async def clean(ctx: interlock.AgentContext) -> str:
        try:
            await ctx.ask("delete?", {}, expires="1h")
        except interlock.Rejected as rejected:
            return f"{rejected.by} says no: {rejected.comment}"
        except interlock.NoAnswer:
            return "nobody says anything"
        return "yes"

    rejected, expired = clean.submit(), clean.submit()
    stage.drain()
    stage.app.inbox()[0].reject(by="ann", comment="not on a Friday")
    assert rejected.wait() == "ann says no: not on a Friday"
    stage.advance("2h")
    assert expired.wait() == "nobody says anything"


def test_children_are_awaited_in_async_handlers(stage: Stage) -> None:
    app = stage.app

    @app.task
    def double(n: int) -> int:
        return 2 * n

    @app.agent
    async def sum_up(ctx: interlock.AgentContext) -> int:
        children = [await ctx.spawn(f"double {n}", double, n=n) for n in range(3)]
        answers = await ctx.ask.all({"sum?": 1, "really?": 2})
        return sum(child.wait() for child in children) + sum(answers.values())

    run = sum_up.submit()
    stage.drain()
    for question in app.inbox():
        question.approve(by="ann")
    assert run.wait() == 9


def test_a_fork_goes_on_from_a_step_with_what_was_recorded_before_it(stage: Stage) -> None:
    app, calls = stage.app, list[str]()

    async def call(name: str) -> str:
        calls.append(name)
        return name

    @app.agent
    async def fix(ctx: interlock.AgentContext) -> list[Any]:
        first = await ctx.step("plan", lambda: call("plan"), of="one")
        await ctx.phase("correcting")
        sent = ctx.wait_signal("go")
        what = await ctx.ask("delete?", first)
        done = await ctx.step("act", lambda: call("act"), of=what)
        last = await ctx.step("check", lambda: call("check"))
        await ctx.phase("running")
        return [first, sent, done, last]

    run = fix.submit(labels={"team": "a"})
    run.signal("go", 3)
    stage.drain()
    app.inbox()[0].approve(by="ann")
    assert run.wait() == ["plan", 3, "act", "check"]
    forked = run.fork(at="act", by="ann", reason="try again")
    assert (isinstance(forked, interlock.AgentRun), forked.unit != run.unit) == (True, True)
    assert forked.wait() == ["plan", 3, "act", "check"]
    assert calls == ["plan", "act", "check", "act", "check"]
    calls.clear()
    changed = run.fork(at="check", replace={"act": "acted", "check": {"x": 1}}, by="bob")
    assert changed.wait() == ["plan", 3, "acted", {"x": 1}]
    assert (calls, run.wait()) == ([], ["plan", 3, "act", "check"])
    again = changed.fork(at="plan", replace={"plan": "another"})
    stage.drain()
    assert (calls, [item.input for item in app.inbox()]) == ([], [])  # it waits for the signal: none came before
    again.signal("go", 4)
    stage.drain()
    app.inbox()[0].approve(by="ann")
    assert again.wait() == ["another", 4, "act", "check"]


def test_forks_that_cannot_be_are_refused(stage: Stage) -> None:
    @stage.app.agent
    def fix(ctx: interlock.AgentContext) -> int:
        return ctx.step("one", lambda: 1) + ctx.step("two", lambda: 2)

    run = fix.submit()
    with pytest.raises(interlock.InterlockError, match="no step 'one' is recorded; there are none"):
        run.fork(at="one")
    assert run.wait() == 3
    for terms, why in (
        ({"at": "three"}, "no step 'three' is recorded; there are 'one', 'two'"),
        ({"at": "one", "replace": {"two": 1}}, "'two' was recorded after 'one', and is done again"),
        ({"at": "one", "replace": {"one": object()}}, "the result of 'one' is no JSON"),
        (
            {"at": "one", "replace": {"one": "x" * 1_100_000}},
            "the size of 'one' = 1100002 is not allowed|at most 1,047,576",
        ),
        ({"at": "one", "replace": {"none": 1}}, "no step 'none' is recorded"),
    ):
        with pytest.raises(InterlockError, match=why):
            run.fork(**terms)
    job = stage.app.task(name="plain")(enter_a_phase).submit()
    with pytest.raises(InterlockError, match="is not an agent run; only agent runs can be forked"):
        interlock.AgentRun(stage.app, job.unit).fork(at="one")


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("nothing", "the name of a step = '' is not allowed; allowed are 1 to 200 characters"),
        ("number", "the name of a step = 3 is not allowed; allowed is text"),
        ("nan", "the result of the step 'a' cannot be kept as JSON: nan is no number of JSON"),
        ("infinite", "cannot be kept as JSON: inf is no number of JSON"),
        ("usage", "usage of 'a' has raised: KeyError"),
        ("question", "the name of a question = 3 is not allowed; allowed is text"),
        ("effect", "the name of an effect = None is not allowed; allowed is text"),
    ],
)
def test_what_cannot_be_recorded_is_refused_and_leaves_nothing(stage: Stage, word: str, why: str) -> None:
    @stage.app.agent
    async def odd(ctx: interlock.AgentContext) -> None:
        match word:
            case "nothing":
                await ctx.step("", lambda: 1)
            case "number":
                await ctx.step(3, lambda: 1)  # type: ignore[arg-type]
            case "nan":
                await ctx.step("a", lambda: {"scores": [1.0, None, float("nan")]})
            case "infinite":
                await ctx.step("a", lambda: (float("inf"),))
            case "usage":
                await ctx.step("a", dict, usage=lambda answer: answer["usage"])
            case "question":
                await ctx.ask(3, 1)  # type: ignore[arg-type]
            case "effect":
                await ctx.effect(None, lambda: 1)  # type: ignore[arg-type]

    run = odd.submit()
    with pytest.raises(interlock.Failed, match=why):
        run.wait()
    assert (run.steps, "steps" in run.spent, stage.app.inbox()) == ({}, False, [])


def test_a_step_may_be_nothing(stage: Stage) -> None:
    @stage.app.agent
    async def rest(ctx: interlock.AgentContext) -> list[Any]:
        return [await ctx.step("a", lambda: None), await ctx.step("b", lambda: [None, "null", 1.5])]

    assert rest.submit().wait() == [None, [None, "null", 1.5]]


def test_resumes_and_forks_of_no_words_are_refused(stage: Stage) -> None:
    @stage.app.agent
    def fail(ctx: interlock.AgentContext) -> None:
        ctx.step("one", lambda: 1)
        raise interlock.PermanentError("no")

    run = fail.submit()
    stage.drain()
    for terms, why in (
        ({"by": None, "reason": "why"}, "a name is missing|Expected `str`, got `null`"),
        ({"by": "ann", "reason": None}, "a reason is missing|Expected `str`, got `null`"),
    ):
        with pytest.raises(InterlockError, match=why):
            run.resume(**terms)
    with pytest.raises(InterlockError, match="replace = 3 is not allowed; allowed is one such as"):
        run.fork(at="one", replace=3)  # type: ignore[arg-type]
    with pytest.raises(InterlockError, match="the result of 'one' is no JSON: nan is no number"):
        run.fork(at="one", replace={"one": float("nan")})
    assert run.state == "failed"


def test_a_run_has_the_time_that_its_agent_says(stage: Stage) -> None:
    def define(name: str, **rules: Any) -> Any:
        @stage.app.agent(name=name, **rules)
        def work(ctx: interlock.AgentContext) -> str:
            for number in range(12):
                ctx.step(f"step {number}", lambda: 1)
                stage.advance("10m")
            return "done"

        return work

    for name, rules, minutes in (
        ("hour", {}, 60),
        ("short", {"timeout": "5m"}, 5),
        ("capped", {"budget": interlock.budget(active="90m")}, 90),
    ):
        run = define(name, **rules).submit()
        with pytest.raises(interlock.Failed) as failed:
            run.wait()
        assert abs(run.spent["active"] - 60 * minutes) < 10, name  # a worker hears of it at its next beat
        assert ("BUDGET_EXHAUSTED active" if name == "capped" else "its time was over") in str(failed.value)
    for name, rules in (("long", {"timeout": "3h"}), ("paid", {"budget": interlock.budget(active="3h")})):
        assert define(name, **rules).submit().wait() == "done"
    late = define("late", queue_timeout="1m", capabilities=["none"]).submit()
    stage.advance("2m")
    assert stage.transitions(late) == ["queued", "failed"]


def test_an_agent_run_that_has_ended_is_done_again_from_the_beginning(stage: Stage) -> None:
    asked: list[str] = []

    @stage.app.agent
    def fix(goal: str, ctx: interlock.AgentContext) -> str:
        ctx.step("think", lambda: asked.append(goal))
        return f"{goal} is done"

    run = fix.submit(goal="it", key="once")
    with pytest.raises(InterlockError, match="no 'rerun' from 'queued'"):
        run.rerun()
    run.wait()
    again = run.rerun(by="ann", reason="once more")
    assert (isinstance(again, interlock.AgentRun), again.wait(), asked) == (True, "it is done", ["it", "it"])
    assert stage.app.run(again.id).steps == {"think": None}
    assert [entry.name for entry in again.transcript() if entry.what == "step"] == ["think"]
    decided = again.decision(strict=True)
    assert (decided.run, decided.state, decided.decision) == (again.id, "complete", "FAIL")
    assert "RUN_NOT_VALIDATED" in decided.reasons
    with pytest.raises(InterlockError, match="is rerun as a whole"):
        run.rerun(failed=True)
