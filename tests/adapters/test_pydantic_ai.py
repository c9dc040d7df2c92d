"""An agent of pydantic-ai on Interlock: nothing recorded is called twice, and its approvals are in the inbox."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pydantic_ai", reason="pydantic-ai is not installed here; `make adapters` installs and runs this")

from pydantic_ai import Agent
from pydantic_ai.models.function import FunctionModel

import interlock
from interlock.adapters.common import drop_volatile
from interlock.adapters.pydantic_ai import run_agent
from interlock.testing import staged
from tests.adapters.conftest import find_repeated

pytestmark = pytest.mark.filterwarnings("default")
STEPS = [
    "model 1", "search s-a", "search s-b", "delete d", "model 2", "flaky f-1", "model 3", "flaky f-2", "model 4",
]  # fmt: skip
RESULT = {"output": "done: [{'hits': ['a']}, {'hits': ['b']}, 'deleted older', 'try again', 'well']", "messages": 8}


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "calls.txt"
    monkeypatch.setenv("ADAPTER_CALLS", str(path))
    return path


def tell(run: Any) -> list[tuple[str, Any]]:
    """What is recorded of a run: steps by name, without times and ids."""
    return sorted(
        (name, drop_volatile(result) if isinstance(result, dict) else result) for name, result in run.steps.items()
    )


def test_killed_after_every_step_it_says_and_calls_what_it_does_undisturbed(
    calls: Path, play: Callable[[str], tuple[Any, int]]
) -> None:
    from tests.adapters import pydantic_agent  # noqa: PLC0415

    with staged(pydantic_agent.app) as stage:
        undisturbed = pydantic_agent.fix.submit("go")
        stage.drain()
        (question,) = pydantic_agent.app.inbox()
        question.approve(by="ann", role="ops", arguments={"branch": "older"})
        assert undisturbed.wait() == RESULT
        assert list(undisturbed.steps) == STEPS
        assert undisturbed.spent["tokens"] > 0
        assert stage.replay(undisturbed) == RESULT
        recorded = tell(undisturbed)
    assert sorted(calls.read_text().splitlines()) == sorted(STEPS)
    calls.unlink()
    killed, times = play("tests.adapters.pydantic_agent")
    assert killed.wait() == RESULT
    assert tell(killed) == recorded
    lines = calls.read_text().splitlines()
    assert find_repeated(lines) == []
    assert len(STEPS) - 2 <= times <= len(STEPS)  # steps that run side by side may be recorded together
    assert {line for line in lines if not line.startswith("recorded")} == set(STEPS)


def test_another_prompt_under_the_same_name_is_drift_and_nothing_is_called(calls: Path) -> None:
    from tests.adapters import pydantic_agent  # noqa: PLC0415

    app, prompts = interlock.open("sqlite://:memory:"), ["first", "second"]

    @app.agent
    async def work(ctx: interlock.AgentContext) -> str:
        result = await run_agent(Agent(FunctionModel(pydantic_agent.answer)), prompts.pop(0), ctx)
        return str(result.output)

    with staged(app) as stage:
        made = work.submit()
        stage.lose_worker(after_step="model 1")
        stage.advance("2m")
        with pytest.raises(interlock.Failed, match=r'-.*"first"[\s\S]*\+.*"second"'):
            made.wait()
    assert calls.read_text() == "model 1\n"


def test_a_rejected_call_is_told_to_the_model(calls: Path) -> None:
    from tests.adapters import pydantic_agent  # noqa: PLC0415

    with staged(pydantic_agent.app) as stage:
        made = pydantic_agent.fix.submit("go")
        stage.drain()
        pydantic_agent.app.inbox()[0].reject(by="ann", role="ops", comment="not today")
        assert "was rejected by ann: not today" in made.wait()["output"]
    assert "delete" not in calls.read_text()


def test_whoever_follows_the_events_of_an_agent_gets_the_recorded_ones() -> None:
    app, events, asked, lost = interlock.open("sqlite://:memory:"), list[str](), list[int](), [True]

    async def answer(messages: list[Any], info: Any) -> Any:
        asked.append(len(messages))
        yield "all is well"

    async def follow(_: Any, stream: Any) -> None:
        events.extend([type(event).__name__ async for event in stream])

    @app.agent
    async def work(ctx: interlock.AgentContext) -> str:
        agent = Agent(FunctionModel(stream_function=answer), deps_type=int)
        result = await run_agent(agent, "go", ctx, deps=3, event_stream_handler=follow, stream=True)
        if lost:
            raise interlock.PermanentError("once more")
        return str(result.output)

    with staged(app):
        made = work.submit()
        with pytest.raises(interlock.Failed, match="once more"):
            made.wait()
        first, lost[:] = list(events), []
        made.resume(by="ann", reason="again")
        assert made.wait() == "all is well"
    assert (asked, "PartStartEvent" in first, events) == ([1], True, first * 2)


def test_words_of_a_model_are_emitted_as_they_come(calls: Path) -> None:
    from tests.adapters import pydantic_agent  # noqa: PLC0415

    with staged(pydantic_agent.app):
        made = pydantic_agent.say.submit("go")
        assert made.wait() == "one two three"
        assert made.log() == "one two three"
    assert calls.read_text() == "model 1\n"
