"""Verbs of operators: requeue, rerun, bury, revoke, force."""

from interlock.core.advance import Stamp, advance, make_stamp, move_along
from interlock.core.cancel import make_standing
from interlock.core.dead_letters import describe_dead_letter
from interlock.core.effective_policy import follower
from interlock.core.leases import end_lease, is_held, lose_lease
from interlock.core.reactions.follow import make_next_attempt
from interlock.core.ready import make_ready
from interlock.core.validation import check_choice
from interlock.core.workers import give_back, notify_holder
from interlock.kernel.commands import REASONS, Bury, Force, Requeue, Rerun, Revoke, Standing, Submitted
from interlock.kernel.errors import Denied, InterlockError, Refused, Unknown
from interlock.kernel.ids import format_id
from interlock.kernel.lifecycle import Category
from interlock.kernel.rows import ForcedMove, Unit
from interlock.store.catalog import may_insert
from interlock.store.migrate import make_path
from interlock.store.unit_of_work import UnitOfWork


def bury(tx: UnitOfWork, command: Bury) -> Standing:
    """The unit is a dead letter, with the reason code that the operator gives."""
    unit = tx.unit(command.unit)
    check_choice("reason", command.reason, REASONS)
    tx.lifecycle(unit).move(unit.state, "bury")
    stamp = make_stamp(command)
    notify_holder(tx, unit)
    if is_held(tx, unit):
        end_lease(tx, unit, "bury", "force", stamp, {})
    else:
        advance(tx, unit, "bury", stamp, payload=describe_dead_letter(tx, unit, "bury", stamp, {}))
    return make_standing(unit, applied=True)


def revoke(tx: UnitOfWork, command: Revoke) -> Standing:
    """Takes a unit from its holder, whose next message is rejected."""
    unit = tx.unit(command.unit)
    if not is_held(tx, unit):
        return make_standing(unit, applied=False)
    notify_holder(tx, unit)
    reason = command.reason or "revoked by an operator"
    lose_lease(tx, unit, "force", Stamp(command.actor, reason, command.cause, command.vouched_by))
    return make_standing(unit, applied=True)


def requeue(tx: UnitOfWork, command: Requeue) -> Submitted:
    """A new job does what a dead letter, or another job that has ended, did; the old one stays as it is."""
    return make_again(tx, command)


def rerun(tx: UnitOfWork, command: Rerun) -> Submitted:
    """A new run, or job, does what an ended one did; the old one stays as it is."""
    return make_again(tx, command)


def make_again(tx: UnitOfWork, command: Requeue | Rerun) -> Submitted:
    """Makes the unit that does another one again, and names it as `retry_of`."""
    old = tx.unit(command.unit)
    lifecycle = tx.lifecycle(old)
    if not lifecycle.settled(old.state):
        raise Refused(lifecycle.name, old.state, name_again(command), lifecycle.triggers(old.state))
    if isinstance(command, Rerun):
        check_parts(command)
    name = format_id(lifecycle.name, old.id)
    for hook in tx.hooks.on_rerun:
        if (made := hook(tx, old, command)) is not None:
            return made
    if isinstance(command, Rerun) and (command.failed or command.first is not None):
        raise InterlockError(f"{name} is rerun as a whole: a step, or failed, is for workflow runs and workstreams")
    if not lifecycle.leased or follower(tx, old):
        raise InterlockError(f"{name} cannot be rerun by itself; submit a new one, with what belongs to it")
    unit = make_next_attempt(tx, None, make_again_stamp(command), old)
    make_ready(tx, unit)
    return Submitted(unit=unit.id, created=True, lifecycle=unit.lifecycle, state=unit.state)


def check_parts(command: Rerun) -> None:
    """Raises InterlockError if a command says in two ways what is done again."""
    if command.step is not None and command.from_task is not None:
        raise InterlockError("step and from_task are not allowed together; they mean the same")
    if command.failed and command.first is not None:
        raise InterlockError("failed and a step or task to begin at are not allowed together; give one of them")


def name_again(command: Requeue | Rerun) -> str:
    """Returns the word for doing it again: requeue or rerun."""
    return type(command).__name__.lower()


def make_again_stamp(command: Requeue | Rerun) -> Stamp:
    """Who does an ended unit again, and why."""
    reason = command.reason or f"{name_again(command)} of {command.unit}"
    return Stamp(command.actor, reason, command.cause, command.vouched_by)


def refuse_unless_operator(tx: UnitOfWork, what: str, table: str) -> None:
    """Raises Denied if the database role of this connection may not write what only operators write."""
    if not may_insert(tx.connection, table):
        raise Denied(
            f"the database role of this connection may not {what}: connect as the owner of the tables, or as a role "
            "that was granted interlock_operator"
        )


def force(tx: UnitOfWork, command: Force) -> Standing:
    """The unit is in the state that the operator names, for the reason that the event tells."""
    unit = tx.unit(command.unit)
    lifecycle = tx.lifecycle(unit)
    if command.state not in lifecycle.states:
        raise Unknown(f"a {lifecycle.name} has no state '{command.state}'; it has {', '.join(lifecycle.states)}")
    if not command.reason:
        raise InterlockError("force needs a reason: it is all that will explain this later")
    refuse_unless_operator(tx, "force a move", ForcedMove.table)
    notify_holder(tx, unit)
    holder = unit.holder
    force_move(tx, unit, command.state, make_stamp(command))
    if holder is not None:
        give_back(tx, unit, holder, Stamp(command.actor))
    return make_standing(unit, applied=True)


def force_move(tx: UnitOfWork, unit: Unit, state: str, stamp: Stamp) -> None:
    """Puts a unit into a state, whatever its table lists; the event says who did it and why.

    A dead letter has its fields, however it became one.
    """
    is_dead = tx.lifecycle(unit).category(state) is Category.DEAD
    payload = describe_dead_letter(tx, unit, "force", stamp, {}) if is_dead else None
    path = tx.paths.force(unit.lifecycle, unit.state, unit.lease if unit.holder is not None else None, state)
    make_path(tx.connection, path)
    version = unit.version + len(path.hops)
    allowed = ForcedMove(
        unit=unit.id, version=version, tenant=unit.tenant, target=state, actor=stamp.actor, reason=stamp.reason,
        at=max(unit.changed_at, tx.now),
    )  # fmt: skip
    tx.connection.insert([allowed])  # before its act, which the guard compares with it
    move_along(tx, unit, path, stamp, payload, due_at=None)
