"""Rebuild the row of a unit from its events, and compare."""

from collections.abc import Iterable, Iterator

import msgspec

from interlock.kernel.lifecycle import SETTLED, Category, Lifecycle
from interlock.kernel.policy import LIVE
from interlock.kernel.rows import Event, Unit


class Listed:
    """What a lifecycle lists, as sets: they are asked once an event."""

    def __init__(self, lifecycle: Lifecycle, lease: Lifecycle) -> None:
        self.lifecycle = lifecycle
        self.hops = {(hop.source, hop.trigger, hop.target) for hop in lifecycle.hops}
        self.opening = {(hop.source, hop.trigger, hop.target) for hop in lifecycle.hops if hop.opens_attempt}
        self.lease_hops = {(hop.source, hop.target) for hop in lease.hops}
        self.live = {name for name, state in lease.states.items() if state.category in LIVE}


class FoldedRow(msgspec.Struct):
    """What the events so far make of a unit; every field is the column of that name in the unit's row."""

    tenant: int = 0
    lifecycle: str = ""
    state: str | None = None  # not yet born
    category: str = ""
    outcome: str | None = None
    version: int = 0
    changed_at: int = 0
    attempt: int = 1
    fence: int = 0
    lease: str | None = None


def fold(events: Iterable[Event], listed: Listed) -> FoldedRow:
    """What the row must say after these events; attempts and fences are counted, not copied."""
    folded = FoldedRow()
    for event in events:
        apply_event(folded, event, listed)
    return folded


def apply_event(folded: FoldedRow, event: Event, listed: Listed) -> None:
    """One event more has happened. A state that does not exist has no category, and leaves the outcome."""
    folded.attempt += opens_attempt(event, listed)
    folded.fence += grants(event)
    state = listed.lifecycle.states.get(event.target)
    folded.category = state.category if state else ""
    if state and state.category in SETTLED - {Category.CLOSED}:
        folded.outcome = state.category
    elif state and state.category is not Category.CLOSED:
        folded.outcome = None
    if event.lease_to is not None:
        folded.lease = event.lease_to
    folded.tenant, folded.lifecycle, folded.state = event.tenant, event.lifecycle, event.target
    folded.version, folded.changed_at = event.version, event.at


def opens_attempt(event: Event, listed: Listed) -> bool:
    """Whether an event closes an attempt and opens the next one."""
    return (event.source, event.trigger, event.target) in listed.opening


def grants(event: Event) -> bool:
    """Whether an event begins a lease."""
    return event.lease_from is None and event.lease_to is not None


def rebuild_row(unit: Unit, folded: FoldedRow) -> Unit:
    """The row with everything that events determine taken from them."""
    return msgspec.structs.replace(unit, **msgspec.structs.asdict(folded))


def list_differences(unit: Unit, folded: FoldedRow, listed: Listed) -> Iterator[str]:
    """Each column in which a row is not the fold of its events."""
    for column, value in msgspec.structs.asdict(folded).items():
        stands = getattr(unit, column)
        if stands != value:
            yield f"its {column} is {format_column(stands)}, and its events make it {format_column(value)}"
    if (unit.holder is not None) != (folded.lease in listed.live):
        holder = format_column(unit.holder)
        yield f"its holder is {holder}, and its events leave the lease {format_column(folded.lease)}"


def format_column(value: object) -> str:
    """Formats the value of a column for a finding."""
    return "empty" if value is None or value == "" else str(value)
