"""Names of children in their parents, and needs by such names.

A child may have a name in its parent (`Work.step`; in a run of steps also its ref), and no other child of that parent
ever has it: work of the same name is that child, so that a page of a graph may be sent twice. Other children need it
by that name, in the same command or in a later one. A name may be needed before its child comes: then the id that the
child will have is taken now, the row of `place` keeps it, and needs name it like any other.

So a graph may come in any order. A circle of needs can only be closed by a child that takes a place which was needed
before it came; `refuse_circles` looks for one then, and not otherwise: what comes behind its needs costs nothing, and
neither does what comes before all of them. Submits under one parent wait for each other, because they lock it. Two that
close a circle through two parents would not: whoever comes across a unit of another parent looks again, one at a time.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from interlock.core.validation import check_name
from interlock.kernel.commands import Work
from interlock.kernel.errors import InterlockError
from interlock.kernel.graph import cycle
from interlock.kernel.ids import format_id
from interlock.kernel.lifecycle import Category
from interlock.kernel.lifecycle_options import RollUp
from interlock.kernel.rows import NamedPlace, Unit
from interlock.kernel.workflow_graph import SHOWN_MAX, has_ref, join_names
from interlock.store.queries.places import (
    find_missing_places,
    look_for_circles_alone,
    read_names,
    read_needs_below,
    read_parents,
    read_places,
)
from interlock.store.unit_of_work import UnitOfWork


class Prerequisite(NamedTuple):
    """What a unit needs: another unit, also one that is yet to come (None), by its success or by its end."""

    id: int
    unit: Unit | None
    by_end: bool = False
    is_met: bool = False


def is_met(unit: Unit | None, by_end: bool) -> bool:
    """Whether a unit, as it is or was, is all that somebody needs of it; one that is yet to come is not."""
    if unit is None or unit.outcome is None:
        return False
    return by_end or unit.outcome == Category.SUCCESS


def is_counted(tx: UnitOfWork, need: int, by_end: bool) -> bool:
    """Whether a need is met and was counted. What meets it in this transaction is counted when it is written."""
    return is_met(tx.rows.loaded.get(need), by_end)


@dataclass
class PlaceState:
    """What a transaction knows of places."""

    # By parent and name: the place, or None if there is none.
    places: dict[tuple[int, str], NamedPlace | None] = field(default_factory=dict)
    reserved: dict[int, NamedPlace] = field(default_factory=dict)  # by unit: those whose child is yet to come
    filled: list[int] = field(default_factory=list)  # children of the command that came to a place that waited
    needs: list[tuple[int, int]] = field(default_factory=list)  # units that the transaction made, with what they need


def name_of(tx: UnitOfWork, work: Work, parent: Unit) -> str | None:
    """The name in its parent that work asks for; None if it has none of its own."""
    if work.step is not None or tx.lifecycle(parent).options.roll_up is not RollUp.ALL:
        return work.step
    return work.ref if has_ref(work) else None


def load_places(tx: UnitOfWork, parent: int, names: Iterable[str]) -> None:
    """What this transaction must know of a parent's places, it knows."""
    state = tx.state(PlaceState)
    unknown = [name for name in dict.fromkeys(names) if (parent, name) not in state.places]
    if not unknown:
        return
    state.places |= {(parent, name): None for name in unknown}
    if parent in tx.changes.born:
        return  # the database knows no child of it
    for place, is_filled in read_places(tx, parent, unknown):
        state.places[parent, place.name] = place
        if not is_filled:
            state.reserved[place.unit] = place


def find_place(tx: UnitOfWork, parent: Unit, name: str) -> NamedPlace | None:
    """The place of that name in a parent, also one that this transaction has just made."""
    load_places(tx, parent.id, [name])
    return tx.state(PlaceState).places[parent.id, name]


def find_taken_name(tx: UnitOfWork, parent: Unit, names: Sequence[str]) -> str | None:
    """The first of some names that a child of the parent has; None if none has come yet."""
    load_places(tx, parent.id, names)
    state = tx.state(PlaceState)
    places = ((name, state.places[parent.id, name]) for name in names)
    return next((name for name, place in places if place is not None and place.unit not in state.reserved), None)


def find_child(tx: UnitOfWork, parent: Unit, name: str | None) -> Unit | None:
    """The child of that name, locked; None if none has come yet."""
    place = None if name is None else find_place(tx, parent, name)
    return None if place is None or place.unit in tx.state(PlaceState).reserved else tx.unit(place.unit)


def reserve_place(tx: UnitOfWork, parent: Unit, name: str) -> int:
    """The id of the child of that name; of one that is yet to come, the id that it will have."""
    if (place := find_place(tx, parent, name)) is None:
        place = add_place(tx, parent, name, tx.ids.take())
        tx.state(PlaceState).reserved[place.unit] = place
    return place.unit


def take_place(tx: UnitOfWork, parent: Unit | None, name: str | None) -> int:
    """The id of a new child, which has this name in its parent from now on.

    A step that nobody named is called like its task. If another one has that name already, it keeps it.
    """
    if parent is None or name is None:
        return tx.ids.take()
    state, place = tx.state(PlaceState), find_place(tx, parent, name)
    if place is None:
        return add_place(tx, parent, name, tx.ids.take()).unit
    if state.reserved.pop(place.unit, None) is None:
        return tx.ids.take()
    state.filled.append(place.unit)
    return place.unit


def add_place(tx: UnitOfWork, parent: Unit, name: str, unit: int) -> NamedPlace:
    """A child has this name in its parent, which nobody else has there."""
    place = NamedPlace(parent=parent.id, name=name, unit=unit, tenant=parent.tenant)
    tx.add(place)
    tx.state(PlaceState).places[parent.id, name] = place
    return place


def refuse_other_work(tx: UnitOfWork, work: Work, parent: Unit, child: Unit) -> None:
    """A name stands for one piece of work.

    Raises:
        InterlockError: the child that has it is another.
    """
    body, name = tx.body(child), work.step or work.ref
    if (body.task, body.input) != (work.task, work.input):
        what = f"task '{body.task}'" if body.task != work.task else "another input"
        called = format_id(parent.lifecycle, parent.id)
        raise InterlockError(f"NAME_TAKEN: {called} has a child '{name}' already, with {what}")


def needs_of_work(tx: UnitOfWork, work: Work, parent: Unit | None, refs: dict[str, int]) -> dict[int, bool]:
    """The ids that work needs, each with whether its end is enough; its success counts where both are said."""
    ids = {find_need(tx, name, parent, refs): True for name in work.needs_end} | dict.fromkeys(work.after_end, True)
    return ids | {find_need(tx, name, parent, refs): False for name in work.needs} | dict.fromkeys(work.after, False)


def find_need(tx: UnitOfWork, name: str, parent: Unit | None, refs: dict[str, int]) -> int:
    """The id of a need by name: work of the same command, or else a child of the same parent, also one to come."""
    if name in refs or parent is None:
        return refs[name]
    check_name("needs", name)
    return reserve_place(tx, parent, name)


def refuse_missing_children(tx: UnitOfWork, parent: Unit) -> None:
    """Raises InterlockError if an open child needs a name that is yet to come: a plan says that all are there."""
    reserved = {place.name for place in tx.state(PlaceState).reserved.values() if place.parent == parent.id}
    born = tx.changes.born
    missing = reserved | {name for name, unit in find_missing_places(tx, parent.id) if unit not in born}
    if missing:
        raise InterlockError(
            f"{format_id(parent.lifecycle, parent.id)} has children that need {join_names(sorted(missing), ', ')}, "
            "and no such child; add it before the plan"
        )


def refuse_circles(tx: UnitOfWork) -> None:
    """Raises InterlockError if units that were made just now need each other in a circle."""
    state, units = tx.state(PlaceState), tx.rows.units
    if not state.filled:
        return
    state.filled.clear()
    needs = state.needs
    waiting = sorted({need for _, need in needs if need in units and need not in tx.changes.born and units[need].unmet})
    below = read_needs_below(tx, waiting) if waiting else []
    own = {units[unit].parent for unit, _ in needs if unit in units}
    if waiting and read_parents(tx, [*waiting, *(need for _, need in below)]) - own and look_for_circles_alone(tx):
        below = read_needs_below(tx, waiting)  # with what others have closed meanwhile
    if circle := cycle([*needs, *below]):
        raise InterlockError(
            f"a circle of needs: {join_names(name_units(tx, circle), ' needs ')}; none of them could ever begin"
        )


def name_units(tx: UnitOfWork, units: Sequence[int]) -> list[str]:
    """What these units are called: by name in their parents, or else by number."""
    names = {place.unit: place.name for place in tx.state(PlaceState).places.values() if place}
    names |= read_names(tx, [unit for unit in units[:SHOWN_MAX] if unit not in names])
    return [names.get(unit) or f"job {unit}" for unit in units]
