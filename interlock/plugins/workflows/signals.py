"""Signals: what happens outside, and is waited for by name; one that comes early is kept."""

from collections.abc import Sequence
from typing import Any

import msgspec

from interlock.core import validation
from interlock.core.advance import SIGNAL, change
from interlock.core.cancel import make_standing
from interlock.core.effective_policy import policy_of
from interlock.core.notes import note
from interlock.kernel.commands import Release, Signal, Standing
from interlock.kernel.errors import InterlockError
from interlock.kernel.ids import format_id
from interlock.kernel.rows import Unit
from interlock.store.queries.for_verbs import has_note, load_open_children, read_notes
from interlock.store.unit_of_work import UnitOfWork


def signal(tx: UnitOfWork, command: Signal) -> Standing:
    """The signal is kept, and whoever waits for it may go on; the first one under a name stays."""
    validation.check_name("name", command.name)
    validation.check_json("payload", command.payload)
    load_open_children(tx, command.unit)  # children are locked before their parent
    unit = addressed(tx, tx.unit(command.unit))
    if tx.lifecycle(unit).settled(unit.state):
        raise InterlockError(
            f"{format_id(unit.lifecycle, unit.id)} has ended ({unit.state}); nobody waits for a signal any more"
        )
    if has_note(tx, unit.id, "signal", command.name):
        return make_standing(unit, applied=False)
    note(tx, unit.id, "signal", command.payload, name=command.name)
    key = signal_name(unit.id, command.name)
    for waiting in (unit, *load_open_children(tx, unit.id)):
        if waiting.parked_on == key:
            change(tx, waiting, parked_on=None, due_at=None)
    return make_standing(unit, applied=True)


def signal_name(unit: int, name: str) -> str:
    """The key that a unit is parked on while it waits for a signal."""
    return f"{SIGNAL}{unit}:{name}"


def addressed(tx: UnitOfWork, unit: Unit) -> Unit:
    """Whose signals a unit waits for: a step's are its run's."""
    step = unit.parent is not None and policy_of(tx.body(unit)).step is not None
    if not step:
        return unit
    load_open_children(tx, unit.parent or 0)
    return tx.unit(unit.parent or 0)


def listens_to(tx: UnitOfWork, unit: Unit) -> int:
    """The same, without looking at it."""
    step = unit.parent is not None and policy_of(tx.body(unit)).step is not None
    return unit.parent if step and unit.parent is not None else unit.id


def wait_for_signal(
    tx: UnitOfWork, unit: Unit, command: Release, due_at: int | None
) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """A unit that is given back to wait for a signal is parked on it, until it is due at the latest."""
    if command.signal is None:
        return None
    return {"signal": command.signal}, wait_for(tx, unit, command.signal, due_at)


def wait_for(tx: UnitOfWork, unit: Unit, name: str, due_at: int | None) -> dict[str, Any]:
    """What a unit that waits for a signal is parked on, and until when at the latest; not if the signal is there."""
    source = listens_to(tx, unit)
    if has_note(tx, source, "signal", name):
        return {"due_at": None}
    before = [wait for wait in read_notes(tx, [unit.id], "wait") if wait.name == name]
    if before:
        due_at = msgspec.json.decode(before[0].payload)  # an attempt that was lost meanwhile does not wait longer
    else:
        note(tx, unit.id, "wait", msgspec.json.encode(due_at).decode(), name=name)
    return {"due_at": due_at, "parked_on": signal_name(source, name)}


def hand_over_signals(tx: UnitOfWork, units: list[Unit]) -> dict[int, dict[str, Any]]:
    """What a worker is told of units that were granted before: the signals that came, and those that came too late."""
    came, waited = signals_for(tx, units), over(tx, units)
    return {
        unit: {"signals": tuple(came.get(unit, {}).items()), "waited": waited.get(unit, ())}
        for unit in {*came, *waited}
    }


def signals_for(tx: UnitOfWork, units: Sequence[Unit]) -> dict[int, dict[str, str]]:
    """By unit that was granted before: the signals that came, by name. A first attempt learns of them when it waits."""
    sources = {unit.id: listens_to(tx, unit) for unit in units if unit.fence > 1}
    came: dict[int, dict[str, str]] = {}
    for arrival in read_notes(tx, sorted(set(sources.values())), "signal"):
        came.setdefault(arrival.unit, {})[arrival.name] = arrival.payload
    return {unit: came[source] for unit, source in sources.items() if source in came}


def over(tx: UnitOfWork, units: Sequence[Unit]) -> dict[int, tuple[str, ...]]:
    """By unit that was granted before: the signals for which it has waited as long as it wanted to."""
    ended: dict[int, tuple[str, ...]] = {}
    for wait in read_notes(tx, [unit.id for unit in units if unit.fence > 1], "wait"):
        until = msgspec.json.decode(wait.payload)
        if until is not None and until <= tx.now:
            ended[wait.unit] = (*ended.get(wait.unit, ()), wait.name)
    return ended
