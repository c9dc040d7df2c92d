"""Counts of what happened, which any process may bring up to date and none owns."""

from interlock.kernel.commands import CountEvents
from interlock.store.tallies import count_on
from interlock.store.tx import Tx


def count_events(tx: Tx, command: CountEvents) -> bool:
    """What was counted behind a position is added, once."""
    return count_on(tx, command)
