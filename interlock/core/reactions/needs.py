"""Needs: a unit waits until the units that it needs have succeeded, or ended where that is enough.

A need that can never be met any more is lost: the unit that has it is cancelled, with that reason, and so are those
that need it in turn; nothing waits for a clock. There are two exceptions. The children of a parent that judges by its
critical ones stay where they are and are shown as blocked: their parent says when nothing can go on (A3-2, A3-3). And
what a parent's end stops anyway is left to that. So this is done last of all reactions, when parents have heard their
children.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from interlock.core.advance import Stamp, change
from interlock.core.effective_policy import policy_at_end
from interlock.core.leases import is_held
from interlock.core.reactions.roll_up import end_child, has_ended
from interlock.core.ready import is_planned, make_ready
from interlock.core.tx_state import CancelRequests
from interlock.kernel.families import may_be_resumed
from interlock.kernel.ids import format_id
from interlock.kernel.lifecycle import Category
from interlock.kernel.lifecycle_options import RollUp
from interlock.kernel.rows import Unit
from interlock.store.flush import NeedChange, count_needs
from interlock.store.hooks import Moved
from interlock.store.queries.places import find_waiting_for
from interlock.store.unit_of_work import UnitOfWork


@dataclass
class LostNeeds:
    """Units that have ended without success in this transaction, or had before something began to need them."""

    units: set[int] = field(default_factory=set)


def meet_needs(tx: UnitOfWork, moved: list[Moved]) -> None:
    """Those that waited for nothing but what has just succeeded, or ended, are ready."""
    changes = compare_outcomes(moved)
    if not changes:
        return
    met, lost = count_needs(tx, changes)
    tx.load_units(unit.parent for unit in met if unit.parent is not None)  # each is asked for its plan
    for unit in met:
        go_on(tx, tx.act_for(unit))
    if lost:
        tx.state(LostNeeds).units |= {need for need in lost if is_lost(tx, tx.rows.units[need])}


def compare_outcomes(moved: list[Moved]) -> dict[int, NeedChange]:
    """By unit whose outcome has changed: how."""
    changes: dict[int, NeedChange] = {}
    for unit, was in moved:
        before = was.outcome if was is not None else None
        if unit.outcome != before:
            won = (unit.outcome == Category.SUCCESS) - (before == Category.SUCCESS)
            changes[unit.id] = NeedChange(won, (unit.outcome is not None) - (before is not None))
    return changes


def go_on(tx: UnitOfWork, unit: Unit) -> None:
    """The last need of a unit was met: it is ready, or a gate opens. One that needs something again waits."""
    tx.touch(unit)
    if unit.unmet:
        change(tx, unit)
    elif is_planned(tx, unit):
        make_ready(tx, unit)


# Needs that are lost.


def is_lost(tx: UnitOfWork, need: Unit) -> bool:
    """Whether a unit has ended without success for good: nobody can let it go on."""
    lifecycle = tx.lifecycles.get(need.lifecycle)
    if lifecycle is None or need.outcome is None or need.outcome == Category.SUCCESS:
        return False
    return not may_be_resumed(lifecycle, need.state)


def stop_waiting(tx: UnitOfWork) -> None:
    """Units that need the success of what is lost are cancelled, those that need theirs after them, and so on."""
    lost = tx.state(LostNeeds)
    if not lost.units:
        return
    needs, lost.units = lost.units, set()
    while needs:
        stopped: set[int] = set()
        for unit, need in load_waiting(tx, needs):
            if unit.outcome is None and not keeps_waiting(tx, unit):
                stop(tx, tx.act_for(unit), tx.rows.units[need])
                stopped.add(unit.id)
        tx.changes.round += 1  # what follows comes later than its cause
        needs = {unit for unit in stopped if is_lost(tx, tx.rows.units[unit])}
    tx.changes.round = 0


def load_waiting(tx: UnitOfWork, needs: Iterable[int]) -> list[tuple[Unit, int]]:
    """The open units that wait for the success of these, locked, each with the first of them that it needs."""
    first: dict[int, int] = {}
    for unit, need in find_waiting_for(tx, sorted(needs)):
        first.setdefault(unit, need)
    tx.load_units(first)
    waiting = [(tx.rows.units[unit], need) for unit, need in sorted(first.items())]
    tx.load_units(unit.parent for unit, _ in waiting if unit.parent is not None)
    return waiting


def keeps_waiting(tx: UnitOfWork, unit: Unit) -> bool:
    """Whether a unit is not cancelled although it can never be ready: it is held, or its parent sees to it."""
    if is_held(tx, unit):
        return True  # an operator took back the success of what it needed, after it had begun
    parent = tx.rows.units[unit.parent] if unit.parent is not None else None
    return parent is not None and (has_ended(parent) or tx.lifecycle(parent).options.roll_up is RollUp.CRITICAL)


def stop(tx: UnitOfWork, unit: Unit, need: Unit) -> None:
    """A unit is cancelled because of a need; the record tells which."""
    name, called = policy_at_end(tx.body(need)).step, format_id(need.lifecycle, need.id)
    reason = f"it needs {called if name is None else repr(name)}, which is {need.state}"
    tx.state(CancelRequests).by_unit[unit.id] = {"by": "engine", "reason": reason, "at": tx.now}
    end_child(tx, unit, "cancel", Stamp("engine", reason))
