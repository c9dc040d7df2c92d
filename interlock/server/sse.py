"""Events as they happen: server-sent events that go on where the last connection ended."""

import weakref
from collections.abc import AsyncIterator, Callable

import msgspec

from interlock.client import json_views
from interlock.kernel.rows import Event
from interlock.server.auth import moment
from interlock.server.errors import Refusal
from interlock.server.event_feed import PAGE
from interlock.server.operations import Request
from interlock.store.connection import Connection
from interlock.store.queries.views import events_of, glimpse

SILENCE = 15.0  # seconds after which a sign of life is sent
CHECKED = 0.5  # seconds after which a stream asks whether its key is still good
ALIVE = b": alive\n\n"


class Flow(msgspec.Struct, frozen=True):
    """An answer that is told piece by piece."""

    pieces: AsyncIterator[bytes]


def wanted(request: Request) -> bool:
    """Whether the caller asks for events as they happen."""
    return any(part.strip().startswith("text/event-stream") for part in request.headers.get("accept", "").split(","))


def last_seen(request: Request, after: int) -> int:
    """The version that the caller has seen last. Raises Refusal."""
    text = request.headers.get("last-event-id", "")
    if not text:
        return after
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise Refusal(400, "Last-Event-ID is not allowed; allowed is the id of an event of this stream, a number")
    return int(text)


def look(connection: Connection, tenant: int, unit: int, after: int) -> tuple[list[Event], bool]:
    """The next events of a unit, and whether it has settled, from one picture."""
    settled = glimpse(connection, tenant, unit).outcome is not None
    return events_of(connection, tenant, unit, after, PAGE), settled


def opened(request: Request, unit: int, after: int) -> Flow:
    """A stream of the caller's key. Raises Refusal if the key has as many open as it may."""
    leave = request.hall.streams.enter(request.caller.key)
    pieces = flow(request, unit, after, leave)
    weakref.finalize(pieces, leave)  # a generator that was never asked for a piece runs no `finally`
    return Flow(pieces)


async def flow(request: Request, unit: int, after: int, leave: Callable[[], None]) -> AsyncIterator[bytes]:
    """Every event behind `after`, until the unit has settled, the key is void or the server ends."""
    told, streams = moment(), request.hall.streams
    try:
        while not request.hall.closing:
            found, settled = await request.read(look, unit, after)
            for one in found:
                after = one.version
                yield piece(one)
            if found:
                yield ALIVE
                continue
            if settled:
                return
            with streams.listen(request.caller.tenant, unit, after) as listener:
                while not (request.hall.closing or listener.behind):
                    for one in await listener.wait(CHECKED):
                        if one.version > after:
                            after, told = one.version, moment()
                            yield piece(one)
                    if listener.behind:
                        break
                    if listener.ended and not listener.changed.is_set():
                        return
                    if moment() - told > SILENCE:
                        told = moment()
                        yield ALIVE
                    if not await request.still_allowed():
                        return
    finally:
        leave()


def piece(one: Event) -> bytes:
    data = msgspec.json.encode(json_views.event(one)).decode()
    return f"id: {one.version}\nevent: {' '.join(one.name.split())}\ndata: {data}\n\n".encode()
