"""Chancy on PostgreSQL."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from chancy import Chancy, Queue, Worker, job

from bench.mark import ran

PACKAGE = "chancy"
CONFIGURATION = "asyncio executor, concurrency 500, eager polling, a pool of 32 for callers, NOTIFY, errors logged"
MEASURES = ["bulk", "single", "drain", "late", "memory"]
LEFT = "SELECT count(*) FROM chancy_jobs WHERE state IN ('pending', 'running', 'retrying')"
QUEUE = Queue("default", concurrency=500, executor=Chancy.Executor.Async, polling_interval=1, eager_polling=True)


@job(queue="default")
async def noop(*, sent: float) -> None:
    ran(sent)


def chancy_on(url: str) -> Chancy:
    log = logging.getLogger("chancy")
    log.setLevel(logging.ERROR)
    return Chancy(url, min_connection_pool_size=4, max_connection_pool_size=32, log=log)


async def prepare(url: str) -> None:
    async with chancy_on(url) as chancy:
        await chancy.migrate()
        await chancy.declare(QUEUE)


class Client:
    def __init__(self, chancy: Chancy) -> None:
        self.chancy = chancy

    async def bulk(self, count: int) -> None:
        jobs = [noop.job.with_kwargs(sent=0.0)] * count
        async for _ in self.chancy.push_many(jobs, batch_size=1_000):
            pass

    async def submit_one(self, sent: float) -> None:
        await self.chancy.push(noop.job.with_kwargs(sent=sent))


@asynccontextmanager
async def client(url: str) -> AsyncIterator[Client]:
    async with chancy_on(url) as chancy:
        yield Client(chancy)


async def run(url: str) -> None:
    async with chancy_on(url) as chancy, Worker(chancy, shutdown_timeout=2, worker_id=f"bench {os.getpid()}") as worker:
        await worker.wait_for_shutdown()


def work(url: str) -> None:
    asyncio.run(run(url))
