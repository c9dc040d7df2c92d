"""Families: parents count their children and end with them; what is left of an ended family is stopped."""

from interlock.core.advance import Stamp, advance
from interlock.core.cancel import keep_cancel, request_cancel
from interlock.core.effective_policy import policy_of
from interlock.core.leases import end_lease, is_held
from interlock.core.tx_state import CancelRequests
from interlock.core.workers import notify_holder
from interlock.kernel import families, policy
from interlock.kernel.lifecycle import Category, Lifecycle
from interlock.kernel.lifecycle_options import RollUp
from interlock.kernel.rows import Unit
from interlock.store.flush import COUNTED, add_counts
from interlock.store.hooks import Moved, MoveKind, Reaction
from interlock.store.queries.for_verbs import load_open_children
from interlock.store.unit_of_work import UnitOfWork

BY_PARENT = ("its parent ended", "its parent was cancelled")  # why a child was stopped
BY_CHILDREN = "its children"  # why a parent moved
VERDICTS = ("fail", "succeed")  # by which a family is over
COUNTED_ROLL_UPS = (RollUp.ALL, RollUp.CRITICAL, RollUp.REQUIRED, RollUp.SINGLE)


# The roll-up.


def roll_up(tx: UnitOfWork, moved: list[Moved]) -> None:
    """Parents have counted what their children did, and moved as their rule says.

    A parent that has just come to a state in which it waits hears them too: a child may have been lost before its plan.
    Counters are written by adding, as the last statement, and the verdict is taken from what they come to; so children
    of one parent do not wait for each other longer than that.
    """
    children: dict[int, list[Unit]] = {}
    for unit, _ in moved:
        children.setdefault(unit.parent or 0, []).append(unit)
    sums = counts(moved)
    for unit, _ in filter(has_come_to_wait, moved):
        sums.setdefault(unit.id, dict.fromkeys(COUNTED, 0))
        children.setdefault(unit.id, [])
    for parent in add_counts(tx, sums):
        hear_children(tx, tx.act_for(parent), children[parent.id])


def has_come_to_wait(moved: Moved) -> bool:
    """Whether a parent has just come to a state in which it waits for others."""
    unit, was = moved
    return unit.total > 0 and unit.category == Category.WAITING and was is not None and was.state != unit.state


def brings_parent_to_wait(kind: MoveKind) -> bool:
    """Whether moves of this kind bring a parent to a state in which it waits for others."""
    return kind.is_parent and kind.category == Category.WAITING and not kind.is_birth and kind.has_entered


def counts(moved: list[Moved]) -> dict[int, dict[str, int]]:
    """What to add to the counters of each parent."""
    sums: dict[int, dict[str, int]] = {}
    for unit, was in moved:
        if unit.parent is None:
            continue
        sums.setdefault(unit.parent, dict.fromkeys(COUNTED, 0))
        if was is None:
            count_birth(sums[unit.parent], unit)
        else:
            add(sums[unit.parent], was, -1)
        add(sums[unit.parent], unit, 1)
    return sums


def count_birth(total: dict[str, int], unit: Unit) -> None:
    """A parent has one child more."""
    total["total"] += 1
    total["deciders"] += unit.decides


def add(total: dict[str, int], unit: Unit, sign: int) -> None:
    """A unit counts once: as settled, as blocked, as a gate, as begun, or not at all."""
    if unit.outcome == Category.SUCCESS:
        total["succeeded"] += sign
        total["won"] += sign * unit.decides
    elif unit.outcome is not None:
        total["lost"] += sign
        total["decided"] += sign * unit.decides
    elif unit.unmet:
        total["blocked"] += sign
    elif unit.category == Category.GATE:
        total["gates"] += sign
    elif unit.category in policy.LEASED:
        total["begun"] += sign


def hear_children(tx: UnitOfWork, parent: Unit, moved: list[Unit]) -> None:
    """The parent does what its children say, and its end is the end of those that are left."""
    lifecycle = tx.lifecycle(parent)
    if lifecycle.options.roll_up not in COUNTED_ROLL_UPS or lifecycle.settled(parent.state):
        return
    if lifecycle.options.roll_up is RollUp.SINGLE:
        trigger = current_child(lifecycle, parent, moved)
    else:
        children = families.Children(**{name: getattr(parent, name) for name in COUNTED})
        trigger = families.verdict_of_children(lifecycle, parent.state, children)
        if trigger in VERDICTS and parent.succeeded + parent.lost < parent.total and waits_for_all(tx, parent):
            trigger = families.verdict_of_children(lifecycle, parent.state, children, waits=True)
    if trigger in VERDICTS or (trigger and moved):
        for hook in tx.hooks.before_roll_up:
            hook(tx, parent, trigger)
        advance(tx, parent, trigger, Stamp("engine", BY_CHILDREN))


def waits_for_all(tx: UnitOfWork, parent: Unit) -> bool:
    """Whether the verdict on a unit falls only when all its children have ended."""
    return policy_of(tx.body(parent)).settle == "all"


def current_child(lifecycle: Lifecycle, parent: Unit, moved: list[Unit]) -> str:
    """What the one child that does the work says; older ones are not asked, nor those that decide nothing."""
    child = max((unit for unit in moved if unit.decides), key=lambda unit: unit.id, default=None)
    if child is None:
        return ""
    if child.outcome is not None:
        trigger = "succeed" if child.outcome == Category.SUCCESS else "fail"
    else:
        trigger = "begin" if child.category in policy.LEASED else ""
    return trigger if trigger and lifecycle.allows(parent.state, trigger) else ""


# The end of a family.


def leaves_children(moved: Moved) -> bool:
    """Whether a unit has just ended, or was asked to, and some of its children may be left."""
    unit, was = moved
    return has_ended(unit) and not (was and has_ended(was)) and not all_won(unit)


def has_ended(unit: Unit) -> bool:
    """Whether a unit has an outcome, or was asked to stop and is about to."""
    return unit.outcome is not None or unit.category == Category.CLOSING


def all_won(unit: Unit) -> bool:
    """Whether a unit has succeeded after all its children have ended: then none is left to be stopped."""
    return unit.outcome == Category.SUCCESS and unit.succeeded + unit.lost == unit.total


def end_children(tx: UnitOfWork, moved: list[Moved]) -> None:
    """The open children of units that have ended, or were asked to, are stopped as well."""
    for move in moved:
        if leaves_children(move):
            end_family(tx, tx.act_for(tx.rows.units[move.unit.id]))


def end_family(tx: UnitOfWork, parent: Unit) -> None:
    """The open children of a unit that has ended, or was asked to, are stopped."""
    stamp = Stamp("engine", BY_PARENT[parent.category == Category.CLOSING])
    requests = tx.state(CancelRequests).by_unit
    request = requests.get(parent.id)
    for child in load_open_children(tx, parent.id):
        if request is not None:
            requests.setdefault(child.id, request)
        end_child(tx, child, choose_child_end(tx, parent, child), stamp)


def choose_child_end(tx: UnitOfWork, parent: Unit, child: Unit) -> str:
    """The trigger by which an open child ends with its parent; the one that did the work of a success is complete."""
    if parent.outcome == Category.SUCCESS and child.decides and tx.lifecycle(parent).options.roll_up is RollUp.SINGLE:
        return "complete"  # S-12
    cancelled = parent.category == Category.CLOSING or parent.outcome == Category.CANCELLED
    return "parent_cancelled" if cancelled else "parent_failed"


def end_child(tx: UnitOfWork, child: Unit, first: str, stamp: Stamp) -> None:
    """A unit is stopped by the trigger `first`, or else by `cancel`; of one that follows another, the other."""
    lifecycle, requests = tx.lifecycle(child), tx.state(CancelRequests).by_unit
    attempts = load_open_children(tx, child.id) if lifecycle.options.follows else []
    if attempts:
        if child.id in requests:
            requests.setdefault(attempts[-1].id, requests[child.id])
        end_child(tx, attempts[-1], first, stamp)
        return
    trigger = next((trigger for trigger in (first, "cancel") if lifecycle.allows(child.state, trigger)), "")
    notify_holder(tx, child)
    if trigger and is_held(tx, child):
        if trigger != "complete":
            request_cancel(tx, child)
        end_lease(tx, child, trigger, "force", stamp, {})
    elif trigger:
        advance(tx, child, trigger, stamp)
    elif lifecycle.states[child.state].cancel == "deferred":
        request_cancel(tx, child)
        request = requests.get(child.id, {"by": stamp.actor, "reason": stamp.reason})
        keep_cancel(tx, child, Stamp(request["by"], request["reason"]))


ROLL_UP = Reaction("roll up", lambda kind: kind.is_child or brings_parent_to_wait(kind), roll_up)
END_CHILDREN = Reaction("end children", lambda kind: kind.is_parent, end_children)
