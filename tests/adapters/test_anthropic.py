"""The Anthropic SDK on Interlock: nothing recorded is called twice, and a tool is called once somebody approves it."""

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("anthropic", reason="anthropic is not installed here; `make adapters` installs and runs this")

from anthropic.types import Message, TextBlock, ToolUseBlock, Usage

import interlock
from interlock.adapters.anthropic import durable
from interlock.testing import staged

pytestmark = pytest.mark.filterwarnings("default")
TOOLS = [{"name": "delete", "description": "deletes a branch", "input_schema": {"type": "object"}}]


class ScriptClient:
    """What the client of the SDK is to an agent: messages that are answered by a script."""

    def __init__(self) -> None:
        self.messages, self.calls = SimpleNamespace(create=self.create), list[str]()

    async def create(self, **request: Any) -> Message:
        results = [block for message in request["messages"] for block in message["content"] if isinstance(block, dict)]
        self.calls.append(f"model {len(results) + 1}")
        content: Any = ToolUseBlock(type="tool_use", id="t", name="delete", input={"branch": "old"})
        if results:
            content = TextBlock(type="text", text=f"done: {results[-1]['content']}")
        return Message(
            id=f"msg-{len(self.calls)}", type="message", role="assistant", model="m", content=[content],
            usage=Usage(input_tokens=10, output_tokens=5),
        )  # fmt: skip


def test_a_lost_worker_and_an_approval_with_other_arguments() -> None:
    app, client = interlock.open("sqlite://:memory:"), ScriptClient()

    def delete(branch: str) -> dict[str, str]:
        client.calls.append(f"delete {branch}")
        return {"deleted": branch}

    @app.agent
    async def fix(goal: str, ctx: interlock.AgentContext) -> str:
        messages, said = durable(client, ctx, approvers=["ops"]), list[Any]([{"role": "user", "content": goal}])
        while True:
            answer = await messages.create(model="m", max_tokens=100, messages=said, tools=TOOLS, timeout=len(said))
            calls = [block for block in answer.content if isinstance(block, ToolUseBlock)]
            if not calls:
                return "".join(block.text for block in answer.content if isinstance(block, TextBlock))
            results = [await messages.call_tool(block, delete, ask=True) for block in calls]
            said += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": results}]

    with staged(app) as stage:
        run = fix.submit("go")
        stage.lose_worker(after_step="model 1")
        stage.advance("2m")
        stage.drain()
        app.inbox()[0].approve(by="ann", role="ops", arguments={"branch": "older"})
        assert run.wait() == 'done: {"deleted":"older"}'
        assert (client.calls, list(run.steps)) == (
            ["model 1", "delete older", "model 2"],
            ["model 1", "delete t", "model 2"],
        )
        assert run.spent["tokens"] == 30
        assert stage.replay(run) == 'done: {"deleted":"older"}'
        refused = fix.submit("go")
        stage.drain()
        app.inbox()[0].reject(by="ann", role="ops", comment="not today")
        assert "was rejected by ann: not today" in refused.wait()


def test_a_stream_is_refused() -> None:
    app = interlock.open("sqlite://:memory:")

    @app.agent
    async def work(ctx: interlock.AgentContext) -> None:
        await durable(ScriptClient(), ctx).create(stream=True, messages=[])

    with staged(app), pytest.raises(interlock.Failed, match="is not recorded; leave `stream` out"):
        work.submit().wait()
