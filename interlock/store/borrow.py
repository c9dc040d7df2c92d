"""A session on a connection that is somebody else's: what it does stands or falls with their transaction."""

import sqlite3
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from interlock.kernel.errors import InterlockError
from interlock.store import sqlite
from interlock.store.session import AUTOCOMMIT, SAVEPOINT, Session

KNOWN = "tx: {kind} is no connection that Interlock can join; a sqlite3 or a psycopg connection is"


class BorrowedSqlite(sqlite.Connection):
    """A sqlite3 connection of the caller's."""

    def __init__(self, raw: sqlite3.Connection) -> None:
        with sqlite.told():
            if not raw.in_transaction and (raw.isolation_level is None or getattr(raw, "autocommit", None) is True):
                raise InterlockError(AUTOCOMMIT)
        self.raw, self.lanes, self.stuck, self.staff, self.private, self.path = raw, {}, {}, {}, True, ""
        self.clock, self.kept = sqlite.wall_clock, {}

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


def borrow(raw: Any) -> Session:
    """A session on a caller's connection, inside its open transaction. Raises InterlockError if there can be none."""
    if isinstance(raw, sqlite3.Connection):
        return BorrowedSqlite(raw)
    postgres = sys.modules.get("interlock.store.postgres")  # loaded with the app's own connection, if it has one
    if postgres is None or not isinstance(raw, postgres.psycopg.Connection):
        raise InterlockError(KNOWN.format(kind=f"{type(raw).__module__}.{type(raw).__name__}"))
    session: Session = postgres.Borrowed(raw)
    return session
