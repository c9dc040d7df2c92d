"""Procrastinate on PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import procrastinate

from bench.mark import ran

PACKAGE = "procrastinate"
CONFIGURATION = "psycopg, concurrency 50, a pool of 32 for callers, LISTEN/NOTIFY"
MEASURES = ["bulk", "single", "drain", "late", "memory"]
LEFT = "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"
BATCH = 1_000


def app_on(url: str) -> procrastinate.App:
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url, min_size=4, max_size=32))
    app.task(noop, name="noop")
    return app


async def noop(sent: float) -> None:
    ran(sent)


async def prepare(url: str) -> None:
    async with app_on(url).open_async() as app:
        await app.schema_manager.apply_schema_async()


class Client:
    def __init__(self, app: procrastinate.App) -> None:
        self.task = app.tasks["noop"]

    async def bulk(self, count: int) -> None:
        for start in range(0, count, BATCH):
            await self.task.batch_defer_async(*[{"sent": 0.0}] * min(BATCH, count - start))

    async def submit_one(self, sent: float) -> None:
        await self.task.defer_async(sent=sent)


@asynccontextmanager
async def client(url: str) -> AsyncIterator[Client]:
    app = app_on(url)
    async with app.open_async():
        yield Client(app)


async def run(url: str) -> None:
    app = app_on(url)
    async with app.open_async():
        await app.run_worker_async(concurrency=50, shutdown_graceful_timeout=5)


def work(url: str) -> None:
    asyncio.run(run(url))
