"""Check and store the outcome of an attempt, and recognise one that is sent twice."""

from hashlib import sha256
from typing import Any

import msgspec

from interlock.core.notes import CANCEL_REQUEST, TRACEBACK, note
from interlock.core.validation import check_choice, check_json, check_text
from interlock.kernel.api_keys import redact_keys
from interlock.kernel.commands import ENDS, ERROR_CLASSES, REASONS, STAGES, TRACEBACK_MAX, Outcome
from interlock.kernel.errors import InterlockError
from interlock.kernel.lifecycle import Category
from interlock.kernel.paths import SELF
from interlock.kernel.rows import Body, Event, Unit
from interlock.kernel.texts import cut_middle
from interlock.store.unit_of_work import UnitOfWork

NULL = "null"  # a result that is not written: it says no more than there being none
NO_MORE = "{}"  # the payload of an end of which there is no more to tell; a failure tells more
FAILED = (Category.FAILURE, Category.DEAD)
MILLION, COST_MAX = 1_000_000, 1_000_000_000_000


def check_outcome(outcome: Outcome) -> None:
    """Words that nobody knows are kept apart from those that are known."""
    check_choice("ended", outcome.ended, ENDS)
    check_choice("stage", outcome.stage, STAGES)
    check_text("error", outcome.error)
    check_text("traceback", outcome.traceback)
    check_cost(outcome.cost)
    check_choice("error_class", outcome.error_class, tuple(ERROR_CLASSES))
    if outcome.reason_code is not None:
        check_choice("reason_code", outcome.reason_code, REASONS)
    if outcome.result != NULL:
        check_result(outcome.result)


def check_result(result: str) -> None:
    """Raises InterlockError for a result that is no JSON text: whoever reads the job could not decode it."""
    try:
        check_json("result", result)
    except InterlockError as error:
        taught = """a result is JSON text, so the text done is sent as '"done"': encode it, as json.dumps does"""
        raise InterlockError(f"{error}; {taught}") from None


def check_cost(cost: float) -> None:
    """Check what an attempt cost.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    if not 0 <= cost <= COST_MAX:  # nor what is no number
        raise InterlockError(f"cost = {cost} is not allowed; allowed is 0 to {COST_MAX}")


def is_said_before(event: Event, body: Body, outcome: Outcome) -> bool:
    """Whether this is what the holder said when its lease ended."""
    if outcome.ended == "success":
        return event.trigger == "complete" and (body.result or NULL) == outcome.result
    if outcome.ended == "cancelled":
        return event.trigger == "stopped" and tells_no_more(event)
    kept = msgspec.json.decode(event.payload)
    return all(kept.get(name) == value for name, value in describe_failure(outcome).items())


def tells_no_more(event: Event) -> bool:
    """Whether an end says nothing but what it cost, and who had asked for it."""
    return event.payload == NO_MORE or set(msgspec.json.decode(event.payload)) <= {CANCEL_REQUEST, "cost"}


def is_release_again(event: Event, verb: str, actor: str) -> bool:
    """Whether this is what its holder did by giving a unit back: it waits where it is, or a cancel ended it.

    Others give a unit back as well, when they take it from its holder: then it was not what the holder did.
    """
    ended = event.trigger in (SELF, "stopped", "overdue") and tells_no_more(event)
    return (event.trigger == verb or ended) and event.actor == actor


def describe_failure(outcome: Outcome) -> dict[str, Any]:
    """What the record keeps of a failure."""
    kept = {"error": redact_keys(outcome.error), "error_class": outcome.error_class, "stage": outcome.stage}
    if outcome.reason_code is not None:
        kept["reason_code"] = outcome.reason_code
    if outcome.traceback:
        kept["traceback_digest"] = sha256(traceback_text(outcome).encode()).hexdigest()
    return kept


def traceback_text(outcome: Outcome) -> str:
    """A traceback as it is kept: short enough, and without secrets, whoever has sent it."""
    return msgspec.json.encode(cut_middle(redact_keys(outcome.traceback), TRACEBACK_MAX)).decode()


def keep_traceback(tx: UnitOfWork, unit: Unit, outcome: Outcome) -> None:
    """The traceback of a failed attempt is kept as long as its unit."""
    if outcome.traceback:
        note(tx, unit.id, TRACEBACK, traceback_text(outcome), name=str(unit.attempt), fence=unit.fence)


def choose_end(tx: UnitOfWork, unit: Unit, trigger: str, payload: dict[str, Any]) -> str:
    """The trigger by which a unit ends: a plugin may have another one for what would be no success, or tell more."""
    lifecycle = tx.lifecycle(unit)
    if tx.hooks.before_failure and lifecycle.category(lifecycle.move(unit.state, trigger).path[-1]) in FAILED:
        for hook in tx.hooks.before_failure:
            trigger = hook(tx, unit, trigger, payload)
    return trigger


def keep_result(tx: UnitOfWork, unit: Unit, result: str | None) -> None:
    """A unit has a result, which the act that moves it next will tell of."""
    body = tx.body(unit)
    if result is not None:
        tx.changes.results[unit.id] = result
    if result != body.result:
        body.result = result
        tx.change(body)


def forget_error(tx: UnitOfWork, unit: Unit) -> None:
    """What an earlier attempt failed with is no error of a unit that has succeeded; its events still tell it."""
    body = tx.body(unit)
    if body.error is not None:
        body.error = None
        tx.change(body)


def add_cost(tx: UnitOfWork, unit: Unit, cost: float) -> dict[str, Any]:
    """What an attempt has cost is counted, and kept in the event that closes it."""
    millionths = round(cost * MILLION)
    if not millionths:
        return {}
    tx.counters.costs[unit.id] = tx.counters.costs.get(unit.id, 0) + millionths
    return {"cost": millionths / MILLION}
