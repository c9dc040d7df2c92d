"""Cancel a unit: at once, by telling its holder to stop, or as a request that is kept until it can stop."""

import msgspec

from interlock.core.advance import Stamp, advance, change, make_stamp
from interlock.core.effective_policy import policy_at_end
from interlock.core.leases import end_lease, is_held
from interlock.core.notes import CANCEL_REQUESTED, note
from interlock.core.tx_state import CancelRequests
from interlock.core.workers import notify_holder
from interlock.kernel import policy
from interlock.kernel.commands import Cancel, Standing
from interlock.kernel.rows import Unit
from interlock.store.queries.for_verbs import load_open_children
from interlock.store.unit_of_work import UnitOfWork


def cancel(tx: UnitOfWork, command: Cancel) -> Standing:
    """The unit is cancelled, or its holder is told to stop, or the wish is kept; asking again changes nothing."""
    load_open_children(tx, command.unit)  # children are locked before their parent
    unit = tx.unit(command.unit)
    lifecycle, stamp = tx.lifecycle(unit), make_stamp(command)
    asker = {"by": stamp.actor, "reason": stamp.reason, "at": tx.now}
    if lifecycle.options.follows and (attempts := load_open_children(tx, unit.id)):
        cancel(tx, msgspec.structs.replace(command, unit=attempts[-1].id))
        tx.state(CancelRequests).by_unit[unit.id] = asker
        return make_standing(unit, applied=True)  # it follows
    version = unit.version
    again = unit.asked_at is not None and not command.hard
    if again or lifecycle.category(unit.state) == "cancelled":
        return make_standing(unit, applied=False)
    answer = policy.cancel_action(lifecycle, unit.state, hard=command.hard, held=is_held(tx, unit))
    tx.state(CancelRequests).by_unit[unit.id] = asker
    request_cancel(tx, unit)
    notify_holder(tx, unit)
    if answer == "cancel" and is_held(tx, unit):
        end_lease(tx, unit, answer, "force", stamp, {})
    elif answer == "cancel":
        advance(tx, unit, answer, stamp)
    if unit.outcome is None:
        keep_cancel(tx, unit, stamp)
    return make_standing(unit, applied=unit.version > version or answer != "cancel")


def request_cancel(tx: UnitOfWork, unit: Unit) -> None:
    """Notes on the unit that somebody wants it to stop, and until when its holder may take to do so."""
    own = policy_at_end(tx.body(unit)).cancel_timeout_us
    within_us = own or tx.lifecycle(unit).options.cancel_within_us or 0
    change(tx, unit, asked_at=tx.now, asked_by=tx.now + within_us)


def keep_cancel(tx: UnitOfWork, unit: Unit, stamp: Stamp) -> None:
    """Keeps a note of who asked the unit to stop and why, until it does."""
    note(tx, unit.id, CANCEL_REQUESTED, msgspec.json.encode(stamp).decode(), fence=unit.fence)


def make_standing(unit: Unit, *, applied: bool) -> Standing:
    """The answer of a command about one unit."""
    return Standing(unit=unit.id, state=unit.state, version=unit.version, applied=applied)
