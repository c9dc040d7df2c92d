"""The workflows of a chaos run; run as a program, a worker for them: python -m tests.chaos.flows URL HURRY NAME."""

import asyncio
import sys
import time
from typing import Any

import interlock
from interlock.worker.loop import Worker

MANY = 1_000  # attempts: whoever is killed often is still finished
PLAIN = ("one", "two", "three", "four")


def made(url: str, hurry: int) -> interlock.App:
    app = interlock.open(url, hurry=hurry)
    for name in (*PLAIN, "pay", "ship"):
        app.task(name=name, attempts=MANY, backoff=0.001)(globals()[name])
    app.workflow("plain", steps=[*(app.tasks[name] for name in PLAIN)])
    app.workflow("waits", steps=[app.tasks["one"], interlock.approval("gate"), app.tasks["pay"], app.tasks["ship"]])
    return app


async def one(n: int) -> int:
    await asyncio.sleep(0.001 * (n % 20))
    return n


def two(n: int, one: int) -> int:
    time.sleep(0.001 * (n % 10))
    return one + 1


async def three(n: int, two: int, ctx: interlock.Context) -> int:
    if ctx.attempt == 1 and n % 5 == 0:
        raise interlock.TransientError("not yet")
    return two + 1


async def four(three: int, one: int) -> int:
    return one + three


def pay(ctx: interlock.Context) -> Any:
    return ctx.wait_signal("paid")


def ship(gate: dict[str, Any], pay: Any) -> list[Any]:
    return [gate["by"], pay]


def main() -> None:
    url, hurry, name = sys.argv[1:]
    with made(url, int(hurry)) as app:
        asyncio.run(Worker(app, {"default": 20}, name=name).run())


if __name__ == "__main__":
    main()
