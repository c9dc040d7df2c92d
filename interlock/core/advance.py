"""The only place where a unit's row is written: its state, its lease, its clocks and its budgets.

How a unit moves
----------------
A verb decides what happens to a unit and names it: a trigger of the unit's lifecycle. `advance` looks the trigger up,
finds the path that goes with it (the hops of the unit, and those that its lease makes at the same time), writes the
columns that follow from the path, and records the move. Nothing is sent to the database here: a flush groups the moves
of a transaction into acts (`store/acts.py`), and inserting the acts moves the rows, checked by the database itself.

There are six functions that write, and no other file assigns a column of a unit:

- `make_unit`: a unit is born, with its body and what it needs.
- `advance`: a unit makes a listed move. `terms` are those of the lease that the move grants; other columns that change
  with the move (when it is due next, say) are given by name.
- `hop_lease`: the lease alone moves on, and the unit stays where it is.
- `change`: a column changes without a move: a clock is set, a wish to cancel is kept, a lease is made longer.
- `count`: a budget is spent. Nothing follows from that by itself.
- `force`: an operator puts a unit into a state, whatever its lifecycle lists.

What follows from a column is derived here as well, after every change, so that no caller has to remember it:
`deadline_at` is the clock of the state, `available_at` is set exactly while the unit may be claimed now, `wake_at` is
set exactly while time must look at it, and `parked_on` names what an available unit still waits for. Whether there is
such a thing is asked of *gates* (`Hooks.gates`): functions of plugins that answer the key that a unit waits for.

What is not pretty: the columns that acts write are written twice, here in memory and by the guard in the database; a
flush compares nothing, but the audit's laws and the tests do. And a unit that was withheld (`engine/withhold.py`) is
parked on a key that nobody gives back, until any move at all ends that.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from interlock.core.effective_policy import policy_of
from interlock.core.notes import CANCEL_REQUESTED, note
from interlock.core.validation import keepable
from interlock.kernel import policy
from interlock.kernel.commands import Command
from interlock.kernel.lifecycle import Category, Lifecycle, Move
from interlock.kernel.paths import BORN, CLEAR, GRANT, OUTCOME, SAME_OUTCOME, SELF, SET, SET_ANEW, Path, Step
from interlock.kernel.rows import Body, ForcedMove, Need, Unit, copied
from interlock.store.acts import NOTHING, WITHHELD, LeaseTerms, copy_birth, record_move, repeat_birth
from interlock.store.acts import Move as Moved
from interlock.store.migrate import make_path
from interlock.store.queries.for_verbs import find_cancel_requests
from interlock.store.unit_of_work import UnitOfWork

ASKED = "asked"  # in the payload of a cancel: who asked for it, why and when
RESTS = (Category.GATE, Category.WAITING)
SIGNAL = "signal:"  # how the key begins that a unit is parked on while it waits for a signal
ENCODE = msgspec.json.Encoder(order="sorted").encode


class Stamp(msgspec.Struct, frozen=True):
    """Who moves a unit, and why."""

    actor: str
    reason: str = ""
    cause: str | None = None
    vouched_by: str = ""  # the key that spoke for the actor


@dataclass
class CancelRequests:
    """Who asked units to stop in this transaction, why and when, by unit."""

    by_unit: dict[int, dict[str, Any]] = field(default_factory=dict)


@dataclass
class ToFollow:
    """What moved and may have a unit that follows it."""

    moves: deque[tuple[Unit, str, int]] = field(default_factory=deque)  # the unit, its trigger and its round
    retryable: set[int] = field(default_factory=set)  # units whose failure may be tried again


def asked_by(command: Command[Any]) -> Stamp:
    for name in ("actor", "reason", "cause"):
        keepable(name, getattr(command, name))
    return Stamp(command.actor, command.reason, command.cause, command.vouched_by)


def actor_text(command: Command[Any]) -> str:
    """Who acts, and which key vouches for that, where there is one column for both."""
    return f"{command.actor} (vouched for by {command.vouched_by})" if command.vouched_by else command.actor


# Writing.


def make_unit(
    tx: UnitOfWork, unit: Unit, body: Body, stamp: Stamp, *, needs: Sequence[Unit] = (), trigger: str = "submit"
) -> Unit:
    """A unit exists, with its body and what it needs; whether it is ready is for others to say."""
    tx.add_unit(unit)
    tx.add(body)
    for need in needs:
        tx.add(Need(unit=unit.id, needs=need.id, tenant=unit.tenant))
    advance(tx, unit, trigger, stamp)
    return unit


def make_alike(tx: UnitOfWork, first: Unit, text: str) -> Unit:
    """A unit that differs from one which was just born in nothing but its id and its input: the same move bears it."""
    unit: Unit = copied(first)
    body: Body = copied(tx.rows.bodies[first.id])
    unit.id = body.unit = tx.ids.take()
    body.input, body.correlation = text, str(unit.id)
    tx.add_unit(unit)
    tx.add(body)
    repeat_birth(tx, first, unit)
    return unit


def advance(
    tx: UnitOfWork,
    unit: Unit,
    trigger: str,
    stamp: Stamp,
    *,
    lease: tuple[str, ...] = (),
    payload: Any = None,
    terms: LeaseTerms | None = None,
    **columns: Any,
) -> Move:
    """The unit has made the listed move, its lease the hops that go with it, and a flush makes an act of it.

    `lease` names triggers of the lease's lifecycle. A grant goes with the first hop, an end with the last; a hop
    of the lease that finds no hop of the unit is an event of its own. Raises Refused if the move is not listed.
    """
    lifecycle = tx.lifecycle(unit)
    move = lifecycle.move(unit.state or None, trigger)
    for name, value in columns.items():
        setattr(unit, name, value)
    if lifecycle.states[move.path[-1]].category is Category.CANCELLED:
        payload = with_asker(tx, unit, stamp, payload)
    under = unit.lease if lease and lease[0] != GRANT else None
    take(tx, unit, tx.paths.find(lifecycle.name, unit.state, under, (Step(trigger, lease),)), stamp, payload, terms)
    settle(tx, unit, lifecycle, born=move.source is None)
    if unit.parent is not None:
        tx.state(ToFollow).moves.append((unit, trigger, tx.changes.last_moves[unit.id].round))
    return move


def hop_lease(tx: UnitOfWork, unit: Unit, trigger: str, stamp: Stamp, **columns: Any) -> None:
    """The lease alone has made a hop; the unit stays where it is."""
    take(tx, unit, tx.paths.find(unit.lifecycle, unit.state, unit.lease, (Step(SELF, (trigger,)),)), stamp, None)
    change(tx, unit, **columns)


def change(tx: UnitOfWork, unit: Unit, **columns: Any) -> None:
    """These columns have changed without a move, and what follows from them."""
    for name, value in columns.items():
        setattr(unit, name, value)
    derive(tx, unit)
    tx.touch(unit)


def count(tx: UnitOfWork, unit: Unit, *, failures: int = 0, losses: int = 0, snoozes: int = 0) -> None:
    """So much of a unit's budgets is spent."""
    unit.failures += failures
    unit.losses += losses
    unit.snoozes += snoozes
    tx.touch(unit)


def request_cancel(tx: UnitOfWork, unit: Unit) -> None:
    """Somebody wants the unit to stop, and its holder has so long to do it."""
    unit.asked_at = tx.now
    unit.asked_by = tx.now + (tx.lifecycle(unit).options.cancel_within_us or 0)


def keep_cancel(tx: UnitOfWork, unit: Unit, stamp: Stamp) -> None:
    """The wish that a unit stops is kept until it does: who asked for it, and why."""
    note(tx, unit.id, CANCEL_REQUESTED, msgspec.json.encode(stamp).decode(), fence=unit.fence)


def withhold_unit(tx: UnitOfWork, unit: Unit, look_at: int | None) -> None:
    """The unit is picked no more until somebody moves it; time looks at it again then."""
    change(tx, unit, parked_on=WITHHELD)
    if look_at is not None:
        unit.wake_at = look_at


def park(unit: Unit, key: str | None) -> None:
    """What a unit waits for is known before others are offered what it gives back: one of them may be itself."""
    unit.parked_on = key


def force(tx: UnitOfWork, unit: Unit, state: str, stamp: Stamp) -> None:
    """An operator has put a unit into a state, whatever its table lists; the event says who and why."""
    under = unit.lease if unit.holder is not None else None
    path = tx.paths.force(unit.lifecycle, unit.state, under, state)
    make_path(tx.connection, path)
    unit.due_at = None
    take(tx, unit, path, stamp, None)
    unit.holder = None
    allowed = ForcedMove(
        unit=unit.id, version=unit.version, tenant=unit.tenant, target=state, actor=stamp.actor, reason=stamp.reason,
        at=unit.changed_at,
    )  # fmt: skip
    tx.connection.insert([allowed])  # before its act, which the guard compares with it
    settle(tx, unit, tx.lifecycle(unit), born=False)


# What a path and a state mean for the row.


def take(tx: UnitOfWork, unit: Unit, path: Path, stamp: Stamp, payload: Any, terms: LeaseTerms | None = None) -> None:
    """The unit has gone along a path: the columns that acts write say so."""
    at = max(unit.changed_at, tx.now)
    if terms is not None:
        # A claim that began before the end of what the unit needed, and saw it, is told as later than it.
        at = max(at, unit.available_at or 0)
        unit.holder, unit.lease_ttl, unit.lease_beat, unit.lease_until, unit.lease_hash = terms
    if unit.parked_on == WITHHELD:
        unit.parked_on = None  # whoever moves it brings it back
    if stamp.vouched_by:
        payload = {**(payload or {}), "vouched_by": stamp.vouched_by}
    copy_birth(tx, unit)
    moved = Moved(
        unit, path, tx.changes.round, unit.version, unit.attempt, unit.fence, at,
        stamp.actor, stamp.reason, stamp.cause, ENCODE(payload).decode() if payload else NOTHING, terms,
        unit.lease_until if path.lease_ends else None,
    )  # fmt: skip
    unit.version += len(path.hops)
    unit.attempt += path.opens
    unit.fence += path.grants
    unit.state, unit.changed_at = path.target, at
    if path.lease_to is not None:
        unit.lease = path.lease_to
    if path.lease_ends:
        unit.holder = None
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


def settle(tx: UnitOfWork, unit: Unit, lifecycle: Lifecycle, *, born: bool) -> None:
    """What follows from the new state: clocks, and whether it may be claimed."""
    if unit.outcome == Category.SUCCESS:
        forget_error(tx, unit)
    if lifecycle.settled(unit.state):
        unit.due_at = unit.asked_at = unit.asked_by = None
    unit.deadline_at = deadline(tx, unit, lifecycle) if unit.state in lifecycle.clocked else None
    derive(tx, unit)
    if not born:
        tx.touch(unit)


def derive(tx: UnitOfWork, unit: Unit) -> None:
    """`available_at` is set exactly while it may be claimed now, `wake_at` while time must look at it."""
    lifecycle, live = tx.lifecycle(unit), unit.lease in tx.lease_lifecycle.unsettled
    withheld = unit.parked_on == WITHHELD
    waits = not withheld and (unit.category == Category.READY or (not live and unit.state in lifecycle.reclaimed))
    due = unit.due_at is not None and unit.due_at > tx.now
    signal = awaited(unit) if waits and (due or unit.due_at is None) else None
    wanted = waits and not due and not unit.unmet and signal is None
    passes = [gate(tx, unit, wanted, live) for gate in tx.hooks.gates]  # each is asked: it may have to give back
    if not (wanted and all(passes)):
        unit.available_at = None
    elif unit.available_at is None:
        unit.available_at = tx.now
    if signal is not None or awaited(unit):
        unit.parked_on = signal  # it takes no seat meanwhile, and waits no longer than it wanted to
    if withheld:
        unit.parked_on = WITHHELD  # until somebody moves it
    unit.wake_at = None
    if unit.state in lifecycle.unsettled:
        clocks = [unit.deadline_at, unit.due_at if due else None]
        clocks += [unit.asked_by] if live else []  # the lease has a clock of its own
        unit.wake_at = min([at for at in clocks if at is not None], default=None)


def awaited(unit: Unit) -> str | None:
    """The signal that a unit is parked on, if it is one."""
    return unit.parked_on if unit.parked_on is not None and unit.parked_on.startswith(SIGNAL) else None


def deadline(tx: UnitOfWork, unit: Unit, lifecycle: Lifecycle) -> int | None:
    """When the clock of the unit's state runs out; for how long it may run counts from its start (A4-7)."""
    limit_us = policy.time_limit(lifecycle, unit.state, policy_of(tx.body(unit)))
    if limit_us is None:
        return None
    runs = lifecycle.states[unit.state].deadline == "time_out" and unit.category == Category.ACTIVE
    return (unit.started_at if runs and unit.started_at else unit.changed_at) + limit_us


def forget_error(tx: UnitOfWork, unit: Unit) -> None:
    """What an earlier attempt failed with is no error of a unit that has succeeded; its events still tell it."""
    body = tx.body(unit)
    if body.error is not None:
        body.error = None
        tx.change(body)


def with_asker(tx: UnitOfWork, unit: Unit, stamp: Stamp, payload: Any) -> Any:
    """The payload of a cancel, which says who asked for it and why if its event does not."""
    requests = tx.state(CancelRequests).by_unit
    if unit.id not in requests and unit.asked_at is not None:
        requests |= find_cancel_requests(tx, [unit.id])
    asked = requests.get(unit.id)
    if asked is None or (asked["by"], asked["reason"]) == (stamp.actor, stamp.reason):
        return payload
    return {**(payload or {}), ASKED: asked}


def is_only_born(tx: UnitOfWork, unit: Unit) -> bool:
    """Whether all that this transaction did to a unit is to make it."""
    move = tx.changes.last_moves.get(unit.id)
    return move is not None and move.path.source == BORN
