"""What the end of a handler means: a return value or an exception becomes the outcome of its job."""

import asyncio
from typing import Any

import msgspec

from interlock.client.outcomes import Cancelled, Reject, Retry, Snooze
from interlock.kernel.commands import PERMANENT, TRANSIENT, VALIDATION, Held, Outcome
from interlock.kernel.errors import PermanentError, Stale, ValidationError

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
    try:
        return Outcome(held=held, result=kept(value))
    except Unkept as error:
        return failure(held, error)


def failure(held: Held, error: BaseException) -> Outcome | Snooze | None:
    """What an exception stands for; None: nothing that this worker could say would be heard."""
    match error:
        case Snooze():
            return error
        case Stale():
            return None
        case Cancelled() | asyncio.CancelledError():
            return Outcome(held=held, ended="cancelled", error=told(error))
        case Retry():
            return Outcome(held=held, ended="failure", error=told(error), after_us=error.after_us)
        case Unkept():
            return Outcome(held=held, ended="failure", error=str(error), error_class=PERMANENT, stage="output")
        case Reject() | PermanentError():
            return Outcome(held=held, ended="failure", error=told(error), error_class=PERMANENT)
        case ValidationError():
            return Outcome(held=held, ended="failure", error=told(error), error_class=VALIDATION)
        case _:
            return Outcome(held=held, ended="failure", error=told(error), error_class=TRANSIENT)


def unreadable(held: Held, error: msgspec.MsgspecError) -> Outcome:
    """The arguments do not fit the handler: its code has changed, or the record was damaged."""
    damaged = not isinstance(error, msgspec.ValidationError)
    return Outcome(
        held=held, ended="failure", error=f"the arguments cannot be read: {error}", error_class=VALIDATION,
        reason_code="parse_error" if damaged else "validation_failed", stage="input",
    )  # fmt: skip


def told(error: BaseException) -> str:
    """An error as it is kept: no database keeps a zero byte or half a letter."""
    try:
        text = str(error)
    except Exception:
        text = "it cannot say what it is"
    name = type(error).__name__
    whole = (f"{name}: {text}" if text else name)[:TEXT_MAX]
    return whole.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
