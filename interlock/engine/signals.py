"""Signals: what happens outside, and is waited for by name; one that comes early is kept."""

from collections.abc import Sequence

import msgspec

from interlock.engine import words
from interlock.engine.advance import derive
from interlock.engine.notes import note
from interlock.engine.slots import signal_name
from interlock.engine.terms import policy_of
from interlock.engine.units import standing
from interlock.kernel.commands import Signal, Standing
from interlock.kernel.errors import InterlockError
from interlock.kernel.rows import Unit
from interlock.store.finders import has_note, notes_named, open_children
from interlock.store.tx import Tx


def signal(tx: Tx, command: Signal) -> Standing:
    """The signal is kept, and whoever waits for it may go on; the first one under a name stays."""
    words.named("name", command.name)
    words.json_text("payload", command.payload)
    open_children(tx, command.unit)  # children are locked before their parent
    unit = addressed(tx, tx.unit(command.unit))
    if tx.life(unit).settled(unit.state):
        raise InterlockError(f"unit {unit.id} has ended ({unit.state}); nobody waits for a signal any more")
    if has_note(tx, unit.id, "signal", command.name):
        return standing(unit, applied=False)
    note(tx, unit.id, "signal", command.payload, name=command.name)
    key = signal_name(unit.id, command.name)
    for one in (unit, *open_children(tx, unit.id)):
        if one.parked_on == key:
            one.parked_on = one.due_at = None
            derive(tx, one)
            tx.touch(one)
    return standing(unit, applied=True)


def addressed(tx: Tx, unit: Unit) -> Unit:
    """Whose signals a unit waits for: a step's are its run's."""
    step = unit.parent is not None and policy_of(tx.body(unit)).step is not None
    if not step:
        return unit
    open_children(tx, unit.parent or 0)
    return tx.unit(unit.parent or 0)


def listens_to(tx: Tx, unit: Unit) -> int:
    """The same, without looking at it."""
    step = unit.parent is not None and policy_of(tx.body(unit)).step is not None
    return unit.parent if step and unit.parent is not None else unit.id


def wait_for(tx: Tx, unit: Unit, name: str) -> None:
    """The unit is parked on a signal, until the time at which it is due at the latest; not if the signal is there."""
    source = listens_to(tx, unit)
    if has_note(tx, source, "signal", name):
        unit.due_at = None
        return
    before = [one for one in notes_named(tx, [unit.id], "wait") if one.name == name]
    if before:
        unit.due_at = msgspec.json.decode(before[0].payload)  # an attempt that was lost meanwhile does not wait longer
    else:
        note(tx, unit.id, "wait", msgspec.json.encode(unit.due_at).decode(), name=name)
    unit.parked_on = signal_name(source, name)


def signals_for(tx: Tx, units: Sequence[Unit]) -> dict[int, dict[str, str]]:
    """By unit that was granted before: the signals that came, by name. A first attempt learns of them when it waits."""
    sources = {unit.id: listens_to(tx, unit) for unit in units if unit.fence > 1}
    came: dict[int, dict[str, str]] = {}
    for one in notes_named(tx, sorted(set(sources.values())), "signal"):
        came.setdefault(one.unit, {})[one.name] = one.payload
    return {unit: came[source] for unit, source in sources.items() if source in came}


def over(tx: Tx, units: Sequence[Unit]) -> dict[int, tuple[str, ...]]:
    """By unit that was granted before: the signals for which it has waited as long as it wanted to."""
    found: dict[int, tuple[str, ...]] = {}
    for one in notes_named(tx, [unit.id for unit in units if unit.fence > 1], "wait"):
        until = msgspec.json.decode(one.payload)
        if until is not None and until <= tx.now:
            found[one.unit] = (*found.get(one.unit, ()), one.name)
    return found
