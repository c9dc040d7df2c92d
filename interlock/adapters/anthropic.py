"""The Anthropic SDK made durable: `messages = durable(client, ctx)` in the handler of an agent.

`await messages.create(…)` is a step: its answer is recorded, and compared with what was asked under its number.
`await messages.call_tool(block, fn)` is one too, by the id that the model gave the call; with `ask=True` somebody must
approve it in the inbox first.
"""

from collections.abc import Callable
from inspect import isawaitable
from typing import Any

from anthropic.types import Message, ToolResultBlockParam, ToolUseBlock
from pydantic import TypeAdapter

from interlock.adapters.common import Recorder, drop_volatile
from interlock.client.context import AgentContext
from interlock.kernel.errors import PermanentError

ANY: TypeAdapter[Any] = TypeAdapter(Any)
MESSAGE: TypeAdapter[Message] = TypeAdapter(Message)


class DurableMessages:
    """The messages of a client, whose answers are steps."""

    def __init__(self, client: Any, recorder: Recorder) -> None:
        self.client, self.recorder = client, recorder

    async def create(self, **request: Any) -> Message:
        """Calls the model, once.

        Raises:
            PermanentError: a stream, which could not be recorded.
        """
        if request.get("stream"):
            raise PermanentError("messages.create(stream=True) is not recorded; leave `stream` out")
        message: Message = await self.recorder.call_model(
            lambda: self.client.messages.create(**request), describe_message_request(request), MESSAGE
        )
        return message

    async def call_tool(
        self, block: ToolUseBlock, call: Callable[..., Any], *, ask: bool = False
    ) -> ToolResultBlockParam:
        """Calls a function with the arguments that the model chose, once; returns the block that tells the result."""
        arguments: Any = block.input
        if ask:
            arguments, why = await self.recorder.ask_for_call(block.name, block.id, block.input)
            if why:
                return ToolResultBlockParam(type="tool_result", tool_use_id=block.id, content=why, is_error=True)

        async def call_once() -> str:
            value = call(**arguments)
            value = await value if isawaitable(value) else value
            return value if isinstance(value, str) else ANY.dump_json(value).decode()

        content = await self.recorder.call_tool(block.name, block.id, arguments, call_once)
        return ToolResultBlockParam(type="tool_result", tool_use_id=block.id, content=content)


def describe_message_request(request: dict[str, Any]) -> dict[str, Any]:
    """What is asked of the model, without headers, ids and times."""
    shown = drop_volatile({name: ANY.dump_python(value, mode="json") for name, value in request.items()})
    shown["messages"] = [
        {**message, "content": [drop_volatile(block) for block in message["content"]]}
        if isinstance(message["content"], list)
        else message
        for message in shown.get("messages", ())
    ]
    return shown


def durable(client: Any, ctx: AgentContext, **terms: Any) -> DurableMessages:
    """Makes the messages of an `AsyncAnthropic` durable. `terms` are those of `Recorder`."""
    return DurableMessages(client, Recorder(ctx, **terms))
