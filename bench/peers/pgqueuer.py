"""PgQueuer on PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from bench.mark import ran

PACKAGE = "pgqueuer"
CONFIGURATION = "asyncpg, uvloop, batch 1,000, a pool of 32 for callers; a log row for each transition, as shipped"
MEASURES = ["bulk", "single", "drain", "late", "memory", "million"]
LEFT = "SELECT count(*) FROM pgqueuer"  # what has ended is only in its log
BATCH = 1_000


async def prepare(url: str) -> None:
    connection = await asyncpg.connect(url)
    await Queries(AsyncpgDriver(connection)).install()
    await connection.close()


class Client:
    def __init__(self, pool: asyncpg.Pool) -> None:
        self.queries = Queries(AsyncpgPoolDriver(pool))

    async def bulk(self, count: int) -> None:
        for start in range(0, count, BATCH):
            size = min(BATCH, count - start)
            await self.queries.enqueue(["noop"] * size, [b"0.0"] * size, [0] * size)

    async def submit_one(self, sent: float) -> None:
        await self.queries.enqueue("noop", str(sent).encode())


@asynccontextmanager
async def client(url: str) -> AsyncIterator[Client]:
    async with asyncpg.create_pool(url, min_size=32, max_size=32) as pool:
        yield Client(pool)


async def run(url: str) -> None:
    connection = await asyncpg.connect(url)
    queue = PgQueuer(AsyncpgDriver(connection))

    @queue.entrypoint("noop")
    async def noop(job: Job) -> None:
        ran(float(job.payload or 0))

    await queue.qm.run(dequeue_timeout=timedelta(seconds=1), batch_size=BATCH)


def work(url: str) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(url))
