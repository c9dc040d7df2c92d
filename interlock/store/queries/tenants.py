"""Queries of tenants: limits, and how much work is held and waits."""

from collections.abc import Callable

from interlock.kernel.rows import Tenant, Unit
from interlock.store.cache import NUMBERS
from interlock.store.connection import Connection
from interlock.store.queries.for_verbs import LaneState, get_limits, load_lanes
from interlock.store.queries.snapshots import read_rows
from interlock.store.query import select
from interlock.store.unit_of_work import UnitOfWork

# A row for many counts all that are under the lease; one of its own counts when that row is gone.
HELD = """
SELECT coalesce(sum(CASE
    WHEN unit = 0 THEN units
    WHEN EXISTS (SELECT 1 FROM lease AS shared WHERE shared.unit = 0 AND shared.id = lease.id) THEN 0 ELSE 1 END), 0)
FROM lease WHERE tenant = :tenant AND ended_at IS NULL
"""
# What may be claimed now, what is parked on a key, and what is not due yet. Each has an index of its own.
WAITING = """
SELECT (SELECT count(*) FROM unit WHERE lane > :low AND lane < :high AND available_at IS NOT NULL)
     + (SELECT count(*) FROM unit WHERE tenant = :tenant AND parked_on IS NOT NULL)
     + (SELECT count(*) FROM unit WHERE tenant = :tenant AND wake_at IS NOT NULL AND due_at IS NOT NULL
        AND available_at IS NULL AND parked_on IS NULL AND holder IS NULL)
"""
LIMITED = "(max_running IS NOT NULL OR max_waiting IS NOT NULL)"
LIMITED_TENANTS = select(Tenant, f"WHERE id {{ids}} AND {LIMITED} ORDER BY id {{lock}}")
TENANT = select(Tenant, "WHERE id = :id {lock}")
SETS = ", ".join(f"{name} = :{name}" for name in Tenant.__struct_fields__ if name != "id")


def count_held(connection: Connection, tenant: int) -> int:
    """How many units of a tenant workers hold."""
    return int(connection.rows(HELD, {"tenant": tenant})[0][0])


def count_waiting(connection: Connection, tenant: int) -> int:
    """How many units of a tenant wait for a worker, a key or their time; those that need others are not counted."""
    lanes = {"low": tenant * NUMBERS, "high": (tenant + 1) * NUMBERS}
    return int(connection.rows(WAITING, {"tenant": tenant, **lanes})[0][0])


def is_held(unit: Unit) -> bool:
    """Whether a worker holds a unit."""
    return unit.holder is not None


def is_waiting(unit: Unit) -> bool:
    """Whether a unit waits for a worker, a key or its time."""
    delayed = unit.wake_at is not None and unit.due_at is not None and unit.holder is None
    return unit.available_at is not None or unit.parked_on is not None or delayed


def get_max_held(tx: UnitOfWork, tenant: int) -> int | None:
    """How many units of a tenant may be held; None: all that there are. If there is a limit, no other claim counts."""
    return lock_limits(tx, tenant)[0] if get_limits(tx, tenant)[0] is not None else None


def get_max_waiting(tx: UnitOfWork, tenant: int) -> int | None:
    """How many units of a tenant may wait; None: any number. If there is a limit, no other submit counts."""
    return lock_limits(tx, tenant)[1] if get_limits(tx, tenant)[1] is not None else None


def count_held_now(tx: UnitOfWork, tenant: int) -> int:
    """Counts the tenant's units that somebody holds, with what this transaction has changed."""
    return count_with_changes(tx, tenant, count_held, is_held)


def count_waiting_now(tx: UnitOfWork, tenant: int) -> int:
    """Counts the tenant's units that wait, with what this transaction has changed."""
    return count_with_changes(tx, tenant, count_waiting, is_waiting)


def count_with_changes(
    tx: UnitOfWork, tenant: int, ask: Callable[[Connection, int], int], fits: Callable[[Unit], bool]
) -> int:
    """What the database says, and what this transaction has made of it since."""
    here = sum(unit.tenant == tenant and fits(unit) for unit in tx.rows.units.values())
    before = sum(unit.tenant == tenant and fits(unit) for unit in tx.rows.loaded.values())
    return ask(tx.connection, tenant) + here - before


def lock_limits(tx: UnitOfWork, tenant: int) -> tuple[int | None, int | None]:
    """The same, and nobody else counts until this transaction ends. All its tenants are locked together, in order."""
    if not tx.state(LaneState).limits_locked:
        tx.state(LaneState).limits_locked = True
        for row in tx.run(LIMITED_TENANTS.bind(ids=list(tx.tenants))):
            tx.state(LaneState).limits[row.id] = row.max_running, row.max_waiting
    return tx.state(LaneState).limits[tenant]


def lock_tenant(tx: UnitOfWork, tenant: int) -> Tenant | None:
    """A tenant's row, if it has one, locked."""
    rows = tx.run(TENANT.bind(id=tenant))
    return rows[0] if rows else None


def write_tenant(tx: UnitOfWork, row: Tenant, *, fresh: bool) -> None:
    """A tenant is in the database as it is here, and what this transaction does next goes by it."""
    facts = {name: getattr(row, name) for name in Tenant.__struct_fields__}
    tx.changes.count += 1
    if fresh:
        tx.connection.insert([row])
    else:
        tx.connection.rows(f"UPDATE tenant SET {SETS} WHERE id = :id", facts)
    load_lanes(tx, row.id)
    tx.state(LaneState).limits[row.id] = row.max_running, row.max_waiting
    tx.changes.freed_tenants.add(row.id)


def read_tenants(connection: Connection) -> list[Tenant]:
    """Every tenant that has a row."""
    return read_rows(connection, Tenant, "ORDER BY id")


def read_tenant(connection: Connection, tenant: int) -> Tenant | None:
    """Returns a tenant by its id, or None."""
    rows = read_rows(connection, Tenant, "WHERE id = :id", id=tenant)
    return rows[0] if rows else None


def find_tenant(connection: Connection, name: str) -> Tenant | None:
    """Returns the tenant of a name, or None."""
    rows = read_rows(connection, Tenant, "WHERE name = :name", name=name)
    return rows[0] if rows else None


def bypasses_row_security(connection: Connection) -> bool:
    """Whether this role sees every tenant's rows whatever it declares; a SQLite file has no roles."""
    if connection.name == "sqlite":
        return False
    sql = "SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user"
    return bool(connection.rows(sql)[0][0])
