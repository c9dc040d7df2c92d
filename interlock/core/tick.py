"""What time does: leases that are over, delays that have passed, clocks that ran out."""

from interlock.core.advance import Stamp, ToFollow, advance, change, count
from interlock.core.effective_policy import counted, tally
from interlock.core.lease_end import close, live, lose_in_place
from interlock.core.validation import between
from interlock.core.withhold import move_each
from interlock.core.workers import WorkerChanges
from interlock.kernel import policy
from interlock.kernel.commands import Tick
from interlock.kernel.rows import Unit
from interlock.store.acts import WITHHELD
from interlock.store.queries.for_verbs import find_overdue, forget_expired, load_held_units
from interlock.store.seals import write_seal
from interlock.store.unit_of_work import Picks, UnitOfWork

CLOCK = "clock"
WAKE_LEAST = 100


def tick(tx: UnitOfWork, command: Tick) -> int:
    """Time has passed: what is due has been looked at, and what was kept for a while is gone."""
    between("limit", command.limit, 1)
    forget_expired(tx, command.limit)
    write_seal(tx.connection, tx.tenant, tx.now)
    return wake(tx, command.limit) + sum(timer(tx, command.limit) for timer in tx.hooks.tick_timers)


def wake(tx: UnitOfWork, limit: int) -> int:
    """What is due, the longest overdue first, has been looked at."""
    for timer in tx.hooks.claim_timers:
        timer(tx, max(limit, WAKE_LEAST))
    found = find_overdue(tx, max(limit, WAKE_LEAST) + len(tx.cache.passed_over))
    due = tx.state(Picks).pick(unit for unit in found if not tx.cache.is_passed_over(unit.id, tx.now))
    move_each(due, lambda unit: look(tx, unit))
    return len(due)


def look(tx: UnitOfWork, unit: Unit) -> None:
    """One unit has done what its clocks say; at most one of them moves it."""
    if live(tx, unit) and passed(tx, unit.lease_until):
        expire(tx, unit)
    elif live(tx, unit) and passed(tx, unit.asked_by):  # a wish that nobody holds has no clock of its own
        trigger = policy.overdue(tx.lifecycle(unit), unit.state)
        close(tx, unit, trigger, "force", Stamp(CLOCK, "the cancel deadline has passed"), {})
    elif passed(tx, unit.deadline_at):
        run_out(tx, unit)
    elif passed(tx, unit.due_at) and tx.lifecycle(unit).allows(unit.state, "due"):
        advance(tx, unit, "due", Stamp(CLOCK), due_at=None)
    else:
        # If time could not move it before, now it can.
        change(tx, unit, parked_on=None if unit.parked_on == WITHHELD else unit.parked_on)


def passed(tx: UnitOfWork, at: int | None) -> bool:
    return at is not None and at <= tx.now


def expire(tx: UnitOfWork, unit: Unit) -> None:
    """A lease is over, and nobody renewed it; one that was never acknowledged in its window is revoked (A4-18)."""
    terms = tx.lifecycle(unit).options.lease
    if unit.holder is not None:
        tx.state(WorkerChanges).silent.add(unit.holder)
    if terms and terms.ack_us is not None and tx.lifecycles["lease"].allows(unit.lease, "activate"):
        lose(tx, unit, "force", "revoke", Stamp(CLOCK, "the lease was not acknowledged in time"))
    else:
        lose(tx, unit, "lose", "expire", Stamp(CLOCK, "the lease is over"))


def lose(tx: UnitOfWork, unit: Unit, cause: str, lease_trigger: str, stamp: Stamp) -> None:
    """The unit is lost to its holder, and waits for another, or has run out of attempts."""
    count(tx, counted(tx, unit), losses=1)
    trigger = policy.after_loss(tx.lifecycle(unit), unit.state, tally(tx, unit))
    if trigger:
        close(tx, unit, trigger, cause, stamp, {})
    else:
        lose_in_place(tx, unit, lease_trigger, stamp)


def run_out(tx: UnitOfWork, unit: Unit) -> None:
    """The clock of a state has run out."""
    lifecycle = tx.lifecycle(unit)
    trigger, stamp = lifecycle.states[unit.state].deadline, Stamp(CLOCK, "the deadline has passed")
    if trigger == "miss" and (until := quiet_until(tx, unit)):
        change(tx, unit, deadline_at=until)
        return
    if trigger != "time_out":
        close(tx, unit, trigger, "force", stamp, {})
        if trigger == "miss":
            lose_all(tx, unit)
        return
    if live(tx, unit):
        count(tx, counted(tx, unit), failures=1)
        tx.state(ToFollow).retryable.add(unit.id)
    close(tx, unit, policy.after_timeout(lifecycle, unit.state, tally(tx, unit)), "force", stamp, {"timeout": True})


def quiet_until(tx: UnitOfWork, worker: Unit) -> int:
    """Until when a worker may say nothing, because it holds what cannot beat, or seldom does; 0: it may not."""
    within_us = tx.lifecycle(worker).states[worker.state].within_us or 0
    leases = [
        (unit.lease_until or 0, unit.lease_beat or 0) for unit in load_held_units(tx, worker.id) if live(tx, unit)
    ]
    return max((until for until, beat in leases if until > tx.now and policy.quiet(beat, within_us)), default=0)


def lose_all(tx: UnitOfWork, worker: Unit) -> None:
    """What a silent worker holds is taken from it: it comes back empty (A3-11)."""
    for unit in load_held_units(tx, worker.id):
        if live(tx, unit):
            lose(tx, unit, "force", "revoke", Stamp(CLOCK, "its worker does not answer"))
