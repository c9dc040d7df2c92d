"""A connection to SQLite, our own or a caller's."""

import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from operator import attrgetter
from typing import Any

import msgspec

from interlock.kernel.errors import InterlockError
from interlock.kernel.rows import Act, Row, Unit, columns
from interlock.store.acts import digest_of
from interlock.store.connection import AUTOCOMMIT, SAVEPOINT, LostCommit, Question, WakeupChannel
from interlock.store.files import FileIdentity, is_open_to_others
from interlock.store.lanes import Lanes
from interlock.store.memory import Memory
from interlock.store.observer import Observers, observed
from interlock.store.sqlite.bulk import inserts, updates
from interlock.store.sqlite.driver import MEMORY, open_raw, translate_error, translate_errors, translate_sql, wall_clock
from interlock.store.sqlite.wakeups import FileWatcher

NAME = "sqlite"
# How this database writes what the two write differently; a plain rowid would be used again after a delete.
WORDS = {
    "act_id": "INTEGER PRIMARY KEY AUTOINCREMENT", "ids": "TEXT", "hashes": "TEXT", "digest": "TEXT NOT NULL",
}  # fmt: skip
FULL = 2  # of PRAGMA synchronous
STEPS = 10_000  # of SQLite's machine, well under a millisecond, between two looks at the clock
INSERT_ACT = (
    f"INSERT INTO act ({', '.join(Act.__struct_fields__)}) VALUES ({', '.join('?' * len(Act.__struct_fields__))})"
)


def as_json(value: Any) -> Any:
    """Lists are kept as JSON."""
    return msgspec.json.encode(value).decode() if isinstance(value, list) else value


def unborn(unit: Unit) -> Unit:
    """A row that no act has made anything of yet."""
    return msgspec.structs.replace(
        unit, state="", category="", outcome=None, version=0, act=0, born=0, changed_at=0, started_at=None, attempt=1,
        fence=0, available_at=None, lease=None, lease_id=None, holder=None, lease_until=None, rests_in=None,
        dead_at=None,
    )  # fmt: skip


class SqliteConnection:
    """A connection whose every acknowledged commit is on disk."""

    name, words, many_writers, mark = NAME, WORDS, False, ""
    last_act, acts_a_transaction = 0, 1
    ahead: Sequence[Question] = ()
    memory: Memory | None = None
    file: FileIdentity | None = None
    limited = False  # whether a progress handler stops what takes too long
    observers: Observers = ()

    def __init__(self, path: str, clock: Callable[[], int] | None = None) -> None:
        self.private = path == MEMORY
        self.clock = clock or wall_clock
        self.path = path
        self.lanes: dict[int, Lanes] = {}
        self.stuck: dict[int, int] = {}
        self.kept: dict[int, tuple[int, int, int]] = {}
        self.staff: dict[int, tuple[str, bool]] = {}
        self.memory, self.data_version, self.left = Memory(), 0, (0, 0)
        self.raw = open_raw(path)
        if clock:
            self.keep_time(clock)
        self.file = None if self.private else FileIdentity(path)

    def observe(self, observers: Observers) -> None:
        self.observers, self.raw = observers, observed(self.raw, observers)

    def declare(self, tenants: Sequence[int], seconds: float | None = None) -> None:
        """What is read until the next rollback is stopped after so many seconds.

        A file has no row-level security: the engine's own filter of tenants is all there is.
        """
        if seconds is not None:
            end = time.monotonic() + seconds
            self.limited = True
            self.raw.set_progress_handler(lambda: time.monotonic() > end, STEPS)

    def rows(self, sql: str, params: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        sql, params = translate_sql(sql), params or {}
        if "ids" in params:
            params = {**params, "ids": msgspec.json.encode(params["ids"]).decode()}
        if self.file and sql.startswith("BEGIN"):
            self.file.check()
        with translate_errors():
            return self.raw.execute(sql, params).fetchall()

    def insert(self, rows: Sequence[Row]) -> None:
        kind = type(rows[0])
        names = columns(kind)
        with translate_errors():
            for statement in inserts(kind.table, names, (msgspec.structs.astuple(row)[: len(names)] for row in rows)):
                self.raw.execute(*statement)

    def act_id(self, number: int) -> int:
        """Acts are counted; nobody else counts them while this transaction is open."""
        if number == 1:
            self.last_act = self.rows("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'act'")[0][0]
        return self.last_act + number

    def write_acts(self, acts: Sequence[Act], born: Sequence[Unit]) -> None:
        """A unit is nothing until an act bears it, so it comes before its act."""
        if born:
            self.insert([unborn(unit) for unit in born])
        with translate_errors():
            for act in acts:
                act.digest = digest_of(act)
                self.raw.execute(INSERT_ACT, [as_json(value) for value in msgspec.structs.astuple(act)])
        if self.memory:
            for act in acts:
                for one in act.units:
                    self.memory.kept.pop(one, None)

    def renew(self, held: Sequence[Unit]) -> None:
        rows = [{"id": unit.lease_id, "unit": unit.id, "until": unit.lease_until} for unit in held]
        self.many("UPDATE lease SET until = :until WHERE id = :id AND unit = :unit AND until < :until", rows)

    def update(self, rows: Sequence[Row], columns: Sequence[str], key: str) -> None:
        names = (*columns, key)
        if self.memory:  # until it is committed
            for row in rows:
                self.memory.kept.pop(getattr(row, key), None)
        with translate_errors():
            for statement in updates(type(rows[0]).table, names, map(attrgetter(*names), rows)):
                self.raw.execute(*statement)

    def ask(self, questions: Sequence[Question]) -> None:
        """A question costs nothing here, so none is asked ahead."""

    def foretold(self, question: Question) -> list[tuple[Any, ...]]:
        return []

    def untouched(self, ids: Sequence[int], marks: Mapping[int, str]) -> list[int]:
        """All that is still remembered: nobody else can write before this transaction ends."""
        return list(marks)

    def together(self) -> AbstractContextManager[None]:
        """There is no wire to wait for."""
        return nullcontext()

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

    def begin(self, tenants: Sequence[int] = ()) -> int:
        """A transaction is open. Answers the time."""
        self.rows("BEGIN IMMEDIATE")
        self.recollect()
        return self.now()

    def recollect(self) -> None:
        """What is remembered is as it was left: else another connection has written since, or this one by itself."""
        self.data_version = self.rows("PRAGMA data_version")[0][0]
        if self.memory and self.left != (self.data_version, self.raw.total_changes):
            self.memory.kept.clear()

    def leave(self) -> None:
        """The transaction is over. The version is that of its beginning: from now on others may write."""
        self.left = self.data_version, self.raw.total_changes

    def commit(self) -> None:
        """The transaction is on disk. One that could not be written is undone; raises LostCommit if nobody knows."""
        try:
            self.raw.execute("COMMIT")
        except sqlite3.Error as error:
            if not self.in_transaction:
                raise LostCommit(str(error)) from error
            self.rollback()
            raise translate_error(error) from error
        self.leave()

    def rollback(self) -> None:
        if self.limited:
            self.limited = False
            self.raw.set_progress_handler(None, 0)
        if self.in_transaction:
            self.rows("ROLLBACK")
            self.leave()

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
        self.lanes.clear()  # it may have been restored
        self.left = (0, -1)
        self.raw = observed(open_raw(self.path), self.observers)
        if self.clock is not wall_clock:
            self.keep_time(self.clock)

    def fate(self, mark: str) -> bool | None:
        """A file keeps no list of its transactions."""
        return None

    def wire(self) -> WakeupChannel | None:
        """Other processes see a file change; memory has no other process."""
        return None if self.path == MEMORY else FileWatcher(self.path)

    def lock_migration(self) -> None:
        """The transaction has the file to itself already."""

    def findings(self) -> list[str]:
        """What is wrong with the database itself."""
        found = [str(row[0]) for row in self.rows("PRAGMA integrity_check") if row[0] != "ok"]
        if self.rows("PRAGMA synchronous")[0][0] < FULL:
            found.append("synchronous is below FULL: a power loss may lose commits that were acknowledged")
        if self.path != MEMORY and is_open_to_others(self.path):
            found.append(f"the group or others can read or write the database: chmod 600 '{self.path}'")
        return found

    def may_insert(self, table: str) -> bool:
        """Whoever may write the file may write every table."""
        return True

    def has_table(self, name: str) -> bool:
        return bool(self.rows("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = :name", {"name": name}))

    def close(self) -> None:
        self.raw.close()


class CallerSqliteConnection(SqliteConnection):
    """A sqlite3 connection of the caller's."""

    def __init__(self, raw: sqlite3.Connection) -> None:
        with translate_errors():
            if not raw.in_transaction and (raw.isolation_level is None or getattr(raw, "autocommit", None) is True):
                raise InterlockError(AUTOCOMMIT)
        self.raw, self.lanes, self.stuck, self.staff, self.private, self.path = raw, {}, {}, {}, True, ""
        self.clock, self.kept = wall_clock, {}

    def rows(self, sql: str, params: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Plain rows, whatever the caller's own look like."""
        own = self.raw.row_factory, self.raw.text_factory
        self.raw.row_factory, self.raw.text_factory = None, str
        try:
            return super().rows(sql, params)
        finally:
            self.raw.row_factory, self.raw.text_factory = own

    def begin(self, tenants: Sequence[int] = ()) -> int:
        """Ids were taken from the database before this, and with that first write the driver opened a transaction."""
        self.rows(f"SAVEPOINT {SAVEPOINT}")
        return self.now()

    def commit(self) -> None:
        self.rows(f"RELEASE {SAVEPOINT}")

    def rollback(self) -> None:
        self.rows(f"ROLLBACK TO {SAVEPOINT}")
        self.rows(f"RELEASE {SAVEPOINT}")
