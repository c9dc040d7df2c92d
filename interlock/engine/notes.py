"""What is remembered beside the events: it moves nothing, and no version counts it."""

from interlock.kernel.rows import Note
from interlock.store.tx import Tx

DAY_US = 86_400_000_000
BEATS_US = 2 * DAY_US  # how long beats are kept
VERBOSE_US = 14 * DAY_US  # how long other verbose things are kept


def note(tx: Tx, unit: int, kind: str, payload: str, *, name: str = "", fence: int = 0, keep_us: int = 0) -> None:
    """A note of a unit is kept: for a while, or without `keep_us` for as long as the unit."""
    expires = tx.now + keep_us if keep_us else None
    tx.add(
        Note(
            id=tx.new_id(), tenant=tx.tenant, unit=unit, kind=kind, name=name, fence=fence, at=tx.now,
            expires=expires, payload=payload,
        )
    )  # fmt: skip
