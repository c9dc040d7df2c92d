"""Dramatiq on Redis."""

import os
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from bench.mark import ran

PACKAGE = "dramatiq"
CONFIGURATION = "8 threads, no results"
MEASURES = ["bulk", "single", "drain", "late", "memory"]
LEFT = "return redis.call('hlen', 'dramatiq:default.msgs')"
broker = RedisBroker(url=os.environ.get("BENCH_URL") or "redis://127.0.0.1:1/0")
dramatiq.set_broker(broker)


@dramatiq.actor(actor_name="noop")
def noop(sent: float) -> None:
    ran(sent)


def prepare(url: str) -> None:
    return None


class Client:
    async def bulk(self, count: int) -> None:
        for _ in range(count):
            noop.send(0.0)

    async def submit_one(self, sent: float) -> None:
        noop.send(sent)


@asynccontextmanager
async def client(url: str) -> AsyncIterator[Client]:
    yield Client()


def work(url: str) -> None:
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    worker = dramatiq.Worker(broker, worker_threads=8)
    worker.start()
    stopped.wait()
    worker.stop()
