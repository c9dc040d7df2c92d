"""Timers of units: expired leases, delays that have passed, deadlines.

Every deadline but the end of a lease is a column of a unit, and `wake_at` is the earliest of them. A tick fires what is
due, and so does every claim before it chooses: nobody is elected for it, and a lost tick costs nothing but time.
"""

import logging

from interlock.core.advance import Stamp, advance, change, count
from interlock.core.effective_policy import attempts_used, find_budget_unit
from interlock.core.leases import end_lease, is_held, lose_lease
from interlock.core.tx_state import ToFollow, WorkerChanges
from interlock.core.withhold import move_each
from interlock.kernel import policy, timing
from interlock.kernel.ids import format_id
from interlock.kernel.rows import Unit
from interlock.store.acts import WITHHELD
from interlock.store.queries.for_verbs import find_overdue, load_held_units
from interlock.store.unit_of_work import Picks, UnitOfWork

CLOCK = "clock"
log = logging.getLogger("interlock.core")
TIMERS_LEAST = 100


def run_timers(tx: UnitOfWork, limit: int) -> int:
    """What is due, the longest overdue first, has been looked at."""
    for timer in tx.hooks.claim_timers:
        timer(tx, max(limit, TIMERS_LEAST))
    rows = find_overdue(tx, max(limit, TIMERS_LEAST) + len(tx.cache.passed_over))
    due = tx.state(Picks).pick(unit for unit in rows if not tx.cache.is_passed_over(unit.id, tx.now))
    move_each(due, lambda unit: fire_timer(tx, unit))
    return len(due)


def fire_timer(tx: UnitOfWork, unit: Unit) -> None:
    """One unit has done what its clocks say; at most one of them moves it."""
    if is_held(tx, unit) and is_past(tx, unit.lease_until):
        expire_lease(tx, unit)
    elif is_held(tx, unit) and is_past(tx, unit.asked_by):  # a wish that nobody holds has no clock of its own
        trigger = policy.after_cancel_deadline(tx.lifecycle(unit), unit.state)
        end_lease(tx, unit, trigger, "force", Stamp(CLOCK, "the cancel deadline has passed"), {})
    elif is_past(tx, unit.deadline_at):
        expire_deadline(tx, unit)
    elif is_past(tx, unit.due_at) and tx.lifecycle(unit).allows(unit.state, "due"):
        advance(tx, unit, "due", Stamp(CLOCK), due_at=None, parked_on=None)
    else:
        # If time could not move it before, now it can.
        change(tx, unit, parked_on=None if unit.parked_on == WITHHELD else unit.parked_on)


def is_past(tx: UnitOfWork, at: int | None) -> bool:
    """Whether an instant is there and has come."""
    return at is not None and at <= tx.now


def expire_lease(tx: UnitOfWork, unit: Unit) -> None:
    """A lease is over, and nobody renewed it; one that was never acknowledged in its window is revoked (A4-18)."""
    terms = tx.lifecycle(unit).options.lease
    if unit.holder is not None:
        tx.state(WorkerChanges).silent.add(unit.holder)
    name, worker = format_id(unit.lifecycle, unit.id), unit.holder
    facts = {"id": name, "unit": unit.id, "attempt": unit.attempt, "fence": unit.fence, "worker": worker}
    text = "lease expired: unit=%s attempt=%d fence=%d worker=%s"
    log.info(text, name, unit.attempt, unit.fence, worker, extra={"facts": facts})
    if terms and terms.ack_us is not None and tx.lifecycles["lease"].allows(unit.lease, "activate"):
        lose_lease(tx, unit, "force", Stamp(CLOCK, "the lease was not acknowledged in time"))
    else:
        lose_lease(tx, unit, "lose", Stamp(CLOCK, "the lease is over"))


def expire_deadline(tx: UnitOfWork, unit: Unit) -> None:
    """The clock of a state has run out."""
    lifecycle = tx.lifecycle(unit)
    trigger, stamp = lifecycle.states[unit.state].deadline, Stamp(CLOCK, "the deadline has passed")
    if trigger == "miss" and (until := silent_until(tx, unit)):
        change(tx, unit, deadline_at=until)
        return
    if trigger == "time_out" and any(stood(tx, unit) is not None for stood in tx.hooks.clocks):
        change(tx, unit, deadline_at=(unit.deadline_at or tx.now) + timing.STANDS_US)
        return
    if trigger != "time_out":
        end_lease(tx, unit, trigger, "force", stamp, {})
        if trigger == "miss":
            lose_all_leases(tx, unit)
        return
    if is_held(tx, unit):
        count(tx, find_budget_unit(tx, unit), failures=1)
        tx.state(ToFollow).retryable.add(unit.id)
    end_lease(
        tx,
        unit,
        policy.after_timeout(lifecycle, unit.state, attempts_used(tx, unit)),
        "force",
        stamp,
        {"timeout": True},
    )


def silent_until(tx: UnitOfWork, worker: Unit) -> int:
    """Until when a worker may say nothing, because it holds what cannot beat, or seldom does; 0: it may not."""
    within_us = tx.lifecycle(worker).states[worker.state].within_us or 0
    held = [unit for unit in load_held_units(tx, worker.id) if is_held(tx, unit)]
    leases = [(unit.lease_until or 0, unit.lease_beat or 0) for unit in held]
    return max((until for until, beat in leases if until > tx.now and timing.is_quiet(beat, within_us)), default=0)


def lose_all_leases(tx: UnitOfWork, worker: Unit) -> None:
    """What a silent worker holds is taken from it: it comes back empty (A3-11)."""
    for unit in load_held_units(tx, worker.id):
        if is_held(tx, unit):
            lose_lease(tx, unit, "force", Stamp(CLOCK, "its worker does not answer"))
