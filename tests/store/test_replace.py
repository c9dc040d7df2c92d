"""SQLite: REPLACE deletes rows unseen where recursive triggers are off, and columns take any value unless they are strict.

Whoever opens the file chooses recursive_triggers, so the guard must not depend on it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interlock.store import sqlite
from tests.store.databases import fresh, insert
from tests.store.test_guard import body, event, move, unit

CONFLICTS = ("REPLACE", "IGNORE", "FAIL", "ROLLBACK")


@pytest.fixture(params=["sqlite file", "sqlite memory"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sqlite.Connection]:
    """Unit 1 has succeeded with a body and an artifact, unit 2 is queued and needs it, unit 3 is archived."""
    with fresh(request.param, tmp_path, "") as connection:
        assert isinstance(connection, sqlite.Connection)
        fill(connection)
        connection.rows("PRAGMA recursive_triggers = OFF")
        yield connection


def fill(database: sqlite.Connection) -> None:
    for one in (1, 2, 3):
        event(database, 1, None, "queued", "submit", unit=one)
        unit(database, "queued", 1, id=one)
        body(database, unit=one, key=f"k{one}")
    for one in (1, 3):
        event(database, 2, "queued", "assigned", "claim", unit=one, lease_to="GRANTED")
        event(database, 3, "assigned", "running", "start", unit=one, lease_from="GRANTED", lease_to="ACTIVE")
        event(database, 4, "running", "succeeded", "complete", unit=one, lease_from="ACTIVE", lease_to="COMPLETED")
        move(database, "succeeded", 4, id=one, fence=1, outcome="success")
    insert(database, "artifact", unit=1, attempt=1, name="a", tenant=1, fence=1, at=0, digest="d", data="x")
    insert(database, "need", unit=2, needs=1, tenant=1)
    insert(database, "archived", unit=3, tenant=1, version=4, head="h4", file="f", digest="d", at=9)


GUARDED = ("unit", "body", "event", "need", "artifact", "archived")


def everything(database: sqlite.Connection) -> dict[str, list[tuple[Any, ...]]]:
    return {table: database.rows(f"SELECT rowid, * FROM {table} ORDER BY rowid") for table in GUARDED}


def refused() -> Any:
    return pytest.raises(Exception, match=r"interlock guard \[")


# What each attack writes over a row that is there.
OTHER = {
    "unit": {"fence": "99", "priority": "7"},
    "body": {"input": "'forged'"},
    "event": {"actor": "'somebody else'"},
    "need": {"tenant": "tenant"},
    "artifact": {"data": "'forged'"},
    "archived": {"file": "'elsewhere'"},
}


def columns(database: sqlite.Connection, table: str) -> list[str]:
    return [name for _, name, *_ in database.rows(f"PRAGMA table_info({table})")]


@pytest.mark.parametrize("conflict", CONFLICTS)
@pytest.mark.parametrize("table", GUARDED)
def test_a_row_that_is_there_is_not_written_again(database: sqlite.Connection, table: str, conflict: str) -> None:
    before, names = everything(database), columns(database, table)
    values = ", ".join(OTHER[table].get(name, name) for name in names)
    with refused():
        database.rows(f"INSERT OR {conflict} INTO {table} ({', '.join(names)}) SELECT {values} FROM {table} LIMIT 1")
    assert everything(database) == before


@pytest.mark.parametrize("table", [table for table in GUARDED if table != "event"])
def test_a_row_is_not_pushed_out_by_another_under_its_rowid(database: sqlite.Connection, table: str) -> None:
    """The new row is one that the guard would take, but for the place that it is given."""
    event(database, 1, None, "queued", "submit", unit=4)
    place = database.rows(f"SELECT min(rowid) FROM {table}")[0][0]
    row: dict[str, Any] = {
        "need": {"unit": 2, "needs": 3, "tenant": 1},
        "artifact": {"unit": 1, "attempt": 1, "name": "b", "tenant": 1, "fence": 1, "at": 0, "digest": "", "data": ""},
        "archived": {"unit": 1, "tenant": 1, "version": 4, "head": "h4", "file": "f", "digest": "d", "at": 9},
    }.get(table, {})
    if table == "body":
        unit(database, "queued", 1, id=4)
    before = everything(database)
    with refused():
        if table == "unit":
            copy(database, table, place, id=4, state="'queued'", version=1, head="'h1'", outcome="NULL", fence=0)
        elif table == "body":
            copy(database, table, place, unit=4, key="'k4'")
        else:
            names, given = ", ".join(row), ", ".join(f":{name}" for name in row)
            database.rows(f"INSERT OR REPLACE INTO {table} (rowid, {names}) VALUES ({place}, {given})", row)
    assert everything(database) == before


def copy(database: sqlite.Connection, table: str, place: int, **changes: Any) -> None:
    names = columns(database, table)
    values = ", ".join(str(changes.get(name, name)) for name in names)
    database.rows(
        f"INSERT OR REPLACE INTO {table} (rowid, {', '.join(names)}) "
        f"SELECT {place}, {values} FROM {table} WHERE rowid = {place}"
    )


@pytest.mark.parametrize("table", [table for table in GUARDED if table != "archived"])
def test_a_row_is_not_pushed_out_by_one_that_moves_to_its_rowid(database: sqlite.Connection, table: str) -> None:
    if table == "need":
        insert(database, "need", unit=2, needs=3, tenant=1)
    if table == "artifact":
        insert(database, "artifact", unit=1, attempt=1, name="b", tenant=1, fence=1, at=0, digest="d", data="x")
    before = everything(database)
    with refused():
        database.rows(
            f"UPDATE OR REPLACE {table} SET rowid = (SELECT max(rowid) FROM {table}) "
            f"WHERE rowid = (SELECT min(rowid) FROM {table})"
        )
    assert everything(database) == before


def test_a_finished_unit_is_not_written_anew_with_its_last_event(database: sqlite.Connection) -> None:
    """The attack that was found: state, version and head fit the events, and everything else is the attacker's."""
    before = everything(database)
    with refused():
        database.rows(
            "REPLACE INTO unit (id, tenant, lane, lifecycle, state, category, version, head, changed_at, priority, "
            "attempt, failures, losses, snoozes, fence, decides, unmet, total, succeeded, lost, decided, deciders, won, "
            "gates, blocked, begun, outcome) SELECT id, tenant, lane, lifecycle, state, 'ready', version, head, 0, 0, 0, "
            "0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 'failure' FROM unit WHERE id = 1"
        )
    assert everything(database) == before


def test_every_table_is_strict(database: sqlite.Connection) -> None:
    tables = database.rows(
        "SELECT name, strict FROM pragma_table_list WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    )
    assert len(tables) > 15
    assert [name for name, strict in tables if not strict] == []


@pytest.mark.parametrize(
    "change",
    ["unit SET priority = 'high' WHERE id = 1", "unit SET lease_until = 'never' WHERE id = 1",
     "unit SET cost = 1.5 WHERE id = 1", "body SET input = x'00ff' WHERE unit = 1", "slot SET taken = 'none'"],
)  # fmt: skip
def test_a_value_of_another_type_is_refused(database: sqlite.Connection, change: str) -> None:
    insert(database, "slot", tenant=1, key="k", capacity=1, taken=0)
    with pytest.raises(Exception, match="cannot store"):
        database.rows(f"UPDATE {change}")
