"""`ctx.step(name, fn)`: run a function once, however many attempts the job has.

The grant of an attempt has a page of what earlier ones recorded. A step that is not on it is asked for when the handler
comes to it, with those that were recorded after it, so a handler that does again what it did before reads each page
once. What a handler asks for (`of=`) is compared with what was asked for under the same name.
"""

from collections.abc import Callable, Coroutine, Mapping
from contextvars import ContextVar
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

import msgspec

from interlock.client.arguments import refuse_numbers_without_value
from interlock.client.exceptions import Await, Cancelled
from interlock.kernel.budgets import check_unit_names, parse_amount
from interlock.kernel.commands import AskedFor, KeptStep, ReadSteps, Record, StepsPage
from interlock.kernel.errors import InterlockError, PermanentError, Stale
from interlock.worker.requests import check_record_name, describe_request, make_drift
from interlock.worker.waiting import Steps, await_steps, is_awaited, run_steps

if TYPE_CHECKING:
    from interlock.worker.context import JobContext

TRIES_MAX = 100
Usage = Mapping[str, float] | Callable[[Any], Mapping[str, float] | None] | None
NOT_TRIED_AGAIN = (Await, Cancelled, PermanentError, Stale)


# In which step of which attempt a function is called: what it emits belongs to that step.
STEP: ContextVar[tuple["StepRecorder | None", str]] = ContextVar("step", default=(None, ""))


class StepRecorder:
    """The steps of one job, as this attempt knows them."""

    def __init__(self, context: "JobContext") -> None:
        grant = context.grant
        self.context, self.done, self.left = context, dict(grant.steps), grant.steps_left
        self.requests = dict(grant.requests)  # digests of what was asked for
        self.used: set[str] = set()  # names of this attempt

    def __call__(
        self, name: str, fn: Callable[[], Any], *, of: Any = None, usage: Usage = None, retry: int = 1
    ) -> Any:  # fmt: skip
        if is_awaited(self.context):
            return self.aio(name, fn, of=of, usage=usage, retry=retry)
        return run_steps(self.perform(name, fn, of, usage, retry))

    async def aio(
        self, name: str, fn: Callable[[], Any], *, of: Any = None, usage: Usage = None, retry: int = 1
    ) -> Any:  # fmt: skip
        return await await_steps(self.perform(name, fn, of, usage, retry), self.context.calls)

    def perform(self, name: str, fn: Callable[[], Any], of: Any, usage: Usage, retry: int) -> Steps[Any]:
        """Raises PermanentError for a name that this attempt used before: a name stands for one step."""
        check_record_name("a step", name)
        check_tries(name, retry)
        request = describe_request(name, of, self.context)
        if name in self.used:
            raise PermanentError(
                f"the step '{name}' is there twice in this attempt, and a name stands for one step; name each by what "
                f'sets it apart, as in ctx.step(f"{name}-{{number}}", …)'
            )
        self.used.add(name)
        try:
            if self.left and name not in self.done:
                yield from self.look_up(name)
            if name not in self.done:
                yield from self.perform_now(name, fn, request, usage, retry)
            elif request is not None and self.requests.get(name, request.digest) != request.digest:
                page = yield self.context.sender, self.make_read(name)
                raise make_drift(name, page.request, request)
        except BaseException:  # it is not done, and may be tried again under its name
            self.used.discard(name)
            raise
        return msgspec.json.decode(self.context.read_value(self.done[name]))

    def perform_now(
        self, name: str, fn: Callable[[], Any], request: AskedFor | None, usage: Usage, retry: int
    ) -> Steps[None]:  # fmt: skip
        """A step that is not recorded yet is done, and recorded."""
        meters = self.context.meters
        if meters.questions:
            yield from meters.wait_for_answers()
        value = yield from self.try_often(name, fn, retry)
        text, used = encode_step(name, self.context.clean(name, value)), find_usage(name, usage, value)
        yield from self.send(self.make_record(name, text, request, used))
        self.done[name] = text
        meters.add(used or {}, steps=1)

    def look_up(self, name: str) -> Steps[None]:
        """A step that the grant did not bring is asked for, with those that were recorded after it."""
        page: StepsPage = yield self.context.sender, self.make_read(name)
        for step in page.steps:
            self.add(step)

    def add(self, step: KeptStep) -> None:
        if step.name not in self.done:
            self.left -= 1
            self.done[step.name] = step.result
            if step.of is not None:
                self.requests[step.name] = step.of

    def try_often(self, name: str, fn: Callable[[], Any], tries: int) -> Steps[Any]:
        """What a function returns; if it raises, it is called again, so often in all, unless that would change nothing.

        What a try has used that raised is told, if the exception says it (`usage`).
        """
        outside = STEP.get()
        for place in range(1, tries + 1):
            try:
                STEP.set((self, name))
                return (yield fn)
            except NOT_TRIED_AGAIN:
                raise
            except Exception as error:
                if used := find_usage(name, getattr(error, "usage", None), None):
                    tried = f"{name} try {self.context.fence}.{place}"
                    yield from self.send(msgspec.structs.replace(self.context.record("usage", None, tried), usage=used))
                    self.context.meters.add(used)
                if place == tries:
                    raise
            finally:
                STEP.set(outside)
        raise AssertionError("it is tried at least once")

    def send(self, record: Record) -> Steps[None]:
        """Raises Stale if that was the end of the job: its run has used more than it may."""
        (answer,) = yield self.context.sender, record
        app, grant = self.context.app, self.context.grant
        if app is not None and answer.state and app.lifecycles[grant.lifecycle].settled(answer.state):
            raise Stale(f"this job is no longer held here: it is {answer.state}")

    def make_read(self, name: str) -> ReadSteps:
        return ReadSteps(tenant=self.context.tenant, held=self.context.held, name=name)

    def make_record(
        self, name: str, text: str, request: AskedFor | None, used: dict[str, float] | None
    ) -> Record:  # fmt: skip
        record = self.context.record("step", msgspec.Raw(text.encode()), name)
        return record if request is None and used is None else msgspec.structs.replace(record, of=request, usage=used)


def check_tries(name: str, retry: int) -> None:
    """Raises PermanentError for what is no number of tries."""
    if isinstance(retry, bool) or not isinstance(retry, int) or not 1 <= retry <= TRIES_MAX:
        raise PermanentError(f"step '{name}': retry = {retry!r} is not allowed; allowed is 1 to {TRIES_MAX}")


def find_usage(name: str, usage: Usage, value: Any) -> dict[str, float] | None:
    """What a step has used, as it says or as its result tells.

    Raises:
        PermanentError: it cannot be.
    """
    try:
        used = usage(value) if callable(usage) else usage
    except Exception as error:
        raise PermanentError(f"usage of '{name}' has raised: {error!r}; it gets the result of the step") from error
    if used is None:
        return None
    if not isinstance(used, Mapping):
        raise PermanentError(f"usage of '{name}' = {used!r} is not allowed; allowed is one such as {{\"tokens\": 900}}")
    try:
        check_unit_names(used)
        for unit, amount in used.items():
            parse_amount(unit, amount)
    except InterlockError as wrong:
        raise PermanentError(f"usage of '{name}': {wrong}") from None
    return dict(used)


def encode_step(name: str, value: Any) -> str:
    """The result of a step as it is kept.

    Raises:
        PermanentError: it is no JSON, such as an awaitable.
    """
    try:
        text = msgspec.json.encode(value).decode()
        if "null" in text:
            refuse_numbers_without_value(value)
        return text
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError) as error:
        if isawaitable(value):
            if isinstance(value, Coroutine):
                value.close()
            raise PermanentError(
                f"the function of the step '{name}' is async, and its handler is not; make the handler `async def`, "
                "and await the step"
            ) from None
        raise PermanentError(
            f"the result of the step '{name}' cannot be kept as JSON: {error}; return plain data, such as a "
            "dict of text and numbers"
        ) from None
