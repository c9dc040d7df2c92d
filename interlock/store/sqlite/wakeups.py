"""Wake-ups between processes on SQLite: watch the file for new work."""

import time
from collections.abc import Callable, Iterable, Mapping
from threading import Lock
from typing import Any

from interlock.store.connection import CALL, Connection, Queue
from interlock.store.sqlite.driver import open_raw, translate_errors

# Seconds between two looks at the file: so much of the time since work came last, but neither less nor more than this.
POLL_SHARE, POLL_LEAST, POLL_MOST = 0.02, 0.001, 0.05


def pause(quiet: float) -> float:
    """How long nobody looks at a file in which no work has come for so many seconds."""
    return min(max(quiet * POLL_SHARE, POLL_LEAST), POLL_MOST)


class FileWatcher:
    """Looks at a file for work that another connection made available. Nobody needs to be told."""

    tells = False
    HEADS = (
        "SELECT lane.id, unit.id, unit.available_at FROM lane JOIN unit ON unit.id = "
        "(SELECT id FROM unit WHERE unit.lane = lane.id AND available_at IS NOT NULL "
        "ORDER BY priority DESC, available_at, id LIMIT 1) WHERE lane.tenant = :tenant AND lane.queue = :queue"
    )

    SUMMONS = "SELECT unit, summons FROM worker WHERE tenant = :tenant AND name = :name"

    def __init__(self, path: str) -> None:
        self.raw, self.lock = open_raw(path), Lock()
        self.version: int | None = None
        self.heard_at = 0.0  # when something came last
        self.heads: dict[Queue, set[tuple[int, ...]]] = {}

    def tell(self, queues: Iterable[Queue]) -> None:
        """The change of the file tells it."""

    def tell_within(self, connection: Connection, queues: Iterable[Queue]) -> None:
        """So does every commit."""

    def tell_with(self, connection: Connection, queues: Iterable[Queue]) -> None:
        """And that of a caller too."""

    def listen(self, queues: Iterable[Queue]) -> None:
        """What is available in these queues now is known: from here on only what is new counts."""
        with self.lock:
            self.heads |= {queue: self.first_in_line(queue) for queue in queues}

    def receive(self, watched: Callable[[], set[Queue]], timeout: float) -> set[Queue]:
        """The queues in which another unit is first in line than when we looked last."""
        end = time.monotonic() + timeout
        while (now := time.monotonic()) < end:
            with self.lock:
                if queues := self.changed(watched()):
                    self.heard_at = now
                    return queues
            time.sleep(pause(now - self.heard_at))
        return set()

    def changed(self, watched: set[Queue]) -> set[Queue]:
        version = self.rows("PRAGMA data_version")[0][0]  # before the look, so that none is missed
        if version == self.version:
            return set()
        self.version, before = version, self.heads
        self.heads = {queue: self.first_in_line(queue) for queue in watched}
        return {queue for queue, heads in self.heads.items() if heads - before.get(queue, heads)}

    def first_in_line(self, queue: Queue) -> set[tuple[int, ...]]:
        """The most urgent unit of each lane, and since when. Who waits although there is one cannot serve that lane."""
        tenant, name = queue
        if name.startswith(CALL):  # of a worker, how often it was summoned
            return set(self.rows(self.SUMMONS, {"tenant": tenant, "name": name.removeprefix(CALL)}))
        return set(self.rows(self.HEADS, {"tenant": tenant, "queue": name}))

    def rows(self, sql: str, params: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        with translate_errors():
            return self.raw.execute(sql, params or {}).fetchall()

    def close(self) -> None:
        self.raw.close()
