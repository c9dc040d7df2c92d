"""Agents of the OpenAI Agents SDK made durable: `result = await run_agent(agent, goal, ctx)` in a handler.

Each answer of the model and each result of a function tool is a step of the run, so none is paid for again. A model
call is named by its number, and compared with what was asked under that number; a tool call has the id that the model
gave it. Tools that need an approval are asked for in the inbox. What the provider runs itself is part of its answer.
"""

import asyncio
import copy
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from agents import Agent, FunctionTool, Handoff, ModelProvider, ModelResponse, MultiProvider, RunConfig, Runner
from agents.models.interface import Model
from pydantic import TypeAdapter

from interlock.adapters.common import Recorder, decode_arguments, drop_volatile, find_own_error, split_terms
from interlock.client.context import AgentContext
from interlock.kernel.errors import PermanentError

ANY: TypeAdapter[Any] = TypeAdapter(Any)
RESPONSE: TypeAdapter[ModelResponse] = TypeAdapter(ModelResponse)
REQUEST = (
    "system_instructions",
    "input",
    "model_settings",
    "tools",
    "output_schema",
)  # what a model is given, in order
LOCAL_TOOLS = ("ComputerTool", "LocalShellTool", "ApplyPatchTool")


@dataclass
class AgentRecorder(Recorder):
    """What makes agents durable, and those that they hand over to."""

    provider: ModelProvider = field(default_factory=MultiProvider)  # that finds models by their names
    # Agents, and what they were made of, by the id of that.
    agents: dict[int, tuple[Agent[Any], Agent[Any]]] = field(default_factory=dict, init=False)
    arguments: dict[str, str] = field(default_factory=dict, init=False)  # by call: what was approved instead

    def wrap(self, agent: Agent[Any]) -> Agent[Any]:
        """The same agent with durable models and tools, and so are those that it hands over to.

        Raises:
            PermanentError: tools whose calls would not be recorded.
        """
        if id(agent) not in self.agents:
            own = agent.clone()
            self.agents[id(agent)] = own, agent
            if agent.mcp_servers:
                raise PermanentError(f"agent '{agent.name}': calls of mcp_servers are not recorded; use function tools")
            own.tools = [self.wrap_tool(tool) for tool in agent.tools]
            own.handoffs = [self.wrap_handoff(handoff) for handoff in agent.handoffs]
            own.model = self.wrap_model(agent.model)
        return self.agents[id(agent)][0]

    def wrap_model(self, model: Any) -> Model:
        return StepModel(model if isinstance(model, Model) else self.provider.get_model(model), self)

    def wrap_handoff(self, handoff: Any) -> Any:
        if isinstance(handoff, Agent):
            return self.wrap(handoff)
        own: Handoff[Any, Any] = copy.copy(handoff)

        async def hand_over(*given: Any) -> Agent[Any]:
            return self.wrap(await handoff.on_invoke_handoff(*given))

        own.on_invoke_handoff = hand_over
        return own

    def wrap_tool(self, tool: Any) -> Any:
        if type(tool).__name__ in LOCAL_TOOLS or getattr(tool, "executor", None) is not None:
            raise PermanentError(f"calls of {type(tool).__name__} are not recorded; use function tools")
        if not isinstance(tool, FunctionTool):
            return tool

        async def invoke(context: Any, arguments: str) -> Any:
            text = self.arguments.get(context.tool_call_id, arguments)

            async def call() -> Any:
                return ANY.dump_python(await tool.on_invoke_tool(context, text), mode="json")

            return await self.call_tool(tool.name, context.tool_call_id, decode_arguments(text), call)

        own = copy.copy(tool)
        own.on_invoke_tool = invoke
        return own

    async def ask(self, state: Any, item: Any) -> None:
        """Asks in the inbox about a call that needs an approval, and says in the state of the run what was answered."""
        given = decode_arguments(item.arguments or "{}")
        arguments, why = await self.ask_for_call(item.tool_name, item.call_id, given)
        if why:
            state.reject(item, rejection_message=why)
            return
        if arguments != given:
            self.arguments[item.call_id] = msgspec.json.encode(arguments).decode()
        state.approve(item)


class StepModel(Model):
    """A model whose answers are steps."""

    def __init__(self, wrapped: Model, durable: AgentRecorder) -> None:
        self.wrapped, self.durable = wrapped, durable

    async def get_response(self, *given: Any, **more: Any) -> ModelResponse:
        request = describe_response_request(self.wrapped, {**dict(zip(REQUEST, given, strict=False)), **more})
        response: ModelResponse = await self.durable.call_model(
            lambda: self.wrapped.get_response(*given, **more), request, RESPONSE
        )
        return response

    def stream_response(self, *given: Any, **more: Any) -> AsyncIterator[Any]:
        raise PermanentError("run a durable agent by `await run_agent(agent, goal, ctx)`, not by Runner.run_streamed")


def describe_response_request(model: Model, request: Mapping[str, Any]) -> dict[str, Any]:
    """What is asked of a model, without headers, ids and times."""
    items, schema = request["input"], request.get("output_schema")
    shown = items if isinstance(items, str) else [drop_volatile(ANY.dump_python(item, mode="json")) for item in items]
    return {
        "model": getattr(model, "model", type(model).__name__), "instructions": request["system_instructions"],
        "messages": shown, "settings": drop_volatile(ANY.dump_python(request["model_settings"], mode="json")),
        "tools": [[tool.name, getattr(tool, "params_json_schema", None)] for tool in request["tools"]],
        "output": None if schema is None or schema.is_plain_text() else schema.json_schema(),
    }  # fmt: skip


async def run_agent(agent: Agent[Any], prompt: Any, ctx: AgentContext, **terms: Any) -> Any:
    """Runs an agent durably. `terms` are those of `Recorder` and of `Runner.run`. Raises what `ctx` raises, bare."""
    own, others = split_terms(terms)
    config = copy.copy(others.pop("run_config", None) or RunConfig())
    durable = AgentRecorder(ctx, **own, provider=config.model_provider)
    config.model = None if config.model is None else durable.wrap_model(config.model)
    try:
        result = await Runner.run(durable.wrap(agent), prompt, run_config=config, **others)
        while result.interruptions:
            state = result.to_state()
            await asyncio.gather(*(durable.ask(state, item) for item in result.interruptions))
            result = await Runner.run(durable.wrap(agent), state, run_config=config, **others)
        return result
    except BaseException as raised:
        if (error := find_own_error(raised)) is raised:
            raise
        raise error from None
