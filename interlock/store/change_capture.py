"""Capture which rows of SQLite a commit wrote, for checks after every commit."""

from collections.abc import Iterable

from interlock.kernel.rows import Need, Unit
from interlock.store.connection import Connection
from interlock.store.queries.snapshots import read_leases, read_rows

# The name by which a row of each table is told; of keys it is enough that one of them changed.
WATCHED = {"unit": "id", "lease": "unit", "worker": "unit", "slot": "0", "token": "0", "need": "unit"}


def start_capture(connection: Connection) -> None:
    """From now on what this connection writes is remembered with the transaction that wrote it."""
    connection.rows(
        "CREATE TEMP TABLE IF NOT EXISTS written (kind TEXT, id INTEGER, PRIMARY KEY (kind, id)) WITHOUT ROWID"
    )
    for table, name in WATCHED.items():
        for verb, row in (("INSERT", "new"), ("UPDATE", "new"), ("DELETE", "old")):
            value = name if name == "0" else f"{row}.{name}"
            connection.rows(
                f"CREATE TEMP TRIGGER IF NOT EXISTS {table}_{verb} AFTER {verb} ON main.{table} "
                f"BEGIN INSERT OR IGNORE INTO written VALUES ('{table}', {value}); END"
            )


def take_written(connection: Connection) -> list[tuple[str, int]]:
    """The tables and rows that were written since this was asked last."""
    rows = connection.rows("SELECT kind, id FROM written ORDER BY kind, id")
    if rows:
        connection.rows("DELETE FROM written")
    return [(kind, row_id) for kind, row_id in rows]


def read_units(connection: Connection, ids: Iterable[int]) -> list[Unit]:
    """These units, with what their live leases say."""
    rows = read_rows(connection, Unit, "WHERE id {ids} ORDER BY id", ids=list(ids))
    read_leases(connection, rows)
    return rows


def read_needs(connection: Connection, ids: Iterable[int]) -> list[Need]:
    """Returns what these units need."""
    return read_rows(connection, Need, "WHERE unit {ids} ORDER BY unit, needs", ids=list(ids))
