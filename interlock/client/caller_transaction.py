"""`submit(tx=…)`: submit within the caller's transaction; the job exists only if the caller commits."""

from typing import TYPE_CHECKING, Any, TypeVar

from interlock.kernel.commands import Command
from interlock.kernel.errors import InterlockError
from interlock.store.caller_transaction import join_transaction
from interlock.store.catalog import has_table
from interlock.store.connection import Connection
from interlock.store.queries.snapshots import read_epoch

if TYPE_CHECKING:
    from interlock.client.app import App

A = TypeVar("A")


class CallerTransaction:
    """Carries out commands in the transaction that is open on the caller's connection: no commit, no retry."""

    def __init__(self, app: "App", connection: Any) -> None:
        """Raises InterlockError for a connection to another database, and for an app that uses a server."""
        if app.engine.far:
            raise InterlockError(
                "tx: a server cannot join a transaction of yours; open the database itself, or submit with key=…, "
                "so that a job which is submitted again is the same one"
            )
        self.app, self.connection = app, join_transaction(connection)
        if find_epoch(self.connection) != app.engine.read(read_epoch):
            raise InterlockError(
                "tx: this connection is to another database than the app's; use one of the same database"
            )

    def send(self, command: Command[A]) -> A:
        return self.app.engine.send_within(self.connection, command)

    async def asend(self, command: Command[A]) -> A:
        return self.send(command)


def find_epoch(connection: Connection) -> str | None:
    """Reads the epoch of the caller's database; None if it is none of ours."""
    return read_epoch(connection) if has_table(connection, "about") else None
