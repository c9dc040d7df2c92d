"""Export lifecycles as plain data: one entry per single transition."""

from typing import Any

from interlock.kernel.lifecycle import Hop, Lifecycle


def describe_lifecycle(lifecycle: Lifecycle, *, documents: bool = False) -> dict[str, Any]:
    """A lifecycle as data; `documents` leaves out what its document lacks."""
    hops = [hop for hop in lifecycle.hops if not (documents and hop.extension)]
    return {
        "name": lifecycle.name,
        "document": lifecycle.document,
        "states": [
            {
                "name": state.name,
                "category": state.category,
                "initial": state.name == lifecycle.initial,
                "settled": state.settled,
                "final": state.settled and not any(hop.source == state.name for hop in hops),
            }
            for state in lifecycle.states.values()
        ],
        "moves": [describe_move(hop) for hop in hops],
    }


def describe_move(hop: Hop) -> dict[str, Any]:
    """Returns one transition as data."""
    return {
        "from": hop.source,
        "to": hop.target,
        "trigger": hop.trigger,
        "owner": hop.owner,
        "event": hop.event,
        "severity": hop.severity,
        "opens_attempt": hop.opens_attempt,
        "extension": hop.extension,
        "why": hop.why,
        "guards": list(hop.guards),
        "note": hop.note,
    }
