"""The only place where a state changes: it follows the lifecycle's path and writes one event a hop."""

from collections.abc import Iterable
from functools import lru_cache
from hashlib import sha256
from typing import Any

import msgspec

from interlock.engine.slots import WITHHELD, awaited, seat
from interlock.engine.terms import policy_of
from interlock.engine.words import keepable
from interlock.kernel import policy
from interlock.kernel.commands import Command
from interlock.kernel.lifecycle import Category, Lifecycle, Move
from interlock.kernel.rows import Event, ForcedMove, Unit
from interlock.store.finders import find_askers
from interlock.store.tx import Tx

SELF = "self"  # a hop of the lease alone
ASKED = "asked"  # in the payload of a cancel: who asked for it, why and when
NO_HOP = (None, None)  # of the lease
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
    """The unit has made the listed move, its lease the hops that go with it, and an event tells of each hop.

    `lease` names triggers of the lease's lifecycle. A grant goes with the first hop, an end with the last; a hop
    of the lease that finds no hop of the unit is an event of its own.
    """
    life = tx.life(unit)
    move = life.move(unit.state or None, trigger)
    hops = move.hops
    if life.states[move.path[-1]].category is Category.CANCELLED:
        payload = with_asker(tx, unit, stamp, payload)
    lease_hops = lease_path(tx, unit, lease) if lease else []
    before = 0 if lease_hops and lease[0] == "grant" else len(hops) - len(lease_hops)  # hops without the lease
    for hop in hops:
        with_lease = lease_hops.pop(0) if lease_hops and before <= 0 else NO_HOP
        before -= 1
        if hop.opens_attempt:
            unit.attempt += 1
        unit.state = hop.target
        told = payload if hop is hops[-1] else None
        remember(tx, unit, hop.source, (trigger, hop.event, hop.severity), stamp, with_lease, told)
    for with_lease in lease_hops:
        in_place(tx, unit, stamp, with_lease)
    born = move.source is None
    settle(tx, unit, life, opened=born or move.opens_attempt, born=born)
    if unit.parent is not None:
        tx.fired.append((unit, trigger))
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
    for with_lease in lease_path(tx, unit, (trigger,)):
        in_place(tx, unit, stamp, with_lease)
    derive(tx, unit)
    tx.touch(unit)


def lease_path(tx: Tx, unit: Unit, triggers: tuple[str, ...]) -> list[tuple[str | None, str | None]]:
    """The hops that these triggers make of the unit's lease, which is left in the last one."""
    hops: list[tuple[str | None, str | None]] = []
    for trigger in triggers:
        source = None if trigger == "grant" else unit.lease
        unit.lease = tx.leases.move(source, trigger).path[-1]
        hops.append((source, unit.lease))
    return hops


def in_place(tx: Tx, unit: Unit, stamp: Stamp, with_lease: tuple[str | None, str | None]) -> None:
    name = f"lease_{str(with_lease[1]).lower()}"
    remember(tx, unit, unit.state, (SELF, name, "info"), stamp, with_lease, None)


def remember(
    tx: Tx,
    unit: Unit,
    source: str | None,
    names: tuple[str, str, str],
    stamp: Stamp,
    with_lease: tuple[str | None, str | None],
    payload: Any,
) -> None:
    """One event, chained to the one before it; the unit's version counts it."""
    unit.version += 1
    if unit.parked_on == WITHHELD:
        unit.parked_on = None  # whoever moves it brings it back
    if tx.now > unit.changed_at:
        unit.changed_at = tx.now
    if stamp.vouched_by:
        payload = {**(payload or {}), "vouched_by": stamp.vouched_by}
    body, text = tx.body(unit), ENCODE(payload).decode() if payload else "{}"
    trigger, name, severity = names
    fields = (
        unit.id, unit.version, unit.tenant, unit.lifecycle, trigger, source, unit.state, *with_lease, unit.attempt,
        unit.fence, name, severity, unit.changed_at, stamp.actor, stamp.reason or trigger, stamp.cause,
        body.correlation, body.trace,
    )  # fmt: skip
    unit.head = linked(unit.head, fields, text)
    tx.events.append(Event(*fields, text, unit.head))


def chained(before: str, event: Event) -> str:
    """The hash of an event: over the hash before it and its fields, the payload by its digest."""
    *fields, payload, _ = msgspec.structs.astuple(event)
    return linked(before, fields, payload)


def linked(before: str, fields: Iterable[Any], payload: str) -> str:
    return sha256(before.encode() + ENCODE((*fields, digest(payload)))).hexdigest()


@lru_cache(maxsize=64)
def digest(payload: str) -> str:
    """Events of one kind often say the same."""
    return sha256(payload.encode()).hexdigest()


def force(tx: Tx, unit: Unit, state: str, stamp: Stamp) -> None:
    """An operator has put a unit into a state, whatever its table lists; the event says who and why."""
    source, unit.state = unit.state, state
    lease_hops = lease_path(tx, unit, ("revoke",)) if unit.holder is not None else [(None, None)]
    remember(tx, unit, source, ("force", "forced", "warning"), stamp, lease_hops[0], None)
    allowed = ForcedMove(
        unit=unit.id, version=unit.version, tenant=unit.tenant, target=state, actor=stamp.actor, reason=stamp.reason,
        at=unit.changed_at,
    )  # fmt: skip
    tx.session.insert([allowed])  # before its event, which the guard compares with it
    settle(tx, unit, tx.life(unit), opened=False, born=False)


def settle(tx: Tx, unit: Unit, life: Lifecycle, *, opened: bool, born: bool) -> None:
    """What follows from the new state: category, outcome, clocks, and whether it may be claimed."""
    state = life.states[unit.state]
    unit.category = category = state.category
    if category is not Category.CLOSED:
        unit.outcome = category if state.settled else None
    if unit.outcome == Category.SUCCESS:
        forget_error(tx, unit)
    if opened:
        unit.started_at = None
    if category is Category.ACTIVE and unit.started_at is None:
        unit.started_at = unit.changed_at
    if state.settled:
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
        clocks += [unit.lease_until, unit.asked_by] if live else []
        unit.wake_at = min([at for at in clocks if at is not None], default=None)
