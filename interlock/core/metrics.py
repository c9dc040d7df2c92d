"""Update the counters of metrics; any process may do it."""

from interlock.kernel.commands import CountEvents
from interlock.store.queries.metrics import add_event_counts
from interlock.store.unit_of_work import UnitOfWork


def count_events(tx: UnitOfWork, command: CountEvents) -> bool:
    """What was counted behind a position is added, once."""
    return add_event_counts(tx, command)
