"""Run now: an operator ends the delay of a unit."""

import msgspec

from interlock.core.advance import SIGNAL, advance, change, get_parked, make_stamp
from interlock.core.cancel import make_standing
from interlock.core.leases import is_held
from interlock.core.notes import note
from interlock.kernel.commands import RunNow, Standing
from interlock.kernel.errors import NotWanted
from interlock.kernel.ids import format_id
from interlock.kernel.rows import Unit
from interlock.store.acts import WITHHELD
from interlock.store.queries.for_verbs import has_note
from interlock.store.unit_of_work import UnitOfWork

RUN_NOW = "run_now"  # the kind of note that says who ended the delay of an attempt, named by the attempt's number


def run_now(tx: UnitOfWork, command: RunNow) -> Standing:
    """Ends the delay, the backoff or the snooze of a unit; to ask for it again in the same attempt changes nothing.

    Whatever else it waits for (a need, a mutex, a worker) it goes on waiting for.

    Raises:
        NotWanted: the unit does not wait for its time.
    """
    unit, stamp = tx.unit(command.unit), make_stamp(command)
    if not waits_for_its_time(tx, unit):
        if unit.outcome is None and has_note(tx, unit.id, RUN_NOW, str(unit.attempt)):
            return make_standing(unit, applied=False)
        name = format_id(unit.lifecycle, unit.id)
        raise NotWanted(
            f"{name} is {unit.state} and does not wait for its time; allowed for what is delayed, was snoozed or "
            "waits to be tried again"
        )
    payload = {"by": command.describe_actor(), "reason": command.reason, "due_at": unit.due_at}
    note(tx, unit.id, RUN_NOW, msgspec.json.encode(payload).decode(), name=str(unit.attempt), fence=unit.fence)
    if tx.lifecycle(unit).allows(unit.state, "due"):
        advance(tx, unit, "due", stamp, due_at=None)
    else:
        change(tx, unit, due_at=None)
    return make_standing(unit, applied=True)


def waits_for_its_time(tx: UnitOfWork, unit: Unit) -> bool:
    """Whether time alone would bring the unit on: neither a signal nor a sleep of its handler, and nobody holds it."""
    if unit.due_at is None or is_held(tx, unit) or get_parked(unit, SIGNAL) or unit.parked_on == WITHHELD:
        return False
    return unit.due_at > tx.now or tx.lifecycle(unit).allows(unit.state, "due")
