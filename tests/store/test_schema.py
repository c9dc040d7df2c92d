"""The tables are what the rows say, the indexes are the ones that the design names, and a migration is one step."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.kernel.errors import InterlockError
from interlock.kernel.rows import ROWS, Row
from interlock.lifecycles import shipped
from interlock.store import migrate, reads, sqlite
from tests.store.databases import KINDS, Connection, declare, fresh
from tests.store.test_guard import event, unit


@pytest.fixture(params=KINDS)
def operator(request: pytest.FixtureRequest, tmp_path: Path, server: str) -> Iterator[Connection]:
    with fresh(request.param, tmp_path, server, role="operator") as connection:
        yield connection


def columns(database: Connection, table: str) -> list[str]:
    if database.name == "sqlite":
        return [row[1] for row in database.rows(f"PRAGMA table_info({table})")]
    query = "SELECT column_name FROM information_schema.columns WHERE table_name = :table ORDER BY ordinal_position"
    return [row[0] for row in database.rows(query, {"table": table})]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.table)
def test_a_row_has_the_columns_of_its_table_in_their_order(row: type[Row], database: Connection) -> None:
    found = [name for name in columns(database, row.table) if name not in ("pos", "xid")]
    assert found == list(row.__struct_fields__)


def test_every_table_but_the_law_has_a_tenant(database: Connection) -> None:
    listed = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    if database.name == "postgres":
        listed = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
    tables = {row[0] for row in database.rows(listed)}
    without = {table for table in tables if "tenant" not in columns(database, table)}
    assert without == {"edge", "about", "id_block", "tenant"}


def test_the_database_holds_exactly_the_listed_hops(database: Connection) -> None:
    found = set(database.rows("SELECT lifecycle, source, trigger, target, opens_attempt FROM edge"))
    wanted = {
        (life.name, hop.source or "", hop.trigger, hop.target, int(hop.opens_attempt))
        for life in shipped().values()
        for hop in life.hops
    }
    assert found == wanted


def test_an_upgrade_runs_once(tmp_path_factory: pytest.TempPathFactory, database: Connection) -> None:
    assert migrate.version(database) == migrate.numbers()[-1]
    if database.name == "sqlite":
        assert migrate.upgrade(database, shipped().values()) == []


def test_a_store_has_an_epoch_and_keeps_it(database: Connection) -> None:
    before = reads.epoch(database)
    assert before
    assert len(before) == 32
    if database.name == "sqlite":
        migrate.upgrade(database, shipped().values())
        assert reads.epoch(database) == before
        database.rows("DELETE FROM about WHERE name = 'epoch'")  # made before there was one
        migrate.upgrade(database, shipped().values())
        assert reads.epoch(database) not in (None, before)


def test_a_newer_schema_is_refused(database: Connection) -> None:
    if database.name == "sqlite":
        database.rows("UPDATE about SET value = '999' WHERE name = 'schema'")
        with pytest.raises(InterlockError, match="newer than this program"):
            migrate.upgrade(database, shipped().values())


def test_a_position_is_never_used_again(operator: Connection) -> None:
    """A reader that has seen position n must not miss a later event that gets n once more."""
    database = operator
    event(database, 1, None, "queued", "submit")
    event(database, 2, "queued", "cancelled", "cancel")
    unit(database, "cancelled", 2, outcome="cancelled")
    first = database.rows("SELECT max(pos) FROM event")[0][0]
    database.rows("INSERT INTO archived VALUES (1, 1, 2, 'h2', 'f', 'd', 0)")
    database.rows("DELETE FROM event")
    declare(database, 1)
    event(database, 1, None, "queued", "submit", unit=2)
    assert database.rows("SELECT pos FROM event")[0][0] > first


def test_the_sql_of_a_migration_can_be_printed(database: Connection) -> None:
    text = migrate.sql(1, database.name, database.pos)
    assert "CREATE TABLE unit" in text
    assert "guard_unit_update" in text
    assert "{pos}" not in text


def test_a_database_of_the_first_schema_keeps_its_work() -> None:
    connection = sqlite.Connection(sqlite.MEMORY)
    connection.begin()
    connection.script(migrate.sql(1, connection.name, connection.pos))
    connection.rows("INSERT INTO about (name, value) VALUES ('schema', '1')")
    connection.rows("INSERT INTO edge VALUES ('job', '', 'submit', 'queued', 0)")
    connection.commit()
    event(connection, 1, None, "queued", "submit")
    unit(connection, "queued", 1)
    assert migrate.upgrade(connection, shipped().values()) == migrate.numbers()[1:]
    assert connection.rows("SELECT state FROM unit") == [("queued",)]
    connection.close()
