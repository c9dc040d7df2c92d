"""A connection that belongs to a caller: our writes are committed or rolled back by the caller."""

import sqlite3
import sys
from typing import Any

from interlock.kernel.errors import InterlockError
from interlock.store.connection import Connection
from interlock.store.sqlite.connection import CallerSqliteConnection

KNOWN = "tx: {kind} is no connection that Interlock can join; a sqlite3 or a psycopg connection is"


def join_transaction(raw: Any) -> Connection:
    """Our connection on a caller's, inside its open transaction.

    Raises:
        InterlockError: there can be none.
    """
    if isinstance(raw, sqlite3.Connection):
        return CallerSqliteConnection(raw)
    postgres = sys.modules.get("interlock.store.postgres.connection")  # loaded with the app's own, if it has one
    if postgres is None or not isinstance(raw, postgres.psycopg.Connection):
        raise InterlockError(KNOWN.format(kind=f"{type(raw).__module__}.{type(raw).__name__}"))
    connection: Connection = postgres.CallerPostgresConnection(raw)
    return connection
