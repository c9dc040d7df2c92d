"""`ctx.tool("search", query=…)`: a tool of the contract is called as a recorded step, once people have approved it.

A call has a name: that of the tool with the id which the model gave the call, or else with a number. Who approves it is
what the contract says. A tool that changes something outside is called as an effect, if `interlock.tool` says that.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from interlock.client.agent_tools import Tool, find_function
from interlock.kernel.errors import PermanentError
from interlock.worker.requests import describe_request
from interlock.worker.waiting import Steps, await_steps, is_awaited, run_steps

if TYPE_CHECKING:
    from interlock.worker.context import JobContext

DIGEST_SHOWN = 8  # characters of the digest of arguments in the name of a question


class ToolCaller:
    """The calls of tools of one job, as this attempt knows them."""

    def __init__(self, context: "JobContext") -> None:
        self.context = context
        self.used: set[str] = set()  # names of calls that are done or under way

    def __call__(self, name: str, call: str = "", /, **arguments: Any) -> Any:
        if is_awaited(self.context):
            return self.aio(name, call, **arguments)
        return run_steps(self.perform(name, call, arguments))

    async def aio(self, name: str, call: str = "", /, **arguments: Any) -> Any:
        return await await_steps(self.perform(name, call, arguments), self.context.calls)

    def perform(self, name: str, call: str, arguments: Mapping[str, Any]) -> Steps[Any]:
        """Raises PermanentError, and nothing is asked or run, for a tool that is not in the contract."""
        given, function = self.find(name)
        check_arguments(name, function, arguments)
        key = self.name_call(name, call)
        self.used.add(key)
        try:
            return (yield from self.perform_once(key, name, given, function, arguments))
        except BaseException:  # it is not done, and may be tried again under its name
            self.used.discard(key)
            raise

    def perform_once(
        self, key: str, name: str, given: Any, function: Callable[..., Any], arguments: Mapping[str, Any]
    ) -> Steps[Any]:
        """The call as it is asked for is compared with the recorded one, and as it was approved it is made."""
        request = {"tool": name, "arguments": arguments}
        terms = given if isinstance(given, Tool) else Tool(function)
        if terms.approval is not None:
            arguments = yield from self.ask(key, arguments, terms.approval)
            check_arguments(name, function, arguments)
        if terms.effect:
            check = terms.check and partial(terms.check, **arguments)
            return (yield from self.context.effect.perform(key, partial(function, **arguments), check, request))
        return (yield from self.context.step.perform(key, partial(function, **arguments), request, None, 1))

    def ask(self, key: str, arguments: Mapping[str, Any], approval: Mapping[str, Any]) -> Steps[Any]:
        """The arguments that were approved. Other ones are another question: a vote counts for what it saw."""
        request = describe_request(key, arguments, self.context)
        assert request, "arguments are there, if only none"
        terms = {term: value for term, value in approval.items() if term != "expires_us"}
        if "expires_us" in approval:
            terms["expires"] = approval["expires_us"] / 1_000_000
        question = f"{key}? {request.digest[:DIGEST_SHOWN]}"
        answers = yield from self.context.ask.ask({question: dict(arguments)}, terms, title=f"{key}?")
        return answers[question]

    def find(self, name: str) -> tuple[Any, Callable[..., Any]]:
        """A tool of the contract, and its function.

        Raises:
            PermanentError: there is none; the text lists those that can be called.
        """
        agent = self.context.agent
        if agent is None:
            raise PermanentError("ctx.tool calls tools of an agent, and this is no job of one")
        functions = {each: find_function(given) for each, given in agent.tools.items()}
        allowed = ", ".join(sorted(repr(each) for each, function in functions.items() if function)) or "none"
        if name not in functions:
            raise PermanentError(
                f"the tool {name!r} is not in the contract of agent '{agent.name}'; allowed are {allowed}"
            )
        function = functions[name]
        if function is None:
            raise PermanentError(
                f"the contract only describes the tool '{name}'; those that can be called are {allowed}"
            )
        return agent.tools[name], function

    def name_call(self, name: str, call: str) -> str:
        """What a call is recorded as: by its id, or the next number.

        Raises:
            PermanentError: an id used before.
        """
        if not call:
            return next(key for number in count(1) if (key := f"{name} {number}") not in self.used)
        if (key := f"{name} {call}") in self.used:
            raise PermanentError(f"the call '{call}' of the tool '{name}' is there twice; give each call its own id")
        return key


def check_arguments(name: str, function: Callable[..., Any], arguments: Any) -> None:
    """Raises PermanentError for arguments that a tool does not take, as a model may make them up."""
    if not isinstance(arguments, Mapping):
        raise PermanentError(f"the arguments of the tool '{name}' are {arguments!r:.80}; allowed is an object by name")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a function in C may have none
        return
    try:
        signature.bind(**arguments)
    except TypeError as error:
        takes = ", ".join(signature.parameters) or "nothing"
        raise PermanentError(f"the tool '{name}' cannot be called so: {error}; it takes {takes}") from None
