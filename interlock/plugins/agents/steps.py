"""Recorded steps, of agents and of other jobs: what they asked for, and the pages that a grant does not bring."""

import msgspec

from interlock.core.leases import apply_each
from interlock.core.notes import note
from interlock.core.validation import check_asked, check_name
from interlock.kernel.commands import AskedFor, ReadSteps, Record, StepsPage
from interlock.kernel.errors import NotWanted, Stale
from interlock.kernel.rows import Unit
from interlock.store.queries.for_verbs import has_note, read_notes
from interlock.store.queries.recorded_steps import EFFECT_REQUEST, REQUEST, read_asked, read_steps_from
from interlock.store.unit_of_work import UnitOfWork


def keep_request(tx: UnitOfWork, unit: Unit, command: Record) -> bool:
    """What a step asked for is kept beside its result, once. The core keeps the result.

    Raises:
        NotWanted: a step of this name is recorded, and asked for something else.
    """
    if command.kind != "step" or command.of is None:
        return False
    check_asked(command.of)
    if not has_note(tx, unit.id, "step", command.name):
        note(tx, unit.id, REQUEST, msgspec.json.encode(command.of).decode(), name=command.name, fence=unit.fence)
        return False
    before = next((kept for kept in read_notes(tx, [unit.id], REQUEST) if kept.name == command.name), None)
    if before is not None and msgspec.json.decode(before.payload, type=AskedFor).digest != command.of.digest:
        raise NotWanted(f"the step '{command.name}' is recorded, and asked for something else; take another name")
    return False


def read_steps(tx: UnitOfWork, command: ReadSteps) -> StepsPage:
    """Recorded steps of a unit, from one of them on; or what an effect of it asked for.

    Raises:
        Stale: whoever asks does not hold the unit.
    """
    check_name("name", command.name)
    (answer,) = apply_each(tx, command, (command.held,), lambda unit, index: None)
    if not answer.accepted:
        raise Stale(answer.why)
    if command.effect:
        return StepsPage((), read_asked(tx, command.held.unit, EFFECT_REQUEST, command.name))
    return read_steps_from(tx, command.held.unit, command.name)
