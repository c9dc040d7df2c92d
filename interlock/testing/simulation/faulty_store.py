"""A SQLite store that fails on purpose: refusals, deadlocks, lost answers, a killed process."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from interlock.blobs.memory import MemoryBlobs
from interlock.core.plugin import Registry
from interlock.kernel.errors import Contended, Unavailable
from interlock.kernel.lifecycle import Category, Lifecycle
from interlock.kernel.rows import Row
from interlock.lifecycles import hurried, shipped
from interlock.plugins import STANDARD
from interlock.store import migrate
from interlock.store.change_capture import start_capture, take_written
from interlock.store.connection import LostCommit, Opened
from interlock.store.query import BoundQuery
from interlock.store.sqlite import MEMORY, SqliteConnection
from interlock.store.sqlite.driver import open_raw

HURRY = 20  # leases of three seconds: a seed need not simulate hours
Plan = Callable[[str], str]  # asked at a place (begin, write, commit) what happens there; empty: nothing


def brief(lifecycle: Lifecycle) -> Lifecycle:
    """A lifecycle that waits as much shorter for those who were asked to stop."""
    states = {
        name: replace(state, within_us=state.within_us // HURRY)
        if state.within_us and state.category is Category.CLOSING and lifecycle.birth.trigger == "submit"
        else state
        for name, state in lifecycle.states.items()
    }
    return replace(lifecycle, states=states)


def brief_lifecycles(registry: Registry) -> dict[str, Lifecycle]:
    """All lifecycles that an engine with these plugins knows, with short times."""
    known = registry.lifecycles(shipped())
    return {name: brief(lifecycle) for name, lifecycle in hurried(known, HURRY).items()}


LIFECYCLES = brief_lifecycles(STANDARD)


class Crash(BaseException):
    """The process that speaks to the store is gone."""


@cache
def image(registry: Registry) -> bytes:
    """A fresh database at the present schema, with the tables of these plugins."""
    connection = SqliteConnection(MEMORY)
    try:
        migrate.upgrade(connection, brief_lifecycles(registry).values(), registry.tables)
        return connection.raw.serialize()
    finally:
        connection.close()


class Disk:
    """Where the data lies: in memory, behind one handle, or in a file with a handle for each session."""

    def __init__(self, file: Path | None = None, registry: Registry = STANDARD) -> None:
        self.file, self.blobs = file, MemoryBlobs()
        self.stash: list[tuple[str, int]] = []  # what was written by connections that are closed
        self.shared = open_raw(MEMORY) if file is None else None
        if self.shared:
            self.shared.deserialize(image(registry))
        elif file:
            file.write_bytes(image(registry))

    def connection(self, clock: Callable[[], int], plan: Plan) -> "FaultyConnection":
        return FaultyConnection(self, clock, plan)

    def close(self) -> None:
        if self.shared:
            self.shared.close()


class FaultyConnection(SqliteConnection):
    """A connection that asks its plan before every step of a transaction."""

    def __init__(self, disk: Disk, clock: Callable[[], int], plan: Plan) -> None:
        self.disk, self.plan, self.tracks = disk, plan, False
        super().__init__(str(disk.file) if disk.file else MEMORY, clock)
        self.file = None
        self.blobs = disk.blobs

    def open(self) -> None:
        self.raw = self.disk.shared or open_raw(self.path)
        self.keep_time(self.clock)
        if self.disk.file:
            self.raw.execute("PRAGMA synchronous = OFF")  # no power is lost here
            start_capture(self)
            self.tracks = True

    def reconnect(self) -> None:
        self.rollback()
        self.close()
        self.mark = ""
        self.open()

    def close(self) -> None:
        if self.tracks:
            self.disk.stash += take_written(self)
            self.tracks = False
            self.raw.close()

    def fail(self, place: str) -> str:
        """What happens here besides; what ends the transaction is raised."""
        what = self.plan(place)
        if what == "locked":
            raise Contended("database is locked (simulated)")
        if what == "away":
            raise Unavailable("the database cannot be reached (simulated)")
        if what == "deadlock":
            raise Contended("deadlock detected (simulated)")
        return what

    def begin(self, tenants: Sequence[int] = (), ahead: Sequence[BoundQuery[Any]] = ()) -> Opened:
        self.fail("begin")
        return super().begin(tenants, ahead)

    def insert(self, rows: Sequence[Row]) -> None:
        self.fail("write")
        super().insert(rows)

    def update(self, rows: Sequence[Row], columns: Sequence[str], key: str) -> None:
        self.fail("write")
        super().update(rows, columns, key)

    def many(self, sql: str, rows: list[dict[str, Any]]) -> None:
        self.fail("write")
        super().many(sql, rows)

    def commit(self) -> None:
        what = self.fail("commit")
        if what in ("lost", "crash before"):
            self.rollback()
        else:
            super().commit()
        if what in ("lost", "applied"):
            raise LostCommit("the answer to COMMIT is lost (simulated)")
        if what.startswith("crash"):
            raise Crash(what)
