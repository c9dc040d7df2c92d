"""A connection to SQLite, our own or a caller's."""

import os
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cached_property
from operator import attrgetter
from typing import Any

import msgspec

from interlock.blobs.folder import FolderBlobs
from interlock.blobs.memory import MemoryBlobs
from interlock.blobs.store import BlobStore
from interlock.kernel.errors import InterlockError
from interlock.kernel.rows import Act, Row, Unit, columns
from interlock.store.acts import digest_act
from interlock.store.connection import AUTOCOMMIT, SAVEPOINT, LostCommit, Opened, Rows, Unreachable
from interlock.store.observer import Observers, wrap_connection
from interlock.store.query import BoundQuery
from interlock.store.sqlite.bulk import build_statements, insert_text, update_text
from interlock.store.sqlite.driver import MEMORY, open_raw, translate_error, translate_errors, translate_sql, wall_clock

STEPS = 10_000  # of SQLite's machine, well under a millisecond, between two looks at the clock
INSERT_ACT = (
    f"INSERT INTO act ({', '.join(Act.__struct_fields__)}) VALUES ({', '.join('?' * len(Act.__struct_fields__))})"
)


ENCODE = msgspec.json.Encoder().encode
DRIVER_ERRORS = (sqlite3.Error, OverflowError, UnicodeError)
# What a row says that no act has made anything of yet.
UNBORN: dict[str, Any] = {
    "state": "", "category": "", "outcome": None, "version": 0, "act": 0, "born": 0, "changed_at": 0,
    "started_at": None, "attempt": 1, "fence": 0, "available_at": None, "lease": None, "lease_id": None,
    "holder": None, "lease_until": None, "lease_hash": None, "rests_in": None, "dead_at": None,
}  # fmt: skip


class FileIdentity:
    """Which file was opened. A connection goes on with a file that was deleted, and what it writes nobody finds."""

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)  # the working directory may change; a link is followed anew
        self.opened: os.stat_result | None = None
        with suppress(OSError):  # it is not there: then it cannot be used either
            self.opened = os.stat(self.path)

    def check(self) -> None:
        """The path still leads to the file that was opened. It is looked at once for each transaction.

        Raises:
            Unreachable: the file was moved, replaced or deleted.
        """
        try:
            now = os.stat(self.path)  # a Path costs more than the call
        except OSError:
            now = None
        if now is None or self.opened is None or not os.path.samestat(now, self.opened):
            happened = "is not there any more" if now is None else "was replaced by another file"
            raise Unreachable(
                f"the database file '{self.path}' {happened} since this program opened it; nothing was changed: "
                "put it back, or start the program anew"
            )


class SqliteConnection:
    """A connection whose every acknowledged commit is on disk."""

    name, many_writers, pooled = "sqlite", False, False
    mark = ""
    last_act = 0
    file: FileIdentity | None = None
    limited = False  # whether a progress handler stops what takes too long
    observers: Observers = ()
    data_version = 0  # when the transaction began: others have written if it is another one later

    def __init__(self, path: str, clock: Callable[[], int] = wall_clock) -> None:
        self.path, self.private, self.clock = path, path == MEMORY, clock
        self.open()
        if not self.private:
            self.file = FileIdentity(path)

    @cached_property
    def blobs(self) -> BlobStore | None:
        """A folder beside the file, or memory beside a database in memory."""
        return MemoryBlobs() if self.private else FolderBlobs(f"{self.path}.blobs", marks=True)

    def open(self) -> None:
        """There is a handle on the file, whose guard knows our clock."""
        self.raw = wrap_connection(open_raw(self.path), self.observers)
        if self.clock is not wall_clock:
            self.keep_time(self.clock)

    def observe(self, observers: Observers) -> None:
        self.observers, self.raw = observers, wrap_connection(self.raw, observers)

    def declare(self, tenants: Sequence[int], seconds: float | None = None) -> None:
        """What is read until the next rollback is stopped after so many seconds.

        A file has no row-level security: the engine's own filter of tenants is all there is.
        """
        if seconds is not None:
            end = time.monotonic() + seconds
            self.limited = True
            self.raw.set_progress_handler(lambda: time.monotonic() > end, STEPS)

    def rows(self, sql: str, params: Mapping[str, Any] | None = None) -> Rows:
        sql, params = translate_sql(sql), params or {}
        if "ids" in params:
            params = {**params, "ids": msgspec.json.encode(params["ids"]).decode()}
        if self.file and sql.startswith("BEGIN"):
            self.file.check()
        try:
            return self.raw.execute(sql, params).fetchall()
        except DRIVER_ERRORS as error:
            raise translate_error(error) from error

    def insert(self, rows: Sequence[Row]) -> None:
        kind = type(rows[0])
        names = columns(kind)
        values = (msgspec.structs.astuple(row)[: len(names)] for row in rows)
        try:
            for statement in build_statements(insert_text, kind.table, names, values, 0):
                self.raw.execute(*statement)
        except DRIVER_ERRORS as error:
            raise translate_error(error) from error

    def act_id(self, number: int) -> int:
        """Acts are counted; nobody else counts them while this transaction is open."""
        if number == 1:
            self.last_act = self.rows("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'act'")[0][0]
        return self.last_act + number

    def write_acts(self, acts: Sequence[Act], born: Sequence[Unit]) -> None:
        """A unit is nothing until an act bears it, so it comes before its act."""
        if born:
            self.insert([msgspec.structs.replace(unit, **UNBORN) for unit in born])
        try:
            for act in acts:
                act.digest = digest_act(act)
                values = msgspec.structs.astuple(act)
                self.raw.execute(
                    INSERT_ACT, [ENCODE(value).decode() if type(value) is list else value for value in values]
                )
        except DRIVER_ERRORS as error:
            raise translate_error(error) from error

    def update(self, rows: Sequence[Row], columns: Sequence[str], key: str) -> None:
        names = (*columns, key)
        values = map(attrgetter(*names), rows)
        try:
            for statement in build_statements(update_text, type(rows[0]).table, names, values, len(columns)):
                self.raw.execute(*statement)
        except DRIVER_ERRORS as error:
            raise translate_error(error) from error

    def pipeline(self) -> AbstractContextManager[None]:
        """There is no round trip to save."""
        return nullcontext()

    def fetch_together(self, queries: Sequence[BoundQuery[Any]], now: int) -> list[Rows]:
        return [self.rows(bound.query.sql, bound.params(now)) for bound in queries]

    def many(self, sql: str, rows: list[dict[str, Any]]) -> None:
        with translate_errors():
            self.raw.executemany(sql, rows)

    def script(self, sql: str) -> None:
        """Runs statements inside the open transaction; executescript would commit it first."""
        statement = ""
        for line in sql.splitlines(keepends=True):
            statement += line
            if sqlite3.complete_statement(statement):
                self.rows(statement)
                statement = ""

    def now(self) -> int:
        """The time of the store in microseconds. One writer at a time needs no other clock than its own."""
        return self.clock()

    def keep_time(self, clock: Callable[[], int]) -> None:
        self.clock = clock
        self.raw.create_function("unixepoch", 0, lambda: clock() // 1_000_000)  # by which the guard bounds an act

    def begin(self, tenants: Sequence[int] = (), ahead: Sequence[BoundQuery[Any]] = ()) -> Opened:
        """A transaction is open, and nobody else can write."""
        self.rows("BEGIN IMMEDIATE")
        self.data_version = self.rows("PRAGMA data_version")[0][0]
        self.mark = f"{self.data_version} {self.raw.total_changes}"  # another one when anybody has written
        now = self.clock()
        return Opened(now, self.fetch_together(ahead, now) if ahead else [])

    def commit(self) -> None:
        """The transaction is on disk. One that could not be written is undone; raises LostCommit if nobody knows."""
        try:
            self.raw.execute("COMMIT")
        except sqlite3.Error as error:
            if not self.in_transaction:
                raise LostCommit(str(error)) from error
            self.rollback()
            raise translate_error(error) from error
        self.mark = f"{self.data_version} {self.raw.total_changes}"  # of the beginning: others may write behind it

    def rollback(self) -> None:
        if self.limited:
            self.limited = False
            self.raw.set_progress_handler(None, 0)
        with suppress(sqlite3.ProgrammingError):  # it is closed
            if self.raw.in_transaction:
                self.rows("ROLLBACK")

    @property
    def in_transaction(self) -> bool:
        try:
            return self.raw.in_transaction
        except sqlite3.ProgrammingError:  # it is closed
            return False

    def reconnect(self) -> None:
        """The file is open anew. What is in memory has no second handle, and lives as long as its first."""
        if self.path == MEMORY:
            self.rollback()
            return
        if self.file:
            self.file.check()
        self.close()
        self.mark = ""
        self.open()

    def close(self) -> None:
        self.raw.close()


class CallerSqliteConnection(SqliteConnection):
    """A sqlite3 connection of the caller's."""

    def __init__(self, raw: sqlite3.Connection) -> None:
        with translate_errors():
            if not raw.in_transaction and (raw.isolation_level is None or getattr(raw, "autocommit", None) is True):
                raise InterlockError(AUTOCOMMIT)
        self.lent = raw
        super().__init__(MEMORY)  # whatever it is on is not ours to open

    def open(self) -> None:
        self.raw = self.lent

    def rows(self, sql: str, params: Mapping[str, Any] | None = None) -> Rows:
        """Plain rows, whatever the caller's own look like."""
        own = self.raw.row_factory, self.raw.text_factory
        self.raw.row_factory, self.raw.text_factory = None, str
        try:
            return super().rows(sql, params)
        finally:
            self.raw.row_factory, self.raw.text_factory = own

    def begin(self, tenants: Sequence[int] = (), ahead: Sequence[BoundQuery[Any]] = ()) -> Opened:
        """Ids were taken from the database before this, and with that first write the driver opened a transaction."""
        self.rows(f"SAVEPOINT {SAVEPOINT}")
        now = self.now()
        return Opened(now, self.fetch_together(ahead, now))

    def commit(self) -> None:
        self.rows(f"RELEASE {SAVEPOINT}")

    def rollback(self) -> None:
        self.rows(f"ROLLBACK TO {SAVEPOINT}")
        self.rows(f"RELEASE {SAVEPOINT}")
