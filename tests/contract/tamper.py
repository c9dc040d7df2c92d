"""What nobody may do: changing a database behind its guard, as whoever owns it could."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from interlock.kernel.rows import Act
from interlock.store import postgres
from interlock.store.acts import digest_of
from interlock.store.reads import select_acts
from interlock.store.seals import write_seal
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
    """The acts of a unit say something else, and every digest and seal fits."""
    for act in acts_of(database, unit):
        for name, value in changes.items():
            setattr(act, name, value)
        told = changes if database.name == "postgres" else {**changes, "digest": digest_of(act)}
        sets = ", ".join(f"{name} = :{name}" for name in told)
        database.rows(f"UPDATE act SET {sets} WHERE id = :id", {**told, "id": act.id})
    seal_anew(database)


def erase(database: Connection, unit: int) -> None:
    """The unit, and the acts that moved nobody else, have never been."""
    remove_acts(database, unit, acts_of(database, unit))
    for table, column in (("lease", "unit"), ("body", "unit"), ("unit", "id")):
        database.rows(f"DELETE FROM {table} WHERE {column} = :unit", {"unit": unit})
    seal_anew(database)


def cut(database: Connection, unit: int) -> None:
    """A job that is held has never been claimed: everything but its birth is gone, and the row fits."""
    database.rows(
        "UPDATE worker SET holding = holding - 1 WHERE unit = (SELECT holder FROM unit WHERE id = :unit)",
        {"unit": unit},
    )
    birth, *later = acts_of(database, unit)
    remove_acts(database, unit, later)
    database.rows("DELETE FROM lease WHERE unit = :unit", {"unit": unit})
    database.rows(
        "UPDATE unit SET state = 'queued', category = 'ready', version = 1, fence = 0, lease = NULL, lease_id = NULL, "
        "holder = NULL, wake_at = NULL, available_at = :at, act = :act, changed_at = :at WHERE id = :unit",
        {"unit": unit, "act": birth.id, "at": birth.at},
    )
    seal_anew(database)


def acts_of(database: Connection, unit: int) -> list[Act]:
    """The acts that tell of a unit, the first one first."""
    return select_acts(database, "WHERE id IN (SELECT act FROM journal_unit WHERE unit = :unit) ORDER BY id", unit=unit)


def remove_acts(database: Connection, unit: int, acts: Iterable[Act]) -> None:
    for act in acts:
        assert act.units == [unit], "it moved nobody else"
        for table, column in (("act_detail", "act"), ("act", "id")):
            database.rows(f"DELETE FROM {table} WHERE {column} = :act", {"act": act.id})
        if database.name == "sqlite":
            database.rows("DELETE FROM member WHERE act = :act", {"act": act.id})


def seal_anew(database: Connection) -> None:
    """Every tenant that had seals has one seal, of the acts that are there now."""
    sealed = [tenant for (tenant,) in database.rows("SELECT DISTINCT tenant FROM seal")]
    database.rows("DELETE FROM seal")
    for tenant in sealed:
        write_seal(database, tenant, database.now())
