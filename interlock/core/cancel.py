"""What people and programs do to units that are there: stop them, and give verdicts."""

import msgspec

from interlock.core.advance import CancelRequests, Stamp, advance, asked_by, change, keep_cancel, request_cancel
from interlock.core.lease_end import close, live, summon
from interlock.core.reactions.follow import make_next_attempt
from interlock.core.ready import make_ready
from interlock.kernel import policy
from interlock.kernel.approvals import OWN_VERBS
from interlock.kernel.commands import Cancel, Decide, Standing
from interlock.kernel.errors import InterlockError, NoVerdict
from interlock.kernel.lifecycle import Move, Owner, RollUp
from interlock.kernel.rows import Unit
from interlock.store.queries.for_verbs import load_last_child, load_open_children
from interlock.store.unit_of_work import UnitOfWork

DECIDERS = (Owner.PERSON, Owner.VALIDATOR, Owner.REPORTER)


def cancel(tx: UnitOfWork, command: Cancel) -> Standing:
    """The unit is cancelled, or its holder is told to stop, or the wish is kept; asking again changes nothing."""
    load_open_children(tx, command.unit)  # children are locked before their parent
    unit = tx.unit(command.unit)
    lifecycle, stamp = tx.lifecycle(unit), asked_by(command)
    asked = {"by": stamp.actor, "reason": stamp.reason, "at": tx.now}
    if lifecycle.options.follows and (attempts := load_open_children(tx, unit.id)):
        cancel(tx, msgspec.structs.replace(command, unit=attempts[-1].id))
        tx.state(CancelRequests).by_unit[unit.id] = asked
        return standing(unit, applied=True)  # it follows
    version = unit.version
    again = unit.asked_at is not None and not command.hard
    if again or lifecycle.category(unit.state) == "cancelled":
        return standing(unit, applied=False)
    answer = policy.cancel(lifecycle, unit.state, hard=command.hard, held=live(tx, unit))
    tx.state(CancelRequests).by_unit[unit.id] = asked
    request_cancel(tx, unit)
    summon(tx, unit)
    if answer == "cancel" and live(tx, unit):
        close(tx, unit, answer, "force", stamp, {})
    elif answer == "cancel":
        advance(tx, unit, answer, stamp)
    else:
        change(tx, unit)
    if unit.outcome is None:
        keep_cancel(tx, unit, stamp)
    return standing(unit, applied=unit.version > version or answer != "cancel")


def decide(tx: UnitOfWork, command: Decide) -> Standing:
    """A verdict is carried out, by a plugin that has more to ask of it or as it stands."""
    for hook in tx.hooks.on_decide:
        if (standing := hook(tx, command)) is not None:
            return standing
    return carry_out(tx, command)


def carry_out(tx: UnitOfWork, command: Decide) -> Standing:
    """A verdict is carried out; one that the lifecycle does not list here changes nothing and says so."""
    load_open_children(tx, command.unit)
    unit = tx.unit(command.unit)
    lifecycle, stamp = tx.lifecycle(unit), asked_by(command)
    move = lifecycle.move(unit.state, command.trigger)
    if not is_verdict(move):
        verdicts = tuple(one for one in lifecycle.triggers(unit.state) if is_verdict(lifecycle.move(unit.state, one)))
        raise NoVerdict(lifecycle.name, unit.state, command.trigger, verdicts, whose(move))
    if command.trigger == "plan" and unit.total == 0:
        raise InterlockError(f"unit {unit.id} has no children yet; a plan has at least one")
    source = unit.state
    if live(tx, unit):
        close(tx, unit, command.trigger, "force", stamp, {})
    else:
        advance(tx, unit, command.trigger, stamp)
    if command.trigger == "plan":
        go_on(tx, unit)
    if unit.asked_at is not None and policy.resumed_cancel(lifecycle, source, unit.state):
        advance(tx, unit, "cancel", stamp)
    if move.opens_attempt and lifecycle.options.roll_up is RollUp.SINGLE:
        work_again(tx, unit, stamp)
    for hook in tx.hooks.after_decide:
        hook(tx, unit, command)
    return standing(unit, applied=True)


def is_verdict(move: Move) -> bool:
    """Whether a decision from outside may fire this move."""
    return move.owner in DECIDERS and move.trigger not in OWN_VERBS


def whose(move: Move) -> str:
    """Who fires a move that is no verdict."""
    if move.trigger in OWN_VERBS:
        return f"the command {move.trigger.capitalize()} does it"
    return "the worker that holds the unit fires it" if move.owner is Owner.HOLDER else "the engine fires it by itself"


def work_again(tx: UnitOfWork, run: Unit, stamp: Stamp) -> None:
    """A run that was resumed has a new child for its work, like the last one (A0-11)."""
    last = load_last_child(tx, run.id)
    if last is not None:
        make_next_attempt(tx, run, stamp, last)


def go_on(tx: UnitOfWork, parent: Unit) -> None:
    """The plan is there: every child that waits for nothing else is ready."""
    for child in load_open_children(tx, parent.id):
        if not child.unmet:
            make_ready(tx, child)


def standing(unit: Unit, *, applied: bool) -> Standing:
    return Standing(unit=unit.id, state=unit.state, version=unit.version, applied=applied)
