"""What approvals read: below which unit something is asked."""

from interlock.kernel.rows import Unit
from interlock.store.unit_of_work import UnitOfWork

PARENT = "SELECT parent FROM unit WHERE id = :id"


def find_top(tx: UnitOfWork, unit: Unit) -> int:
    """The unit that was submitted, and below which this one is."""
    top, parent = unit.id, unit.parent
    while parent is not None:
        rows = tx.connection.rows(PARENT, {"id": parent})
        top, parent = parent, rows[0][0] if rows else None
    return top
