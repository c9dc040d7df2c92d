"""Undoing: what a unit recorded as its compensations is done, the last first, once it has ended without success.

Each compensation is a job of its own, a child of the unit that it undoes; the unit's own end never changes. The next
one is begun when the one before it has ended, whatever came of it: what cannot be undone is a dead letter, and no
reason to leave the rest as it is.
"""

import msgspec

from interlock.core.advance import Stamp, make_unit
from interlock.core.effective_policy import policy_at_end, policy_of
from interlock.core.notes import note
from interlock.core.plain import attach_to
from interlock.kernel.commands import Policy, Record
from interlock.kernel.errors import InterlockError
from interlock.kernel.lifecycle import Category
from interlock.kernel.rows import Body, Note, Unit
from interlock.plugins.workflows.queries import read_compensations
from interlock.store.hooks import Moved, Reaction
from interlock.store.queries.for_verbs import find_lane_of_task
from interlock.store.unit_of_work import UnitOfWork

LIFECYCLE = "job"


class Undo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Work that undoes something."""

    task: str
    input: msgspec.Raw = msgspec.Raw(b"null")


class UndoStep(Undo, frozen=True, forbid_unknown_fields=True):
    """Work that undoes a step of a run, where that step was done. Holders do not say so: they could name any lane."""

    step: str | None = None
    lane: int | None = None


def check_compensation(command: Record) -> None:
    """The payload of a compensation names the work that undoes something.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    if command.kind != "compensation":
        return
    try:
        msgspec.json.decode(command.payload, type=Undo)
    except msgspec.MsgspecError as error:
        raise InterlockError(f"a compensation is an object with `task`, and perhaps `input`: {error}") from None


def remember_undo(tx: UnitOfWork, moved: list[Moved]) -> None:
    """A step that has succeeded, and says how it is undone, is undone if its run ends without success."""
    for unit, _ in moved:
        if unit.outcome != Category.SUCCESS or unit.parent is None or not unit.fence:
            continue  # what was skipped was not done
        body = tx.body(unit)
        own = policy_of(body)
        if own.undo is not None and own.step is not None:
            tx.act_for(unit)
            undo = UndoStep(own.undo, msgspec.Raw(body.input.encode()), own.step, unit.lane)
            note(tx, unit.parent, "compensation", msgspec.json.encode(undo).decode(), name=own.step)


def compensate(tx: UnitOfWork, moved: list[Moved]) -> None:
    """Units that have just ended: one that failed is undone, and one that undoes something is followed by the next."""
    ended = [unit for unit, _ in moved]
    undoing = {unit.id: policy_at_end(tx.body(unit)).undoes for unit in ended if unit.parent is not None}
    owners = [unit.id for unit in ended if unit.outcome != Category.SUCCESS and not undoing.get(unit.id)]
    steps = [(unit, undone) for unit in ended if (undone := undoing.get(unit.id))]
    recorded: dict[int, list[Note]] = {}
    for compensation in read_compensations(tx, sorted({*owners, *(unit.parent or 0 for unit, _ in steps)})):
        recorded.setdefault(compensation.unit, []).append(compensation)
    for owner in owners:
        if owner in recorded:
            tx.act_for(tx.rows.units[owner])
            undo(tx, owner, recorded[owner][0])
    for unit, undone in steps:
        go_on(tx, tx.act_for(unit), undone, recorded[unit.parent or 0])


def go_on(tx: UnitOfWork, unit: Unit, undone: int, recorded: list[Note]) -> None:
    """A compensation has ended; the one that was recorded before it begins."""
    owner = recorded[0].unit
    this = next(row for row in recorded if row.id == undone)
    if unit.outcome == Category.SUCCESS:
        note(tx, owner, "compensated", msgspec.json.encode({"by": unit.id}).decode(), name=this.name)
    if earlier := next((row for row in recorded if row.id < undone), None):
        undo(tx, owner, earlier)


def undo(tx: UnitOfWork, owner: int, recorded: Note) -> None:
    """A job undoes what was recorded. Its key makes it the only one that ever does."""
    above = tx.unit(owner)
    wanted, body = msgspec.json.decode(recorded.payload, type=UndoStep), tx.body(above)
    lane = find_lane_of_task(tx, above.tenant, wanted.lane or above.lane, wanted.task)
    unit = Unit(
        id=tx.ids.take(), tenant=above.tenant, lane=lane, lifecycle=LIFECYCLE, parent=owner, decides=0,
        priority=above.priority,
    )  # fmt: skip
    own = Policy(undoes=recorded.id, step=wanted.step and f"undo {wanted.step}", earlier=policy_of(body).earlier)
    fresh = Body(
        unit=unit.id, tenant=unit.tenant, task=wanted.task, key=f"undo:{recorded.id}", created_at=tx.now,
        input=bytes(wanted.input).decode(), policy=msgspec.json.encode(own).decode(),
        correlation=body.correlation, trace=body.trace,
    )  # fmt: skip
    make_unit(tx, unit, fresh, Stamp("engine", "compensation", f"{above.id}.{above.version}"))
    attach_to(tx, above)


REMEMBER_UNDO = Reaction("remember undo", lambda kind: kind.has_ended and kind.is_child, remember_undo)
COMPENSATE = Reaction(
    "compensate",
    lambda kind: kind.has_ended and (kind.is_child or kind.outcome != Category.SUCCESS),
    compensate,
)
