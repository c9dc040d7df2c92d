"""A unit as it was at an instant: what its events up to then make of it."""

from collections.abc import Iterable, Mapping

import msgspec

from interlock.audit.laws.rebuild import Listed, Told, hear
from interlock.kernel.lifecycle import SETTLED, Category, Lifecycle
from interlock.kernel.policy import LEASED
from interlock.kernel.rows import Event

BEGUN = LEASED | {Category.GATE}  # from then on somebody is at it, or asked about it


class Stand(msgspec.Struct, frozen=True):
    """Where a unit stood, and when it got there."""

    told: Told
    born_at: int
    began_at: int | None = None  # first taken up
    ended_at: int | None = None
    cost: float = 0.0  # of its own attempts


def stood(events: Iterable[Event], lifecycles: Mapping[str, Lifecycle], until: int) -> Stand | None:
    """Where a unit stood at an instant, as its events tell it; None before its birth."""
    told, born, began, ended, cost = Told(), None, None, None, 0.0
    listed: Listed | None = None
    for event in events:
        if event.at > until:
            break
        if listed is None:
            listed = Listed(lifecycles[event.lifecycle], lifecycles["lease"])
        hear(told, event, listed)
        born = event.at if born is None else born
        began = event.at if began is None and told.category in BEGUN else began
        if told.category not in SETTLED:
            ended = None
        elif ended is None:
            ended = event.at
        cost += paid(event.payload)
    return None if born is None else Stand(told, born, began, ended, cost)


def paid(payload: str) -> float:
    """What the attempt that an event closes has cost."""
    said = msgspec.json.decode(payload) if '"cost"' in payload else {}
    return float(said.get("cost") or 0)
