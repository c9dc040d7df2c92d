"""SQLite: one file, no set-up, one writer at a time."""

import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache
from operator import attrgetter
from pathlib import Path
from threading import Lock
from typing import Any

import msgspec

from interlock.kernel.errors import Contended, Corrupt, InterlockError, StoreError, Unavailable
from interlock.kernel.rows import Act, Row, Unit, columns
from interlock.store.acts import digest_of
from interlock.store.batches import inserts, updates
from interlock.store.files import FileIdentity, create_private, is_open_to_others
from interlock.store.lanes import Lanes
from interlock.store.memory import Memory
from interlock.store.session import CALL, GUARD, LostCommit, Question, Queue, Session, Taken, Unreachable, Wire

NAME = "sqlite"
# How this database writes what the two write differently; a plain rowid would be used again after a delete.
WORDS = {
    "act_id": "INTEGER PRIMARY KEY AUTOINCREMENT", "ids": "TEXT", "hashes": "TEXT", "digest": "TEXT NOT NULL",
}  # fmt: skip
MEMORY = ":memory:"
# NORMAL would lose acknowledged commits at power loss. The cache takes 64 MB at most, if there is so much to keep.
PRAGMAS = (
    "journal_mode = WAL",
    "synchronous = FULL",
    "foreign_keys = ON",
    "recursive_triggers = ON",
    "cache_size = -65536",
)
FULL = 2  # of PRAGMA synchronous
BUSY, DAMAGED = ("SQLITE_BUSY", "SQLITE_LOCKED"), ("SQLITE_CORRUPT", "SQLITE_NOTADB")
UNIQUE = ("SQLITE_CONSTRAINT_UNIQUE", "SQLITE_CONSTRAINT_PRIMARYKEY", "SQLITE_CONSTRAINT_ROWID")
OUT_OF_REACH = ("SQLITE_IOERR", "SQLITE_FULL", "SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PROTOCOL")
# Seconds between two looks at the file: so much of the time since work came last, but neither less nor more than this.
POLL_SHARE, POLL_LEAST, POLL_MOST = 0.04, 0.002, 0.05


def meaning(error: sqlite3.Error | OverflowError | UnicodeError) -> StoreError:
    """What an error of the driver says in our words."""
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
def told() -> Iterator[None]:
    """No error of the driver passes."""
    try:
        yield
    except (sqlite3.Error, OverflowError, UnicodeError) as error:
        raise meaning(error) from error


@cache
def dialect(sql: str) -> str:
    """Our markers in SQLite's spelling: a writer has the file to itself, so no row is locked."""
    sql = sql.replace("{lock}", "").replace("{skip}", "").replace("{skip_unit}", "")
    return sql.replace("{ids}", "IN (SELECT value FROM json_each(:ids))")


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


def wall_clock() -> int:
    return time.time_ns() // 1_000


class Connection:
    """A connection whose every acknowledged commit is on disk."""

    name, words, many_writers, mark = NAME, WORDS, False, ""
    last_act, acts_a_transaction = 0, 1
    ahead: Sequence[Question] = ()
    memory: Memory | None = None
    file: FileIdentity | None = None

    def __init__(self, path: str, clock: Callable[[], int] | None = None) -> None:
        self.private = path == MEMORY
        self.clock = clock or wall_clock
        self.path = path
        self.lanes: dict[int, Lanes] = {}
        self.stuck: dict[int, int] = {}
        self.kept: dict[int, tuple[int, int, int]] = {}
        self.staff: dict[int, tuple[str, bool]] = {}
        self.memory, self.data_version, self.left = Memory(), 0, (0, 0)
        self.raw = opened(path)
        if clock:
            self.keep_time(clock)
        self.file = None if self.private else FileIdentity(path)

    def declare(self, tenants: Sequence[int]) -> None:
        """A file has no row-level security: the engine's own filter is all there is."""

    def rows(self, sql: str, params: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        sql, params = dialect(sql), params or {}
        if "ids" in params:
            params = {**params, "ids": msgspec.json.encode(params["ids"]).decode()}
        if self.file and sql.startswith("BEGIN"):
            self.file.check()
        with told():
            return self.raw.execute(sql, params).fetchall()

    def insert(self, rows: Sequence[Row]) -> None:
        kind = type(rows[0])
        names = columns(kind)
        with told():
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
        with told():
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
        with told():
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
        with told():
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
            raise meaning(error) from error
        self.leave()

    def rollback(self) -> None:
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
        self.raw = opened(self.path)
        if self.clock is not wall_clock:
            self.keep_time(self.clock)

    def fate(self, mark: str) -> bool | None:
        """A file keeps no list of its transactions."""
        return None

    def wire(self) -> Wire | None:
        """Other processes see a file change; memory has no other process."""
        return None if self.path == MEMORY else Looker(self.path)

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


def opened(path: str) -> sqlite3.Connection:
    """A handle on a file that never loses what it acknowledged. Raises Unreachable.

    A new file is its owner's alone, and so is what SQLite puts beside it: its log has the mode of the database.
    """
    if path != MEMORY:
        if not Path(path).absolute().parent.is_dir():
            raise InterlockError(f"the folder of the database '{path}' does not exist")
        with suppress(OSError):  # it is there, or SQLite says what is wrong
            os.close(create_private(os.path.realpath(path)))
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


def pause(quiet: float) -> float:
    """How long nobody looks at a file in which no work has come for so many seconds."""
    return min(max(quiet * POLL_SHARE, POLL_LEAST), POLL_MOST)


class Looker:
    """Looks at a file for work that another connection made available. Nobody needs to be told."""

    tells = False
    HEADS = (
        "SELECT lane.id, unit.id, unit.available_at FROM lane JOIN unit ON unit.id = "
        "(SELECT id FROM unit WHERE unit.lane = lane.id AND available_at IS NOT NULL "
        "ORDER BY priority DESC, available_at, id LIMIT 1) WHERE lane.tenant = :tenant AND lane.queue = :queue"
    )

    SUMMONS = "SELECT unit, summons FROM worker WHERE tenant = :tenant AND name = :name"

    def __init__(self, path: str) -> None:
        self.session, self.lock = Connection(path), Lock()
        self.version: int | None = None
        self.heard_at = 0.0  # when something came last
        self.heads: dict[Queue, set[tuple[int, ...]]] = {}

    def tell(self, queues: Iterable[Queue]) -> None:
        """The change of the file tells it."""

    def tell_within(self, session: Session, queues: Iterable[Queue]) -> None:
        """So does every commit."""

    def tell_with(self, session: Session, queues: Iterable[Queue]) -> None:
        """And that of a caller too."""

    def listen(self, queues: Iterable[Queue]) -> None:
        """What is available in these queues now is known: from here on only what is new counts."""
        with self.lock:
            self.heads |= {queue: self.first_in_line(queue) for queue in queues}

    def heard(self, watched: Callable[[], set[Queue]], timeout: float) -> set[Queue]:
        """The queues in which another unit is first in line than when we looked last."""
        end = time.monotonic() + timeout
        while (now := time.monotonic()) < end:
            with self.lock:
                if found := self.changed(watched()):
                    self.heard_at = now
                    return found
            time.sleep(pause(now - self.heard_at))
        return set()

    def changed(self, watched: set[Queue]) -> set[Queue]:
        version = self.session.rows("PRAGMA data_version")[0][0]  # before the look, so that none is missed
        if version == self.version:
            return set()
        self.version, before = version, self.heads
        self.heads = {queue: self.first_in_line(queue) for queue in watched}
        return {queue for queue, heads in self.heads.items() if heads - before.get(queue, heads)}

    def first_in_line(self, queue: Queue) -> set[tuple[int, ...]]:
        """The most urgent unit of each lane, and since when. Who waits although there is one cannot serve that lane."""
        tenant, name = queue
        if name.startswith(CALL):  # of a worker, how often it was summoned
            return set(self.session.rows(self.SUMMONS, {"tenant": tenant, "name": name.removeprefix(CALL)}))
        return set(self.session.rows(self.HEADS, {"tenant": tenant, "queue": name}))

    def close(self) -> None:
        self.session.close()
