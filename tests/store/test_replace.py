"""SQLite: REPLACE deletes rows unseen where recursive triggers are off, and columns take any value unless they are strict.

Whoever opens the file chooses recursive_triggers, so the guard must not depend on it.
"""

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from interlock.store.sqlite import SqliteConnection
from tests.store.databases import fresh, insert
from tests.store.raw_acts import (
    archive,
    as_columns,
    bear,
    finish,
    forced_path,
    make_unborn,
    move,
    newborn,
    path_of,
    write_body,
)  # fmt: skip

TOLD = [f'{{"error": "{word}"}}' for word in ("one", "two", "three")]
CONFLICTS = ("REPLACE", "IGNORE", "FAIL", "ROLLBACK")


@pytest.fixture(params=["sqlite file", "sqlite memory"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqliteConnection]:
    """Unit 1 has succeeded with an artifact, 2 is queued and needs it, 3 is archived, 6 had a lease that was taken."""
    with fresh(request.param, tmp_path, "") as connection:
        assert isinstance(connection, SqliteConnection)
        fill(connection)
        connection.rows("PRAGMA recursive_triggers = OFF")
        yield connection


def fill(database: SqliteConnection) -> None:
    details = [sha256(text.encode()).hexdigest() for text in TOLD]
    born = bear(database, 1, 2, 3, with_body=False, details=details)
    insert(database, "act_detail", act=born, unit=1, tenant=1, payload=TOLD[0])
    insert(database, "act_detail", act=born, unit=2, tenant=1, payload=TOLD[1])
    for one in (1, 2, 3):
        write_body(database, one, key=f"k{one}")
    finish(database, 1, 3)
    bear(database, 6)
    for step in ("claim/grant", "release/revoke"):  # the row of a lease that was taken stays
        move(database, 6, step)
    insert(database, "artifact", unit=1, attempt=1, name="a", tenant=1, fence=1, at=0, digest="d", data="x")
    insert(database, "need", unit=2, needs=1, tenant=1)
    insert(database, "place", parent=1, name="a", unit=7, tenant=1)
    archive(database, 3)
    database.rows("INSERT INTO seal VALUES (1, 1, 1, 2, 2, 'root', 9), (1, 2, 3, 4, 2, 'root', 9)")


# Those that have no rowid, so that a row is pushed out by its key only.
KEYED = ("member",)
GUARDED = (
    "unit", "body", "act", "need", "place", "artifact", "archived", "lease", "seal", "act_detail", "edge", "transition_path", "path_hop", *KEYED,
)  # fmt: skip


def everything(database: SqliteConnection) -> dict[str, list[tuple[Any, ...]]]:
    place = {table: "1" if table in KEYED else "rowid" for table in GUARDED}
    return {table: database.rows(f"SELECT {place[table]}, * FROM {table} ORDER BY 1, 2, 3") for table in GUARDED}


def refused() -> Any:
    return pytest.raises(Exception, match=r"interlock guard \[")


# What each attack writes over a row that is there.
OTHER = {
    "unit": {"fence": "99", "priority": "7"},
    "body": {"input": "'forged'"},
    "act": {"actor": "'somebody else'"},
    "need": {"tenant": "tenant"},
    "place": {"unit": "8"},
    "artifact": {"data": "'forged'"},
    "archived": {"file": "'elsewhere'"},
    "lease": {"secret": "'mine'"},
    "seal": {"root": "'forged'"},
    "act_detail": {"payload": "'forged'"},
    "edge": {"retired": "1"},
    "transition_path": {"category": "'success'"},
    "path_hop": {"name": "'forged'"},
    "member": {"act": "1"},
}


def columns(database: SqliteConnection, table: str) -> list[str]:
    return [name for _, name, *_ in database.rows(f"PRAGMA table_info({table})")]


@pytest.mark.parametrize("conflict", CONFLICTS)
@pytest.mark.parametrize("table", GUARDED)
def test_a_row_that_is_there_is_not_written_again(database: SqliteConnection, table: str, conflict: str) -> None:
    before, names = everything(database), columns(database, table)
    values = ", ".join(OTHER[table].get(name, name) for name in names)
    with refused():
        database.rows(f"INSERT OR {conflict} INTO {table} ({', '.join(names)}) SELECT {values} FROM {table} LIMIT 1")
    assert everything(database) == before


PLACED = tuple(table for table in GUARDED if table not in KEYED)


@pytest.mark.parametrize("table", PLACED)
def test_a_row_is_not_pushed_out_by_another_under_its_rowid(database: SqliteConnection, table: str) -> None:
    """The new row is one that the guard would take, but for the place that it is given."""
    bear(database, 4, with_body=False)
    place = database.rows(f"SELECT min(rowid) FROM {table}")[0][0]
    path = forced_path(database, 4, "succeeded")
    rows: dict[str, dict[str, Any]] = {
        "unit": as_columns(make_unborn(newborn(path_of("job", "", None, "submit"), 5, 1, 0, 0))),
        "need": {"unit": 2, "needs": 3, "tenant": 1},
        "place": {"parent": 1, "name": "b", "unit": 8, "tenant": 1},
        "artifact": {"unit": 1, "attempt": 1, "name": "b", "tenant": 1, "fence": 1, "at": 0, "digest": "", "data": ""},
        "seal": {"tenant": 1, "number": 3, "first_act": 5, "last_act": 6, "acts": 2, "root": "r", "at": 9},
        "edge": {"lifecycle": "job", "source": "x", "trigger": "x", "target": "x", "name": "x", "severity": "info",
                 "opens_attempt": 0, "category": "ready", "retired": 0},
        "transition_path": {"id": path.id, "told": path.text, "digest": path.digest},
    }  # fmt: skip
    changes: dict[str, dict[str, Any]] = {
        "body": {"unit": 4, "key": "'k4'"}, "archived": {"unit": 1, "version": 4, "born": 1},
        "act": {"id": 99}, "act_detail": {"unit": 3, "payload": f"'{TOLD[2]}'"}, "lease": {"unit": 4}, "path_hop": {"place": 9},
    }  # fmt: skip
    if table == "archived":  # but for its place it would be taken
        changes[table]["head"] = "(SELECT digest FROM act WHERE id = (SELECT act FROM unit WHERE id = 1))"
    before = everything(database)
    with refused():
        if table in rows:
            names, given = ", ".join(rows[table]), ", ".join(f":{name}" for name in rows[table])
            database.rows(f"INSERT OR REPLACE INTO {table} (rowid, {names}) VALUES ({place}, {given})", rows[table])
        else:
            copy(database, table, place, **changes[table])
    assert everything(database) == before


def copy(database: SqliteConnection, table: str, rowid: int, **changes: Any) -> None:
    names = [name for name in columns(database, table) if table != "act" or name != "id"]
    values = ", ".join(str(changes.get(name, name)) for name in names)
    database.rows(
        f"INSERT OR REPLACE INTO {table} (rowid, {', '.join(names)}) "
        f"SELECT {rowid}, {values} FROM {table} WHERE rowid = {rowid}"
    )


@pytest.mark.parametrize("table", [table for table in PLACED if table != "archived"])
def test_a_row_is_not_pushed_out_by_one_that_moves_to_its_rowid(database: SqliteConnection, table: str) -> None:
    if table == "need":
        insert(database, "need", unit=2, needs=3, tenant=1)
    if table == "place":
        insert(database, "place", parent=1, name="b", unit=8, tenant=1)
    if table == "artifact":
        insert(database, "artifact", unit=1, attempt=1, name="b", tenant=1, fence=1, at=0, digest="d", data="x")
    if table == "lease":  # one that is live, and may be made longer
        move(database, 2, "claim/grant")
    before = everything(database)
    with refused():
        database.rows(
            f"UPDATE OR REPLACE {table} SET rowid = (SELECT min(rowid) FROM {table}) "
            f"WHERE rowid = (SELECT max(rowid) FROM {table})"
        )
    assert everything(database) == before


def test_a_finished_unit_is_not_written_anew_with_its_last_act(database: SqliteConnection) -> None:
    """The attack that was found: state, version and act fit the record, and everything else is the attacker's."""
    before, names = everything(database), columns(database, "unit")
    forged = {"category": "'ready'", "changed_at": "0", "attempt": "0", "fence": "0", "outcome": "'failure'"}
    with refused():
        picked = ", ".join(forged.get(name, name) for name in names)
        database.rows(f"REPLACE INTO unit ({', '.join(names)}) SELECT {picked} FROM unit WHERE id = 1")
    assert everything(database) == before


def test_every_table_is_strict(database: SqliteConnection) -> None:
    tables = database.rows(
        "SELECT name, strict FROM pragma_table_list WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    )
    assert len(tables) > 15
    assert [name for name, strict in tables if not strict] == []


@pytest.mark.parametrize(
    "change",
    ["unit SET priority = 'high' WHERE id = 1", "unit SET due_at = 'never' WHERE id = 1",
     "unit SET cost = 1.5 WHERE id = 1", "body SET input = x'00ff' WHERE unit = 1", "slot SET taken = 'none'"],
)  # fmt: skip
def test_a_value_of_another_type_is_refused(database: SqliteConnection, change: str) -> None:
    insert(database, "slot", tenant=1, key="k", capacity=1, taken=0)
    with pytest.raises(Exception, match="cannot store"):
        database.rows(f"UPDATE {change}")
