"""Plays one part of one peer, in the Python that the peer is installed in, and prints what came of it as JSON."""

import asyncio
import importlib
import inspect
import json
import os
import random
import sys
import time
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

sys.path[0] = str(Path(__file__).parent.parent)
URL = os.environ.get("BENCH_URL", "")


async def finish(call: Any) -> Any:
    """The answer of a function, whichever colour it has."""
    return await call if inspect.isawaitable(call) else call


def describe(peer: ModuleType) -> dict[str, Any]:
    return {
        "version": version(peer.PACKAGE), "configuration": peer.CONFIGURATION, "left": peer.LEFT,
        "measures": peer.MEASURES,
    }  # fmt: skip


async def bulk(peer: ModuleType, count: int, kind: str = "bulk") -> float:
    """Seconds that so many jobs took, submitted as fast as the peer can take them from one caller."""
    async with peer.client(URL) as client:
        start = time.perf_counter()
        await finish(getattr(client, kind)(count))
        return time.perf_counter() - start


async def single(peer: ModuleType, count: int, callers: int) -> float:
    """Seconds that so many jobs took, submitted one by one by so many callers of one process."""
    async with peer.client(URL) as client:

        async def caller() -> None:
            for _ in range(count // callers):
                await finish(client.submit_one(0.0))

        await finish(client.submit_one(0.0))  # whatever is made on first use is there
        start = time.perf_counter()
        await asyncio.gather(*(caller() for _ in range(callers)))
        return time.perf_counter() - start


async def trickle(peer: ModuleType, count: int) -> float:
    """So many jobs, each submitted to an idle worker; their handlers tell how late they were."""
    async with peer.client(URL) as client:
        pauses = random.Random(count)
        start = time.perf_counter()
        for _ in range(count):
            await asyncio.sleep(0.03 + 0.02 * pauses.random())
            await finish(client.submit_one(time.time()))
        return time.perf_counter() - start


async def play(peer: ModuleType, verb: str, args: list[str]) -> Any:
    match verb:
        case "describe":
            return describe(peer)
        case "bulk" | "bulk_steps":
            return await bulk(peer, int(args[0]), verb)
        case "single":
            return await single(peer, int(args[0]), int(args[1]))
        case "trickle":
            return await trickle(peer, int(args[0]))
    raise SystemExit(f"there is no part '{verb}'")


def main() -> None:
    peer = importlib.import_module(f"bench.peers.{sys.argv[1]}")
    if sys.argv[2] == "work":
        peer.work(URL)
        return
    if sys.argv[2] == "prepare":
        made = peer.prepare(URL)
        print(json.dumps(asyncio.run(made) if inspect.iscoroutine(made) else None))
        return
    print(json.dumps(asyncio.run(play(peer, sys.argv[2], sys.argv[3:]))), flush=True)


if __name__ == "__main__":
    main()
