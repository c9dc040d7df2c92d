"""Brings a database to the present schema: numbered SQL files, and the edges of the lifecycles."""

import secrets
from collections.abc import Iterable
from typing import Any

from interlock.kernel.errors import InterlockError
from interlock.kernel.lifecycle import Lifecycle
from interlock.store import guard, rights
from interlock.store.migrations import numbers as numbers
from interlock.store.migrations import sql as sql
from interlock.store.session import Session

INSERT_EDGE = (
    "INSERT INTO edge (lifecycle, source, trigger, target, opens_attempt, settles) "
    "VALUES (:lifecycle, :source, :trigger, :target, :opens_attempt, :settles)"
)
DELETE_EDGE = (
    "DELETE FROM edge WHERE lifecycle = :lifecycle AND source = :source AND trigger = :trigger AND target = :target"
)


def version(database: Session) -> int:
    """The migration that a database is at; 0 is none."""
    if not database.has_table("about"):
        return 0
    found = database.rows("SELECT value FROM about WHERE name = 'schema'")
    return int(found[0][0]) if found else 0


def upgrade(database: Session, lives: Iterable[Lifecycle]) -> list[int]:
    """The database is at the newest migration and holds the edges of `lives`; answers what was run."""
    done: list[int] = []
    database.begin()
    try:
        database.lock_migration()
        at = version(database)
        if at > numbers()[-1]:
            raise InterlockError(f"the database is at schema {at}, newer than this program's {numbers()[-1]}")
        for number in numbers():
            if number > at:
                database.script(sql(number, database.name, database.pos))
                database.rows("DELETE FROM about WHERE name = 'schema'")
                database.rows("INSERT INTO about (name, value) VALUES ('schema', :number)", {"number": str(number)})
                done.append(number)
        name_store(database)
        install(database, lives)
        if database.name == "postgres":
            rights.apply(database)
        else:
            guard.note_edges(database)
    except BaseException:
        database.rollback()
        raise
    database.commit()
    return done


def name_store(database: Session) -> None:
    """The store has an epoch: a random id that cursors and anchors carry, so that none is taken for another store's."""
    if not database.rows("SELECT 1 FROM about WHERE name = 'epoch'"):
        sql = "INSERT INTO about (name, value) VALUES ('epoch', :epoch)"
        database.rows(sql, {"epoch": secrets.token_hex(16)})


def prepare(database: Session, lives: Iterable[Lifecycle]) -> None:
    """A program may begin: a SQLite file is made and brought to the present; PostgreSQL is there already, by its owner.

    Raises InterlockError if somebody has changed the guard.
    """
    if database.many_writers:
        refuse_old(database, lives)
        return
    if version(database) == numbers()[-1]:
        guard.refuse_changed_file(database)
    upgrade(database, lives)


def refuse_old(database: Session, lives: Iterable[Lifecycle]) -> None:
    """The database has the present schema, and the guard that this program ships; else raises, and says what to do."""
    at, newest = version(database), numbers()[-1]
    if at > newest:
        raise InterlockError(f"the database is at schema {at}, newer than this program's {newest}")
    if at < newest:
        raise InterlockError(f"the database is at schema {at} of {newest}; {guard.UPGRADE}")
    guard.refuse_changed(database, lives)


def install(database: Session, lives: Iterable[Lifecycle]) -> None:
    """The guard knows exactly the edges of `lives`. An edge is taken away only if no live unit could need it."""
    for life in lives:
        wanted = guard.edges_of(life)
        listed = f"SELECT {', '.join(guard.EDGE_COLUMNS)} FROM edge WHERE lifecycle = :name"
        known = {tuple(row) for row in database.rows(listed, {"name": life.name})}
        gone = [dict(zip(guard.EDGE_COLUMNS, row, strict=True)) for row in known - wanted]
        refuse_if_live(database, life, gone)
        if gone:
            database.many(DELETE_EDGE, gone)
        if fresh := sorted(wanted - known):
            database.many(INSERT_EDGE, [dict(zip(guard.EDGE_COLUMNS, row, strict=True)) for row in fresh])


def refuse_if_live(database: Session, life: Lifecycle, gone: list[dict[str, Any]]) -> None:
    """A lifecycle does not lose a state while a unit rests in it."""
    lost = sorted({edge["source"] for edge in gone} - life.states.keys() - {""})
    if lost:  # row-level security holds for the owner too
        database.declare([row[0] for row in database.rows("SELECT id FROM tenant ORDER BY id")])
    for state in lost:
        query = "SELECT count(*) FROM unit WHERE lifecycle = :name AND state = :state"
        if count := database.rows(query, {"name": life.name, "state": state})[0][0]:
            raise InterlockError(f"{life.name} has no state '{state}' any more, but {count} units are in it")
