"""What an agent run leaves behind, as a program uses it: replays of its handler, cassettes, and what is taken out before."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.plugins.agents.cassettes import decode_cassette, encode_cassette, read_cassette
from interlock.plugins.agents.transcripts import read_transcript
from interlock.testing import ReplayDiffers, ScriptedModel, Stage, usage_of

SCRIPT = {"plan": {"todo": ["a", "b"]}, "do a": "done a", "do b": "done b", "review": "fine"}
Change = dict[str, Any]


def define(stage: Stage, model: ScriptedModel, change: Change) -> Any:
    """An agent that waits, asks, makes an effect and a child; `change` is what its author changes later."""
    app = stage.app

    @app.task
    def review(text: str) -> str:
        return f"{text} is fine"

    @app.agent(name="mend", budget=interlock.budget(usd=5))
    async def mend(goal: str, ctx: interlock.AgentContext) -> dict[str, Any]:
        prompt = change.get("prompt", "plan")
        plan = await ctx.step("plan", lambda: model(f"{prompt} {goal}"), usage=usage_of, of={"prompt": prompt})
        todo = plan["answer"]["todo"]
        done = [(await ctx.step(f"do {part}", lambda part=part: model(f"do {part}")))["answer"] for part in todo]
        if "new" in change:
            await ctx.step("new", lambda: model("review"))
        await ctx.phase("correcting")
        await ctx.phase("running")
        what = await ctx.ask("push?", {"branch": "main"})
        pushed = await ctx.effect("push", lambda: change["calls"].append("push") or "pushed")
        if "skip" not in change:
            child = await ctx.spawn("check", review, goal)
            done.append(child.wait())
        return {"done": done, "what": what, "pushed": pushed, **change.get("more", {})}

    return mend


@pytest.fixture
def recorded(stage: Stage) -> tuple[Stage, interlock.AgentRun, ScriptedModel, Change]:
    """A run that has succeeded, after a lost worker."""
    model, change = ScriptedModel(SCRIPT), Change(calls=[])
    run = define(stage, model, change).submit("it")
    stage.lose_worker(after_step="do a")
    stage.advance("2m")
    stage.drain()
    stage.app.inbox()[0].approve(by="ann", arguments={"branch": "next"})
    assert run.wait() == {
        "done": ["done a", "done b", "it is fine"], "what": {"branch": "next"}, "pushed": "pushed",
    }  # fmt: skip
    return stage, run, model, change


def test_a_replay_calls_nothing_and_returns_the_same(
    recorded: tuple[Stage, interlock.AgentRun, ScriptedModel, Change], tmp_path: Path
) -> None:
    stage, run, model, change = recorded
    paid, calls, events = list(model.prompts), list(change["calls"]), len(run.events())
    assert paid == ["plan it", "do a", "do b"]
    assert stage.replay(run) == stage.replay(run.id) == run.wait()
    cassette = stage.app.read(read_cassette, run.unit)
    assert cassette is not None
    (tmp_path / "run.jsonl").write_text(encode_cassette(cassette))
    assert stage.replay(tmp_path / "run.jsonl") == run.wait()
    assert decode_cassette(encode_cassette(cassette)) == cassette
    assert (model.prompts, change["calls"], len(run.events())) == (paid, calls, events)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"new": True}, "step 'new' is new; recorded are 'plan', 'do a', 'do b'"),
        ({"prompt": "plan again"}, "what was asked for then is not what is asked for now"),
        ({"skip": True}, "child 'check' is recorded, and was not asked for"),
        ({"more": {"x": 1}}, "it returned .*'x': 1.*, and recorded is"),
    ],
)
def test_a_handler_that_goes_otherwise_fails_its_replay(
    recorded: tuple[Stage, interlock.AgentRun, ScriptedModel, Change], change: Change, why: str
) -> None:
    stage, run, model, now = recorded
    paid = list(model.prompts)
    now |= change
    with pytest.raises(ReplayDiffers, match=why):
        stage.replay(run)
    assert (model.prompts, now["calls"]) == (paid, ["push"])


def test_a_difference_fails_even_if_the_handler_catches_it(stage: Stage) -> None:
    change: list[str] = []

    @stage.app.agent
    def quiet(ctx: interlock.AgentContext) -> int:
        try:
            return int(ctx.step("".join(["one", *change]), lambda: 1))
        except Exception:
            return 1

    run = quiet.submit()
    run.wait()
    assert stage.replay(run) == 1
    change.append("more")
    with pytest.raises(ReplayDiffers, match="step 'onemore' is new"):
        stage.replay(run)


def test_a_run_that_waits_or_failed_is_replayed_as_far_as_it_came(stage: Stage) -> None:
    @stage.app.agent
    def waits(ctx: interlock.AgentContext) -> Any:
        ctx.step("one", lambda: 1)
        return ctx.ask("go?")

    @stage.app.agent
    def fails(ctx: interlock.AgentContext) -> None:
        ctx.step("one", lambda: 1)
        raise interlock.PermanentError("no")

    waiting, failing = waits.submit(), fails.submit()
    stage.drain()
    assert (stage.replay(waiting), stage.replay(failing)) == (None, None)
    with pytest.raises(interlock.InterlockError, match="there is no agent run 'agent_run_zz' to replay"):
        stage.replay("agent_run_zz")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "line 1 is not the first one of a cassette"),
        ('{"cassette": 2, "run": "a", "agent": "b", "arguments": {}, "fence": 1, "outcome": null}', "cassette = 2"),
        (
            '{"cassette": 1, "run": "a", "agent": "b", "arguments": {}, "fence": 1, "outcome": null}\n{"what": "x", "name": "y"}',
            "line 2: what = 'x' is not allowed; allowed are step, effect",
        ),
        ('{"cassette": 1, "run": "a", "agent": "b", "arguments": {}, "fence": 1, "outcome": null}\n{', "line 2"),
    ],
)
def test_a_file_that_is_no_cassette_says_which_line(stage: Stage, tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "c.jsonl").write_text(text)
    with pytest.raises(interlock.InterlockError, match=why):
        stage.replay(tmp_path / "c.jsonl")


# What may not be recorded.


def hide(value: Any) -> Any:
    """Takes out what follows the word secret."""
    match value:
        case str():
            return value.replace("hunter2", "[taken out]")
        case dict():
            return {key: hide(part) for key, part in value.items()}
    return value


def test_what_is_redacted_is_in_no_row(stage: Stage) -> None:
    seen: list[Any] = []

    @stage.app.agent(redact=hide)
    async def careful(goal: str, ctx: interlock.AgentContext) -> Any:
        login = {"password": "hunter2"}
        seen.append(await ctx.step("log in", lambda: {"token": "hunter2"}, of=login))
        seen.append(await ctx.effect("send", lambda: "hunter2", of=login))
        return await ctx.ask("fine?", {"shown": "hunter2"})

    run = careful.submit("it")
    stage.drain()
    (item,) = stage.app.inbox()
    assert item.input == {"shown": "[taken out]"}
    item.approve(by="ann")
    assert run.wait() == {"shown": "hunter2"}  # what it asked for itself
    assert seen == [{"token": "[taken out]"}, "[taken out]"] * 2  # as it is recorded, also the first time
    told = stage.app.read(read_transcript, run.unit)
    (step,) = (entry for entry in told if entry.what == "step")
    assert (step.value, step.request) == ({"token": "[taken out]"}, {"password": "[taken out]"})
    assert not [entry for entry in told if "hunter2" in str(entry)]


def test_a_redact_that_raises_records_nothing(stage: Stage) -> None:
    def broken(value: Any) -> Any:
        raise ValueError("hunter2")

    @stage.app.agent(redact=broken, attempts=1)
    def careless(ctx: interlock.AgentContext) -> None:
        ctx.step("log in", lambda: 1)

    run = careless.submit()
    with pytest.raises(interlock.Failed, match="redact has raised for 'log in', so nothing is recorded"):
        run.wait()
    assert run.steps == {}


def test_a_scripted_model_says_what_it_was_not_told(tmp_path: Path) -> None:
    model = ScriptedModel(["one"], tokens=3, calls=tmp_path / "calls.txt")
    assert asyncio.run(model("hello")) == {"answer": "one", "usage": {"tokens": 3, "usd": 0.01}}
    with pytest.raises(interlock.InterlockError, match="no answer any more; it was asked 'again'"):
        asyncio.run(model("again"))
    with pytest.raises(interlock.InterlockError, match="no answer to 'what'; it has some to plan"):
        asyncio.run(ScriptedModel({"plan": 1})("what"))
    assert (tmp_path / "calls.txt").read_text() == "hello\n"
