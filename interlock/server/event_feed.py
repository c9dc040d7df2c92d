"""One reader for all streams of events: it asks once for every tenant what has moved, and hands new events around.

A stream reads the past of its unit by itself, and then subscribes behind the last event that it has told. The reader
asks for the version of every unit that somebody listens to, in one statement per tenant, and reads the events of
those that have moved. A thousand streams of quiet units cost one small question, four times a second. A listener that
does not keep up is told so, and reads by itself again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from interlock.kernel.errors import InterlockError
from interlock.kernel.rows import Event
from interlock.server.errors import RETRY_SOON, ApiError
from interlock.server.logs import write_log
from interlock.store.connection import Connection
from interlock.store.queries.views import events_of, find_moved_since

POLL_SECONDS = 0.25  # seconds between two looks
PAGE = 200  # events of one unit, read together
BACKLOG_MAX = 1_000  # events that a listener has not taken
Moved = list[tuple[int, list[Event], bool]]  # a unit, its new events, and whether it has ended


class Listener:
    """One stream: what has happened since it last looked."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.ended = self.behind = False
        self.changed = asyncio.Event()

    def push(self, events: Sequence[Event], ended: bool) -> None:
        if len(self.events) + len(events) > BACKLOG_MAX:
            self.events, self.behind = [], True
        elif not self.behind:
            self.events.extend(events)
        self.ended = ended
        self.changed.set()

    async def wait(self, seconds: float) -> list[Event]:
        """New events, as soon as there are some; none after so many seconds, or when it is over or behind."""
        try:
            async with asyncio.timeout(seconds):
                await self.changed.wait()
        except TimeoutError:
            return []
        self.changed.clear()
        events, self.events = self.events, []
        return events


class Topic:
    """A unit that somebody listens to, up to which version it was read, and who listens."""

    def __init__(self, version: int) -> None:
        self.version, self.listeners = version, set[Listener]()


class EventFeed:
    """Everybody who listens at this server."""

    def __init__(self, read: Callable[[Callable[[Connection], Any], int], Awaitable[Any]], limit: int) -> None:
        self.read, self.limit = read, limit
        self.topics: dict[int, dict[int, Topic]] = {}  # by tenant and unit
        self.open: dict[str, int] = {}  # streams by key
        self.reader: asyncio.Task[None] | None = None
        self.closed = False  # nothing can be read any more

    def open_stream(self, key: str) -> Callable[[], None]:
        """One stream more of a key; what is returned ends it, and may be called twice. Raises ApiError over the cap."""
        if self.open.get(key, 0) >= self.limit:
            text = f"this key has {self.limit} streams open, and may have no more; close one"
            raise ApiError(429, text, code="TOO_MANY_STREAMS", headers=RETRY_SOON)
        self.open[key] = self.open.get(key, 0) + 1
        left = False

        def leave() -> None:
            nonlocal left
            if not left:
                left = True
                self.open[key] -= 1
                if not self.open[key]:
                    del self.open[key]

        return leave

    @contextmanager
    def listen(self, tenant: int, unit: int, version: int) -> Iterator[Listener]:
        """While this lasts, the listener is told what happens to a unit behind that version."""
        topics = self.topics.setdefault(tenant, {})
        topic = topics.setdefault(unit, Topic(version))
        topic.version = min(topic.version, version)
        listener = Listener()
        topic.listeners.add(listener)
        if self.reader is None or self.reader.done():
            self.reader = asyncio.create_task(self.run())
        try:
            yield listener
        finally:
            topic.listeners.discard(listener)
            if not topic.listeners and topics.get(unit) is topic:
                del topics[unit]
                if not topics and self.topics.get(tenant) is topics:
                    del self.topics[tenant]

    async def run(self) -> None:
        """Reads for everybody until nobody listens any more."""
        while self.topics and not self.closed:
            for tenant in list(self.topics):
                try:
                    await self.read_tenant(tenant)
                except InterlockError as error:
                    write_log(logging.WARNING, f"event streams: read failed, trying again: {error}", tenant=tenant)
                except Exception:
                    if not self.closed:
                        write_log(logging.ERROR, "event streams: read failed, streams end", True, tenant=tenant)
                    self.end_all()
                    return
            await asyncio.sleep(POLL_SECONDS)

    async def read_tenant(self, tenant: int) -> None:
        """What is new of one tenant is told to whoever listens to it."""
        wanted = {unit: topic.version for unit, topic in self.topics.get(tenant, {}).items()}
        if not wanted:
            return
        moved: Moved = await self.read(lambda connection: read_moved(connection, tenant, wanted), tenant)
        topics = self.topics.get(tenant, {})
        for unit, events, ended in moved:
            if topic := topics.get(unit):
                if events and topic.version == wanted[unit]:  # else somebody came who has seen less
                    topic.version = events[-1].version
                for listener in list(topic.listeners):
                    listener.push(events, ended)

    def end_all(self) -> None:
        for topics in self.topics.values():
            for topic in topics.values():
                for listener in topic.listeners:
                    listener.push([], True)


def read_moved(connection: Connection, tenant: int, wanted: dict[int, int]) -> Moved:
    """The units that have moved behind the version that is known of them, or have ended, with their next events."""
    moved_units: Moved = []
    for unit, version, settled in find_moved_since(connection, tenant, wanted):
        events = events_of(connection, tenant, unit, wanted[unit], PAGE) if version > wanted[unit] else []
        moved_units.append((unit, events, settled and (not events or events[-1].version >= version)))
    return moved_units
