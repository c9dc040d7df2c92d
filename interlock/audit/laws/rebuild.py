"""What the events of a unit make of its row: the row can be thrown away, and built again from them."""

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


class Told(msgspec.Struct):
    """What the events so far say; every field is the column of that name in the unit's row."""

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


def fold(events: Iterable[Event], listed: Listed) -> Told:
    """What the row must say after these events; attempts and fences are counted, not copied."""
    told = Told()
    for event in events:
        hear(told, event, listed)
    return told


def hear(told: Told, event: Event, listed: Listed) -> None:
    """One event more has happened. A state that does not exist has no category, and leaves the outcome."""
    told.attempt += opens_attempt(event, listed)
    told.fence += grants(event)
    state = listed.lifecycle.states.get(event.target)
    told.category = state.category if state else ""
    if state and state.category in SETTLED - {Category.CLOSED}:
        told.outcome = state.category
    elif state and state.category is not Category.CLOSED:
        told.outcome = None
    if event.lease_to is not None:
        told.lease = event.lease_to
    told.tenant, told.lifecycle, told.state = event.tenant, event.lifecycle, event.target
    told.version, told.changed_at = event.version, event.at


def opens_attempt(event: Event, listed: Listed) -> bool:
    return (event.source, event.trigger, event.target) in listed.opening


def grants(event: Event) -> bool:
    return event.lease_from is None and event.lease_to is not None


def rebuilt(unit: Unit, told: Told) -> Unit:
    """The row with everything that events determine taken from them."""
    return msgspec.structs.replace(unit, **msgspec.structs.asdict(told))


def differences(unit: Unit, told: Told, listed: Listed) -> Iterator[str]:
    """Each column in which a row is not the fold of its events."""
    for column, said in msgspec.structs.asdict(told).items():
        if getattr(unit, column) != said:
            yield f"its {column} is {shown(getattr(unit, column))}, and its events make it {shown(said)}"
    if (unit.holder is not None) != (told.lease in listed.live):
        yield f"its holder is {shown(unit.holder)}, and its events leave the lease {shown(told.lease)}"


def shown(value: object) -> str:
    return "empty" if value is None or value == "" else str(value)
