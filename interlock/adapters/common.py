"""What adapters have in common: steps of models and tools, approvals in the inbox, errors that come in groups."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import msgspec

from interlock.client.context import AgentContext
from interlock.client.durations import Length
from interlock.client.exceptions import NoAnswer, Rejected, Snooze
from interlock.kernel.errors import InterlockError

# What changes from attempt to attempt although the same is request for, in messages and in settings.
VOLATILE = {
    "id", "timestamp", "created_at", "usage", "cost", "metadata", "provider_details", "provider_url", "extra_headers",
    "timeout", "extra_args",
}  # fmt: skip


TERMS = ("name", "usage", "approvers", "expires")  # of a recorder


def split_terms(terms: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The terms of a recorder, and those that are the library's own."""
    return {name: terms[name] for name in TERMS if name in terms}, {n: terms[n] for n in terms if n not in TERMS}


def drop_volatile(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A message, a part of one, or settings, without ids, times and headers; what a user wrote stays as it is."""
    return {
        name: value
        for name, value in fields.items()
        if name not in VOLATILE and not name.endswith("_id") and value is not None
    }


@dataclass
class Recorder:
    """Records what an agent of some library asks for: calls of models and tools as steps, approvals in the inbox.

    `usage` says what an answer of a model has used; by default its tokens, because what they cost depends on the
    contract with the provider. Who may approve the call of a tool is said by `approvers` and `expires`. Two agents in
    one handler have two names.
    """

    ctx: AgentContext
    name: str = ""
    usage: Callable[[Any], Mapping[str, float] | None] | None = None
    approvers: Iterable[str] = ()
    expires: Length | None = None
    numbers: set[int] = field(default_factory=set, init=False)  # of calls of models that are answered or under way

    def name_step(self, what: str) -> str:
        return f"{self.name} {what}".lstrip()

    async def call_model(self, call: Callable[[], Awaitable[Any]], request: Any, answers: Any) -> Any:
        """The answer of a model, under its number; `answers` is the pydantic TypeAdapter of answers."""

        async def dump() -> Any:
            return answers.dump_python(await call(), mode="json")

        def tell_usage(answer: Any) -> Mapping[str, float] | None:
            return (self.usage or self.count_tokens)(answers.validate_python(answer))

        number = next(number for number in count(1) if number not in self.numbers)  # a call that raised has none
        self.numbers.add(number)
        try:
            answer = await self.ctx.step.aio(self.name_step(f"model {number}"), dump, of=request, usage=tell_usage)
        except BaseException:
            self.numbers.discard(number)
            raise
        return answers.validate_python(answer)

    def count_tokens(self, answer: Any) -> Mapping[str, float]:
        return {"tokens": answer.usage.input_tokens + answer.usage.output_tokens}

    async def call_tool(self, name: str, call_id: str, arguments: Any, call: Callable[[], Awaitable[Any]]) -> Any:
        """The result of a tool, under the id that the model gave the call."""
        request = {"tool": name, "arguments": arguments}
        return await self.ctx.step.aio(self.name_step(f"{name} {call_id}"), call, of=request)

    async def ask_for_call(self, name: str, call_id: str, arguments: Any) -> tuple[Any, str]:
        """Asks whether a tool may be called: the arguments that were approved; or None, and why not."""
        question = self.name_step(f"{name} {call_id}?")
        try:
            return await self.ctx.ask.aio(question, arguments, approvers=self.approvers, expires=self.expires), ""
        except (Rejected, NoAnswer) as refused:
            return None, str(refused)


def decode_arguments(text: str) -> Any:
    """The arguments of a call; text that is no JSON, which a model may well write, stands for itself."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def find_own_error(raised: BaseException) -> BaseException:
    """Of what a library raised, maybe in groups, the error of ours: a wait before others. Else what it raised."""
    errors = list(list_errors(raised))
    own = [error for error in errors if isinstance(error, InterlockError)]
    waits = [error for error in own if isinstance(error, Snooze)]
    return next(iter(waits or own), raised)


def list_errors(error: BaseException | None) -> Iterable[BaseException]:
    """An error, those of a group, and what they were raised from."""
    while error is not None:
        if isinstance(error, BaseExceptionGroup):
            for each in error.exceptions:
                yield from list_errors(each)
        yield error
        error = error.__cause__
