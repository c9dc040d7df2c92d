"""Wake-ups between processes on PostgreSQL: LISTEN and NOTIFY."""

import time
from collections.abc import Callable, Iterable
from threading import Event
from typing import Any

import msgspec
import psycopg

from interlock.store.connection import Connection, Queue
from interlock.store.postgres.driver import is_pooled, open_raw, translate_errors, translate_sql

CHANNEL = "interlock_work"
PAYLOAD_MOST = 7_900  # bytes; PostgreSQL takes 8,000
ALL = ""  # a payload that names no queue means every one
TELL = "SELECT pg_notify(:channel, :text)"
# Nobody waits for a ring to be durable. The setting ends with the statement, as others may get the connection.
TELL_ALONE = f"{TELL}, set_config('synchronous_commit', 'off', true)"
QUIET = 0.02  # seconds in which nothing was told, so that the next commit may tell
SHARE = 10  # a pause is so many times as long as the commit that told before it


class Notify:
    """NOTIFY and LISTEN, each on a connection of its own that is made when it is first needed.

    Behind a pooler nobody listens: LISTEN would stay on a connection that others get. What is told is then found by a
    poll.
    """

    tells = True

    def __init__(self, url: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.url, self.clock = url, clock  # in seconds, from whenever
        self.sender: psycopg.Connection[tuple[Any, ...]] | None = None
        self.listener: psycopg.Connection[tuple[Any, ...]] | None = None
        self.pooled, self.ending = False, Event()  # the first is known once somebody wants to listen
        self.quiet_at = 0.0  # from when on a commit may tell

    def tell_within(self, connection: Connection, queues: Iterable[Queue]) -> Callable[[], None] | None:
        """In a quiet moment a transaction tells by its commit, which is sooner than after it. None: it does not.

        Commits that tell wait for each other, so the longer one took, the longer is the pause after it; what is
        answered is to be called when it has come.
        """
        began = self.clock()
        quiet, self.quiet_at = began >= self.quiet_at, max(self.quiet_at, began + QUIET)
        if not quiet:
            return None
        connection.many(TELL, [{"channel": CHANNEL, "text": payload_of(queues)}])

        def note_commit() -> None:
            now = self.clock()
            self.quiet_at = now + max(QUIET, SHARE * (now - began))

        return note_commit

    def tell_with(self, connection: Connection, queues: Iterable[Queue]) -> None:
        """The commit of the session's transaction will tell, whenever it comes. Nobody else could: it is not ours."""
        connection.many(TELL, [{"channel": CHANNEL, "text": payload_of(queues)}])

    def tell(self, queues: Iterable[Queue]) -> None:
        """Whoever listens hears that these queues have got work."""
        if self.sender is None or self.sender.closed:
            self.sender = open_raw(self.url)
        with translate_errors():
            self.sender.execute(translate_sql(TELL_ALONE), {"channel": CHANNEL, "text": payload_of(queues)})

    def listen(self, queues: Iterable[Queue]) -> None:
        """From here on nothing is missed."""
        if self.pooled or (self.listener is not None and not self.listener.closed):
            return
        listener = open_raw(self.url)
        try:
            self.pooled = is_pooled(listener)
            if not self.pooled:
                with translate_errors():
                    listener.execute(f"LISTEN {CHANNEL}")
                self.listener = listener
        finally:
            if self.listener is not listener:
                listener.close()

    def receive(self, watched: Callable[[], set[Queue]], timeout: float) -> set[Queue]:
        """The queues that others told of.

        Raises:
            Unavailable: the connection is lost, and perhaps some of them with it.
        """
        if self.pooled:
            self.ending.wait(timeout)
            return set()
        assert self.listener, "listen() comes first"
        with translate_errors():
            texts = [notice.payload for notice in self.listener.notifies(timeout=timeout, stop_after=1)]
        if ALL in texts:
            return watched()
        return {queue for text in texts for queue in msgspec.json.decode(text, type=list[Queue])}

    def close(self) -> None:
        self.ending.set()
        for connection in (self.sender, self.listener):
            if connection is not None:
                connection.close()


def payload_of(queues: Iterable[Queue]) -> str:
    """Returns the payload of a NOTIFY; it stands for all queues if they are too many."""
    payload = msgspec.json.encode(sorted(queues))
    return payload.decode() if len(payload) <= PAYLOAD_MOST else ALL
