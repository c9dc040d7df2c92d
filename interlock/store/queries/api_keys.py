"""Queries of API keys, and of request rates."""

from interlock.kernel.rows import Key
from interlock.store.connection import Connection
from interlock.store.queries.snapshots import read_rows
from interlock.store.query import select
from interlock.store.unit_of_work import UnitOfWork

SETS = ", ".join(f"{name} = :{name}" for name in Key.__struct_fields__ if name not in ("id", "tenant"))
KEY = select(Key, "WHERE id = :id AND tenant = :tenant {lock}")
REQUESTS_IN_MINUTE = """
INSERT INTO asked (tenant, minute, count) VALUES (:tenant, :minute, 1)
ON CONFLICT (tenant) DO UPDATE SET minute = excluded.minute,
    count = CASE WHEN asked.minute = excluded.minute THEN asked.count + 1 ELSE 1 END
RETURNING count
"""


def count_requests(tx: UnitOfWork, tenant: int, minute: int) -> int:
    """How often a tenant has asked in this minute, now counted."""
    tx.changes.count += 1
    return int(tx.connection.rows(REQUESTS_IN_MINUTE, {"tenant": tenant, "minute": minute})[0][0])


def lock_key(tx: UnitOfWork, tenant: int, key: int) -> Key | None:
    """A key of a tenant, locked; None if there is none."""
    rows = tx.run(KEY.bind(id=key, tenant=tenant))
    return rows[0] if rows else None


def add_key(tx: UnitOfWork, row: Key) -> None:
    """Inserts the row of a new key at once, so that a name that is taken is refused."""
    tx.changes.count += 1
    tx.connection.insert([row])


def change_key(tx: UnitOfWork, row: Key) -> None:
    """A key is in the database as it is here."""
    tx.changes.count += 1
    facts = {name: getattr(row, name) for name in Key.__struct_fields__}
    tx.connection.rows(f"UPDATE key SET {SETS} WHERE id = :id AND tenant = :tenant", facts)


def find_api_key(connection: Connection, tenant: int, key: int) -> Key | None:
    """Returns a key of the tenant, or None."""
    rows = read_rows(connection, Key, "WHERE id = :id AND tenant = :tenant", id=key, tenant=tenant)
    return rows[0] if rows else None


def list_api_keys(connection: Connection, tenant: int) -> list[Key]:
    """Every key that a tenant has or had, the oldest first."""
    return read_rows(connection, Key, "WHERE tenant = :tenant ORDER BY id", tenant=tenant)
