"""Time limits of connections: idle ones, and requests that do not arrive whole, are closed.

uvicorn ends a connection that was silent after an answer. It waits for ever for a first request, for headers that
come byte by byte, and for the rest of a body. Here one timer stands behind each connection, and always for the thing
that is waited for: a request, the rest of its headers, the rest of its body. While an answer is made there is none.
"""

import asyncio
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from interlock.client.http_codec import ErrorBody, ErrorResponse
from interlock.server.limits import Limits

LATE = ErrorResponse(ErrorBody("REQUEST_TIMEOUT", "the request did not come in time; send it whole", {}))


def make_protocol(limits: Limits) -> type[HttpToolsProtocol]:
    """The protocol of a server with these limits."""

    class TimedProtocol(HttpToolsProtocol):
        """HTTP/1.1 as uvicorn speaks it, and no longer than a client may take."""

        timer: asyncio.TimerHandle | None = None
        receiving = False  # a request has begun, and has not come whole

        def wait(self, seconds: float | None) -> None:
            """From now on a client has so long; None: it is not waited for."""
            if self.timer is not None:
                self.timer.cancel()
            self.timer = None if seconds is None else self.loop.call_later(seconds, self.give_up)

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.wait(limits.idle_seconds)

        def connection_lost(self, exc: Exception | None) -> None:
            self.wait(None)
            super().connection_lost(exc)

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self.receiving = True
            self.wait(limits.request_seconds)

        def on_headers_complete(self) -> None:
            super().on_headers_complete()
            self.wait(limits.request_seconds)

        def on_message_complete(self) -> None:
            super().on_message_complete()
            self.receiving = False
            answered = self.cycle is not None and self.cycle.response_complete  # before its body was read
            self.wait(limits.idle_seconds if answered else None)

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if not self.receiving and not self.pipeline and not self.transport.is_closing():
                self.wait(limits.idle_seconds)

        def give_up(self) -> None:
            """What was waited for has not come, and the connection ends."""
            if self.transport.is_closing():
                return
            if self.pipeline:  # it is we who do not read on, until what came before is answered
                self.wait(limits.request_seconds)
                return
            if self.receiving and not self.answering():
                self.transport.write(make_late_response())
            self.transport.close()

        def answering(self) -> bool:
            return self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete

    return TimedProtocol


def make_late_response() -> bytes:
    """Makes the response to a request that did not come whole in time."""
    content = msgspec.json.encode(LATE)
    head: list[tuple[str, Any]] = [
        ("content-type", "application/json"),
        ("content-length", len(content)),
        ("connection", "close"),
    ]
    lines = "".join(f"{name}: {value}\r\n" for name, value in head)
    return f"HTTP/1.1 408 Request Timeout\r\n{lines}\r\n".encode() + content
