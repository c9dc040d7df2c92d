"""Counts of what happened, which any process may bring up to date and none owns."""

from interlock.kernel.commands import Tally
from interlock.store.tallies import count_on
from interlock.store.tx import Tx


def tally(tx: Tx, command: Tally) -> bool:
    """What was counted behind a position is added, once."""
    return count_on(tx, command)
