"""How attempts end: the class of a failure, whether the job is tried again, and the results that are kept.

A runner sends what it saw as a step of its attempt, and then that it failed. Here, in the transaction that ends the
attempt, both become a class with an explanation in the closing event, and the class alone decides whether another
attempt follows, within what the job may (S-6). A lost lease has a budget of its own, which the core keeps.
"""

from contextlib import suppress
from typing import Any

import msgspec

from interlock.core.notes import CANCEL_REQUEST
from interlock.core.timers import CLOCK
from interlock.core.tx_state import ToFollow
from interlock.kernel.rows import Unit
from interlock.plugins.ci.failures import (
    CANCELLED,
    COMPANION,
    LOST,
    TIMEOUT,
    Judgement,
    Sight,
    find_rules,
    judge,
    shorten,
)
from interlock.plugins.ci.junit import LOST as LOST_TESTS
from interlock.plugins.ci.junit import CiTest, choose_tests
from interlock.plugins.ci.options import ATTEMPT, CiOptions, read_options_of
from interlock.plugins.ci.queries import (
    CLOCKS,
    QUEUE,
    REUSED,
    SUCCESS,
    WHOLE,
    CiResult,
    add_result,
    add_tests,
    count_by_rule,
    find_flaky,
    read_why_stopped,
)
from interlock.store.hooks import Moved, Reaction
from interlock.store.queries.for_verbs import find_cancel_requests, read_notes
from interlock.store.unit_of_work import UnitOfWork

TESTS = "ci tests "  # how the names begin of the steps in which it reports tests
ENDED = {"failure": "the run has failed", "success": "the run has succeeded without it"}  # why an open job is stopped
LOSSES = ("lost", "exhaust")
SIGHT = "ci end"  # the name of the step in which a runner says what it saw


def judge_end(tx: UnitOfWork, unit: Unit, trigger: str, payload: dict[str, Any]) -> str:
    """Adds the class of a failure to what is recorded of it, and lets the job be tried again or not."""
    own = read_options_of(tx.body(unit)) if unit.lifecycle == ATTEMPT else None
    if own is None or unit.parent is None:
        return trigger
    if trigger in (*LOSSES, "release"):
        why = "its runner was lost" if trigger in LOSSES else "its runner gave it back"
        keep_failure(tx, unit, own, payload, Judgement(LOST, 1.0, why))
        return trigger
    if payload.get("timeout"):
        sight = Sight(stopped="time")
        judgement = Judgement(TIMEOUT, 1.0, "the job took longer than it may")
    else:
        sight = read_sight(tx, unit, str(payload.get("error", "")))
        lost = [test.name for test in keep_tests(tx, unit, own) if test.outcome in LOST_TESTS]
        known_flaky = bool(lost) and find_flaky(tx, lost) == set(lost)
        judgement = judge(sight, own.job, known_flaky=known_flaky)
    rule = next((rule for rule in find_rules(judgement, sight) if own.retries.get(rule)), "")
    allowed = own.retries.get(rule, 0)
    again = bool(allowed) and count_by_rule(tx, unit.parent, rule, unit.id) < allowed
    retryable = tx.state(ToFollow).retryable
    if again:
        retryable.add(unit.id)
    else:
        retryable.discard(unit.id)
    keep_failure(tx, unit, own, payload, judgement, rule, sight.step)
    return trigger


def judge_cancel(tx: UnitOfWork, unit: Unit, reason: str, payload: dict[str, Any]) -> None:
    """Adds to what is recorded of a cancelled attempt that it was, and why."""
    own = read_options_of(tx.body(unit)) if unit.lifecycle == ATTEMPT else None
    if own is not None and unit.parent is not None:
        why = find_cancel_reason(tx, unit, payload) or reason
        keep_failure(tx, unit, own, payload, Judgement(CANCELLED, 1.0, shorten(f"it was cancelled: {why}")))


def find_cancel_reason(tx: UnitOfWork, attempt: Unit, payload: dict[str, Any]) -> str:
    """Why an attempt is cancelled: as it was asked to stop, or its job or run was; empty if none of them was."""
    family = [attempt]
    while family[-1].parent is not None:
        family.append(tx.unit(family[-1].parent))
    request = payload.get(CANCEL_REQUEST)
    requests = {} if request else find_cancel_requests(tx, [unit.id for unit in family])
    request = request or next((requests[unit.id] for unit in family if unit.id in requests), None)
    if request:
        return request["reason"] or f"by {request['by']}"
    run = family[-1]
    last = tx.changes.last_moves.get(run.id)
    if last is not None and last.actor == CLOCK:
        return CLOCKS[WHOLE if run.outcome else QUEUE]
    return read_why_stopped(tx.connection, tx.tenant, run.id) or ENDED.get(run.outcome or "", "")


def read_sight(tx: UnitOfWork, unit: Unit, error: str) -> Sight:
    """What the runner of an attempt saw of its end; of one that says nothing, the text of its error."""
    sights = [kept.payload for kept in read_notes(tx, [unit.id], "step") if kept.name == SIGHT]
    if not sights:
        return Sight(stage="", summary=error)
    try:
        return msgspec.json.decode(sights[-1], type=Sight)
    except msgspec.MsgspecError:
        return Sight(stage="", summary=error)


def keep_tests(tx: UnitOfWork, unit: Unit, own: CiOptions) -> list[CiTest]:
    """Keeps the tests that the runner of an attempt has reported, and returns them."""
    tests: list[CiTest] = []
    for kept in read_notes(tx, [unit.id], "step"):
        if kept.name.startswith(TESTS):
            with suppress(msgspec.MsgspecError):
                tests += msgspec.json.decode(kept.payload, type=list[CiTest])
    tests = choose_tests(tests)
    add_tests(tx, unit.id, own.fingerprint, tests)
    return tests


def keep_failure(
    tx: UnitOfWork, unit: Unit, own: CiOptions, payload: dict[str, Any], judgement: Judgement, rule: str = "",
    step: str = "",
) -> None:  # fmt: skip
    """The closing event of an attempt tells its class, and its row too."""
    payload |= {
        "class": judgement.kind, "fault": COMPANION[judgement.kind], "confidence": judgement.confidence,
        "explanation": judgement.explanation, **({"step": step} if step else {}),
    }  # fmt: skip
    add_result(tx, make_result(tx, unit, own, judgement.kind, rule))


def make_result(tx: UnitOfWork, unit: Unit, own: CiOptions, kind: str, rule: str = "") -> CiResult:
    """Makes the result of a job, as it is kept for later runs."""
    return CiResult(unit.id, unit.tenant, unit.parent or 0, own.fingerprint, kind, rule, tx.now, own.reuses)


def keep_successes(tx: UnitOfWork, moved: list[Moved]) -> None:
    """Attempts have succeeded: a later run may find them by their fingerprint."""
    for unit, _ in moved:
        if (own := read_options_of(tx.body(unit))) is not None:
            keep_tests(tx, tx.act_for(unit), own)
            add_result(tx, make_result(tx, unit, own, SUCCESS if own.reuses is None else REUSED))


KEEP_SUCCESSES = Reaction(
    "keep results of CI attempts",
    lambda kind: kind.lifecycle == ATTEMPT and kind.has_ended and kind.outcome == SUCCESS,
    keep_successes,
)
