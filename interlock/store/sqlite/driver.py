"""The SQLite driver: opening a file, error classes, and the spelling of our statements."""

import os
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from interlock.kernel.errors import Contended, Corrupt, InterlockError, StoreError, Unavailable
from interlock.store.connection import GUARD, Taken, Unreachable
from interlock.store.private_files import create_private

MEMORY = ":memory:"
# NORMAL would lose acknowledged commits at power loss. The cache takes 64 MB at most, if there is so much to keep.
PRAGMAS = (
    "journal_mode = WAL",
    "synchronous = FULL",
    "foreign_keys = ON",
    "recursive_triggers = ON",
    "cache_size = -65536",
)
BUSY, DAMAGED = ("SQLITE_BUSY", "SQLITE_LOCKED"), ("SQLITE_CORRUPT", "SQLITE_NOTADB")
UNIQUE = ("SQLITE_CONSTRAINT_UNIQUE", "SQLITE_CONSTRAINT_PRIMARYKEY", "SQLITE_CONSTRAINT_ROWID")
LARGE_BLOCK = 8 * 1024 * 1024
OUT_OF_REACH = ("SQLITE_IOERR", "SQLITE_FULL", "SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PROTOCOL")


def open_raw(path: str) -> sqlite3.Connection:
    """A handle on a file that never loses what it acknowledged.

    A new file is its owner's alone, and so is what SQLite puts beside it: its log has the mode of the database.

    Raises:
        Unreachable: the file cannot be opened.
    """
    if path != MEMORY:
        if not Path(path).absolute().parent.is_dir():
            raise InterlockError(f"the folder of the database '{path}' does not exist")
        with suppress(OSError):  # it is there, or SQLite says what is wrong
            os.close(create_private(os.path.realpath(path)))
    keep_freed_memory()
    raw = None
    try:
        raw = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10.0)
        for pragma in PRAGMAS:
            raw.execute(f"PRAGMA {pragma}")
    except sqlite3.Error as error:
        if raw:
            raw.close()
        raise Unreachable(f"'{path}' cannot be opened as a SQLite database: {error}") from None
    return raw


def keep_freed_memory() -> None:
    """Has the C library keep memory that statements free, for those that come next.

    An act takes some 200 KB for its temporary tables. glibc gives back to the system what is free at the end of its
    heap as soon as that is 128 KB, so that each act met fifty page faults anew: a third of its processor time. Once a
    large block was freed, the limit is twice as large as that block. Elsewhere this does nothing.
    """
    bytearray(LARGE_BLOCK)


@cache
def translate_sql(sql: str) -> str:
    """Our markers in SQLite's spelling: a writer has the file to itself, so no row is locked."""
    sql = sql.replace("{lock}", "").replace("{skip}", "").replace("{skip_unit}", "").replace("{lock_unit}", "")
    sql = re.sub(r"\{by_key:(\w+)\}", r"INDEXED BY sqlite_autoindex_\1_1", sql)
    sql = re.sub(r"\{list:(\w+)\}", r"group_concat(\1, ',')", sql)
    return sql.replace("{ids}", "IN (SELECT value FROM json_each(:ids))").replace("{xid}", "''")


def translate_error(error: sqlite3.Error | OverflowError | UnicodeError) -> StoreError:
    """An error of the driver as one of ours."""
    kind, text = getattr(error, "sqlite_errorname", ""), str(error)
    if GUARD in text:
        return Corrupt(text)
    if kind.startswith(BUSY):
        return Contended(text)
    if kind in UNIQUE:
        return Taken(text)
    if kind.startswith(DAMAGED):
        return Corrupt(f"the database file is damaged: {text}")
    if kind.startswith(OUT_OF_REACH) or "closed database" in text:
        return Unavailable(f"the database file cannot be used: {text}")
    return StoreError(f"SQLite cannot keep this: {text}")


@contextmanager
def translate_errors() -> Iterator[None]:
    """No error of the driver leaves this block: it is raised as one of ours."""
    try:
        yield
    except (sqlite3.Error, OverflowError, UnicodeError) as error:
        raise translate_error(error) from error


def wall_clock() -> int:
    """The machine's time, in microseconds."""
    return time.time_ns() // 1_000
