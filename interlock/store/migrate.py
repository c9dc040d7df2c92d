"""Brings a database to the present schema: numbered SQL files, and the edges of the lifecycles."""

import re
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from interlock.kernel.errors import InterlockError
from interlock.kernel.lifecycle import Lifecycle
from interlock.store import rights
from interlock.store.session import Session

SCHEMA = Path(__file__).parent / "schema"
INSERT_EDGE = (
    "INSERT INTO edge (lifecycle, source, trigger, target, opens_attempt) "
    "VALUES (:lifecycle, :source, :trigger, :target, :opens_attempt)"
)
DELETE_EDGE = (
    "DELETE FROM edge WHERE lifecycle = :lifecycle AND source = :source AND trigger = :trigger AND target = :target"
)
UPGRADE = "its owner runs `interlock db upgrade --db URL`"


def numbers() -> list[int]:
    """The migrations that there are."""
    return sorted({int(path.name[:4]) for path in SCHEMA.glob("*.sql")})


def sql(number: int, database: str, pos: str) -> str:
    """The whole text of one migration for one database, as it is run."""
    files = sorted(SCHEMA.glob(f"{number:04}_*.sql"), reverse=True)  # tables before views, and both before their guard
    wanted = [path for path in files if path.suffixes[0] in (".sql", f".{database}")]
    text = "\n".join(path.read_text(encoding="utf-8").replace("{pos}", pos) for path in wanted)
    return as_strict(text) if database == "sqlite" else text


def as_strict(text: str) -> str:
    """The same tables for SQLite, which takes a value of any type in any column unless its table is STRICT.

    A strict table knows no BIGINT: INT has the same 64 bits. (INTEGER would make a primary key the rowid.)
    """
    return re.sub(r"^\);$", ") STRICT;", re.sub(r"\bBIGINT\b", "INT", text), flags=re.MULTILINE)


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


def refuse_old(database: Session, lives: Iterable[Lifecycle]) -> None:
    """The database has the present schema, and its guard knows `lives`; else raises, and says what to do."""
    at, newest = version(database), numbers()[-1]
    if at > newest:
        raise InterlockError(f"the database is at schema {at}, newer than this program's {newest}")
    if at < newest:
        raise InterlockError(f"the database is at schema {at} of {newest}; {UPGRADE}")
    listed = "SELECT lifecycle, source, trigger, target FROM edge"
    known = {tuple(row) for row in database.rows(listed)}
    for life in lives:
        if {(life.name, hop.source or "", hop.trigger, hop.target) for hop in life.hops} - known:
            raise InterlockError(f"the guard of the database does not know this {life.name}; {UPGRADE}")


def install(database: Session, lives: Iterable[Lifecycle]) -> None:
    """The guard knows exactly the edges of `lives`. An edge is taken away only if no live unit could need it."""
    for life in lives:
        wanted = {(life.name, hop.source or "", hop.trigger, hop.target): int(hop.opens_attempt) for hop in life.hops}
        listed = "SELECT lifecycle, source, trigger, target FROM edge WHERE lifecycle = :name"
        known = {tuple(row) for row in database.rows(listed, {"name": life.name})}
        columns = ("lifecycle", "source", "trigger", "target")
        gone = [dict(zip(columns, row, strict=True)) for row in known - wanted.keys()]
        refuse_if_live(database, life, gone)
        if gone:
            database.many(DELETE_EDGE, gone)
        fresh = [row for row in wanted if row not in known]
        if fresh:
            rows = [dict(zip(columns, row, strict=True)) | {"opens_attempt": wanted[row]} for row in fresh]
            database.many(INSERT_EDGE, rows)


def refuse_if_live(database: Session, life: Lifecycle, gone: list[dict[str, Any]]) -> None:
    """A lifecycle does not lose a state while a unit rests in it."""
    lost = sorted({edge["source"] for edge in gone} - life.states.keys() - {""})
    if lost:  # row-level security holds for the owner too
        database.declare([row[0] for row in database.rows("SELECT id FROM tenant ORDER BY id")])
    for state in lost:
        query = "SELECT count(*) FROM unit WHERE lifecycle = :name AND state = :state"
        if count := database.rows(query, {"name": life.name, "state": state})[0][0]:
            raise InterlockError(f"{life.name} has no state '{state}' any more, but {count} units are in it")
