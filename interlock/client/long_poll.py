"""How a client far from the database hears that there is work: it asks the server to say so, and waits."""

import asyncio
import logging
import secrets
from collections.abc import Iterable
from typing import Any

import httpx
import msgspec

from interlock.client.http_transport import JSON, Post, refused
from interlock.core.wakeups import Subscription
from interlock.kernel.errors import InterlockError
from interlock.store.connection import Queue

log = logging.getLogger("interlock.client")
PATH = "/v1/wait"
LONG = 20.0  # seconds that one question waits for its answer
MEND = 1.0  # seconds before a server that is away is asked again


class Rung(msgspec.Struct, frozen=True):
    """Whether something has happened since the last question."""

    rung: bool


class Ears:
    """The watches of one client. What is rung between two questions is kept by the server."""

    def __init__(self, post: Post, loop: asyncio.AbstractEventLoop) -> None:
        self.post, self.loop = post, loop
        self.listening: dict[Subscription, asyncio.Task[None]] = {}

    def open(self, queues: Iterable[Queue], said: dict[str, Any]) -> Subscription:
        """From any thread: from now on the server is asked."""
        watch = Subscription(queues, self.leave)
        self.loop.call_soon_threadsafe(self.begin, watch, said)
        return watch

    def begin(self, watch: Subscription, said: dict[str, Any]) -> None:
        self.listening[watch] = self.loop.create_task(self.listen(watch, said))

    def leave(self, watch: Subscription) -> None:
        """From any thread: nobody wants to know any more."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.end, watch)

    def end(self, watch: Subscription) -> None:
        if task := self.listening.pop(watch, None):
            task.cancel()

    async def close(self) -> None:
        tasks = list(self.listening.values())
        for watch in list(self.listening):
            self.end(watch)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def listen(self, watch: Subscription, said: dict[str, Any]) -> None:
        """Whatever happens is rung; what may have been missed while the server was away is rung too."""
        body, away = msgspec.json.encode({**said, "ear": secrets.token_hex(8), "seconds": LONG}), ""
        while True:
            try:
                rung = await self.asked(body)
            except (httpx.TransportError, InterlockError, msgspec.MsgspecError) as error:
                if str(error) != away:
                    log.warning("nobody says that there is work, so it is looked for: %s", error)
                away = str(error)
                await asyncio.sleep(MEND)
                continue
            if rung or away:
                watch.ring()
            away = ""

    async def asked(self, body: bytes) -> bool:
        answer = await self.post.http.post(PATH, content=body, headers=JSON)
        if answer.status_code != httpx.codes.OK:
            raise refused(answer)
        return msgspec.json.decode(answer.content, type=Rung).rung
