"""Decisions from outside (approve, reject, plan, merge …): each fires the transition that the lifecycle lists."""

from interlock.core.advance import Stamp, advance, make_stamp
from interlock.core.cancel import make_standing
from interlock.core.leases import end_lease, is_held
from interlock.core.places import refuse_missing_children
from interlock.core.reactions.follow import make_next_attempt
from interlock.core.ready import make_ready
from interlock.kernel import policy
from interlock.kernel.approvals import OWN_VERBS
from interlock.kernel.commands import Decide, Standing
from interlock.kernel.errors import InterlockError, NoVerdict
from interlock.kernel.ids import format_id
from interlock.kernel.lifecycle import Move, Owner
from interlock.kernel.lifecycle_options import RollUp
from interlock.kernel.rows import Unit
from interlock.store.queries.for_verbs import load_last_child, load_open_children
from interlock.store.unit_of_work import UnitOfWork

COMMANDS = {"skip": "SkipTask"}  # that are not called like their trigger
DECIDERS = (Owner.PERSON, Owner.VALIDATOR, Owner.REPORTER)


def decide(tx: UnitOfWork, command: Decide) -> Standing:
    """A verdict is carried out, by a plugin that has more to ask of it or as it stands."""
    for hook in tx.hooks.on_decide:
        if (standing := hook(tx, command)) is not None:
            return standing
    if command.data != "null":
        raise InterlockError(f"data are not allowed with '{command.trigger}' here")
    return apply_verdict(tx, command)


def apply_verdict(tx: UnitOfWork, command: Decide) -> Standing:
    """A verdict is carried out; one that the lifecycle does not list here changes nothing and says so."""
    load_open_children(tx, command.unit)
    unit = tx.unit(command.unit)
    lifecycle, stamp = tx.lifecycle(unit), make_stamp(command)
    move = lifecycle.move(unit.state, command.trigger)
    if not is_verdict(move):
        verdicts = tuple(
            name for name in lifecycle.triggers(unit.state) if is_verdict(lifecycle.move(unit.state, name))
        )
        raise NoVerdict(lifecycle.name, unit.state, command.trigger, verdicts, explain_owner(move))
    if command.trigger == "plan" and unit.total == 0:
        raise InterlockError(f"{format_id(unit.lifecycle, unit.id)} has no children yet; a plan has at least one")
    if command.trigger == "plan":
        refuse_missing_children(tx, unit)
    source = unit.state
    if is_held(tx, unit):
        end_lease(tx, unit, command.trigger, "force", stamp, {})
    else:
        advance(tx, unit, command.trigger, stamp)
    if command.trigger == "plan":
        ready_children(tx, unit)
    if unit.asked_at is not None and policy.is_cancel_resumed(lifecycle, source, unit.state):
        advance(tx, unit, "cancel", stamp)
    if move.opens_attempt and lifecycle.options.roll_up is RollUp.SINGLE:
        create_next_child(tx, unit, stamp)
    for hook in tx.hooks.after_decide:
        hook(tx, unit, command)
    return make_standing(unit, applied=True)


def is_verdict(move: Move) -> bool:
    """Whether a decision from outside may fire this move."""
    return move.owner in DECIDERS and move.trigger not in OWN_VERBS


def explain_owner(move: Move) -> str:
    """Who fires a move that is no verdict."""
    if move.trigger in OWN_VERBS:
        return f"the command {COMMANDS.get(move.trigger) or move.trigger.capitalize()} does it"
    return "the worker that holds the unit fires it" if move.owner is Owner.HOLDER else "the engine fires it by itself"


def create_next_child(tx: UnitOfWork, run: Unit, stamp: Stamp) -> None:
    """A run that was resumed has a new child for its work, like the last one (A0-11)."""
    last = load_last_child(tx, run.id)
    if last is not None:
        make_next_attempt(tx, run, stamp, last)


def ready_children(tx: UnitOfWork, parent: Unit) -> None:
    """The plan is there: every child that waits for nothing else is ready."""
    for child in load_open_children(tx, parent.id):
        if not child.unmet:
            make_ready(tx, child)
