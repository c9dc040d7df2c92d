"""Leases: grant, start, heartbeat, finish and end; every message under a lease is judged here.

The life of a lease
-------------------
A **lease** is one worker's right to speak for one unit, for a time. It has a secret, which only the worker knows (the
record keeps a hash), a `fence`, which is higher with every grant, and an end, `lease_until`. It has a lifecycle of its
own, and its hops are made together with those of its unit by `advance`.

1. **Grant.** A claim (`core/claims.py`) chooses units for a worker and the terms of each lease, and calls `grant`.
2. **Messages.** `start`, `heartbeat`, `finish` and `release` come with (unit, fence, secret). `apply_each` judges every
   one first: a wrong secret, an older fence, or a lease that has ended or expired is refused, and nothing has
   changed. A message that repeats what ended its lease is answered once more: its answer may have been lost.
3. **Renewal.** A beat and a start make the lease longer, never shorter.
4. **The end.** What ends the holder's time goes through `end_lease`: the outcome that it reports (`end_work`), a
   release, a cancel, a timeout, a lost lease. The unit makes its move, the lease its last hop, and the worker has room
   again (told last, by `free_workers`, so that its next claim hardly waits for this).
5. **Loss.** A lease that nobody renewed has expired: a timer (`core/timers.py`) finds it and calls `lose_lease`. The
   unit goes back to its queue as the next attempt, or is a dead letter when none is left (`core/dead_letters.py`).
   Every later message of the old holder is stale.

Which trigger an end comes to is decided by `kernel/policy.py`. What is not pretty: a step stays where it is when its
lease is lost, until another worker reclaims it (`lose_in_place`); and the budget of a CI attempt is that of its job.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from interlock.core.advance import Stamp, advance, change, count, hop_lease, make_stamp
from interlock.core.dead_letters import describe_dead_letter
from interlock.core.effective_policy import attempts_used, find_budget_unit, policy_of, retry_at
from interlock.core.fast_path import answer_plain
from interlock.core.lease_secrets import hash_secret
from interlock.core.notes import beats_kept_us, note, note_refusal
from interlock.core.outcomes import (
    NULL,
    add_cost,
    check_outcome,
    choose_end,
    describe_failure,
    is_said_before,
    keep_result,
    keep_traceback,
)  # fmt: skip
from interlock.core.tx_state import ToFollow
from interlock.core.workers import give_back, mark_alive
from interlock.kernel import policy, timing
from interlock.kernel.commands import (
    CONFLICT,
    TRANSIENT,
    Command,
    Finish,
    Heartbeat,
    LeaseRef,
    LeaseStatus,
    Outcome,
    Start,
)  # fmt: skip
from interlock.kernel.errors import NotWanted, Refused, Stale
from interlock.kernel.lifecycle import Category
from interlock.kernel.rows import Event, Unit
from interlock.store.acts import LeaseTerms
from interlock.store.queries.for_verbs import find_closing_event
from interlock.store.queries.old_leases import read_ended_leases
from interlock.store.unit_of_work import UnitOfWork

NONE_DONE: Mapping[int, LeaseStatus] = {}
FENCE_MAX = 2**31 - 1  # no unit ever has a higher one, and no table can hold it
Apply = Callable[[Unit, int], None]  # does what the message with this index says to its unit
IsRepeat = Callable[[Event, Unit, int], bool]  # whether the message says again what ended its lease


def grant(
    tx: UnitOfWork, unit: Unit, trigger: str, terms: LeaseTerms, stamp: Stamp, payload: dict[str, str], *, active: bool
) -> None:
    """Leases a unit to a worker, with a fence that is higher than all before it. `active`: no start acknowledges it."""
    for hook in tx.hooks.before_grant:
        hook(tx, unit, policy.next_fence(unit.fence))
    hops = ("grant", "activate") if active else ("grant",)
    advance(tx, unit, trigger, stamp, lease=hops, payload=payload, terms=terms, due_at=None)


# Judging messages.


def is_held(tx: UnitOfWork, unit: Unit) -> bool:
    """Whether somebody holds the unit, as far as the record says."""
    return unit.lease in tx.lease_lifecycle.unsettled


def remaining_us(tx: UnitOfWork, unit: Unit) -> int:
    """How long a lease lasts from now on, for workers whose clock tells another time."""
    return max(0, (unit.lease_until or 0) - tx.now)


def apply_each(
    tx: UnitOfWork, command: Command[Any], refs: Sequence[LeaseRef], apply: Apply, is_repeat: IsRepeat | None = None,
    done: Mapping[int, LeaseStatus] = NONE_DONE,
) -> list[LeaseStatus]:  # fmt: skip
    """Judges every message and applies those in order, but what is `done`; a refused one changes nothing."""
    if not (left := dict.fromkeys([ref.unit for ref in refs if ref.unit not in done])):
        return [done[ref.unit] for ref in refs]
    tx.load_units(left)
    read_ended_leases(tx, left)
    answers = [done.get(ref.unit) or judge_message(tx, ref, n, apply, is_repeat) for n, ref in enumerate(refs)]
    for ref, answer in zip(refs, answers, strict=True):
        if not answer.accepted and answer.state:
            note_refusal(tx, command, ref, answer)
    return answers


def judge_message(tx: UnitOfWork, ref: LeaseRef, index: int, apply: Apply, is_repeat: IsRepeat | None) -> LeaseStatus:
    """Applies one message if its lease is in order. Returns how it stands with the lease, or why it was refused."""
    unit = tx.rows.units.get(ref.unit)
    if unit is None or unit.lease is None or unit.tenant != tx.tenant or not 0 <= ref.fence <= FENCE_MAX:
        return LeaseStatus(unit=ref.unit, accepted=False, why="UNKNOWN_LEASE")
    owner = unit.lease_hash or ""
    by = hash_secret(ref.lease) if ref.fence == unit.fence else owner  # of an older fence no secret is kept
    why = policy.why_stale(
        tx.lease_lifecycle, unit.lease, fence=unit.fence, owner=owner, until=unit.lease_until or 0, by=by,
        sent=ref.fence, now=tx.now,
    )  # fmt: skip
    if why:
        ended = find_closing_event(tx, unit) if is_repeat and why in ("LEASE_ENDED", "LEASE_REVOKED") else None
        if ended and is_repeat and is_repeat(ended, unit, index):
            return LeaseStatus(unit=unit.id, accepted=True, state=ended.target, until=unit.lease_until or 0)
        return LeaseStatus(unit=unit.id, accepted=False, state=unit.state, why=why)
    try:
        apply(unit, index)
    except (Refused, Stale, NotWanted) as refused:
        return LeaseStatus(unit=unit.id, accepted=False, state=unit.state, why=str(refused))
    return LeaseStatus(
        unit=unit.id, accepted=True, state=unit.state, cancel=unit.asked_at is not None, until=unit.lease_until or 0,
        lasts_us=remaining_us(tx, unit),
    )  # fmt: skip


# What a holder says.


def start(tx: UnitOfWork, command: Start) -> list[LeaseStatus]:
    """The holder begins; saying it twice changes nothing."""
    stamp = make_stamp(command)

    def apply(unit: Unit, index: int) -> None:
        activation = activation_of(tx, unit)
        if activation or tx.lifecycle(unit).allows(unit.state, "start"):
            advance(tx, unit, "start", stamp, lease=activation, lease_until=compute_renewed_end(tx, unit))

    return apply_each(tx, command, command.held, apply, done=answer_plain(tx, command))


def compute_renewed_end(tx: UnitOfWork, unit: Unit) -> int:
    """When the lease ends that lasts for its whole time again; it is never shortened."""
    rules = tx.lifecycle(unit).options.lease
    assert rules
    until = timing.lease_end_at(rules, tx.now, unit.lease_ttl or 0, unit.lease_beat or 0)
    return max(until, unit.lease_until or 0)


def activation_of(tx: UnitOfWork, unit: Unit) -> tuple[str, ...]:
    """The hop of a lease that its holder acknowledges; none if it has done so before."""
    return ("activate",) if tx.lease_lifecycle.allows(unit.lease, "activate") else ()


def heartbeat(tx: UnitOfWork, command: Heartbeat) -> list[LeaseStatus]:
    """The holder is alive: its leases are renewed, and one note per worker records it."""
    stamp = make_stamp(command)
    beats: dict[int, list[tuple[int, int, bool]]] = {}  # by worker: unit, fence, and whether its lease got longer

    def apply(unit: Unit, index: int) -> None:
        until = unit.lease_until
        if command.running and (trigger := policy.beat_trigger(tx.lifecycle(unit), unit.state)):
            advance(tx, unit, trigger, stamp, lease=activation_of(tx, unit))
        change(tx, unit, lease_until=compute_renewed_end(tx, unit))
        beats.setdefault(unit.holder or 0, []).append((unit.id, unit.fence, unit.lease_until != until))

    answers = apply_each(tx, command, command.held, apply)
    for worker, units in beats.items():
        mark_alive(tx, worker).renewals += sum(longer for _, _, longer in units)
        note(tx, worker, "beat", msgspec.json.encode(units).decode(), keep_us=beats_kept_us(tx))
    return answers


def finish(tx: UnitOfWork, command: Finish) -> list[LeaseStatus]:
    """The holder is done, each unit with its outcome."""
    stamp, done = make_stamp(command), answer_plain(tx, command)
    for outcome in command.outcomes:
        if outcome.held.unit not in done:
            check_outcome(outcome)
    return apply_each(
        tx, command, [outcome.held for outcome in command.outcomes],
        lambda unit, index: end_work(tx, unit, command.outcomes[index], stamp),
        lambda event, unit, index: is_said_before(event, tx.body(unit), command.outcomes[index]), done,
    )  # fmt: skip


def end_work(tx: UnitOfWork, unit: Unit, outcome: Outcome, stamp: Stamp) -> None:
    """Does what the holder says of the end of its work, unless a guard of a plugin does not accept it."""
    for guard in tx.hooks.end_guards:
        guard(tx, unit, outcome)
    lifecycle, body, payload = tx.lifecycle(unit), tx.body(unit), {}
    error_before, ending = body.error, "finish"
    if outcome.ended == "failure" and outcome.error_class == CONFLICT:
        raise Stale("LEASE_CONFLICT")  # its holder saw another one: nothing that it says counts
    if outcome.ended == "success":
        trigger = policy.choose(lifecycle, unit.state, "complete")
    elif outcome.ended == "cancelled":
        trigger, ending = policy.after_stop(lifecycle, unit.state, cancel_requested=unit.asked_at is not None), "stop"
    else:
        trigger, payload = count_failure(tx, unit, outcome), describe_failure(outcome)
        body.error = payload["error"]
        keep_traceback(tx, unit, outcome)
    if lifecycle.category(unit.state) is Category.CLOSING:
        ending = "stop"  # whatever it says now, it answers the cancel (A4-13)
    end_lease(tx, unit, trigger, ending, stamp, {**payload, **add_cost(tx, unit, outcome.cost)}, outcome.after_us)
    if outcome.ended == "success":
        keep_result(tx, unit, None if outcome.result == NULL else outcome.result)
    if body.error != error_before:
        tx.change(body)


def count_failure(tx: UnitOfWork, unit: Unit, outcome: Outcome) -> str:
    """Counts a failure. Returns the trigger that it comes to."""
    lifecycle, retryable = tx.lifecycle(unit), outcome.error_class == TRANSIENT
    trigger = policy.after_failure(lifecycle, unit.state, attempts_used(tx, unit, failures=1), retryable=retryable)
    count(tx, find_budget_unit(tx, unit), failures=1)
    if retryable:
        tx.state(ToFollow).retryable.add(unit.id)
    if trigger == "fail" and policy_of(tx.body(unit)).undoes:  # a compensation that failed is a dead letter (A2-16)
        return policy.choose(lifecycle, unit.state, "exhaust", "fail")
    return trigger


# How a lease ends.


def end_lease(
    tx: UnitOfWork, unit: Unit, trigger: str, ending: str, stamp: Stamp, payload: dict[str, Any],
    after_us: int | None = None, **columns: Any,
) -> None:  # fmt: skip
    """Moves the unit on, and ends its lease unless its new state keeps it.

    `ending` says what ends the lease: finish, stop, lose or force. `after_us` is when a retry is due, instead of the
    backoff; `columns` change with the move.
    """
    lifecycle, trigger = tx.lifecycle(unit), choose_end(tx, unit, trigger, payload)
    target = lifecycle.move(unit.state, trigger).path[-1]
    if policy.keeps_lease(lifecycle, target):
        advance(tx, unit, trigger, stamp, payload=payload, **columns)
        return
    holder = unit.holder
    hops = (policy.lease_end_trigger(tx.lease_lifecycle, unit.lease or "", ending),) if is_held(tx, unit) else ()
    if trigger == "retry":
        columns["due_at"] = tx.now + after_us if after_us is not None else retry_at(tx, unit)
    if lifecycle.category(target) is Category.DEAD:
        payload = {**payload, **describe_dead_letter(tx, unit, trigger, stamp, payload)}
    advance(tx, unit, trigger, stamp, lease=hops, payload=payload, **columns)
    if holder is not None:
        give_back(tx, unit, holder, Stamp(stamp.actor))


def lose_lease(tx: UnitOfWork, unit: Unit, ending: str, stamp: Stamp) -> None:
    """Takes the unit from its holder: another worker gets it, or it has run out of attempts."""
    count(tx, find_budget_unit(tx, unit), losses=1)
    trigger = policy.after_loss(tx.lifecycle(unit), unit.state, attempts_used(tx, unit))
    if trigger:
        end_lease(tx, unit, trigger, ending, stamp, {})
    else:
        lose_in_place(tx, unit, ending, stamp)


def lose_in_place(tx: UnitOfWork, unit: Unit, ending: str, stamp: Stamp, payload: Any = None, **columns: Any) -> None:
    """Ends the lease; the unit waits where it is until it is old enough for the next worker (A1-8), or as told."""
    holder, after_us = unit.holder, policy_of(tx.body(unit)).reclaim_after_us
    due_at = unit.due_at if after_us is None or unit.started_at is None else unit.started_at + after_us
    hop_lease(tx, unit, policy.LEASE_ENDS[ending], stamp, payload, **{"due_at": due_at, **columns})
    if holder is not None:
        give_back(tx, unit, holder, stamp)
