"""An agent of pydantic-ai with the function model of its own tests; started as a program, it is its worker."""

import asyncio
import os
from typing import Any

from pydantic_ai import Agent, ModelRetry
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import interlock
from interlock.adapters.pydantic_ai import run_agent
from interlock.worker.loop import Worker
from tests.adapters.conftest import die_after_steps, note_call

app = interlock.open(
    os.environ.get("ADAPTER_URL", "sqlite://:memory:"), hurry=int(os.environ.get("ADAPTER_HURRY", "40"))
)


def answer(messages: list[Any], info: AgentInfo) -> ModelResponse:
    number = sum(isinstance(message, ModelResponse) for message in messages)
    note_call(f"model {number + 1}")
    if number == 0:
        calls = [ToolCallPart("search", {"text": text}, tool_call_id=f"s-{text}") for text in ("a", "b")]
        return ModelResponse([*calls, ToolCallPart("delete", {"branch": "old"}, tool_call_id="d")])
    if number in (1, 2):
        return ModelResponse([ToolCallPart("flaky", {"number": number}, tool_call_id=f"f-{number}")])
    results = [part.content for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    return ModelResponse([TextPart(f"done: {results}")])


async def stream_answer(messages: list[Any], info: AgentInfo) -> Any:
    note_call("model 1")
    for word in ("one ", "two ", "three"):
        yield word


agent = Agent(FunctionModel(answer))


@agent.tool_plain
def search(text: str) -> dict[str, list[str]]:
    note_call(f"search s-{text}")
    return {"hits": [text]}


@agent.tool_plain(requires_approval=True)
async def delete(branch: str) -> str:
    note_call("delete d")
    return f"deleted {branch}"


@agent.tool_plain(retries=2)
def flaky(number: int) -> str:
    note_call(f"flaky f-{number}")
    if number == 1:
        raise ModelRetry("try again")
    return "well"


@app.agent(attempts=30)
async def fix(goal: str, ctx: interlock.AgentContext) -> dict[str, Any]:
    result = await run_agent(agent, goal, ctx, approvers=["ops"])
    return {"output": result.output, "messages": len(result.all_messages())}


@app.agent
async def say(goal: str, ctx: interlock.AgentContext) -> str:
    return str((await run_agent(Agent(FunctionModel(stream_function=stream_answer)), goal, ctx, stream=True)).output)


if __name__ == "__main__":
    die_after_steps(app)
    asyncio.run(Worker(app, {"default": 1}).run())
