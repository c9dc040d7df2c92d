"""Huey on SQLite."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from huey import SqliteHuey

from bench.mark import ran

PACKAGE = "huey"
CONFIGURATION = "WAL, fsync on, one thread, polled every 5 ms, no results; a job is gone when it begins"
MEASURES = ["bulk", "single", "drain", "late", "memory"]
LEFT = "SELECT count(*) FROM task"
URL = os.environ.get("BENCH_URL", "")
huey = SqliteHuey("bench", filename=URL.removeprefix("sqlite:///") or ":memory:", fsync=True, results=False)


@huey.task()
def noop(sent: float) -> None:
    ran(sent)


def prepare(url: str) -> None:
    huey.storage.queue_size()  # makes its tables


class Client:
    async def bulk(self, count: int) -> None:
        for _ in range(count):
            noop(0.0)

    async def submit_one(self, sent: float) -> None:
        noop(sent)


@asynccontextmanager
async def client(url: str) -> AsyncIterator[Client]:
    yield Client()


def work(url: str) -> None:
    huey.create_consumer(workers=1, worker_type="thread", initial_delay=0.005, max_delay=0.005, periodic=False).run()
