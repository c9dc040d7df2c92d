"""Migrate a database: run the numbered SQL files, and install the paths of the lifecycles."""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from interlock.kernel.errors import InterlockError
from interlock.kernel.lifecycle import Lifecycle
from interlock.kernel.paths import Path as TransitionPath
from interlock.store import guard, restore, rights
from interlock.store.catalog import has_table, lock_migration
from interlock.store.connection import Connection
from interlock.store.guard import EDGE_COLUMNS, LEASE, list_paths
from interlock.store.migrations import numbers as numbers
from interlock.store.migrations import sql as sql
from interlock.store.plugin_tables import has_tables, install_tables

INSERT_EDGE = (
    f"INSERT INTO edge ({', '.join(EDGE_COLUMNS)}) VALUES ({', '.join(f':{name}' for name in EDGE_COLUMNS)}) "
    "ON CONFLICT DO NOTHING"
)
RETIRE_EDGE = f"UPDATE edge SET retired = :retired WHERE {' AND '.join(f'{name} = :{name}' for name in EDGE_COLUMNS)}"
INSERT_PATH = "INSERT INTO transition_path (id, told, digest) VALUES (:id, :told, :digest)"
RETIRE_PATH = "UPDATE transition_path SET retired = :retired WHERE id = :id"
INSERT_COMMAND = (
    "INSERT INTO command_path (lifecycle, state, lease, command, path) "
    "VALUES (:lifecycle, :state, :lease, :command, :path)"
)


def version(database: Connection) -> int:
    """The migration that a database is at; 0 is none."""
    if not has_table(database, "about"):
        return 0
    rows = database.rows("SELECT value FROM about WHERE name = 'schema'")
    return int(rows[0][0]) if rows else 0


def upgrade(
    database: Connection, lifecycles: Iterable[Lifecycle], tables: Mapping[str, str] | None = None
) -> list[int]:
    """Brings the database to the newest migration, with the edges and paths of `lifecycles`; returns what was run.

    `tables` are those of plugins, by plugin.
    """
    done: list[int] = []
    lifecycles = list(lifecycles)
    database.begin()
    try:
        lock_migration(database)
        at = version(database)
        if at > numbers()[-1]:
            raise InterlockError(f"the database is at schema {at}, newer than this program's {numbers()[-1]}")
        for number in numbers():
            if number > at:
                database.script(sql(number, database.name))
                database.rows("DELETE FROM about WHERE name = 'schema'")
                database.rows("INSERT INTO about (name, value) VALUES ('schema', :number)", {"number": str(number)})
                done.append(number)
        name_store(database)
        install_tables(database, tables or {})
        install(database, lifecycles)
        if database.name == "postgres":
            rights.apply(database)
        else:
            guard.note_edges(database, lifecycles)
    except BaseException:
        database.rollback()
        raise
    database.commit()
    return done


def name_store(database: Connection) -> None:
    """The store has an epoch: a random id that cursors and anchors carry, so that none is taken for another store's."""
    if not database.rows("SELECT 1 FROM about WHERE name = 'epoch'"):
        sql = "INSERT INTO about (name, value) VALUES ('epoch', :epoch)"
        database.rows(sql, {"epoch": secrets.token_hex(16)})


def prepare(database: Connection, lifecycles: Iterable[Lifecycle], tables: Mapping[str, str] | None = None) -> None:
    """A program may begin: a SQLite file is made and brought to the present; PostgreSQL is there already, by its owner.

    Raises:
        InterlockError: somebody has changed the guard.
    """
    if database.many_writers:
        refuse_old(database, lifecycles)
        if not has_tables(database, tables or {}):
            raise InterlockError(f"the database lacks tables of plugins; {guard.UPGRADE}")
        return
    lifecycles = list(lifecycles)
    if version(database) == numbers()[-1]:
        guard.refuse_changed_file(database)
        if guard.knows_lifecycles(database, lifecycles) and has_tables(database, tables or {}):
            return
    upgrade(database, lifecycles, tables)


def refuse_old(database: Connection, lifecycles: Iterable[Lifecycle]) -> None:
    """The database has the present schema, and the guard that this program ships; else raises, and says what to do."""
    at, newest = version(database), numbers()[-1]
    if at > newest:
        raise InterlockError(f"the database is at schema {at}, newer than this program's {newest}")
    if at < newest:
        raise InterlockError(f"the database is at schema {at} of {newest}; {guard.UPGRADE}")
    guard.refuse_changed(database, lifecycles)
    restore.refuse_counted_anew(database)


def install(database: Connection, lifecycles: Iterable[Lifecycle]) -> None:
    """Teaches the guard the edges and the paths of `lifecycles`; it takes no other one of theirs any more."""
    lifecycles = sorted(lifecycles, key=lambda lifecycle: lifecycle.name != LEASE)  # paths speak of the lease
    for lifecycle in lifecycles:
        install_edges(database, lifecycle)
    for lifecycle in lifecycles:
        install_paths(database, lifecycles, lifecycle)


def install_edges(database: Connection, lifecycle: Lifecycle) -> None:
    """The edges of a lifecycle are listed; those that it has no more are retired, unless a live unit could need one."""
    wanted = guard.list_edges(lifecycle)
    listed = f"SELECT {', '.join(EDGE_COLUMNS)}, retired FROM edge WHERE lifecycle = :name"
    known = {tuple(row[:-1]): row[-1] for row in database.rows(listed, {"name": lifecycle.name})}
    gone = [
        dict(zip(EDGE_COLUMNS, row, strict=True)) for row, retired in known.items() if row not in wanted and not retired
    ]
    refuse_if_live(database, lifecycle, gone)
    back = [dict(zip(EDGE_COLUMNS, row, strict=True)) for row, retired in known.items() if row in wanted and retired]
    if gone or back:
        database.many(RETIRE_EDGE, [{**row, "retired": 1} for row in gone] + [{**row, "retired": 0} for row in back])
    if fresh := sorted(wanted - known.keys()):
        database.many(INSERT_EDGE, [dict(zip(EDGE_COLUMNS, row, strict=True)) for row in fresh])


def install_paths(database: Connection, lifecycles: Sequence[Lifecycle], lifecycle: Lifecycle) -> None:
    """The paths of a lifecycle are listed, and which of them a command takes."""
    wanted = {path.id: path for path in list_paths(lifecycles, lifecycle)}
    sql = "SELECT id, retired FROM transition_path WHERE lifecycle = :name AND forced = 0"
    known: dict[int, bool] = dict(database.rows(sql, {"name": lifecycle.name}))
    moved = [
        {"id": path_id, "retired": int(path_id not in wanted)}
        for path_id, old in known.items()
        if old == (path_id in wanted)
    ]
    if moved:
        database.many(RETIRE_PATH, moved)
    fresh = [path for path_id, path in wanted.items() if path_id not in known]
    if fresh:
        database.many(INSERT_PATH, [make_path_row(path) for path in fresh])
    if fresh or moved:
        database.rows("DELETE FROM command_path WHERE lifecycle = :name", {"name": lifecycle.name})
        database.many(INSERT_COMMAND, [describe_path(path) for path in wanted.values()])


def make_path_row(path: TransitionPath) -> dict[str, Any]:
    """Makes the row of a path."""
    return {"id": path.id, "told": path.text, "digest": path.digest}


def describe_path(path: TransitionPath) -> dict[str, Any]:
    """How a command names a path: by its triggers, each with what the lease does meanwhile."""
    hops = [f"{hop.trigger}/{hop.lease_to}" if hop.lease_to else hop.trigger for hop in path.hops]
    return {
        "lifecycle": path.lifecycle, "state": path.source, "lease": path.lease_from or "", "command": "+".join(hops),
        "path": path.id,
    }  # fmt: skip


def make_path(database: Connection, path: TransitionPath) -> None:
    """A forced path is listed when somebody takes it: there are too many that nobody ever takes."""
    if not database.rows("SELECT 1 FROM transition_path WHERE id = :id", {"id": path.id}):
        lists = "SELECT list_forced_path(:id, :told, :digest)" if database.name == "postgres" else INSERT_PATH
        database.rows(lists, make_path_row(path))


def refuse_if_live(database: Connection, lifecycle: Lifecycle, gone: list[dict[str, Any]]) -> None:
    """A lifecycle does not lose a state while a unit rests in it."""
    lost = sorted({edge["source"] for edge in gone} - lifecycle.states.keys() - {""})
    if lost:  # row-level security holds for the owner too
        database.declare([row[0] for row in database.rows("SELECT id FROM tenant ORDER BY id")])
    for state in lost:
        query = "SELECT count(*) FROM unit WHERE lifecycle = :name AND state = :state"
        if count := database.rows(query, {"name": lifecycle.name, "state": state})[0][0]:
            raise InterlockError(f"{lifecycle.name} has no state '{state}' any more, but {count} units are in it")
