"""How processes on one PostgreSQL tell each other that a queue has got work."""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import psycopg

from interlock.store.driver import opened, told
from interlock.store.session import Queue

CHANNEL = "interlock_work"
PAYLOAD_MOST = 7_900  # bytes; PostgreSQL takes 8,000
ALL = ""  # a payload that names no queue means every one


class Notify:
    """NOTIFY and LISTEN, each on a connection of its own that is made when it is first needed."""

    tells = True

    def __init__(self, url: str) -> None:
        self.url = url
        self.mouth: psycopg.Connection[tuple[Any, ...]] | None = None
        self.ears: psycopg.Connection[tuple[Any, ...]] | None = None

    def tell(self, queues: Iterable[Queue]) -> None:
        """Whoever listens hears that these queues have got work."""
        if self.mouth is None or self.mouth.closed:
            self.mouth = opened(self.url)
            with told():
                self.mouth.execute("SET synchronous_commit = off")  # nobody waits for a ring to be durable
        payload = msgspec.json.encode(sorted(queues))
        text = payload.decode() if len(payload) <= PAYLOAD_MOST else ALL
        with told():
            self.mouth.execute("SELECT pg_notify(%s, %s)", (CHANNEL, text))

    def listen(self, queues: Iterable[Queue]) -> None:
        """From here on nothing is missed."""
        if self.ears is None or self.ears.closed:
            ears = opened(self.url)
            with told():
                ears.execute(f"LISTEN {CHANNEL}")
            self.ears = ears

    def heard(self, watched: Callable[[], set[Queue]], timeout: float) -> set[Queue]:
        """The queues that others told of. Raises Unavailable when the connection is lost, and perhaps some with it."""
        assert self.ears, "nobody hears before they listen"
        with told():
            texts = [notice.payload for notice in self.ears.notifies(timeout=timeout, stop_after=1)]
        if ALL in texts:
            return watched()
        return {queue for text in texts for queue in msgspec.json.decode(text, type=list[Queue])}

    def close(self) -> None:
        for one in (self.mouth, self.ears):
            if one is not None:
                one.close()
