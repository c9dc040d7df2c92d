"""What a workflow of ten steps costs: how long one run takes, and how many steps per second a worker does of many."""

import asyncio
import os
import statistics
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import interlock
from interlock.lifecycles import shipped
from interlock.plugins import STANDARD
from interlock.store import migrate
from interlock.store.queries.views import count_by
from interlock.store.url import connect
from interlock.worker.loop import Worker

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.postgres.server import postgres

QUICK = bool(os.environ.get("QUICK"))
STEPS = 10
RUNS, ALONE, ROUNDS = (100, 5, 1) if QUICK else (1_000, 20, 3)
SERVER = "-c fsync=on -c synchronous_commit=on -c shared_buffers=1GB -c max_wal_size=4GB"


async def nothing() -> None:
    """A step whose work costs nothing."""


def count_ended(app: interlock.App) -> int:
    rows = app.read(count_by, ("lifecycle", "outcome"))
    return sum(count for kind, outcome, count in rows if kind == "workflow_run" and outcome is not None)


async def measure(url: str) -> tuple[list[float], list[float]]:
    """Seconds that single runs take one after the other, and steps per second of many runs at once."""
    with interlock.open(url) as app:
        task = app.task(name="nothing")(nothing)
        flow = app.workflow("ten", steps=[interlock.step(task, name=f"step {n}") for n in range(STEPS)])
        worker = Worker(app, {"default": 100})
        working = asyncio.create_task(worker.run())
        single = []
        for _ in range(ALONE):
            start = time.perf_counter()
            await (await flow.submit.aio()).wait.aio(timeout="1m")
            single.append(time.perf_counter() - start)
        many = []
        for number in range(1, ROUNDS + 1):
            start = time.perf_counter()
            await flow.submit_many.aio([{}] * RUNS)
            while await asyncio.to_thread(count_ended, app) < ALONE + number * RUNS:
                await asyncio.sleep(0.01)
            many.append(RUNS * STEPS / (time.perf_counter() - start))
        worker.stop()
        with suppress(asyncio.CancelledError):
            await working
    return single, many


def main() -> None:
    with postgres(SERVER) as server, tempfile.TemporaryDirectory() as folder:
        connection = connect(server)
        migrate.upgrade(connection, STANDARD.lifecycles(shipped()).values(), STANDARD.tables)
        connection.close()
        for label, url in (("SQLite", f"sqlite:///{folder}/bench.db"), ("PostgreSQL", server)):
            single, many = asyncio.run(measure(url))
            print(
                f"{label:>10}  ten steps: {statistics.median(single) * 1e3:.0f} ms per run alone, "
                f"{statistics.median(many):,.0f} steps/s of {RUNS:,} runs with one worker, from submit to end"
            )


if __name__ == "__main__":
    main()
