"""A small transaction pooler: it speaks just enough of PostgreSQL's protocol to be as unkind as a pooler may be.

Clients share a few server connections. A client has one for as long as a transaction lasts; when the server says that it
is ready and idle, the client gives it back, and its next transaction goes to another one, always. Nothing is reset
between two clients: prepared statements, settings and LISTEN stay on the server connection, whoever comes next.
Authentication is `trust`, and all clients of one user and database share one pool.
"""

import asyncio
import struct
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread
from urllib.parse import urlsplit

SSL_REQUEST, GSS_REQUEST, CANCEL_REQUEST = 80_877_103, 80_877_104, 80_877_102
READY, QUERY, SYNC, END, KEY, ERROR = b"Z", b"Q", b"S", b"X", b"K", b"E"
AUTHENTICATION, AUTHENTICATED, IDLE = b"R", struct.pack("!i", 0), b"I"
MADE_UP_KEY = struct.pack("!ii", 4_242, 4_242)


class Server:
    """A connection to the server, and what it said when it was made."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.greeting: list[tuple[bytes, bytes]] = []

    @classmethod
    async def connect(cls, host: str, port: int, startup: bytes) -> "Server":
        server = cls(*await asyncio.open_connection(host, port))
        server.writer.write(startup)
        return server

    async def greet(self) -> None:
        while True:
            kind, body = await read_message(self.reader)
            self.greeting.append((kind, body))
            if kind == READY:
                return
            assert (kind, body[:4]) == (AUTHENTICATION, AUTHENTICATED) or kind != AUTHENTICATION, "only trust"
            assert kind != ERROR, body


class Pool:
    """The server connections of one user and database."""

    def __init__(self, startup: bytes, servers: list[Server]) -> None:
        self.startup, self.free, self.changed = startup, servers, asyncio.Condition()

    async def take(self, but: Server | None) -> Server:
        """The connection that has been free for longest, and never the one that this client had last."""
        async with self.changed:
            await self.changed.wait_for(lambda: any(server is not but for server in self.free))
            server = next(server for server in self.free if server is not but)
            self.free.remove(server)
            return server

    async def give_back(self, server: Server) -> None:
        async with self.changed:
            self.free.append(server)
            self.changed.notify_all()


class Pooler:
    """Listens on a port of its own. `swaps` counts how often a client's server connection was changed."""

    def __init__(self, url: str, size: int, *, own_key: bool) -> None:
        parts = urlsplit(url)
        self.host, self.port, self.size = str(parts.hostname), int(parts.port or 5432), size
        self.own_key = own_key  # else a client is told the number of the first server connection that it has
        self.pools: dict[bytes, Pool] = {}
        self.making: dict[bytes, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.servers: list[Server] = []
        self.tasks: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self.swaps, self.closing = 0, False

    async def pool(self, startup: bytes) -> Pool:
        async with self.making[startup]:
            if startup not in self.pools:
                self.pools[startup] = Pool(startup, [await self.connect(startup) for _ in range(self.size)])
        return self.pools[startup]

    async def connect(self, startup: bytes) -> Server:
        server = await Server.connect(self.host, self.port, startup)
        self.servers.append(server)
        await server.greet()
        return server

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A client, from its first word to its last."""
        task = asyncio.current_task()
        assert task
        self.tasks[task] = writer
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            startup = await read_startup(reader, writer)
            if startup:
                await Client(self, await self.pool(startup), reader, writer).serve()
        writer.close()
        with suppress(ConnectionError, asyncio.CancelledError):
            await writer.wait_closed()
        del self.tasks[task]

    async def close(self) -> None:
        self.closing = True
        tasks = dict(self.tasks)
        for writer in tasks.values():
            writer.close()  # whoever reads from it hears its end
        if tasks:
            _, waiting = await asyncio.wait(tasks, timeout=5)
            for task in waiting:
                task.cancel()
        for server in self.servers:
            server.writer.close()
            with suppress(ConnectionError):
                await server.writer.wait_closed()


class Client:
    """A client of the pooler, with the server connection of its present transaction."""

    def __init__(self, pooler: Pooler, pool: Pool, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.pooler, self.pool, self.reader, self.writer = pooler, pool, reader, writer
        self.server: Server | None = None
        self.last: Server | None = None
        self.relay: asyncio.Task[None] | None = None
        self.awaited = 0  # times that the server will say that it is ready
        self.unsynced = False  # something was sent since, to which it will not say so yet

    async def serve(self) -> None:
        await self.greet()
        try:
            while True:
                kind, body = await read_message(self.reader)
                if kind == END:
                    return
                if self.server is None:
                    self.server = await self.pool.take(self.last)
                    self.pooler.swaps += self.last is not None
                    self.last = self.server
                    self.relay = asyncio.create_task(self.answer(self.server))
                self.unsynced = kind not in (SYNC, QUERY)
                self.awaited += kind in (SYNC, QUERY)
                self.server.writer.write(packed(kind, body))
        finally:
            if self.relay:
                self.relay.cancel()
            if (
                self.server and not self.pooler.closing
            ):  # in the middle of a transaction, which ends with its connection
                self.server.writer.close()
                self.pooler.servers.remove(self.server)
                with suppress(ConnectionError):
                    await self.server.writer.wait_closed()
                await self.pool.give_back(await self.pooler.connect(self.pool.startup))

    async def greet(self) -> None:
        first = await self.pool.take(None)
        for kind, body in first.greeting:
            self.writer.write(packed(kind, MADE_UP_KEY if kind == KEY and self.pooler.own_key else body))
        await self.pool.give_back(first)

    async def answer(self, server: Server) -> None:
        """What the server says goes to the client, until the transaction is over."""
        while True:
            try:
                kind, body = await read_message(server.reader)
            except (ConnectionError, asyncio.IncompleteReadError):
                self.writer.close()
                return
            self.awaited -= kind == READY
            over = kind == READY and body == IDLE and not self.awaited and not self.unsynced
            if over:
                self.server = None
                await self.pool.give_back(server)
            self.writer.write(packed(kind, body))
            if over:
                return


async def read_message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    kind = await reader.readexactly(1)
    (size,) = struct.unpack("!i", await reader.readexactly(4))
    return kind, await reader.readexactly(size - 4)


async def read_startup(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes | None:
    """The startup message of a client, with its length; None if it only wanted to cancel something."""
    while True:
        head = await reader.readexactly(8)
        size, code = struct.unpack("!ii", head)
        rest = await reader.readexactly(size - 8)
        if code == CANCEL_REQUEST:
            return None
        if code not in (SSL_REQUEST, GSS_REQUEST):
            return head + rest
        writer.write(b"N")


def packed(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


@contextmanager
def pooling(url: str, size: int = 3, *, own_key: bool = True) -> Iterator[tuple[str, Pooler]]:
    """The URL of the same database through a pooler, and the pooler."""
    loop = asyncio.new_event_loop()
    pooler = Pooler(url, size, own_key=own_key)
    listening = loop.run_until_complete(asyncio.start_server(pooler.serve, "127.0.0.1", 0))
    port = listening.sockets[0].getsockname()[1]
    thread = Thread(target=loop.run_forever, name="pooler", daemon=True)
    thread.start()
    parts = urlsplit(url)
    try:
        yield parts._replace(netloc=f"{parts.username}@127.0.0.1:{port}").geturl(), pooler
    finally:

        async def stop() -> None:
            listening.close()
            await pooler.close()
            await listening.wait_closed()

        asyncio.run_coroutine_threadsafe(stop(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
