"""`ctx.validate(result)`: what a handler has made is judged by checks or people, and nobody works meanwhile."""

from typing import TYPE_CHECKING, Any

import msgspec

from interlock.client.exceptions import Await
from interlock.kernel.errors import PermanentError
from interlock.plugins.agents.contracts import ENFORCE, REQUIRED
from interlock.worker.waiting import Steps, await_steps, encode_settled, is_awaited, run_steps

if TYPE_CHECKING:
    from interlock.client.tasks import Task
    from interlock.worker.context import JobContext

VERDICT = "verdict:"  # as the engine calls the signal that a verdict has fallen


class Validation:
    """The validations of one job, as this attempt knows them: each has a number, in the order of the calls."""

    def __init__(self, context: "JobContext") -> None:
        self.context, self.count, self.passed = context, 0, False
        self.known = dict(context.grant.validations)

    def __call__(self, result: Any = None) -> Any:
        if is_awaited(self.context):
            return self.aio(result)
        return run_steps(self.perform(result))

    async def aio(self, result: Any = None) -> list[dict[str, str]]:
        return await await_steps(self.perform(result), self.context.calls)

    def perform(self, result: Any) -> Steps[list[dict[str, str]]]:
        """What was found; nothing: it has passed.

        Raises:
            Await: that is not known yet.
        """
        self.count += 1
        name = str(self.count)
        if name not in self.known:
            text = encode_settled(f"validation {name}", self.context.clean("validate", result))
            yield self.context.sender, self.context.record("validate", msgspec.Raw(text.encode()), name)
            yield Await(VERDICT + name)
        findings: list[dict[str, str]] = msgspec.json.decode(self.known[name])
        self.passed = not findings
        self.context.corrections += bool(findings)
        return findings


def refuse_unvalidated(task: "Task[Any, Any]", context: "JobContext | None") -> None:
    """A handler has returned.

    Raises:
        PermanentError: its contract wants its work to be validated, and it was not.
    """
    agent = task.agent
    if agent is None or agent.contract.validation != ENFORCE or (context is not None and context.validate.passed):
        return
    raise PermanentError(
        f"{REQUIRED}: the validation of agent '{agent.name}' is enforced, so it may return only after ctx.validate "
        "has found nothing"
    )
