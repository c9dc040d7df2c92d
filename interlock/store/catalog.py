"""Read the database's catalogue: tables and rights; and lock out other migrations."""

from interlock.store.connection import Connection

MIGRATION_LOCK = 5_318_008_531_800_853  # any number, as long as it is always the same
HAS_TABLE = {
    "sqlite": "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = :name",
    "postgres": "SELECT 1 WHERE to_regclass(:name) IS NOT NULL",
}


def has_table(connection: Connection, name: str) -> bool:
    """Whether the database has a table of that name."""
    return bool(connection.rows(HAS_TABLE[connection.name], {"name": name}))


def may_insert(connection: Connection, table: str) -> bool:
    """Whether this role may write a table. Whoever may write a file may write all of them."""
    if not connection.many_writers:
        return True
    return connection.rows("SELECT has_table_privilege(:name, 'INSERT')", {"name": table})[0][0] is True


def lock_migration(connection: Connection) -> None:
    """No other migration runs until this transaction ends; one that writes a file has it to itself already."""
    if connection.many_writers:
        connection.rows("SELECT pg_advisory_xact_lock(:key)", {"key": MIGRATION_LOCK})
