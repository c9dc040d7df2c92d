"""What the end of a handler means: a return value or an exception becomes the outcome of its job."""

import asyncio
from typing import Any, TypeVar

import msgspec

from interlock.client.outcomes import Await, Cancelled, Reject, Result, Retry, Snooze
from interlock.kernel.commands import PERMANENT, TRANSIENT, VALIDATION, Held, Outcome, Release
from interlock.kernel.errors import PermanentError, Stale, ValidationError
from interlock.kernel.texts import make_storable
from interlock.worker.tracebacks import format_traceback

TEXT_MAX = 4_000  # of an error that is kept


class Unkept(PermanentError):
    """A result that cannot be kept."""


def kept(value: Any) -> str:
    """A result as JSON. Raises Unkept."""
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, msgspec.MsgspecError, UnicodeError) as error:
        raise Unkept(f"the result cannot be kept as JSON: {error}") from None


def success(held: Held, value: Any) -> Outcome | Snooze | None:
    cost = 0.0
    if isinstance(value, Result):
        value, cost = value.value, value.cost
    try:
        return Outcome(held=held, result=kept(value), cost=cost)
    except Unkept as error:
        return failure(held, error)


E = TypeVar("E")


def priced(end: E, cost: float) -> E:
    """How an attempt ended, with what it has cost."""
    if isinstance(end, Outcome) and cost:
        return msgspec.structs.replace(end, cost=end.cost + cost)
    if isinstance(end, Snooze):
        end.cost = cost
    return end


def given_back(end: Snooze, held: Held, **says: Any) -> Release:
    """The command that a handler stands for which wants to be called again, later or once a signal is there."""
    signal = end.signal if isinstance(end, Await) else None
    return Release(held=(held,), snooze_us=end.after_us, signal=signal, cost=end.cost, **says)


def failure(held: Held, error: BaseException) -> Outcome | Snooze | None:
    """What an exception stands for; None: nothing that this worker could say would be heard."""
    match error:
        case Snooze():
            return error
        case Stale():
            return None
        case Cancelled() | asyncio.CancelledError():
            return failed(held, error, ended="cancelled")
        case Retry():
            return failed(held, error, after_us=error.after_us)
        case Unkept():
            return failed(held, error, error=str(error), error_class=PERMANENT, stage="output")
        case Reject() | PermanentError():
            return failed(held, error, error_class=PERMANENT)
        case ValidationError():
            return failed(held, error, error_class=VALIDATION)
        case _:
            return failed(held, error, error_class=TRANSIENT)


def failed(held: Held, raised: BaseException, **facts: Any) -> Outcome:
    """The outcome of a handler that raised something."""
    known = {"ended": "failure", "error": told(raised), "traceback": format_traceback(raised), **facts}
    return Outcome(held=held, **known)


def unreadable(held: Held, error: msgspec.MsgspecError) -> Outcome:
    """The arguments do not fit the handler: its code has changed, or the record was damaged."""
    damaged = not isinstance(error, msgspec.ValidationError)
    return Outcome(
        held=held, ended="failure", error=f"the arguments cannot be read: {error}", error_class=VALIDATION,
        reason_code="parse_error" if damaged else "validation_failed", stage="input",
    )  # fmt: skip


def told(error: BaseException) -> str:
    """An error as it is kept: the name of its class, and its text."""
    text, name = text_of(error), type(error).__name__
    return make_storable((f"{name}: {text}" if text else name)[:TEXT_MAX])


def text_of(error: BaseException) -> str:
    """What an exception says, as far as it can."""
    try:
        return str(error)[:TEXT_MAX]
    except BaseException:  # whatever it raises is its own, and must not end the worker
        return "it cannot say what it is"
