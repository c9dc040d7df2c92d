"""Agents of pydantic-ai made durable: `result = await run_agent(agent, goal, ctx)` in an `async def` handler.

Each answer of the model and each result of a tool is a step of the run, so none is paid for again. A model call is
named by its number, and compared with what was asked under that number; a tool call has the id that the model gave it.
Tools that need an approval are asked for in the inbox.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter
from pydantic_ai import Agent, AgentRunResult, ModelRetry, messages
from pydantic_ai.capabilities import AbstractCapability, HandleDeferredToolCalls
from pydantic_ai.models import CompletedStreamedResponse, Model, ModelRequestParameters
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDenied
from pydantic_ai.toolsets import AbstractToolset, WrapperToolset

from interlock.adapters.common import Recorder, drop_volatile, find_own_error, split_terms
from interlock.client.context import AgentContext

ANY: TypeAdapter[Any] = TypeAdapter(Any)
RETURN: TypeAdapter[Any] = TypeAdapter(messages.ToolReturn)
RESPONSE: TypeAdapter[messages.ModelResponse] = TypeAdapter(messages.ModelResponse)


@dataclass
class DurableRun(AbstractCapability[Any]):
    """What makes a run of an agent durable; with `stream` the text of the model is emitted as it comes."""

    recorder: Recorder
    stream: bool = False

    def get_wrapper_model(self, model: Model) -> Model:
        return RecordedModel(model, self)

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        return RecordedToolset(toolset, self)

    async def ask_for_all(self, ctx: Any, requests: DeferredToolRequests) -> DeferredToolResults:
        """Asks in the inbox for every call that needs an approval, all at once."""
        answers = await asyncio.gather(*map(self.ask, requests.approvals))
        ids = [call.tool_call_id for call in requests.approvals]
        return DeferredToolResults(approvals=dict(zip(ids, answers, strict=True)))

    async def ask(self, call: messages.ToolCallPart) -> ToolApproved | ToolDenied:
        arguments, why = await self.recorder.ask_for_call(call.tool_name, call.tool_call_id, call.args_as_dict())
        return ToolDenied(why) if why else ToolApproved(override_args=arguments)


class RecordedModel(WrapperModel):
    """A model whose answers are steps."""

    def __init__(self, wrapped: Model, durable: DurableRun) -> None:
        super().__init__(wrapped)
        self.durable = durable

    async def request(self, history: Any, settings: Any, parameters: ModelRequestParameters) -> messages.ModelResponse:
        request = describe_call(self.wrapped, history, settings, parameters)
        response: messages.ModelResponse = await self.durable.recorder.call_model(
            lambda: self.answer(history, settings, parameters), request, RESPONSE
        )
        return response

    async def answer(self, history: Any, settings: Any, parameters: Any) -> messages.ModelResponse:
        """What the model says, emitted as it comes if that is wanted."""
        if not self.durable.stream:
            return await self.wrapped.request(history, settings, parameters)
        async with self.wrapped.request_stream(history, settings, parameters) as stream:
            async for event in stream:
                if isinstance(event, messages.PartStartEvent) and isinstance(event.part, messages.TextPart):
                    self.durable.recorder.ctx.emit(event.part.content)
                if isinstance(event, messages.PartDeltaEvent) and isinstance(event.delta, messages.TextPartDelta):
                    self.durable.recorder.ctx.emit(event.delta.content_delta)
            return stream.get()

    @asynccontextmanager
    async def request_stream(self, history: Any, settings: Any, parameters: Any, _: Any = None) -> AsyncIterator[Any]:
        """The recorded answer, as if it came now."""
        response = await self.request(history, settings, parameters)
        yield CompletedStreamedResponse(response, model_request_parameters=parameters, replay_events=True)


def describe_call(model: Model, history: Any, settings: Any, parameters: ModelRequestParameters) -> dict[str, Any]:
    """What is asked of a model, without headers, ids and times."""
    shown = [drop_volatile(message) for message in messages.ModelMessagesTypeAdapter.dump_python(history, mode="json")]
    tools = sorted((*parameters.function_tools, *parameters.output_tools), key=lambda tool: tool.name)
    return {
        "model": model.model_name, "settings": ANY.dump_python(drop_volatile(settings or {}), mode="json"),
        "messages": [{**message, "parts": [drop_volatile(part) for part in message["parts"]]} for message in shown],
        "tools": [[tool.name, tool.description, tool.parameters_json_schema] for tool in tools],
        "output": parameters.output_mode,
    }  # fmt: skip


@dataclass
class RecordedToolset(WrapperToolset[Any]):
    """Tools whose results are steps, and so is the wish that the model tries again."""

    durable: DurableRun

    async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: Any, tool: Any) -> Any:
        async def call() -> dict[str, Any]:
            try:
                value = await self.wrapped.call_tool(name, tool_args, ctx, tool)
            except ModelRetry as retry:
                return {"retry": retry.message}
            kind, adapter = ("return", RETURN) if isinstance(value, messages.ToolReturn) else ("value", ANY)
            return {kind: adapter.dump_python(value, mode="json")}

        arguments = ANY.dump_python(tool_args, mode="json")
        kept = await self.durable.recorder.call_tool(name, ctx.tool_call_id, arguments, call)
        if "retry" in kept:
            raise ModelRetry(kept["retry"])
        return RETURN.validate_python(kept["return"]) if "return" in kept else kept["value"]


async def run_agent(
    agent: Agent[Any, Any], prompt: Any, ctx: AgentContext, *, stream: bool = False, **terms: Any
) -> AgentRunResult[Any]:
    """Runs an agent durably. `terms` are those of `Recorder` and of `agent.run`. Raises what `ctx` raises, bare."""
    own, others = split_terms(terms)
    durable = DurableRun(Recorder(ctx, **own), stream)
    capabilities = [durable, HandleDeferredToolCalls(durable.ask_for_all), *others.pop("capabilities", ())]
    try:
        return await agent.run(prompt, capabilities=capabilities, **others)
    except BaseException as raised:
        if (error := find_own_error(raised)) is raised:
            raise
        raise error from None
