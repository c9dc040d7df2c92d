"""Children that a holder makes below its unit, and waits for: other jobs, and approvals.

A child is recorded (`Record(kind="child")`) under the lease of its parent, once under its name: a later attempt that
makes it again gets the one that is there. It decides nothing about its parent by itself. When it has ended, that is a
signal to the parent, in the same transaction, and the parent is woken if it waits for it; the next grant tells what
came of every child. Those that are open when their parent ends are stopped, as all children are.
"""

from typing import Any

import msgspec

from interlock.core import validation
from interlock.core.advance import Stamp
from interlock.core.effective_policy import option_of
from interlock.core.notes import note
from interlock.core.submit import complete_work, create_ready
from interlock.core.tenants import refuse_too_long
from interlock.kernel.commands import Record, Submit, Work
from interlock.kernel.errors import InterlockError, NotWanted
from interlock.kernel.rows import Unit
from interlock.plugins.parking.queries import ChildNote, read_children, read_work
from interlock.plugins.parking.signals import CHILD, is_parked_on, wake
from interlock.store.hooks import Moved, Reaction
from interlock.store.queries.for_verbs import has_note, read_notes
from interlock.store.unit_of_work import UnitOfWork

KIND = "child"
CHILDREN_MAX = 1_000  # of one unit
NAME_MAX = validation.NAME_MAX - len(CHILD)
# What a holder may not say of a child: its place is below the unit that the holder holds.
NOT_ALLOWED = ("parent", "needs", "after", "needs_end", "after_end", "ref", "key", "step", "undo", "when")


class Spawned(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a child says of itself: its name in its parent."""

    name: str


def make_child(tx: UnitOfWork, unit: Unit, command: Record) -> bool:
    """A child is made below a unit, by its holder, unless there is one of that name."""
    if command.kind != KIND:
        return False
    if not 0 < len(command.name) <= NAME_MAX:
        raise InterlockError(f"name = {command.name[:40]!r} is not allowed; allowed are 1 to {NAME_MAX} characters")
    work = decode_work(command)
    if has_note(tx, unit.id, KIND, command.name):
        refuse_other_work(tx, unit, command.name, work)
        return True
    if unit.total >= CHILDREN_MAX:
        raise NotWanted(f"it has {unit.total} children, and at most {CHILDREN_MAX} are allowed")
    (work,) = complete_work(tx, [msgspec.structs.replace(work, parent=unit.id)])
    validation.check_work(tx.lifecycles, work, tx.hooks)
    refuse_too_long(tx, Submit(tenant=tx.tenant, work=(work,)))
    child = create_ready(tx, name_work(work, command.name), Stamp(command.actor, "spawned"), unit, {})
    text = msgspec.json.encode(ChildNote(child.id)).decode()
    note(tx, unit.id, KIND, text, name=command.name, fence=unit.fence)
    return True


def decode_work(command: Record) -> Work:
    """The work of a child.

    Raises:
        InterlockError: it is none, or says what is not its own to say.
    """
    try:
        work = msgspec.json.decode(command.payload, type=Work)
    except msgspec.MsgspecError as error:
        raise InterlockError(f"a child is an object with `task`, and other fields of work: {error}") from None
    for name in NOT_ALLOWED:
        if getattr(work, name):
            raise InterlockError(f"{name} is not allowed for a child; it is made below the job of its holder")
    return work


def name_work(work: Work, name: str) -> Work:
    """Work of a child as it is made: it says its name, and decides nothing about its parent."""
    options = msgspec.json.decode(work.options) if work.options else {}
    text = msgspec.json.encode({**options, "parking": Spawned(name)}).decode()
    return msgspec.structs.replace(work, decides=False, options=text)


def refuse_other_work(tx: UnitOfWork, unit: Unit, name: str, work: Work) -> None:
    """Raises NotWanted if the child of that name does other work: the handler has changed, or names two alike."""
    made = next(kept for kept in read_notes(tx, [unit.id], KIND) if kept.name == name)
    child = msgspec.json.decode(made.payload, type=ChildNote).unit
    before = read_work(tx, child)
    if before is not None and before != (work.task, work.input):
        raise NotWanted(f"the child '{name}' was made for task '{before[0]}' with other arguments; take another name")


def tell_parents(tx: UnitOfWork, moved: list[Moved]) -> None:
    """Children of this kind have ended: each is a signal to its parent, which is woken if it waits for it."""
    for child, _ in moved:
        spawned = option_of(tx.body(child), "parking", Spawned)
        if spawned is None or child.parent is None:
            continue
        tx.act_for(child)
        parent = tx.unit(child.parent)  # children are locked before their parent
        name = CHILD + spawned.name
        if tx.lifecycle(parent).settled(parent.state) or has_note(tx, parent.id, "signal", name):
            continue
        note(tx, parent.id, "signal", "null", name=name)
        if is_parked_on(parent, parent.id, name):
            wake(tx, parent)


def hand_over_children(tx: UnitOfWork, units: list[Unit]) -> dict[int, dict[str, Any]]:
    """What a worker is told of units that were granted before: their children, and what came of each."""
    names: dict[int, tuple[int, str]] = {}  # by child: its parent, and its name there
    for made in read_notes(tx, [unit.id for unit in units], KIND):
        names[msgspec.json.decode(made.payload, type=ChildNote).unit] = made.unit, made.name
    if not names:
        return {}
    return {parent: {"children": tuple(those)} for parent, those in read_children(tx, names).items()}


TELL_PARENTS = Reaction(
    "tell parents",
    lambda kind: kind.has_ended and kind.is_child and not kind.decides,
    tell_parents,
)
