"""SQLite: one file, no set-up, one writer at a time."""

import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from interlock.kernel.errors import InterlockError
from interlock.kernel.rows import Row
from interlock.store.lanes import Lanes
from interlock.store.session import listed

NAME = "sqlite"
POS = "pos  INTEGER PRIMARY KEY AUTOINCREMENT"  # a plain rowid is used again after a delete
MEMORY = ":memory:"
FULL = 2  # of PRAGMA synchronous


class Connection:
    """A connection whose every acknowledged commit is on disk."""

    name, pos = NAME, POS

    def __init__(self, path: str, clock: Callable[[], int] | None = None) -> None:
        self.clock = clock or (lambda: time.time_ns() // 1_000)
        self.lanes: dict[int, Lanes] = {}
        if path != MEMORY and not Path(path).absolute().parent.is_dir():
            raise InterlockError(f"the folder of the database '{path}' does not exist")
        try:
            self.raw = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10.0)
            self.raw.execute("PRAGMA journal_mode = WAL")
        except sqlite3.DatabaseError as error:
            raise InterlockError(f"'{path}' cannot be opened as a SQLite database: {error}") from None
        # NORMAL loses acknowledged commits at power loss.
        for pragma in ("synchronous = FULL", "foreign_keys = ON", "recursive_triggers = ON"):
            self.raw.execute(f"PRAGMA {pragma}")

    def declare(self, tenants: Sequence[int], *, by_index: bool = False) -> None:
        """A file has no row-level security: the engine's own filter is all there is."""

    def now(self) -> int:
        """The time of the store in microseconds. One writer at a time needs no other clock than its own."""
        return self.clock()

    def rows(self, sql: str, params: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        sql = sql.replace("{lock}", "").replace("{skip}", "")  # a writer has the file to itself
        return self.raw.execute(sql, params or {}).fetchall()

    def insert(self, rows: Sequence[Row]) -> None:
        kind = type(rows[0])
        marks = ", ".join("?" * len(kind.__struct_fields__))
        values = [msgspec.structs.astuple(row) for row in rows]
        self.raw.executemany(f"INSERT INTO {kind.table} ({listed(kind)}) VALUES ({marks})", values)

    def update(self, rows: Sequence[Row], columns: Sequence[str], key: str) -> None:
        sets = ", ".join(f"{column} = ?" for column in columns)
        values = [[getattr(row, column) for column in (*columns, key)] for row in rows]
        self.raw.executemany(f"UPDATE {type(rows[0]).table} SET {sets} WHERE {key} = ?", values)

    def many(self, sql: str, rows: list[dict[str, Any]]) -> None:
        self.raw.executemany(sql, rows)

    def script(self, sql: str) -> None:
        """Runs statements inside the open transaction; executescript would commit it first."""
        statement = ""
        for line in sql.splitlines(keepends=True):
            statement += line
            if sqlite3.complete_statement(statement):
                self.raw.execute(statement)
                statement = ""

    def begin(self) -> None:
        self.raw.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        self.raw.execute("COMMIT")

    def rollback(self) -> None:
        if self.raw.in_transaction:
            self.raw.execute("ROLLBACK")

    def lock_migration(self) -> None:
        """The transaction has the file to itself already."""

    def findings(self) -> list[str]:
        """What is wrong with the database itself."""
        found = [str(row[0]) for row in self.rows("PRAGMA integrity_check") if row[0] != "ok"]
        if self.rows("PRAGMA synchronous")[0][0] < FULL:
            found.append("synchronous is below FULL: a power loss may lose commits that were acknowledged")
        return found

    def has_table(self, name: str) -> bool:
        return bool(self.rows("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = :name", {"name": name}))

    def close(self) -> None:
        self.raw.close()
