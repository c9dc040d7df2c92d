"""SQLite: one file, no set-up, one writer at a time."""

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from interlock.kernel.errors import InterlockError

NAME = "sqlite"
POS = "pos  INTEGER PRIMARY KEY AUTOINCREMENT"  # a plain rowid is used again after a delete
MEMORY = ":memory:"


class Connection:
    """A connection whose every acknowledged commit is on disk."""

    name, pos = NAME, POS

    def __init__(self, path: str) -> None:
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

    def rows(self, sql: str, params: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        return self.raw.execute(sql, params or {}).fetchall()

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

    def has_table(self, name: str) -> bool:
        return bool(self.rows("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = :name", {"name": name}))

    def close(self) -> None:
        self.raw.close()
