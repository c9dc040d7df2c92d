"""The mixed jobs of a chaos run; run as a program, a worker for them: python -m tests.chaos.tasks URL HURRY NAME."""

import asyncio
import sys
import time
from contextlib import suppress
from typing import Any

import interlock
from interlock.kernel.errors import Unavailable
from interlock.worker.context import JobContext
from interlock.worker.loop import Worker

MANY = 1_000  # attempts: whoever is killed often is still finished
KINDS = ("quick", "threaded", "flaky", "sleepy", "stepped", "lasting", "refused", "broken")


def made(url: str, hurry: int) -> interlock.App:
    app = interlock.open(url, hurry=hurry)
    for name in KINDS:
        attempts = 2 if name == "broken" else MANY
        queue = "slow" if name in ("lasting", "threaded") else "default"
        app.task(name=name, attempts=attempts, queue=queue, backoff=0.01, backoff_cap=0.05)(globals()[name])
    return app


async def quick(n: int) -> int:
    return n


def threaded(n: int) -> int:
    time.sleep(0.001 * (n % 50))
    return n


async def flaky(n: int, ctx: interlock.Context) -> int:
    assert isinstance(ctx, JobContext)
    if ctx.attempt <= n % 3:
        raise interlock.TransientError("not yet")
    return n


async def sleepy(n: int, ctx: interlock.Context) -> int:
    assert isinstance(ctx, JobContext)
    if ctx.attempt == 1:
        raise interlock.Snooze(0.01)
    return n


async def stepped(n: int, ctx: interlock.Context) -> int:
    assert isinstance(ctx, JobContext)

    async def one() -> int:
        await asyncio.sleep(0.01)
        return n

    first = await ctx.step.aio("first", one)
    ctx.checkpoint(first)
    ctx.progress(0.5)
    return await ctx.step.aio("second", one)


async def lasting(n: int) -> int:
    await asyncio.sleep(0.02 * (n % 30))
    return n


async def refused(n: int) -> None:
    raise interlock.Reject(f"{n} is not wanted")


async def broken(n: int) -> None:
    raise interlock.TransientError(f"{n} never works")


async def work(url: str, hurry: int, name: str) -> None:
    app: Any = made(url, hurry)
    while (
        not app.opened
    ):  # a worker that cannot come to its database ends, and whoever keeps it running starts it again
        with suppress(Unavailable):
            await asyncio.to_thread(getattr, app, "engine")
    await Worker(app, {"default": 10, "slow": 10}, name=name).run()


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
