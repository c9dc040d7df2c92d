"""An agent of the OpenAI Agents SDK on Interlock: nothing recorded is called twice, its approvals are in the inbox."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agents", reason="openai-agents is not installed here; `make adapters` installs and runs this")

from agents import Agent, ComputerTool, RunConfig, handoff

import interlock
from interlock.adapters.common import drop_volatile
from interlock.adapters.openai_agents import run_agent
from interlock.testing import staged
from tests.adapters.conftest import find_repeated

pytestmark = pytest.mark.filterwarnings("default")
STEPS = ["model 1", "search s-a", "search s-b", "delete d", "model 2", "search s-c", "model 3"]
RESULT = {"output": "done: ['hits of a', 'hits of b', 'deleted older', 'hits of c']", "messages": 10}


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
    from tests.adapters import openai_agent  # noqa: PLC0415

    with staged(openai_agent.app) as stage:
        undisturbed = openai_agent.fix.submit("go")
        stage.drain()
        (question,) = openai_agent.app.inbox()
        question.approve(by="ann", role="ops", arguments={"branch": "older"})
        assert undisturbed.wait() == RESULT
        assert sorted(undisturbed.steps) == sorted(STEPS)
        assert undisturbed.spent["tokens"] == 45
        assert stage.replay(undisturbed) == RESULT
        recorded = tell(undisturbed)
    assert sorted(calls.read_text().splitlines()) == sorted(STEPS)
    calls.unlink()
    killed, times = play("tests.adapters.openai_agent")
    assert killed.wait() == RESULT
    assert tell(killed) == recorded
    lines = calls.read_text().splitlines()
    assert find_repeated(lines) == []
    assert len(STEPS) - 2 <= times <= len(STEPS)  # steps that run side by side may be recorded together
    assert {line for line in lines if not line.startswith("recorded")} == set(STEPS)


def test_a_rejected_call_is_told_to_the_model(calls: Path) -> None:
    from tests.adapters import openai_agent  # noqa: PLC0415

    with staged(openai_agent.app) as stage:
        made = openai_agent.fix.submit("go")
        stage.drain()
        openai_agent.app.inbox()[0].reject(by="ann", role="ops", comment="not today")
        assert "was rejected by ann: not today" in made.wait()["output"]
    assert "delete" not in calls.read_text()


def test_an_agent_that_is_handed_over_to_is_durable_too(calls: Path) -> None:
    from agents.testing import ScriptedModel, function_call  # noqa: PLC0415

    from tests.adapters import openai_agent  # noqa: PLC0415

    app = interlock.open("sqlite://:memory:")
    first = Agent(
        name="first", handoffs=[handoff(openai_agent.agent)],
        model=ScriptedModel([[function_call("transfer_to_fixer", {}, call_id="h")]]),
    )  # fmt: skip

    @app.agent
    async def work(ctx: interlock.AgentContext) -> str:
        result = await run_agent(first, "go", ctx, run_config=RunConfig(tracing_disabled=True))
        return str(result.final_output)

    with staged(app):
        made = work.submit()
        assert made.wait().startswith("done: ")
        assert {"model 1", "model 2"} <= set(made.steps)


def test_what_would_not_be_recorded_is_refused() -> None:
    app = interlock.open("sqlite://:memory:")

    @app.agent
    async def work(ctx: interlock.AgentContext) -> None:
        await run_agent(Agent(name="a", tools=[ComputerTool(computer=object())]), "go", ctx)  # type: ignore[arg-type]

    with staged(app), pytest.raises(interlock.Failed, match="calls of ComputerTool are not recorded"):
        work.submit().wait()
