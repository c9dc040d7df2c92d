"""The feed of events over HTTP: in pages, or as a stream."""

import weakref
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any

from msgspec import Meta

from interlock.client.event_views import FeedResponse, make_feed_page
from interlock.client.feed import list_triggers, make_feed_filter
from interlock.client.selections import list_states
from interlock.server.auth import read_loop_time
from interlock.server.event_feed import TailEvent
from interlock.server.operations import Operation, Request, parse_unit_id
from interlock.server.request_schemas import Id, Name, Strict
from interlock.server.sse import CHECK_SECONDS, PING, PING_SECONDS, EventStream, wants_stream
from interlock.store.queries.feed import CURSOR_PATTERN, FeedFilter, FeedPage, read_feed_page

PAGE_MAX = 1_000
STREAM_PAGE = 500  # events of the past that a stream reads together
CURSOR_MAX = 60  # characters


class FeedQuery(Strict, frozen=True, kw_only=True):
    """Events behind the cursor `after`, from the first one on, or with `now` only those to come; those that fit all
    fields: `state` is one that a transition led to, `job` this id alone, `run` this id and all below it.
    """

    after: Annotated[str, Meta(max_length=CURSOR_MAX)] | None = None
    limit: Annotated[int, Meta(ge=1, le=PAGE_MAX)] = 50
    lifecycle: tuple[Name, ...] = ()
    state: tuple[Name, ...] = ()
    trigger: tuple[Name, ...] = ()
    task: Name | None = None
    queue: Name | None = None
    actor: Name | None = None
    correlation: Name | None = None
    job: Id | None = None
    run: Id | None = None


async def list_events(request: Request) -> Any:
    """Returns a page, or with `Accept: text/event-stream` all that happens.

    Raises:
        InterlockError: a bad cursor.
    """
    query: FeedQuery = request.query
    wanted = make_filter(request)
    if not wants_stream(request):
        return make_feed_page(await request.read(read_feed_page, wanted, query.limit, query.after))
    after = request.headers.get("last-event-id", "") or query.after
    first = await request.read(read_feed_page, wanted, STREAM_PAGE, after)  # a wrong cursor is refused before it begins
    leave = request.server.streams.open_stream(request.caller.key)
    pieces = stream_feed(request, wanted, first, leave)
    weakref.finalize(pieces, leave)  # a generator that was never asked for a piece runs no `finally`
    return EventStream(pieces)


def make_filter(request: Request) -> FeedFilter:
    """Returns the events that are meant.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    query: FeedQuery = request.query
    lifecycles = request.app.lifecycles
    return make_feed_filter(
        list_states(lifecycles), list_triggers(lifecycles.values()), lifecycle=query.lifecycle, state=query.state,
        trigger=query.trigger, task=query.task, queue=query.queue, actor=query.actor, correlation=query.correlation,
        job=None if query.job is None else parse_unit_id(query.job),
        run=None if query.run is None else parse_unit_id(query.run),
    )  # fmt: skip


async def stream_feed(
    request: Request, wanted: FeedFilter, page: FeedPage, leave: Callable[[], None]
) -> AsyncIterator[bytes]:
    """Sends the events of this page and all behind it, until the key is void or the server ends.

    A block with an id alone moves the reader's cursor past what its filter leaves out.
    """
    streams, tenant = request.server.streams, request.caller.tenant
    try:
        while not request.server.closing:
            yield b"".join(TailEvent(item).encode() for item in page.events) + encode_cursor(page.next)
            after, cursor, sent_at = page.position, page.next, read_loop_time()
            if page.more:
                page = await request.read(read_feed_page, wanted, STREAM_PAGE, cursor)
                continue
            with streams.follow(tenant, after) as listener:
                while not (request.server.closing or listener.behind):
                    fitting = list[bytes]()
                    for event in await listener.wait(CHECK_SECONDS):
                        if event.item.position > after:  # the tail may be read again for somebody who came later
                            after, cursor = event.item.position, event.item.cursor
                            if wanted.fits(event.item):
                                fitting.append(event.encode())
                    if fitting:
                        sent_at = read_loop_time()
                        yield b"".join(fitting) + encode_cursor(cursor)
                    elif read_loop_time() - sent_at > PING_SECONDS:
                        sent_at = read_loop_time()
                        yield PING + encode_cursor(cursor)
                    if listener.ended or not await request.is_still_allowed():
                        return
            page = await request.read(read_feed_page, wanted, STREAM_PAGE, cursor)
    finally:
        leave()


def encode_cursor(cursor: str) -> bytes:
    """Encodes a cursor as a block of a stream that has no event."""
    return f"id: {cursor}\n\n".encode()


ROUTES = (
    Operation(
        method="GET", path="/v1/events", scope="read", summary="List events in the order of commits",
        call=list_events, query=FeedQuery, response=FeedResponse, streams=True, event_id=CURSOR_PATTERN,
    ),
)  # fmt: skip
