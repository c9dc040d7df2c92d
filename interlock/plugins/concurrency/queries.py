"""What mutexes, limits, rates and resources read and write: slots, tokens, and the units that are parked on a key."""

from dataclasses import dataclass, field

from interlock.kernel.rows import Slot, Token, Unit
from interlock.store.connection import Connection
from interlock.store.queries.for_verbs import TOKENS_BACK
from interlock.store.query import select
from interlock.store.unit_of_work import TableUpdate, UnitOfWork

SLOT = select(Slot, "WHERE tenant = :tenant AND key = :key {lock}")
SLOTS = TableUpdate(Slot, ("tenant", "key"))
NEXT_TOKEN = "SELECT min(back_at) FROM token WHERE tenant = :tenant"
PARKED_AT_ONCE = 4  # units that are read at first


@dataclass
class SlotState:
    """What a transaction knows of slots."""

    slots: dict[tuple[int, str], Slot] = field(default_factory=dict)  # by tenant and key
    keys: dict[int, dict[str, int]] = field(default_factory=dict)  # by unit: the keys that it has, and how much of each
    waiting: dict[str, set[int]] = field(default_factory=dict)  # by resource: units that were parked on it here
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
        keys = [{"unit": token.unit, "fence": token.fence, "key": token.key} for token in tokens]
        tx.connection.many("DELETE FROM token WHERE unit = :unit AND fence = :fence AND key = :key", keys)
    return tokens


def read_parked_urgency(tx: UnitOfWork, tenant: int, key: str, limit: int) -> list[tuple[int, int]]:
    """Returns the id and the priority of units that are parked on a key, the most urgent first; nothing is locked."""
    sql = (
        "SELECT id, priority FROM unit WHERE tenant = :tenant AND parked_on = :key "
        "ORDER BY priority DESC, id LIMIT :limit"
    )
    return [
        (unit, priority) for unit, priority in tx.connection.rows(sql, {"tenant": tenant, "key": key, "limit": limit})
    ]


# For laws.


def read_resource_uses(connection: Connection) -> list[tuple[int, str, int]]:
    """Returns tenant and policy of units that need resources and are available or held, and whether each is held."""
    sql = (
        "SELECT unit.tenant, policy, CASE WHEN holder IS NULL THEN 0 ELSE 1 END "
        "FROM unit JOIN body ON body.unit = unit.id "
        "WHERE (available_at IS NOT NULL OR holder IS NOT NULL) AND policy LIKE '%\"resources\"%'"
    )
    return [(tenant, policy, held) for tenant, policy, held in connection.rows(sql)]


def read_resource_slots(connection: Connection) -> list[tuple[int, str, int, int]]:
    """Returns tenant, key, capacity and what is taken of each resource."""
    sql = "SELECT tenant, key, capacity, taken FROM slot WHERE key LIKE 'resource:%' ORDER BY tenant, key"
    return [(tenant, key, capacity, taken) for tenant, key, capacity, taken in connection.rows(sql)]


def read_resource_parked(connection: Connection) -> list[tuple[int, int, str, str]]:
    """Returns the most urgent unit that is parked on each resource: its id, tenant, key and policy."""
    sql = (
        "SELECT unit.id, unit.tenant, parked_on, policy FROM unit JOIN body ON body.unit = unit.id "
        "WHERE parked_on LIKE 'resource:%' ORDER BY unit.tenant, parked_on, priority DESC, unit.id"
    )
    first: dict[tuple[int, str], tuple[int, int, str, str]] = {}
    for unit, tenant, key, policy in connection.rows(sql):
        first.setdefault((tenant, key), (unit, tenant, key, policy))
    return list(first.values())


def count_tokens(connection: Connection, prefix: str) -> list[tuple[int, str, int]]:
    """Returns tenant, key and number of the tokens that are away, of keys that begin so."""
    sql = "SELECT tenant, key, count(*) FROM token WHERE key LIKE :prefix GROUP BY tenant, key"
    return [(tenant, key, count) for tenant, key, count in connection.rows(sql, {"prefix": f"{prefix}%"})]
