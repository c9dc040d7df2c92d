"""Long polls: how a client without a database learns that there is work."""

import asyncio
import logging
import secrets
from collections.abc import Iterable
from typing import Any

import httpx
import msgspec

from interlock.client.http_transport import JSON, HttpTransport, decode_response_error
from interlock.core.wakeups import Subscription
from interlock.kernel.errors import InterlockError
from interlock.store.connection import Queue

log = logging.getLogger("interlock.client")
PATH = "/v1/wait"
POLL_SECONDS = 20.0  # that the server may let one long poll wait
RETRY_AFTER = 1.0  # seconds until the next long poll after one that failed


class LongPollResponse(msgspec.Struct, frozen=True):
    """Whether something has happened since the last long poll."""

    has_news: bool = msgspec.field(name="rung")


class LongPolls:
    """The subscriptions of one client. What happens between two long polls is kept by the server."""

    def __init__(self, transport: HttpTransport, loop: asyncio.AbstractEventLoop) -> None:
        self.transport, self.loop = transport, loop
        self.polling: dict[Subscription, asyncio.Task[None]] = {}

    def subscribe(self, queues: Iterable[Queue], topic: dict[str, Any]) -> Subscription:
        """Starts long polls for a topic, from any thread; the subscription is notified when the server says so."""
        subscription = Subscription(queues, self.unsubscribe)
        self.loop.call_soon_threadsafe(self.start, subscription, topic)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Ends the long polls of a subscription, from any thread."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.stop, subscription)

    def start(self, subscription: Subscription, topic: dict[str, Any]) -> None:
        self.polling[subscription] = self.loop.create_task(self.poll(subscription, topic))

    def stop(self, subscription: Subscription) -> None:
        if task := self.polling.pop(subscription, None):
            task.cancel()

    async def close(self) -> None:
        tasks = list(self.polling.values())
        for subscription in list(self.polling):
            self.stop(subscription)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def poll(self, subscription: Subscription, topic: dict[str, Any]) -> None:
        """Notifies the subscription for whatever happens, and after a failure also for what may have been missed."""
        body = msgspec.json.encode({**topic, "ear": secrets.token_hex(8), "seconds": POLL_SECONDS})
        failure = ""  # of the last long poll: the same one is logged once
        while True:
            try:
                has_news = await self.poll_once(body)
            except (httpx.TransportError, InterlockError, msgspec.MsgspecError) as error:
                if str(error) != failure:
                    log.warning("long poll failed, falling back to polling: %s", error, extra={"facts": topic})
                failure = str(error)
                await asyncio.sleep(RETRY_AFTER)
                continue
            if failure:
                log.info("long poll works again", extra={"facts": topic})
            if has_news or failure:
                subscription.notify()
            failure = ""

    async def poll_once(self, body: bytes) -> bool:
        response = await self.transport.http.post(PATH, content=body, headers=JSON)
        if response.status_code != httpx.codes.OK:
            raise decode_response_error(response)
        return msgspec.json.decode(response.content, type=LongPollResponse).has_news
