"""Celery on Redis."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from celery import Celery

from bench.mark import ran

PACKAGE = "celery"
CONFIGURATION = "solo pool, acks_late, prefetch 500, no results, no events"
MEASURES = ["bulk", "single", "drain", "late", "memory"]
LEFT = "return redis.call('llen', 'celery') + redis.call('hlen', 'unacked')"
app = Celery("bench", broker=os.environ.get("BENCH_URL") or "memory://")
app.conf.update(
    task_ignore_result=True, task_acks_late=True, worker_prefetch_multiplier=500, worker_send_task_events=False,
    broker_connection_retry_on_startup=True,
)  # fmt: skip


@app.task(name="noop")
def noop(sent: float) -> None:
    ran(sent)


def prepare(url: str) -> None:
    return None


class Client:
    async def bulk(self, count: int) -> None:
        for _ in range(count):
            noop.delay(0.0)

    async def submit_one(self, sent: float) -> None:
        noop.delay(sent)


@asynccontextmanager
async def client(url: str) -> AsyncIterator[Client]:
    yield Client()


def work(url: str) -> None:
    name = f"bench{os.getpid()}@localhost"
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "ERROR"]
    app.worker_main(["worker", "-P", "solo", "-n", name, *quiet])
