"""An engine without threads, whose clock is set by the test."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from threading import RLock
from typing import Any, TypeVar

from interlock.core.engine import Engine
from interlock.kernel.commands import Command
from interlock.kernel.lifecycle import Lifecycle
from interlock.plugins import STANDARD
from interlock.store import migrate
from interlock.store.connection import Connection
from interlock.store.url import connect

A = TypeVar("A")


class StillEngine(Engine):
    """Whoever sends a command carries it out, and what the clock says is up to the test."""

    def __init__(self, connection: Connection, lifecycles: Mapping[str, Lifecycle], clock: Callable[[], int]) -> None:
        super().__init__(connection, lifecycles, registry=STANDARD)
        self.clock, self.stepping = clock, RLock()
        connection.keep_time(clock)

    def send(self, command: Command[A]) -> A:
        return self.put(command).result()

    def put(self, command: Command[A]) -> "Future[A]":
        return self.put_all([command])[0]

    def put_all(self, commands: Sequence[Command[Any]]) -> "list[Future[Any]]":
        with self.stepping:
            futures = [self.committer.put(command) for command in commands]
            while self.committer.step():
                pass
        return futures

    def send_within(self, connection: Connection, command: Command[A]) -> A:
        connection.keep_time(self.clock)
        with self.stepping:
            return super().send_within(connection, command)

    def close(self) -> None:
        """Nothing: a program that closes its app, and uses it again, is on the same stage."""

    def end(self) -> None:
        """Every connection is gone."""
        super().close()


def still(url: str, lifecycles: Mapping[str, Lifecycle], clock: Callable[[], int]) -> StillEngine:
    """A still engine on a database. SQLite is migrated; PostgreSQL must be at the present schema."""
    connection = connect(url)
    try:
        migrate.prepare(connection, lifecycles.values(), STANDARD.tables)
    except BaseException:
        connection.close()
        raise
    return StillEngine(connection, lifecycles, clock)
