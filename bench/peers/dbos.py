"""DBOS on PostgreSQL or SQLite."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from dbos import DBOS, DBOSClient

from bench.mark import ran

PACKAGE = "dbos"
CONFIGURATION = "worker concurrency 500, polled every 20 ms, bulk by 32 callers"
MEASURES = ["bulk", "single", "drain", "late", "memory", "steps"]
STATUS = "workflow_status WHERE status IN ('ENQUEUED', 'PENDING', 'DELAYED')"
LEFT = f"SELECT count(*) FROM {'' if os.environ.get('BENCH_STORE') == 'sqlite' else 'dbos.'}{STATUS}"


@DBOS.workflow()
async def noop(sent: float) -> None:
    ran(sent)


@DBOS.step()
async def nothing() -> None:
    return None


@DBOS.workflow()
async def ten_steps(sent: float) -> None:
    ran(sent)
    for _ in range(10):
        await nothing()


def launch(url: str) -> None:
    config: Any = {
        "name": "bench", "system_database_url": url, "log_level": "ERROR", "application_version": "1",
        "executor_id": f"bench{os.getpid()}",
    }  # fmt: skip
    DBOS(config=config)
    DBOS.launch()
    DBOS.register_queue("bench", worker_concurrency=500, polling_interval_sec=0.02)


def prepare(url: str) -> None:
    launch(url)
    DBOS.destroy()


class Client:
    def __init__(self, inner: DBOSClient) -> None:
        self.inner = inner

    async def put(self, workflow: str, sent: float) -> None:
        await self.inner.enqueue_async({"workflow_name": workflow, "queue_name": "bench", "app_version": "1"}, sent)

    async def several(self, workflow: str, count: int) -> None:
        async def caller(share: int) -> None:
            for _ in range(share):
                await self.put(workflow, 0.0)

        await asyncio.gather(*(caller(len(range(first, count, 32))) for first in range(32)))

    async def bulk(self, count: int) -> None:
        await self.several("noop", count)

    async def bulk_steps(self, count: int) -> None:
        await self.several("ten_steps", count)

    async def submit_one(self, sent: float) -> None:
        await self.put("noop", sent)


@asynccontextmanager
async def client(url: str) -> AsyncIterator[Client]:
    inner = DBOSClient(system_database_url=url)
    try:
        yield Client(inner)
    finally:
        inner.destroy()


def work(url: str) -> None:
    launch(url)
    threading.Event().wait()
