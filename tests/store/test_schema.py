"""The tables are what the rows say, the indexes are the ones that the design names, and a migration is one step."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.kernel.errors import InterlockError
from interlock.kernel.rows import ROWS, Act, Event, Row
from interlock.kernel.rows import columns as columns_of
from interlock.kernel.workflow_graph import Template
from interlock.lifecycles import shipped
from interlock.store import guard, migrate
from interlock.store.migrations import WORDS
from interlock.store.queries import snapshots
from tests.store.databases import KINDS, LIFECYCLES, Connection, fresh
from tests.store.raw_acts import archive, bear, finish, forget


@pytest.fixture(params=KINDS)
def operator(request: pytest.FixtureRequest, tmp_path: Path, server: str) -> Iterator[Connection]:
    with fresh(request.param, tmp_path, server, role="operator") as connection:
        yield connection


def columns(database: Connection, table: str) -> list[str]:
    if database.name == "sqlite":
        return [row[1] for row in database.rows(f"PRAGMA table_info({table})")]
    query = "SELECT column_name FROM information_schema.columns WHERE table_name = :table ORDER BY ordinal_position"
    return [row[0] for row in database.rows(query, {"table": table})]


@pytest.mark.parametrize("row", [*ROWS, Event, Template], ids=lambda row: row.table)
def test_a_row_has_the_columns_of_its_table_in_their_order(row: type[Row], database: Connection) -> None:
    found = columns(database, row.table)
    if row is Event:  # a view, which says besides which act tells of it
        assert found.pop() == "act"
    apart = () if row is Act else row.__struct_fields__[len(columns_of(row)) :]
    assert found == [name for name in row.__struct_fields__ if name not in apart]


def test_every_table_but_the_law_has_a_tenant(database: Connection) -> None:
    listed = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    if database.name == "postgres":
        listed = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
    tables = {row[0] for row in database.rows(listed)}
    without = {table for table in tables if "tenant" not in columns(database, table)}
    law = {"edge", "transition_path", "path_hop", "command_path"}
    assert without == law | {"about", "id_block", "tenant"} | (set() if database.many_writers else {"member", "moving"})


def test_the_database_holds_exactly_the_listed_hops(database: Connection) -> None:
    found = set(database.rows(f"SELECT {', '.join(guard.EDGE_COLUMNS)} FROM edge"))
    assert found == {edge for lifecycle in LIFECYCLES.values() for edge in guard.list_edges(lifecycle)}


def test_the_database_holds_exactly_the_listed_paths(database: Connection) -> None:
    """With what it derives from their hops itself; the program says the same."""
    lifecycles = list(LIFECYCLES.values())
    wanted = {path.id: path for lifecycle in lifecycles for path in guard.list_paths(lifecycles, lifecycle)}
    derived = ("lifecycle", "source", "target", "category", "outcome", "started", "payload_hop", "opens", "grants",
               "lease_from", "lease_to", "lease_ends", "forced")  # fmt: skip
    rows = database.rows(f"SELECT id, digest, hops, retired, {', '.join(derived)} FROM transition_path")
    assert {row[0] for row in rows} == wanted.keys()
    for one, digest, hops, retired, *values in rows:
        path = wanted[one]
        assert (digest, hops, retired) == (path.digest, len(path.hops), 0)
        assert values == [getattr(path, name) for name in derived], path
    hops_of = (
        "SELECT path, trigger, source, target, name, severity, lease_from, lease_to FROM path_hop ORDER BY path, place"
    )
    told: dict[int, list[tuple[str | None, ...]]] = {}
    for one, *hop in database.rows(hops_of):
        told.setdefault(one, []).append(tuple(hop))
    assert told == {
        one: [(hop.trigger, hop.source, hop.target, hop.name, hop.severity, hop.lease_from, hop.lease_to) for hop in path.hops]
        for one, path in wanted.items()
    }  # fmt: skip


def test_an_upgrade_runs_once(tmp_path_factory: pytest.TempPathFactory, database: Connection) -> None:
    assert migrate.version(database) == migrate.numbers()[-1]
    if database.name == "sqlite":
        assert migrate.upgrade(database, shipped().values()) == []


def test_a_store_has_an_epoch_and_keeps_it(database: Connection) -> None:
    before = snapshots.read_epoch(database)
    assert before
    assert len(before) == 32
    if database.name == "sqlite":
        migrate.upgrade(database, shipped().values())
        assert snapshots.read_epoch(database) == before
        database.rows("DELETE FROM about WHERE name = 'epoch'")  # made before there was one
        migrate.upgrade(database, shipped().values())
        assert snapshots.read_epoch(database) not in (None, before)


def test_a_newer_schema_is_refused(database: Connection) -> None:
    if database.name == "sqlite":
        database.rows("UPDATE about SET value = '999' WHERE name = 'schema'")
        with pytest.raises(InterlockError, match="newer than this program"):
            migrate.upgrade(database, shipped().values())


def test_a_position_is_never_used_again(operator: Connection) -> None:
    """A reader that has seen act n must not miss a later one that gets n once more."""
    database = operator
    bear(database, 1)
    finish(database, 1)
    last = database.rows("SELECT max(id) FROM act")[0][0]
    archive(database, 1)
    forget(database, 1)
    assert database.rows("SELECT count(*) FROM journal") == [(0,)]
    bear(database, 2)
    assert database.rows("SELECT act FROM journal")[0][0] > last


def test_the_sql_of_a_migration_can_be_printed(database: Connection) -> None:
    text = migrate.sql(1, database.name)
    assert "CREATE TABLE unit" in text
    assert "act_moves" in text
    assert not any(f"{{{word}}}" in text for word in WORDS[database.name])


NEVER_INDEXED = ("state", "version", "act", "changed_at", "attempt", "fence", "lease", "lease_id")


def test_no_index_of_a_unit_names_what_every_move_changes(database: Connection) -> None:
    """Such an update would write every index of the row, and never stay on its page. Conditions of an index count too."""
    listed = "SELECT sql FROM sqlite_master WHERE type = 'index' AND tbl_name = 'unit' AND sql IS NOT NULL"
    if database.name == "postgres":
        listed = "SELECT indexdef FROM pg_indexes WHERE tablename = 'unit'"
    indexes = [text.partition(" ON ")[2] for (text,) in database.rows(listed)]
    assert len(indexes) >= 6
    for index in indexes:
        assert not set(re.findall(r"\w+", index)) & set(NEVER_INDEXED), index
