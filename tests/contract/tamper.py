"""What nobody may do: changing a database behind its guard, as whoever owns it could."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from interlock.engine.advance import chained
from interlock.kernel.rows import Event
from interlock.store import postgres
from interlock.store.reads import read
from tests.store.databases import Connection, swap


@contextmanager
def behind_the_guard(connection: Connection, server: str) -> Iterator[Connection]:
    """A connection whose statements no guard sees; what it did stays, unless it rolls back, and the guard is back."""
    if isinstance(connection, postgres.Connection):
        owner = postgres.Connection(swap(server, connection.raw.info.dbname), connection.clock)
        try:
            owner.begin()
            owner.rows("SET session_replication_role = replica")
            yield owner
            owner.rows("COMMIT")
        finally:
            owner.close()
        return
    connection.begin()
    guard = connection.rows("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
    for name, _ in guard:
        connection.rows(f"DROP TRIGGER {name}")
    yield connection
    if connection.raw.in_transaction:
        for _, sql in guard:
            connection.rows(sql)
        connection.commit()


def rewrite(database: Connection, unit: int, **changes: Any) -> None:
    """The history of a unit says something else, and every hash fits."""
    head = ""
    for event in read(database, Event, "WHERE unit = :unit ORDER BY version", unit=unit):
        for name, value in changes.items():
            setattr(event, name, value)
        event.hash = head = chained(head, event)
        sets = ", ".join(f"{name} = :{name}" for name in (*changes, "hash"))
        where = {"unit": unit, "version": event.version, "hash": head}
        database.rows(f"UPDATE event SET {sets} WHERE unit = :unit AND version = :version", {**changes, **where})
    database.rows("UPDATE unit SET head = :head WHERE id = :unit", {"head": head, "unit": unit})


def erase(database: Connection, unit: int) -> None:
    """The unit has never been."""
    for table, column in (("event", "unit"), ("body", "unit"), ("unit", "id")):
        database.rows(f"DELETE FROM {table} WHERE {column} = :unit", {"unit": unit})


def cut(database: Connection, unit: int) -> None:
    """A job that is held has never been claimed: everything but its birth is gone, and the row fits."""
    database.rows(
        "UPDATE worker SET holding = holding - 1 WHERE unit = (SELECT holder FROM unit WHERE id = :unit)",
        {"unit": unit},
    )
    database.rows("DELETE FROM event WHERE unit = :unit AND version > 1", {"unit": unit})
    database.rows(
        "UPDATE unit SET state = 'queued', category = 'ready', version = 1, fence = 0, lease = NULL, holder = NULL, "
        "wake_at = NULL, available_at = changed_at, head = (SELECT hash FROM event WHERE unit = :unit), "
        "changed_at = (SELECT at FROM event WHERE unit = :unit) WHERE id = :unit",
        {"unit": unit},
    )
