"""Interlock with tasks of other shapes than the plain one, for `bench.shapes`."""

import asyncio
import os
import random

import interlock
from bench.mark import ran
from bench.peers.interlock import CONFIGURATION, LEFT, PACKAGE, app, noop, prepare

__all__ = ["CONFIGURATION", "LEFT", "PACKAGE", "app", "noop", "prepare"]
MEASURES = ["drain"]
RESULT = "x" * 200
LONGEST = 0.2  # seconds that a job of mixed length lasts at most


async def do_nothing(number: int) -> None:
    ran()


MANY = [app.task(name=f"nothing_{number}")(do_nothing) for number in range(20)]


@app.task(timeout="1m", attempts=3, backoff="1ms", backoff_cap="1ms")
async def do_with_options(number: int, ctx: interlock.Context) -> str:
    ran()
    if number % 100 == 0 and ctx.attempt == 1:
        raise ConnectionError("away")
    return RESULT


@app.task
async def be_cancelled(number: int, ctx: interlock.Context) -> None:
    ran()
    if number % 100 == 0:
        await app.job(str(ctx.id)).cancel.aio(reason="measured")
        await asyncio.sleep(60)


@app.task
async def last_a_while(number: int) -> None:
    ran()
    await asyncio.sleep(random.Random(number).uniform(0, LONGEST))


def work(url: str) -> None:
    os.execvp(
        "interlock",
        ["interlock", "worker", "bench.peers.shapes:app", "-q", "default:500", "--log-level", "error"],
    )
