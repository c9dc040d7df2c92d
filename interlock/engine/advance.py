"""The only place where a state changes: a unit takes one of its lifecycle's paths, and a flush makes an act of it."""

from typing import Any

import msgspec

from interlock.engine.slots import WITHHELD, awaited, seat
from interlock.engine.terms import policy_of
from interlock.engine.words import keepable
from interlock.kernel import policy
from interlock.kernel.commands import Command
from interlock.kernel.lifecycle import Category, Lifecycle, Move
from interlock.kernel.paths import CLEAR, GRANT, OUTCOME, SAME_OUTCOME, SELF, SET, SET_ANEW, Path, Step
from interlock.kernel.rows import ForcedMove, Unit
from interlock.store.acts import NOTHING, keep_birth, record_move, terms_of
from interlock.store.acts import Move as Moved
from interlock.store.finders import find_askers
from interlock.store.migrate import make_path
from interlock.store.tx import Tx

ASKED = "asked"  # in the payload of a cancel: who asked for it, why and when
RESTS = (Category.GATE, Category.WAITING)
ENCODE = msgspec.json.Encoder(order="sorted").encode


class Stamp(msgspec.Struct, frozen=True):
    """Who moves a unit, and why."""

    actor: str
    reason: str = ""
    cause: str | None = None
    vouched_by: str = ""  # the key that spoke for the actor


def asked_by(command: Command[Any]) -> Stamp:
    for name in ("actor", "reason", "cause"):
        keepable(name, getattr(command, name))
    return Stamp(command.actor, command.reason, command.cause, command.vouched_by)


def actor_text(command: Command[Any]) -> str:
    """Who acts, and which key vouches for that, where there is one column for both."""
    return f"{command.actor} (vouched for by {command.vouched_by})" if command.vouched_by else command.actor


def advance(
    tx: Tx, unit: Unit, trigger: str, stamp: Stamp, *, lease: tuple[str, ...] = (), payload: Any = None
) -> Move:
    """The unit has made the listed move, its lease the hops that go with it, and a flush makes an act of it.

    `lease` names triggers of the lease's lifecycle. A grant goes with the first hop, an end with the last; a hop
    of the lease that finds no hop of the unit is an event of its own.
    """
    life = tx.life(unit)
    move = life.move(unit.state or None, trigger)
    if life.states[move.path[-1]].category is Category.CANCELLED:
        payload = with_asker(tx, unit, stamp, payload)
    under = unit.lease if lease and lease[0] != GRANT else None
    take(tx, unit, tx.paths.find(life.name, unit.state, under, (Step(trigger, lease),)), stamp, payload)
    born = move.source is None
    settle(tx, unit, life, born=born)
    if unit.parent is not None:
        tx.fired.append((unit, trigger, tx.last_moves[unit.id].round))
    return move


def with_asker(tx: Tx, unit: Unit, stamp: Stamp, payload: Any) -> Any:
    """The payload of a cancel, which says who asked for it and why if its event does not."""
    if unit.id not in tx.askers and unit.asked_at is not None:
        tx.askers |= find_askers(tx, [unit.id])
    asked = tx.askers.get(unit.id)
    if asked is None or (asked["by"], asked["reason"]) == (stamp.actor, stamp.reason):
        return payload
    return {**(payload or {}), ASKED: asked}


def hop_lease(tx: Tx, unit: Unit, trigger: str, stamp: Stamp) -> None:
    """The lease alone has made a hop; the unit stays where it is."""
    take(tx, unit, tx.paths.find(unit.lifecycle, unit.state, unit.lease, (Step(SELF, (trigger,)),)), stamp, None)
    derive(tx, unit)
    tx.touch(unit)


def take(tx: Tx, unit: Unit, path: Path, stamp: Stamp, payload: Any) -> None:
    """The unit has gone along a path: the columns that acts write say so."""
    at = max(unit.changed_at, tx.now)
    if unit.parked_on == WITHHELD:
        unit.parked_on = None  # whoever moves it brings it back
    if stamp.vouched_by:
        payload = {**(payload or {}), "vouched_by": stamp.vouched_by}
    keep_birth(tx, unit)
    terms = terms_of(unit) if path.grants else None
    moved = Moved(
        unit, path, tx.floor, unit.version, unit.attempt, unit.fence, at, stamp.actor, stamp.reason, stamp.cause,
        ENCODE(payload).decode() if payload else NOTHING, terms, unit.lease_until if path.lease_ends else None,
    )  # fmt: skip
    unit.version += len(path.hops)
    unit.attempt += path.opens
    unit.fence += path.grants
    unit.state, unit.changed_at = path.target, at
    if path.lease_to is not None:
        unit.lease = path.lease_to
    if path.started in (CLEAR, SET_ANEW):
        unit.started_at = None
    if path.started in (SET, SET_ANEW) and unit.started_at is None:
        unit.started_at = at
    if path.category is not None:
        unit.category = path.category
        unit.rests_in = path.target if path.category in RESTS else None
        unit.dead_at = at if path.category == Category.DEAD else None
    if path.outcome != SAME_OUTCOME:
        unit.outcome = path.category if path.outcome == OUTCOME else None
    record_move(tx, moved)


def force(tx: Tx, unit: Unit, state: str, stamp: Stamp) -> None:
    """An operator has put a unit into a state, whatever its table lists; the event says who and why."""
    under = unit.lease if unit.holder is not None else None
    path = tx.paths.force(unit.lifecycle, unit.state, under, state)
    make_path(tx.session, path)
    take(tx, unit, path, stamp, None)
    allowed = ForcedMove(
        unit=unit.id, version=unit.version, tenant=unit.tenant, target=state, actor=stamp.actor, reason=stamp.reason,
        at=unit.changed_at,
    )  # fmt: skip
    tx.session.insert([allowed])  # before its act, which the guard compares with it
    settle(tx, unit, tx.life(unit), born=False)


def settle(tx: Tx, unit: Unit, life: Lifecycle, *, born: bool) -> None:
    """What follows from the new state: clocks, and whether it may be claimed."""
    if unit.outcome == Category.SUCCESS:
        forget_error(tx, unit)
    if life.settled(unit.state):
        unit.due_at = unit.asked_at = unit.asked_by = None
    unit.deadline_at = deadline(tx, unit, life) if unit.state in life.clocked else None
    derive(tx, unit)
    if not born:
        tx.touch(unit)


def forget_error(tx: Tx, unit: Unit) -> None:
    """What an earlier attempt failed with is no error of a unit that has succeeded; its events still tell it."""
    body = tx.body(unit)
    if body.error is not None:
        body.error = None
        tx.change(body)


def deadline(tx: Tx, unit: Unit, life: Lifecycle) -> int | None:
    """When the clock of the unit's state runs out; for how long it may run counts from its start (A4-7)."""
    limit_us = policy.time_limit(life, unit.state, policy_of(tx.body(unit)))
    if limit_us is None:
        return None
    runs = life.states[unit.state].deadline == "time_out" and unit.category == Category.ACTIVE
    return (unit.started_at if runs and unit.started_at else unit.changed_at) + limit_us


def derive(tx: Tx, unit: Unit) -> None:
    """`available_at` is set exactly while it may be claimed now, `wake_at` while time must look at it."""
    life, live = tx.life(unit), unit.lease in tx.leases.unsettled
    withheld = unit.parked_on == WITHHELD
    waits = not withheld and (unit.category == Category.READY or (not live and unit.state in life.reclaimed))
    due = unit.due_at is not None and unit.due_at > tx.now
    signal = awaited(unit) if waits and (due or unit.due_at is None) else None
    wanted = waits and not due and not unit.unmet and signal is None
    if not (seat(tx, unit, derive, wanted=wanted, live=live) and wanted):
        unit.available_at = None
    elif unit.available_at is None:
        unit.available_at = tx.now
    if signal is not None or awaited(unit):
        unit.parked_on = signal  # it takes no seat meanwhile, and waits no longer than it wanted to
    if withheld:
        unit.parked_on = WITHHELD  # until somebody moves it
    unit.wake_at = None
    if unit.state in life.unsettled:
        clocks = [unit.deadline_at, unit.due_at if due else None]
        clocks += [unit.asked_by] if live else []  # the lease has a clock of its own
        unit.wake_at = min([at for at in clocks if at is not None], default=None)
