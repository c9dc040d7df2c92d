"""Phases of an agent run, and caps: how often it corrects and optimizes its work, whoever lets it, over all its jobs.

A handler enters a phase by a record under its lease, once under its place in the handler: `1 correct`, `2 run`. A
handler that is called again, because it waited or its worker was lost, says the same again, and nothing happens. So
does the handler of a job after a resume, which has what the jobs before it recorded.
"""

from interlock.core.advance import advance, make_stamp
from interlock.core.notes import note
from interlock.kernel.commands import Record
from interlock.kernel.errors import NotWanted
from interlock.kernel.ids import format_id
from interlock.kernel.lifecycle import Lifecycle
from interlock.kernel.rows import Unit
from interlock.plugins.agents.binding import list_terms
from interlock.plugins.agents.options import RUN
from interlock.store.queries.for_verbs import has_note, read_notes
from interlock.store.unit_of_work import UnitOfWork

PHASE, USED = "phase", "phase_used"  # kinds of notes: of a job, a phase of its handler; of a run, one that has a cap
PHASES = ("run", "correct", "optimize", "check")  # the triggers by which a run enters them
CAPS = {"correct": "corrections", "optimize": "optimizations"}  # by trigger: the option that limits it


def list_phases(lifecycle: Lifecycle) -> dict[str, str]:
    """The states that are phases of a run, by the trigger that enters them."""
    targets = {trigger: move.path[-1] for (_, trigger), move in lifecycle.moves.items()}
    return {trigger: targets[trigger] for trigger in PHASES}


def count_used(tx: UnitOfWork, run: Unit, trigger: str) -> int:
    """How often a run has entered a phase that has a cap."""
    return sum(entered.name == trigger for entered in read_notes(tx, [run.id], USED))


def has_left(tx: UnitOfWork, run: Unit, trigger: str) -> bool:
    """Whether a run may enter a phase once more."""
    cap = getattr(list_terms(tx, run), CAPS[trigger])
    return cap is None or count_used(tx, run, trigger) < cap


def count_phase(tx: UnitOfWork, run: Unit, trigger: str) -> None:
    """A run enters a phase once more.

    Raises:
        NotWanted: it has done so as often as it may.
    """
    if run.lifecycle != RUN or trigger not in CAPS:
        return
    cap = getattr(list_terms(tx, run), CAPS[trigger])
    if cap is None:
        return
    used = count_used(tx, run, trigger)
    if used >= cap:
        raise NotWanted(f"{format_id(run.lifecycle, run.id)} has used {used} of its {cap} {CAPS[trigger]}")
    note(tx, run.id, USED, str(used + 1), name=trigger)


def record_phase(tx: UnitOfWork, unit: Unit, command: Record) -> bool:
    """The run of a job enters a phase, once under its place in the handler; one that it is in already is only noted.

    Raises:
        NotWanted: there is no such phase, or the run has entered it as often as it may.
        Refused: it cannot follow the phase that the run is in.
    """
    if command.kind != PHASE:
        return False
    place, _, word = command.name.partition(" ")
    states = list_phases(tx.lifecycles[RUN])
    trigger = next((trigger for trigger, state in states.items() if word in (trigger, state)), None)
    if trigger is None or not place.isdecimal():
        allowed = ", ".join(f"{state} ({name})" for name, state in states.items())
        raise NotWanted(f"'{word or command.name}' is no phase; allowed are {allowed}")
    run = tx.unit(unit.parent) if unit.parent is not None else unit
    if run.lifecycle != RUN:
        raise NotWanted(f"{format_id(unit.lifecycle, unit.id)} is no job of an agent run, and has no phases")
    if has_note(tx, unit.id, PHASE, command.name):
        return True
    if run.state != states[trigger]:
        tx.lifecycle(run).move(run.state, trigger)  # before anything is counted
        count_phase(tx, run, trigger)
        advance(tx, run, trigger, make_stamp(command), payload={"fence": unit.fence})
    note(tx, unit.id, PHASE, "null", name=command.name, fence=unit.fence)
    return True
