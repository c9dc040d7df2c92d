"""Interlock, as its users run it: an app in a module, and `interlock worker module:app`."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import interlock
from bench.mark import ran
from interlock.lifecycles import shipped
from interlock.plugins import STANDARD
from interlock.store import migrate
from interlock.store.url import connect

PACKAGE = "interlock"
CONFIGURATION = (
    "bulk in two batches of 1,000 at a time; concurrency 500; guard, events, seals and row-level security on"
)
MEASURES = ["bulk", "single", "drain", "late", "memory", "steps", "million"]
LEFT = "SELECT count(*) FROM unit WHERE lifecycle = 'job' AND outcome IS NULL"
BATCH, ON_THEIR_WAY = 1_000, 2
ROLE = """
DO $$ BEGIN CREATE ROLE clerk LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$;
GRANT interlock_app TO clerk
"""

URL = os.environ.get("BENCH_URL") or "sqlite://:memory:"
# A superuser bypasses row-level security, so the app and its worker use another role.
app = interlock.open(URL.replace("postgres@", "clerk@"))


@app.task
async def noop(sent: float) -> None:
    ran(sent)


@app.task
async def ten_steps(sent: float, ctx: interlock.Context) -> None:
    ran(sent)
    for number in range(10):
        await ctx.step.aio(f"step {number}", nothing)


async def nothing() -> None:
    return None


def prepare(url: str) -> None:
    connection = connect(url)
    migrate.upgrade(connection, STANDARD.lifecycles(shipped()).values(), STANDARD.tables)
    if connection.many_writers:
        connection.script(ROLE)
    connection.close()


class Client:
    async def bulk(self, count: int) -> None:
        gate = asyncio.Semaphore(ON_THEIR_WAY)

        async def send(some: int) -> None:
            async with gate:
                await noop.submit_many.aio([{"sent": 0.0}] * some)

        await asyncio.gather(*(send(min(BATCH, count - start)) for start in range(0, count, BATCH)))

    async def bulk_steps(self, count: int) -> None:
        await ten_steps.submit_many.aio([{"sent": 0.0}] * count)

    async def submit_one(self, sent: float) -> None:
        await noop.submit.aio(sent)


@asynccontextmanager
async def client(url: str) -> AsyncIterator[Client]:
    app.connect()
    try:
        yield Client()
    finally:
        app.close()


def work(url: str) -> None:
    os.execvp(
        "interlock",
        ["interlock", "worker", "bench.peers.interlock:app", "-q", "default:500", "--log-level", "warning"],
    )
