"""Read-only queries: a pool of connections with a time limit per query.

A question takes one connection for one read-only transaction, so that everything in its answer is from one moment.
While all connections are taken, the next question waits for one. A question that has a limit is stopped by the
database itself once the limit is over (PostgreSQL: `statement_timeout`; SQLite: a progress handler), so that it costs
nobody anything more. It is not tried again: it would take as long again.
"""

import time
from collections.abc import Callable, Sequence
from threading import Condition
from typing import TypeVar

from interlock.kernel.errors import StoreError, TooSlow, Unavailable
from interlock.store.connection import Connection, NotPrepared
from interlock.store.queries.snapshots import snapshot

T = TypeVar("T")
CLOSED = "this engine is closed; open another one"


class Readers:
    """Connections that only read. The one that was used last is taken first: idle ones stay idle."""

    def __init__(self, sessions: Sequence[Connection]) -> None:
        self.sessions = tuple(sessions)
        self.free = list(sessions)
        self.given_back = Condition()
        self.closed = False

    def read(self, question: Callable[[Connection], T], tenants: Sequence[int], seconds: float | None) -> T:
        """See `answer`. Waits for a connection while all are taken."""
        with self.given_back:
            while not self.free and not self.closed:
                self.given_back.wait()
            if self.closed:
                raise Unavailable(CLOSED)
            connection = self.free.pop()
        try:
            return answer(connection, question, tenants, seconds)
        finally:
            with self.given_back:
                if self.closed:
                    connection.close()
                else:
                    self.free.append(connection)
                    self.given_back.notify()

    def close(self) -> None:
        """Closes every connection; one that is answering a question is closed after its answer."""
        with self.given_back:
            self.closed = True
            for connection in self.free:
                connection.close()
            self.free.clear()
            self.given_back.notify_all()


def answer(
    connection: Connection,
    question: Callable[[Connection], T],
    tenants: Sequence[int] = (),
    seconds: float | None = None,
) -> T:
    """The answer to a question that changes nothing, from one snapshot of these tenants (none: of all).

    Parameters:
        seconds: how long the question may take; None: as long as it takes.

    Raises:
        TooSlow: the question took longer, and was stopped.
    """
    for last in (False, True):
        began = time.monotonic()
        try:
            with snapshot(connection, tenants, seconds):
                return question(connection)
        except NotPrepared:
            if last:
                raise
        except Unavailable:
            if last:
                raise
            connection.reconnect()
        except StoreError as error:
            if seconds is not None and time.monotonic() - began >= seconds:
                raise TooSlow(f"this took longer than {seconds:g} s and was stopped: ask for less") from error
            raise
    raise AssertionError
