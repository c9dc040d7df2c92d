"""A driver that fails where a test wants it to: in COMMIT, before or after the database has done it."""

import sqlite3
from collections.abc import Sequence
from typing import Any

import psycopg

from interlock.kernel.rows import Row
from interlock.store.connection import Opened
from interlock.store.postgres import PostgresConnection
from interlock.store.postgres.driver import PipelineConnection
from interlock.store.query import BoundQuery
from tests.store.databases import Connection

LOST = "the line is dead"


class Faulty:
    """A raw connection that loses the answer to its next COMMIT, and dies of it."""

    def __init__(self, raw: Any, *, commits: bool, dies: bool = True) -> None:
        self.raw, self.commits, self.dies, self.armed = raw, commits, dies, True

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)

    def execute(self, sql: str, *args: Any) -> Any:
        if sql != "COMMIT" or not self.armed:
            return self.raw.execute(sql, *args)
        self.armed = False
        if self.commits:
            self.raw.execute(sql, *args)
        if self.dies:
            self.raw.close()
        raise dead_line(self.raw)


def dead_line(raw: Any) -> Exception:
    if isinstance(raw, PipelineConnection):
        return psycopg.OperationalError(LOST)
    error = sqlite3.OperationalError(LOST)
    error.sqlite_errorname = "SQLITE_IOERR_FSYNC"
    return error


def lose_commit(connection: Connection, *, commits: bool) -> Faulty:
    """The answer to the next COMMIT is lost. What is in memory would be lost with its handle, so that one is kept."""
    memory = not isinstance(connection, PostgresConnection) and connection.path == ":memory:"
    faulty = Faulty(connection.raw, commits=commits, dies=not memory)
    connection.raw = faulty  # type: ignore[assignment]
    return faulty


class Refusing:
    """A connection whose next inserts are refused by an error of the store."""

    def __init__(self, connection: Connection, *errors: Exception) -> None:
        self.connection, self.errors, self.begun = connection, list(errors), 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)

    def begin(self, tenants: Sequence[int] = (), ahead: Sequence[BoundQuery[Any]] = ()) -> Opened:
        self.begun += 1
        return self.connection.begin(tenants, ahead)

    def insert(self, rows: Sequence[Row]) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.connection.insert(rows)
