"""Read the event stream of a server; it resumes where the last connection was cut."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from threading import Lock
from typing import Any

import httpx
import msgspec

from interlock.client.event_views import FeedEventResponse
from interlock.client.http_transport import SERVER_ERROR, HttpTransport, decode_response_error
from interlock.kernel.errors import InterlockError, Unavailable

log = logging.getLogger("interlock.client")
PATH = "/v1/events"
ACCEPT = {"Accept": "text/event-stream"}
RETRY_AFTER = 1.0  # seconds until it connects again
CLOSE_SECONDS = 5.0  # that a connection gets to close
CUT = "the client was closed while it followed events"
Batch = tuple[list[FeedEventResponse], str]  # events that came together, and the cursor behind them


class RemoteFeed:
    """Batches of events from a server, for `for` and for `async for`; the HTTP is done by the client's own loop."""

    def __init__(
        self, transport: HttpTransport, loop: asyncio.AbstractEventLoop, query: Sequence[tuple[str, str]],
        cursor: str | None, open_feeds: set["RemoteFeed"],
    ) -> None:  # fmt: skip
        self.transport, self.loop, self.query, self.cursor = transport, loop, list(query), cursor
        self.batches = self.read_batches()
        self.waiting: Future[Batch] | None = None
        self.turn = Lock()  # whoever closes the client does so before the next batch is asked for, or after
        self.open_feeds = open_feeds
        open_feeds.add(self)

    async def read_batches(self) -> AsyncGenerator[Batch, None]:
        """Yields what the server sends, and connects again whenever the connection is cut."""
        failure = ""  # of the last connection: the same one is logged once
        while True:
            try:
                async for batch in self.read_connection():
                    failure = ""
                    yield batch
            except (httpx.TransportError, Unavailable) as error:
                if str(error) != failure:
                    log.warning("event stream was cut, connecting again: %s", error, extra={"facts": {"path": PATH}})
                failure = str(error)
            await asyncio.sleep(RETRY_AFTER)

    async def read_connection(self) -> AsyncIterator[Batch]:
        """Yields batches until the server ends the stream. Raises what it answers instead of one."""
        headers = ACCEPT if self.cursor is None else {**ACCEPT, "Last-Event-ID": self.cursor}
        async with self.transport.http.stream("GET", PATH, params=tuple(self.query), headers=headers) as response:
            if response.status_code != httpx.codes.OK:
                await response.aread()
                error = decode_response_error(response)
                raise Unavailable(str(error)) if response.status_code >= SERVER_ERROR else error
            rest = ""
            async for text in response.aiter_text():
                *blocks, rest = (rest + text).split("\n\n")
                events = [event for block in blocks if (event := self.parse_block(block))]
                if self.cursor is not None:
                    yield events, self.cursor

    def parse_block(self, block: str) -> FeedEventResponse | None:
        """Returns the event of a block, if it has one; the cursor is behind it, also if it has none."""
        event = None
        for line in block.split("\n"):
            name, _, value = line.partition(": ")
            if name == "id":
                self.cursor = value
            elif name == "data":
                event = msgspec.json.decode(value, type=FeedEventResponse)
        return event

    def start_next(self) -> "Future[Batch]":
        async def take_next() -> Batch:
            return await anext(self.batches)

        with self.turn:
            if self not in self.open_feeds:
                raise Unavailable(CUT)
            self.waiting = asyncio.run_coroutine_threadsafe(take_next(), self.loop)
            return self.waiting

    def __iter__(self) -> Iterator[Batch]:
        try:
            while True:
                yield self.start_next().result()
        except CancelledError:
            raise Unavailable(CUT) from None
        finally:
            self.close()

    async def __aiter__(self) -> AsyncIterator[Batch]:
        try:
            while True:
                yield await asyncio.wrap_future(self.start_next())
        except asyncio.CancelledError:
            if self in self.open_feeds:
                raise
            raise Unavailable(CUT) from None
        finally:
            self.cut()

    def cut(self) -> "Future[Any] | None":
        """Ends the connection soon, from any thread; returns a future if there is something to wait for."""
        with self.turn:
            if self not in self.open_feeds:
                return None
            self.open_feeds.discard(self)
            if self.loop.is_closed():
                return None
            if self.waiting is not None and not self.waiting.done():
                self.waiting.cancel()
                return None
            return asyncio.run_coroutine_threadsafe(self.batches.aclose(), self.loop)

    def close(self) -> None:
        """Ends the connection, from a thread that may wait."""
        if future := self.cut():
            with suppress(TimeoutError, InterlockError, httpx.HTTPError):
                future.result(CLOSE_SECONDS)
