"""A worker that a test freezes: a program of its own, whose handlers write down under which lease they began."""

import asyncio
import os
import sys
import time
from pathlib import Path

import interlock
from interlock.worker.context import JobContext
from interlock.worker.loop import Worker

app = interlock.open(
    os.environ.get("FROZEN_URL", "sqlite://:memory:"), hurry=int(os.environ.get("FROZEN_HURRY", "1")),
    key=os.environ.get("FROZEN_KEY"),
)  # fmt: skip


def write_down(folder: str, ctx: interlock.Context) -> None:
    """One short write, so that no line is broken."""
    assert isinstance(ctx, JobContext)
    with Path(folder, "begun").open("a") as file:
        file.write(f"{ctx.unit} {ctx.fence}\n")


@app.task
async def mark(folder: str, ctx: interlock.Context) -> None:
    write_down(folder, ctx)


@app.task
async def gate(folder: str) -> None:
    """Keeps the only place until the test says so."""
    while not Path(folder, "go").exists():
        await asyncio.sleep(0.01)


@app.task
async def block(folder: str, seconds: float, ctx: interlock.Context) -> None:
    """Blocks the loop that it runs on."""
    write_down(folder, ctx)
    time.sleep(seconds)


async def main(name: str) -> None:
    await Worker(app, {"default": 1}, name=name).run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
