"""What mutexes, limits and rates read and write: slots, tokens, and the units that are parked on a key."""

from dataclasses import dataclass, field

from interlock.kernel.rows import Slot, Token, Unit
from interlock.store.queries.for_verbs import TOKENS_BACK
from interlock.store.query import select
from interlock.store.unit_of_work import TableUpdate, UnitOfWork

SLOT = select(Slot, "WHERE tenant = :tenant AND key = :key {lock}")
SLOTS = TableUpdate(Slot, ("tenant", "key"))
PARKED_AT_ONCE = 4  # units that are read at first


@dataclass
class SlotState:
    """What a transaction knows of slots."""

    slots: dict[tuple[int, str], Slot] = field(default_factory=dict)  # by tenant and key
    keys: dict[int, tuple[str, ...]] = field(default_factory=dict)  # by unit: the keys that it has
    tokens_taken: set[int] = field(default_factory=set)  # tenants whose due tokens were taken back


def lock_slot(tx: UnitOfWork, tenant: int, key: str, capacity: int = 1) -> Slot:
    """Returns the slot of a key, locked; one that is new has this capacity."""
    slots = tx.state(SlotState).slots
    if (tenant, key) not in slots:
        named = {"tenant": tenant, "key": key}
        first = "INSERT INTO slot (tenant, key, capacity, taken) VALUES (:tenant, :key, :capacity, 0)"
        tx.connection.rows(f"{first} ON CONFLICT DO NOTHING", {**named, "capacity": capacity})
        (slots[tenant, key],) = tx.run(SLOT.bind(**named))
    return slots[tenant, key]


def find_parked(tx: UnitOfWork, tenant: int, key: str) -> Unit | None:
    """Returns the most urgent unit that is parked on a key, locked.

    It does not skip what others have locked: a unit that is passed over now would never be offered the key again.
    """
    rest = "WHERE tenant = :tenant AND parked_on = :key ORDER BY priority DESC, id LIMIT :limit"
    limit = PARKED_AT_ONCE
    while True:
        rows = tx.connection.rows(f"SELECT id FROM unit {rest}", {"tenant": tenant, "key": key, "limit": limit})
        tx.lock_units([unit for (unit,) in rows])
        parked = [unit for unit in tx.rows.units.values() if (unit.tenant, unit.parked_on) == (tenant, key)]
        if parked or len(rows) < limit:
            return min(parked, key=lambda unit: (-unit.priority, unit.id), default=None)
        limit *= 2  # all of them are parked no more, as far as this transaction knows


def take_due_tokens(tx: UnitOfWork, limit: int) -> list[Token]:
    """Deletes and returns tokens of the tenant that are back, at most `limit`: the caller gives them away.

    Once per transaction: the time does not change in it.
    """
    taken = tx.state(SlotState).tokens_taken
    if tx.tenant in taken:
        return []
    taken.add(tx.tenant)
    tokens = tx.run(TOKENS_BACK.bind(tenant=tx.tenant, limit=limit))
    if tokens:
        keys = [{"unit": token.unit, "fence": token.fence} for token in tokens]
        tx.connection.many("DELETE FROM token WHERE unit = :unit AND fence = :fence", keys)
    return tokens
