"""One reader for all event streams: it reads new events once, and hands them to every stream.

A stream reads the past by itself, and then subscribes behind the last event that it has sent.

Streams of one unit: the reader asks for the version of every unit that somebody listens to, in one statement per
tenant, and reads the events of those that have moved. A thousand streams of quiet units cost one small question, four
times per second.

Streams of the whole feed share the tail of their tenant: what is new is read once, encoded once, and handed to all of
them; each takes what its filter means. A hundred followers read the database as often as one does.

A listener that does not keep up is told so, and reads by itself again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import msgspec

from interlock.client.event_views import make_feed_event
from interlock.core.listeners import Listener
from interlock.kernel.errors import InterlockError
from interlock.kernel.rows import Event
from interlock.server.errors import RETRY_SOON, ApiError
from interlock.server.logs import write_log
from interlock.store.connection import Connection
from interlock.store.queries.feed import FeedEvent, read_feed
from interlock.store.queries.snapshots import Position
from interlock.store.queries.views import events_of, find_moved_since

POLL_SECONDS = 0.25  # seconds between two looks
PAGE = 200  # events of one unit, read together
BACKLOG_MAX = 1_000  # events of one unit that a listener has not taken
TAIL_PAGE, TAIL_BACKLOG_MAX = 1_000, 20_000  # the same of a whole feed, whose events all listeners share
Moved = list[tuple[int, list[Event], bool]]  # a unit, its new events, and whether it has ended


class Topic:
    """A unit that somebody listens to, up to which version it was read, and who listens."""

    def __init__(self, version: int) -> None:
        self.version, self.listeners = version, set[Listener[Event]]()


class TailEvent:
    """An event at the tail of a feed; its text is made once, for all who send it."""

    __slots__ = ("item", "text")

    def __init__(self, item: FeedEvent) -> None:
        self.item, self.text = item, b""

    def encode(self) -> bytes:
        """Returns the event as a stream has it; its id is the cursor."""
        if not self.text:
            data = msgspec.json.encode(make_feed_event(self.item)).decode()
            name = " ".join(self.item.event.name.split())
            self.text = f"id: {self.item.cursor}\nevent: {name}\ndata: {data}\n\n".encode()
        return self.text


class Tail:
    """The end of a tenant's feed: up to where it was read, and who follows it."""

    def __init__(self, position: Position) -> None:
        self.position, self.listeners = position, set[Listener[TailEvent]]()


class EventFeed:
    """Everybody who listens at this server."""

    def __init__(self, read: Callable[[Callable[[Connection], Any], int], Awaitable[Any]], limit: int) -> None:
        self.read, self.limit = read, limit
        self.topics: dict[int, dict[int, Topic]] = {}  # by tenant and unit
        self.tails: dict[int, Tail] = {}  # by tenant
        self.open: dict[str, int] = {}  # streams by key
        self.reader: asyncio.Task[None] | None = None
        self.closed = False  # nothing can be read any more

    def open_stream(self, key: str) -> Callable[[], None]:
        """One stream more of a key; what is returned ends it, and may be called twice.

        Raises:
            ApiError: the key has as many open as it may.
        """
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
    def listen(self, tenant: int, unit: int, version: int) -> Iterator[Listener[Event]]:
        """While this lasts, the listener is told what happens to a unit behind that version."""
        topics = self.topics.setdefault(tenant, {})
        topic = topics.setdefault(unit, Topic(version))
        topic.version = min(topic.version, version)
        listener = Listener[Event](BACKLOG_MAX)
        topic.listeners.add(listener)
        self.start()
        try:
            yield listener
        finally:
            topic.listeners.discard(listener)
            if not topic.listeners and topics.get(unit) is topic:
                del topics[unit]
                if not topics and self.topics.get(tenant) is topics:
                    del self.topics[tenant]

    @contextmanager
    def follow(self, tenant: int, position: Position) -> Iterator[Listener[TailEvent]]:
        """While this lasts, the listener gets every event of a tenant behind that position, and maybe some before."""
        tail = self.tails.setdefault(tenant, Tail(position))
        tail.position = min(tail.position, position)
        listener = Listener[TailEvent](TAIL_BACKLOG_MAX)
        tail.listeners.add(listener)
        self.start()
        try:
            yield listener
        finally:
            tail.listeners.discard(listener)
            if not tail.listeners and self.tails.get(tenant) is tail:
                del self.tails[tenant]

    def start(self) -> None:
        if self.reader is None or self.reader.done():
            self.reader = asyncio.create_task(self.run())

    async def run(self) -> None:
        """Reads for everybody until nobody listens any more."""
        while (self.topics or self.tails) and not self.closed:
            for tenant in {*self.topics, *self.tails}:
                try:
                    await self.read_tenant(tenant)
                    await self.read_tail(tenant)
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

    async def read_tail(self, tenant: int) -> None:
        """Reads what is new in the feed of a tenant, once, and hands it to all who follow."""
        while tail := self.tails.get(tenant):
            position = tail.position
            items: list[FeedEvent] = await self.read(partial(read_new, tenant, position), tenant)
            if not items:
                return
            if tail.position == position:  # else somebody came who has read less
                tail.position = items[-1].position
            events = [TailEvent(item) for item in items]
            for listener in list(tail.listeners):
                listener.push(events, False)
            if len(items) < TAIL_PAGE:
                return

    def end_all(self) -> None:
        for tail in self.tails.values():
            for follower in tail.listeners:
                follower.push([], True)
        for topics in self.topics.values():
            for topic in topics.values():
                for listener in topic.listeners:
                    listener.push([], True)


def read_new(tenant: int, after: Position, connection: Connection) -> list[FeedEvent]:
    """The events of a tenant behind a position."""
    return read_feed(connection, tenant, after, TAIL_PAGE)


def read_moved(connection: Connection, tenant: int, wanted: dict[int, int]) -> Moved:
    """The units that have moved behind the version that is known of them, or have ended, with their next events."""
    moved_units: Moved = []
    for unit, version, settled in find_moved_since(connection, tenant, wanted):
        events = events_of(connection, tenant, unit, wanted[unit], PAGE) if version > wanted[unit] else []
        moved_units.append((unit, events, settled and (not events or events[-1].version >= version)))
    return moved_units
