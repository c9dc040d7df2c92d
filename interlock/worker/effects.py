"""`ctx.effect(name, call, check=…)`: call an outside system, and never repeat the call unnoticed.

Before the call it is recorded that it begins, after it its result. A worker that is lost in between leaves an effect
that is *open*: nobody knows whether the call took place. The next attempt asks `check`; without one, a person is asked
in the inbox, and the job waits for the answer without a worker.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from interlock.client.exceptions import Await, NotDone, Reject
from interlock.kernel.commands import EffectStatus, ReadSteps, Record, Work
from interlock.kernel.errors import PermanentError
from interlock.worker.requests import check_record_name, describe_request, make_drift
from interlock.worker.waiting import CHILD, Steps, await_steps, is_awaited, make_record, run_steps

if TYPE_CHECKING:
    from interlock.worker.context import JobContext

LIFECYCLE = "effect"
BEGUN, NOT_DONE = "begun", "not_done"


class EffectRecorder:
    """The effects of one job, as this attempt knows them."""

    def __init__(self, context: "JobContext") -> None:
        self.context = context
        self.known = {status.name: status for status in context.grant.effects}
        self.used: set[str] = set()  # names of this attempt

    def __call__(
        self, name: str, call: Callable[[], Any], *, check: Callable[[], Any] | None = None, of: Any = None
    ) -> Any:
        if is_awaited(self.context):
            return self.aio(name, call, check=check, of=of)
        return run_steps(self.perform(name, call, check, of))

    async def aio(
        self, name: str, call: Callable[[], Any], *, check: Callable[[], Any] | None = None, of: Any = None
    ) -> Any:
        return await await_steps(self.perform(name, call, check, of), self.context.calls)

    def perform(self, name: str, call: Callable[[], Any], check: Callable[[], Any] | None, of: Any) -> Steps[Any]:
        """Raises PermanentError for a name that this attempt used before: a name stands for one call."""
        check_record_name("an effect", name)
        if name in self.used:
            raise PermanentError(
                f"the effect '{name}' is there twice in this attempt, and a name stands for one call; name each by "
                f'what sets it apart, as in ctx.effect(f"{name}-{{number}}", …)'
            )
        self.used.add(name)
        try:
            return (yield from self.perform_once(name, call, check, of))
        except BaseException:  # nothing came of it, and it may be tried again under its name
            self.used.discard(name)
            raise

    def perform_once(self, name: str, call: Callable[[], Any], check: Callable[[], Any] | None, of: Any) -> Steps[Any]:
        """The call is made if it is not known what came of it: a check or a person may know."""
        sender, status, request = self.context.sender, self.known.get(name), describe_request(name, of, self.context)
        if request is not None and status is not None and status.of not in ("", request.digest):
            read = ReadSteps(tenant=self.context.tenant, held=self.context.held, name=name, effect=True)
            raise make_drift(name, (yield sender, read).request, request)
        if status is not None and status.result is not None:
            return msgspec.json.decode(self.context.read_value(status.result))
        if status is not None and status.is_open:
            if check is None:
                yield from self.ask(status)
            elif (value := self.context.clean(name, (yield check))) is not None:
                yield sender, self.make_result(name, value)
                return value
            else:
                yield sender, self.make_mark(name, NOT_DONE)
        yield sender, msgspec.structs.replace(self.make_mark(name, BEGUN), of=request)
        try:
            value = yield call
        except NotDone:
            yield sender, self.make_mark(name, NOT_DONE)
            raise
        value = self.context.clean(name, value)
        yield sender, self.make_result(name, value)
        return value

    # What is recorded.

    def make_mark(self, name: str, state: str) -> Record:
        """The record that it begins, or was not done; what is known of it is told apart by its counts."""
        status = self.known.get(name) or EffectStatus(name, 0, 0)
        place = f"{self.context.fence}.{status.begun}.{status.undone}"
        begun, undone = status.begun + (state == BEGUN), status.undone + (state == NOT_DONE)
        self.known[name] = msgspec.structs.replace(status, begun=begun, undone=undone)
        return self.context.record("effect", {"state": state, "place": place, "by": ""}, name)

    def make_result(self, name: str, value: Any) -> Record:
        record = self.context.record("effect_result", value, name)
        self.known[name] = msgspec.structs.replace(self.known[name], result=record.payload)
        return record

    # What people are asked.

    def ask(self, status: EffectStatus) -> Steps[None]:
        """Raises Await until a person has answered, and Reject if the answer is that nothing more is done."""
        child = self.name_question(status)
        if child not in self.context.children:
            yield self.context.sender, self.make_question(child, status.name)
        question = self.context.children.get(child)
        if question is None or question.outcome is None:
            yield Await(CHILD + child)
        assert question is not None, "the attempt has ended"
        raise Reject(f"the effect '{status.name}' is not known to have happened, and {question.by} has stopped it")

    def name_question(self, status: EffectStatus) -> str:
        """Each call of which nothing is known has a question of its own."""
        return f"effect {status.name} {status.begun}"

    def make_question(self, child: str, name: str) -> Record:
        text = msgspec.json.encode({"effect": name}).decode()
        return make_record(self.context, child, Work(task=name, lifecycle=LIFECYCLE, input=text))
