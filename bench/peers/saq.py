"""SAQ on Redis."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from saq import Queue, Worker

from bench.mark import ran

PACKAGE = "saq"
CONFIGURATION = "concurrency 50"
MEASURES = ["bulk", "single", "drain", "late", "memory"]
LEFT = "return redis.call('zcard', 'saq:default:incomplete')"


async def noop(ctx: Any, *, sent: float) -> None:
    ran(sent)


def prepare(url: str) -> None:
    return None


class Client:
    def __init__(self, queue: Queue) -> None:
        self.queue = queue

    async def bulk(self, count: int) -> None:
        async def caller(share: int) -> None:
            for _ in range(share):
                await self.queue.enqueue("noop", sent=0.0)

        await asyncio.gather(*(caller(len(range(first, count, 32))) for first in range(32)))

    async def submit_one(self, sent: float) -> None:
        await self.queue.enqueue("noop", sent=sent)


@asynccontextmanager
async def client(url: str) -> AsyncIterator[Client]:
    queue = Queue.from_url(url)
    await queue.connect()
    try:
        yield Client(queue)
    finally:
        await queue.disconnect()


async def run(url: str) -> None:
    queue = Queue.from_url(url)
    await queue.connect()
    await Worker(queue, functions=[("noop", noop)], concurrency=50).start()


def work(url: str) -> None:
    asyncio.run(run(url))
