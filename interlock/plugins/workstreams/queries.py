"""What workstreams read: what one says of itself, without a lock."""

from typing import NamedTuple

from interlock.kernel.rows import Unit
from interlock.plugins.workstreams.options import WorkstreamOptions, options_in
from interlock.store.queries.for_verbs import UNIT_UNLOCKED
from interlock.store.unit_of_work import UnitOfWork


class Unplanned(NamedTuple):
    """A unit as it is now, and what it says of itself as a workstream; others may change it."""

    row: Unit
    options: WorkstreamOptions | None


def read_unplanned(tx: UnitOfWork, unit: int) -> Unplanned | None:
    """A unit of this tenant and what it says of itself, read without a lock: its children are locked before it."""
    rows = [row for row in tx.run(UNIT_UNLOCKED.bind(id=unit)) if row.tenant == tx.tenant]
    if not rows:
        return None
    policies = tx.connection.rows("SELECT policy FROM body WHERE unit = :unit", {"unit": unit})
    return Unplanned(rows[0], options_in(policies[0][0]) if policies else None)
