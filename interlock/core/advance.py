"""The only place where a unit's row is written: its state, its lease, its clocks and its budgets.

How a unit moves
----------------
A verb decides what happens to a unit and names it: a trigger of the unit's lifecycle. `advance` looks the trigger up,
finds the path that goes with it (the hops of the unit, and those that its lease makes at the same time), writes the
columns that follow from the path, and records the move. Nothing is sent to the database here: a flush groups the moves
of a transaction into acts (`store/acts.py`), and inserting the acts moves the rows, checked by the database itself.

These functions write, and no other file assigns a column of a unit:

- `make_unit`: a unit is born, with its body and what it needs.
- `advance`: a unit makes a listed move. `terms` are those of the lease that the move grants; other columns that change
  with the move (when it is due next, say) are given by name.
- `hop_lease`: the lease alone moves on, and the unit stays where it is.
- `change`: a column changes without a move: a clock is set, a wish to cancel is kept, a lease is made longer.
- `count`: a budget is spent. `withhold_unit` and `park`: what an available unit waits for.
- `move_along`: a unit takes a path that was found otherwise (an operator forces it into a state).

What follows from a column is derived here as well, after every change, so that no caller has to remember it:
`deadline_at` is the clock of the state, `available_at` is set exactly while the unit may be claimed now, `wake_at` is
set exactly while time must look at it (a lease has its own clock), and `parked_on` names what it still waits for. That
is asked of *gates* (`Hooks.gates`): functions of plugins that answer the key that a unit waits for.

What is not pretty: the columns that acts write are written twice, here in memory and by the guard in the database; a
flush compares nothing, but the audit's laws and the tests do. And a unit that was withheld (`withhold.py`) is
parked on a key that nobody gives back, until any move at all ends that.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from interlock.core.effective_policy import find_deadline
from interlock.core.notes import describe_cancel
from interlock.core.outcomes import forget_error
from interlock.core.stamps import Stamp as Stamp
from interlock.core.stamps import make_stamp as make_stamp
from interlock.core.tx_state import ToFollow
from interlock.kernel.lifecycle import Category, Move
from interlock.kernel.paths import BORN, CLEAR, GRANT, LISTED, OUTCOME, SAME_OUTCOME, SELF, SET, SET_ANEW, Path, Step
from interlock.kernel.rows import Body, Need, Unit
from interlock.store.acts import NOTHING, WITHHELD, LeaseTerms, RecordedMove, copy_birth, record_move
from interlock.store.unit_of_work import UnitOfWork

SIGNAL = "signal:"  # how the key begins that a unit is parked on while it waits for a signal
PAUSE = "pause:"  # the same for units that a claim came across and may not grant
ENCODE = msgspec.json.Encoder(order="sorted").encode


# Writing.


def make_unit(
    tx: UnitOfWork, unit: Unit, body: Body, stamp: Stamp, *, needs: Iterable[Need] = (), trigger: str = "submit"
) -> Unit:
    """A unit exists, with its body and what it needs; whether it is ready is for others to say."""
    tx.add_unit(unit)
    tx.add(body)
    for need in needs:
        tx.add(need)
    advance(tx, unit, trigger, stamp)
    return unit


def advance(
    tx: UnitOfWork, unit: Unit, trigger: str, stamp: Stamp, *, lease: tuple[str, ...] = (), payload: Any = None,
    terms: LeaseTerms | None = None, **columns: Any,
) -> Move:  # fmt: skip
    """Makes the listed move, with the hops that the lease makes at the same time; a flush makes an act of it.

    `lease` names triggers of the lease's lifecycle: a grant goes with the first hop, an end with the last. `terms` are
    those of the lease that is granted. `columns` are others that change with the move.

    Raises:
        Refused: the lifecycle does not list the trigger in the unit's state.
    """
    lifecycle = tx.lifecycle(unit)
    move = lifecycle.move(unit.state or None, trigger)
    if lifecycle.states[move.path[-1]].category is Category.CANCELLED:
        payload = describe_cancel(tx, unit, stamp, payload)
    under = unit.lease if lease and lease[0] != GRANT else None
    path = tx.paths.find(lifecycle.name, unit.state, under, (Step(trigger, lease),))
    move_along(tx, unit, path, stamp, payload, terms, **columns)
    if unit.parent is not None:
        tx.state(ToFollow).moves.append((unit, trigger, tx.changes.last_moves[unit.id].round))
    return move


def move_along(
    tx: UnitOfWork, unit: Unit, path: Path, stamp: Stamp, payload: Any = None, terms: LeaseTerms | None = None,
    **columns: Any,
) -> None:  # fmt: skip
    """Moves the unit along a path, and derives what follows from its new state."""
    for name, value in columns.items():
        setattr(unit, name, value)
    take_path(tx, unit, path, stamp, payload, terms)
    lifecycle = tx.lifecycle(unit)
    if unit.outcome == Category.SUCCESS:
        forget_error(tx, unit)
    if lifecycle.settled(unit.state):
        unit.due_at = unit.asked_at = unit.asked_by = None
    if unit.total > unit.succeeded + unit.lost and (unit.outcome is not None or unit.category == Category.CLOSING):
        tx.changes.leaves_children = True
    unit.deadline_at = find_deadline(tx, unit) if unit.state in lifecycle.clocked else None
    derive(tx, unit)
    if path.source != BORN:
        tx.touch(unit)


def hop_lease(tx: UnitOfWork, unit: Unit, trigger: str, stamp: Stamp, payload: Any = None, **columns: Any) -> None:
    """The lease alone has made a hop; the unit stays where it is."""
    path = tx.paths.find(unit.lifecycle, unit.state, unit.lease, (Step(SELF, (trigger,)),))
    take_path(tx, unit, path, stamp, payload, None)
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


def withhold_unit(tx: UnitOfWork, unit: Unit, look_at: int | None) -> None:
    """The unit is picked no more until somebody moves it; time looks at it again then."""
    change(tx, unit, parked_on=WITHHELD)
    if look_at is not None:
        unit.wake_at = look_at


def park(unit: Unit, key: str | None) -> None:
    """What a unit waits for is known before others are offered what it gives back: one of them may be itself."""
    unit.parked_on = key


# What a path and a state mean for the row.


def take_path(
    tx: UnitOfWork, unit: Unit, path: Path, stamp: Stamp, payload: Any, terms: LeaseTerms | None = None
) -> None:
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
    recorded = RecordedMove(
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
        unit.rests_in = path.target if path.category in LISTED else None
        unit.dead_at = at if path.category == Category.DEAD else None
    if path.outcome != SAME_OUTCOME:
        unit.outcome = path.category if path.outcome == OUTCOME else None
    record_move(tx, recorded)


def derive(tx: UnitOfWork, unit: Unit) -> None:
    """`available_at` is set exactly while it may be claimed now, `wake_at` while time must look at it."""
    lifecycle, live = tx.lifecycle(unit), unit.lease in tx.lease_lifecycle.unsettled
    withheld = unit.parked_on == WITHHELD
    waits = not withheld and (unit.category == Category.READY or (not live and unit.state in lifecycle.reclaimed))
    due = unit.due_at is not None and unit.due_at > tx.now
    rests = unit.category == Category.WAITING and lifecycle.states[unit.state].deadline == "due"
    parked, kept_on = get_parked(unit, SIGNAL), get_parked(unit, PAUSE) if waits else None
    signal = parked if (waits or rests) and (due or unit.due_at is None) else None
    wanted = waits and not due and not unit.unmet and signal is None and kept_on is None
    open_gates = [gate(tx, unit, wanted, live) for gate in tx.hooks.gates]  # each is asked: it may have to give back
    if not (wanted and all(open_gates)):
        unit.available_at = None
    elif unit.available_at is None:
        unit.available_at = tx.now
    if signal is not None or get_parked(unit, SIGNAL):
        unit.parked_on = signal  # it takes no slot meanwhile, and waits no longer than it wanted to
    if parked is not None:  # its clock stands while it waits, and starts anew
        unit.deadline_at = None if signal is not None else find_deadline(tx, unit, tx.now)
    if kept_on is not None or get_parked(unit, PAUSE):
        unit.parked_on = kept_on  # until somebody takes it from there, and it takes no slot meanwhile
    if withheld:
        unit.parked_on = WITHHELD  # until somebody moves it
    unit.wake_at = None
    if unit.state in lifecycle.unsettled:
        clocks = (unit.deadline_at, unit.due_at if due or rests else None, unit.asked_by if live else None)
        for at in clocks:  # the lease has a clock of its own
            if at is not None and (unit.wake_at is None or at < unit.wake_at):
                unit.wake_at = at


def get_parked(unit: Unit, kind: str) -> str | None:
    """The key that a unit is parked on, if it begins so."""
    return unit.parked_on if unit.parked_on is not None and unit.parked_on.startswith(kind) else None
