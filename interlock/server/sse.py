"""Server-sent events, resumed where the last connection ended."""

import weakref
from collections.abc import AsyncIterator, Callable

import msgspec

from interlock.client import json_views
from interlock.kernel.rows import Event
from interlock.server.auth import read_loop_time
from interlock.server.errors import ApiError
from interlock.server.event_feed import PAGE
from interlock.server.operations import Request
from interlock.store.connection import Connection
from interlock.store.queries.views import events_of, read_summary

PING_SECONDS = 15.0  # seconds after which a sign of life is sent
CHECK_SECONDS = 0.5  # seconds after which a stream asks whether its key is still good
PING = b": alive\n\n"


class EventStream(msgspec.Struct, frozen=True):
    """An answer that is told piece by piece."""

    pieces: AsyncIterator[bytes]


def wants_stream(request: Request) -> bool:
    """Whether the caller asks for events as they happen."""
    return any(part.strip().startswith("text/event-stream") for part in request.headers.get("accept", "").split(","))


def parse_last_event_id(request: Request, after: int) -> int:
    """The version that the caller has seen last.

    Raises:
        ApiError: it is not allowed; the text says what is.
    """
    text = request.headers.get("last-event-id", "")
    if not text:
        return after
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise ApiError(400, "Last-Event-ID is not allowed; allowed is the id of an event of this stream, a number")
    return int(text)


def read_next(connection: Connection, tenant: int, unit: int, after: int) -> tuple[list[Event], bool]:
    """The next events of a unit, and whether it has settled, from one picture."""
    settled = read_summary(connection, tenant, unit).outcome is not None
    return events_of(connection, tenant, unit, after, PAGE), settled


def open_stream(request: Request, unit: int, after: int) -> EventStream:
    """A stream of the caller's key.

    Raises:
        ApiError: the key has as many open as it may.
    """
    leave = request.server.streams.open_stream(request.caller.key)
    pieces = stream_events(request, unit, after, leave)
    weakref.finalize(pieces, leave)  # a generator that was never asked for a piece runs no `finally`
    return EventStream(pieces)


async def stream_events(request: Request, unit: int, after: int, leave: Callable[[], None]) -> AsyncIterator[bytes]:
    """Every event behind `after`, until the unit has settled, the key is void or the server ends."""
    sent_at, streams = read_loop_time(), request.server.streams
    try:
        while not request.server.closing:
            events, settled = await request.read(read_next, unit, after)
            for event in events:
                after = event.version
                yield encode_event(event)
            if events:
                yield PING
                continue
            if settled:
                return
            with streams.listen(request.caller.tenant, unit, after) as listener:
                while not (request.server.closing or listener.behind):
                    for event in await listener.wait(CHECK_SECONDS):
                        if event.version > after:
                            after, sent_at = event.version, read_loop_time()
                            yield encode_event(event)
                    if listener.behind:
                        break
                    if listener.ended and not listener.changed.is_set():
                        return
                    if read_loop_time() - sent_at > PING_SECONDS:
                        sent_at = read_loop_time()
                        yield PING
                    if not await request.is_still_allowed():
                        return
    finally:
        leave()


def encode_event(event: Event) -> bytes:
    """Encodes an event of a job as a block of a stream."""
    data = msgspec.json.encode(json_views.make_event(event)).decode()
    return f"id: {event.version}\nevent: {' '.join(event.name.split())}\ndata: {data}\n\n".encode()
