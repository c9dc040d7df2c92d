"""Turn a return value or an exception of a handler into the outcome that is sent to the engine."""

import asyncio
from typing import Any

import msgspec

from interlock.client.exceptions import Await, Cancelled, Outage, Reject, Result, Retry, Snooze, StepFailed
from interlock.kernel.commands import PERMANENT, TRANSIENT, VALIDATION, LeaseRef, Outcome, Release
from interlock.kernel.errors import PermanentError, Stale, ValidationError
from interlock.kernel.texts import make_storable
from interlock.worker.tracebacks import format_traceback
from interlock.worker.waiting import encode_child

TEXT_MAX = 4_000  # characters of an error that are stored


class GiveBack:
    """The end of work that its worker cannot finish: another worker may, and no attempt is spent."""


Ending = Outcome | Snooze | GiveBack | None  # None: the lease is lost, so nothing is reported


class ResultNotStorable(PermanentError):
    """A result that is no JSON."""


def encode_result(value: Any) -> str:
    """A result as JSON.

    Raises:
        ResultNotStorable: it is no JSON.
    """
    if value is None:
        return "null"
    try:
        return msgspec.json.encode(value, enc_hook=encode_child).decode()
    except (TypeError, msgspec.MsgspecError, UnicodeError) as error:
        raise ResultNotStorable(f"the result cannot be kept as JSON: {error}") from None


def classify_result(held: LeaseRef, value: Any) -> Ending:
    """What a return value stands for."""
    cost = 0.0
    if isinstance(value, Result):
        value, cost = value.value, value.cost
    try:
        return Outcome(held=held, result=encode_result(value), cost=cost)
    except ResultNotStorable as error:
        return classify_error(held, error)


def classify_error(held: LeaseRef, error: BaseException) -> Ending:
    """What an exception of a handler stands for."""
    match error:
        case Snooze():
            return error
        case Stale():
            return None
        case Cancelled() | asyncio.CancelledError():
            return make_failure(held, error, ended="cancelled")
        case Retry():
            return make_failure(held, error, after_us=error.after_us)
        case ResultNotStorable():
            return make_failure(held, error, error=str(error), error_class=PERMANENT, stage="output")
        case Reject() | PermanentError():
            return make_failure(held, error, error_class=PERMANENT)
        case ValidationError():
            return make_failure(held, error, error_class=VALIDATION)
        case _:
            return make_failure(held, error, error_class=TRANSIENT)


def make_failure(held: LeaseRef, raised: BaseException, **fields: Any) -> Outcome:
    """The outcome of a handler that raised something."""
    if isinstance(raised, StepFailed):
        return Outcome(held=held, **{"ended": "failure", "error": make_storable(read_text(raised)), **fields})
    texts = {"error": describe_error(raised), "traceback": format_traceback(raised)}
    return Outcome(held=held, **{"ended": "failure", **texts, **fields})


def classify_unreadable_arguments(held: LeaseRef, error: msgspec.MsgspecError) -> Outcome:
    """The arguments do not fit the handler: its code has changed, or the record was damaged."""
    damaged = not isinstance(error, msgspec.ValidationError)
    return Outcome(
        held=held, ended="failure", error=f"the arguments cannot be read: {error}", error_class=VALIDATION,
        reason_code="parse_error" if damaged else "validation_failed", stage="input",
    )  # fmt: skip


def classify_stop(outcome: Outcome, *, given_up: bool, stop_requested: bool) -> Ending:
    """What it stands for that a handler was stopped, or says that it was cancelled.

    `given_up`: its worker stops, and does not wait for it; `stop_requested`: it was told to stop.
    """
    if given_up:
        return GiveBack()
    if stop_requested:
        return msgspec.structs.replace(outcome, traceback="")
    error = f"it stopped, though nobody had asked for it: {outcome.error}"
    return msgspec.structs.replace(outcome, ended="failure", error=error, error_class=TRANSIENT)


def add_cost(ending: Ending, cost: float) -> Ending:
    """The same ending, with what the attempt has cost besides."""
    if isinstance(ending, Outcome) and cost:
        return msgspec.structs.replace(ending, cost=ending.cost + cost)
    if isinstance(ending, Snooze):
        ending.cost = cost
    return ending


def make_release(snooze: Snooze, held: LeaseRef, **fields: Any) -> Release:
    """The command for a handler that wants to be called again, later or once a signal is there."""
    signals = snooze.signals if isinstance(snooze, Await) else ()
    outage = snooze.dependency if isinstance(snooze, Outage) else None
    return Release(
        held=(held,), snooze_us=snooze.after_us, signals=signals, outage=outage, cost=snooze.cost, **fields
    )  # fmt: skip


def describe_error(error: BaseException) -> str:
    """An error as it is stored: the name of its class, and its text."""
    text, name = read_text(error), type(error).__name__
    return make_storable((f"{name}: {text}" if text else name)[:TEXT_MAX])


def read_text(error: BaseException) -> str:
    """The text of an exception, as far as it has one."""
    try:
        return str(error)[:TEXT_MAX]
    except BaseException:  # whatever it raises is its own, and must not end the worker
        return "it cannot say what it is"
