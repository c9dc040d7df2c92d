"""Signals: what happens outside, and is waited for by name; one that comes early is kept.

A holder that waits gives its unit back (`Release(signals=…)`): the unit is parked on `signal:SOURCE:NAME`, without a
lease, until one of the names comes or its time is over. Whose signals they are is the *source*: the unit itself, or the
run of a step. What the engine itself tells a unit (that a child has ended, that a time has passed) is always the
unit's own, and nobody else may send it: `OWN`.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from interlock.core import validation
from interlock.core.advance import SIGNAL, Stamp, advance, change
from interlock.core.cancel import make_standing
from interlock.core.effective_policy import find_deadline, policy_of
from interlock.core.notes import note
from interlock.kernel.commands import Release, Signal, Standing, Work
from interlock.kernel.errors import InterlockError
from interlock.kernel.ids import format_id
from interlock.kernel.lifecycle import Category
from interlock.kernel.rows import Unit
from interlock.kernel.timing import STANDS_US
from interlock.store.queries.for_verbs import has_note, load_open_children, read_notes
from interlock.store.unit_of_work import UnitOfWork

CHILD = "child:"  # how the signal begins that a child has ended; its name in its parent follows
SLEEP = "sleep:"  # how a wait begins that only time ends
VERDICT = "verdict:"  # how the signal begins that the verdict has fallen for which a job rests
OWN = (CHILD, SLEEP, VERDICT)
CLOCK = "clock"  # the kind of note that says how much of its clock a parent had left, in microseconds
BETWEEN = "\n"  # several names of one key
SIGNALS_MAX = 20  # that a unit may wait for at a time


def signal(tx: UnitOfWork, command: Signal) -> Standing:
    """The signal is kept, and whoever waits for it may go on; the first one under a name stays."""
    validation.check_name("name", command.name)
    validation.check_json("payload", command.payload)
    if command.name.startswith(OWN):
        raise InterlockError(f"name = {command.name[:40]!r} is not allowed; {', '.join(OWN)} begin names of the engine")
    load_open_children(tx, command.unit)  # children are locked before their parent
    unit = find_addressee(tx, tx.unit(command.unit))
    if tx.lifecycle(unit).settled(unit.state):
        name = format_id(unit.lifecycle, unit.id)
        raise InterlockError(f"{name} has ended ({unit.state}); nobody waits for a signal any more")
    if has_note(tx, unit.id, "signal", command.name):
        return make_standing(unit, applied=False)
    note(tx, unit.id, "signal", command.payload, name=command.name)
    for waiting in (unit, *load_open_children(tx, unit.id)):
        if is_parked_on(waiting, unit.id, command.name):
            wake(tx, waiting)
    return make_standing(unit, applied=True)


def wake(tx: UnitOfWork, unit: Unit) -> None:
    """What the unit was parked on has come: it may be claimed, and the clock of its state starts anew."""
    if tx.lifecycle(unit).allows(unit.state, "due"):
        advance(tx, unit, "due", Stamp("engine", "what it waited for has come"), due_at=None, parked_on=None)
    else:
        change(tx, unit, due_at=None, parked_on=None, deadline_at=find_deadline(tx, unit, tx.now))


def signal_key(source: int, names: Sequence[str]) -> str:
    """The key that a unit is parked on while it waits for one of these signals."""
    return f"{SIGNAL}{source}:{BETWEEN.join(names)}"


def is_parked_on(unit: Unit, source: int, name: str) -> bool:
    """Whether a unit waits for this signal."""
    prefix, key = f"{SIGNAL}{source}:", unit.parked_on or ""
    return key.startswith(prefix) and (key == prefix + name or name in key.removeprefix(prefix).split(BETWEEN))


def find_addressee(tx: UnitOfWork, unit: Unit) -> Unit:
    """Whose signals a unit waits for: a step's are its run's."""
    step = unit.parent is not None and policy_of(tx.body(unit)).step is not None
    if not step:
        return unit
    load_open_children(tx, unit.parent or 0)
    return tx.unit(unit.parent or 0)


def find_source(tx: UnitOfWork, unit: Unit, name: str = "") -> int:
    """The unit whose signal of this name it waits for: a step's are its run's, but what the engine says is its own."""
    step = unit.parent is not None and policy_of(tx.body(unit)).step is not None
    return unit.parent if step and unit.parent is not None and not name.startswith(OWN) else unit.id


def wait_for_signals(
    tx: UnitOfWork, unit: Unit, command: Release, due_at: int | None
) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """A unit that is given back to wait for signals is parked on them, until it is due at the latest."""
    names = command.names()
    if not names:
        return None
    validation.check_range("the number of signals", len(names), 1, SIGNALS_MAX)
    sources = {find_source(tx, unit, name) for name in names}
    if len(sources) > 1:
        raise InterlockError(
            "a step waits for signals of its run, or for its own children and times, not for both at once"
        )
    payload = {"signal": names[0]} if len(names) == 1 else {"signals": names}
    if not any(name.startswith(VERDICT) for name in names):  # a gate has its own clock
        stop_clock_above(tx, unit)
    return payload, wait_for(tx, unit, sources.pop(), names, due_at)


def wait_for(tx: UnitOfWork, unit: Unit, source: int, names: Sequence[str], due_at: int | None) -> dict[str, Any]:
    """What a unit that waits is parked on, and until when at the latest; not if one of the signals is there."""
    if any(has_note(tx, source, "signal", name) for name in names):
        return {"due_at": tx.now if rests_after(tx, unit) else None}
    before = {waited.name: msgspec.json.decode(waited.payload) for waited in read_notes(tx, [unit.id], "wait")}
    if known := [before[name] for name in names if name in before]:  # an attempt that was lost does not wait longer
        due_at = min((until for until in known if until is not None), default=None)
    for name in names:
        if name not in before:
            note(tx, unit.id, "wait", msgspec.json.encode(due_at).decode(), name=name)
    return {"due_at": due_at, "parked_on": signal_key(source, names)}


def rests_after(tx: UnitOfWork, unit: Unit) -> bool:
    """Whether a unit that is given back comes to a state that only time ends: then it is due at once."""
    snooze = tx.lifecycle(unit).moves.get((unit.state, "snooze"))
    return snooze is not None and tx.lifecycle(unit).category(snooze.path[-1]) is Category.WAITING


# The clock of a run whose one job waits.


def stop_clock_above(tx: UnitOfWork, unit: Unit) -> None:
    """The clock of a parent stands while the unit waits, if it is the unit's own clock too (S-13)."""
    parent = find_clock_above(tx, unit)
    if parent is not None and parent.deadline_at is not None:
        note(tx, parent.id, CLOCK, msgspec.json.encode(find_time_left(tx, parent, parent.deadline_at)).decode())
        change(tx, parent, deadline_at=None)


def has_no_parent(work: Work) -> bool:
    """Whether no clock above the unit can stand for it."""
    return work.parent is None


def find_time_left(tx: UnitOfWork, unit: Unit, deadline_at: int) -> int:
    """How much time a unit has until its deadline, in microseconds; what stands now has not run since it stands."""
    stood_us = [us for stood in tx.hooks.clocks if (us := stood(tx, unit)) is not None]
    at = deadline_at - STANDS_US if deadline_at >= STANDS_US else deadline_at
    return max(0, at + max(stood_us, default=0) - tx.now)


def start_clock_above(tx: UnitOfWork, unit: Unit, fence: int) -> None:
    """A unit that has waited is granted again: the clock of its parent goes on where it stood."""
    parent = find_clock_above(tx, unit) if unit.fence else None
    if parent is None or parent.deadline_at is not None:
        return
    if stopped := read_notes(tx, [parent.id], CLOCK):
        change(tx, parent, deadline_at=tx.now + msgspec.json.decode(stopped[-1].payload, type=int))


def find_clock_above(tx: UnitOfWork, unit: Unit) -> Unit | None:
    """The parent whose clock is the unit's own, where its lifecycle says so."""
    if unit.parent is None or tx.lifecycle(unit).states[unit.state].deadline != "parent":
        return None
    parent = tx.unit(unit.parent)
    return parent if parent.state in tx.lifecycle(parent).clocked else None


def hand_over_signals(tx: UnitOfWork, units: list[Unit]) -> dict[int, dict[str, Any]]:
    """What a worker is told of units that were granted before: the signals that came, and those that came too late."""
    came, waited = read_signals(tx, units), find_waited(tx, units)
    return {
        unit: {"signals": tuple(came.get(unit, {}).items()), "waited": waited.get(unit, ())}
        for unit in {*came, *waited}
    }


def read_signals(tx: UnitOfWork, units: Sequence[Unit]) -> dict[int, dict[str, str]]:
    """By unit that was granted before: the signals that came, by name. A first attempt learns of them when it waits."""
    sources = {unit.id: find_source(tx, unit) for unit in units}
    came: dict[int, dict[str, str]] = {}
    for sent in read_notes(tx, sorted(set(sources.values())), "signal"):
        if not sent.name.startswith(OWN):
            came.setdefault(sent.unit, {})[sent.name] = sent.payload
    return {unit: came[source] for unit, source in sources.items() if source in came}


def find_waited(tx: UnitOfWork, units: Sequence[Unit]) -> dict[int, tuple[str, ...]]:
    """By unit that was granted before: the signals for which it has waited as long as it wanted to."""
    names: dict[int, tuple[str, ...]] = {}
    for waited in read_notes(tx, [unit.id for unit in units], "wait"):
        until = msgspec.json.decode(waited.payload)
        if until is not None and until <= tx.now:
            names[waited.unit] = (*names.get(waited.unit, ()), waited.name)
    return names
