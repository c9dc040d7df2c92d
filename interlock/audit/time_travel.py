"""The state of a unit at an earlier time, folded from its events."""

from collections.abc import Iterable, Mapping

import msgspec

from interlock.audit.laws.rebuild import FoldedRow, Listed, apply_event
from interlock.kernel.lifecycle import SETTLED, Category, Lifecycle
from interlock.kernel.policy import LEASED
from interlock.kernel.rows import Event

BEGUN = LEASED | {Category.GATE}  # from then on somebody is at it, or asked about it


class PastState(msgspec.Struct, frozen=True):
    """Where a unit stood, and when it got there."""

    folded: FoldedRow
    born_at: int
    began_at: int | None = None  # first taken up
    ended_at: int | None = None
    cost: float = 0.0  # of its own attempts


def fold_until(events: Iterable[Event], lifecycles: Mapping[str, Lifecycle], until: int) -> PastState | None:
    """Where a unit stood at an instant, as its events tell it; None before its birth."""
    folded, born, began, ended, cost = FoldedRow(), None, None, None, 0.0
    listed: Listed | None = None
    for event in events:
        if event.at > until:
            break
        if listed is None:
            listed = Listed(lifecycles[event.lifecycle], lifecycles["lease"])
        apply_event(folded, event, listed)
        born = event.at if born is None else born
        began = event.at if began is None and folded.category in BEGUN else began
        if folded.category not in SETTLED:
            ended = None
        elif ended is None:
            ended = event.at
        cost += parse_cost(event.payload)
    return None if born is None else PastState(folded, born, began, ended, cost)


def parse_cost(payload: str) -> float:
    """What the attempt that an event closes has cost."""
    payload_fields = msgspec.json.decode(payload) if '"cost"' in payload else {}
    return float(payload_fields.get("cost") or 0)
