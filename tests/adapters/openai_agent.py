"""An agent of the OpenAI Agents SDK with a model that follows a script; started as a program, it is its worker."""

import asyncio
import os
from typing import Any

from agents import Agent, Model, ModelResponse, RunConfig, Usage, function_tool
from agents.testing import assistant_message, function_call

import interlock
from interlock.adapters.openai_agents import run_agent
from interlock.worker.loop import Worker
from tests.adapters.conftest import die_after_steps, note_call

app = interlock.open(
    os.environ.get("ADAPTER_URL", "sqlite://:memory:"), hurry=int(os.environ.get("ADAPTER_HURRY", "40"))
)


class ScriptModel(Model):
    """Answers by how many results it has been given."""

    async def get_response(self, system_instructions: Any, input: Any, *rest: Any, **more: Any) -> ModelResponse:  # noqa: A002
        results = [
            item["output"] for item in input if isinstance(item, dict) and item.get("type") == "function_call_output"
        ]
        note_call(f"model {len(results) - 1 if results else 1}")
        output: list[Any] = [assistant_message(f"done: {results}")]
        if not results:
            output = [
                function_call("search", {"text": "a"}, call_id="s-a"), function_call("search", {"text": "b"}, call_id="s-b"),
                function_call("delete", {"branch": "old"}, call_id="d"),
            ]  # fmt: skip
        elif len(results) == 3:
            output = [function_call("search", {"text": "c"}, call_id="s-c")]
        usage = Usage(requests=1, input_tokens=10, output_tokens=5, total_tokens=15)
        return ModelResponse(output=output, usage=usage, response_id=None)

    def stream_response(self, *given: Any, **more: Any) -> Any:
        raise AssertionError("nobody streams here")


@function_tool
def search(text: str) -> str:
    note_call(f"search s-{text}")
    return f"hits of {text}"


@function_tool(needs_approval=True)
async def delete(branch: str) -> str:
    note_call("delete d")
    return f"deleted {branch}"


agent = Agent(name="fixer", instructions="be brief", model=ScriptModel(), tools=[search, delete])


@app.agent(attempts=30)
async def fix(goal: str, ctx: interlock.AgentContext) -> dict[str, Any]:
    result = await run_agent(agent, goal, ctx, approvers=["ops"], run_config=RunConfig(tracing_disabled=True))
    return {"output": result.final_output, "messages": len(result.to_input_list())}


if __name__ == "__main__":
    die_after_steps(app)
    asyncio.run(Worker(app, {"default": 1}).run())
