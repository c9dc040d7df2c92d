"""What jobs cost that wait for a signal (leases, threads, bytes), and what a deploy check costs while many jobs wait.

The jobs are claimed and parked by a real worker. The bytes of a parked job are those that parking has added to the
SQLite file, divided by the jobs. Exits with 1 if a parked job holds a lease or a thread, or costs 1 KiB or more.

    python -m bench.parked [--jobs 10000] [--waiting 100000]
"""

import argparse
import asyncio
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import interlock
from interlock.client.deploy import check_deploy
from interlock.kernel.commands import Submit, Work
from interlock.worker.loop import Worker

PAGE, CONCURRENCY, ALLOWED = 1_000, 100, 1024
PARKED = "SELECT count(*) FROM unit WHERE parked_on LIKE 'signal:%' AND holder IS NULL"
HELD = "SELECT count(*) FROM unit WHERE holder IS NOT NULL AND lifecycle = 'job'"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--waiting", type=int, default=100_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        too_much = asyncio.run(park(Path(folder) / "parked.db", given.jobs))
        time_deploy_check(Path(folder) / "deploy.db", given.waiting)
    sys.exit(1 if too_much else 0)


async def park(file: Path, jobs: int) -> bool:
    """Lets so many jobs wait, prints what they hold, and returns whether that is too much."""
    with interlock.open(f"sqlite:///{file}") as app:

        @app.task
        def hold(ctx: interlock.Context) -> None:
            ctx.wait_signal("go", timeout="30d")

        fill(app, "hold", jobs)
        before, began = count_bytes(app, file), time.process_time()
        worker = Worker(app, {"default": CONCURRENCY})
        working = asyncio.create_task(worker.run())
        while count(app, PARKED) < jobs:
            await asyncio.sleep(0.2)
        used_us = (time.process_time() - began) / jobs * 1e6
        held, threads = count(app, HELD), threading.active_count()
        worker.stop()
        await working
        added = (count_bytes(app, file) - before) / jobs
    print(f"{jobs:,} parked jobs: {held} leases, {threads} threads in the process of the worker and its database")
    print(f"a parked job: {added:,.0f} bytes more than a submitted one, {used_us:,.0f} µs of processor time to park it")
    return bool(held) or threads > CONCURRENCY * 2 or added >= ALLOWED


def fill(app: interlock.App, task: str, jobs: int) -> None:
    for first in range(0, jobs, PAGE):
        work = (Work(task=task),) * min(PAGE, jobs - first)
        app.send(Submit(tenant=app.tenant, work=work))


def count(app: interlock.App, sql: str) -> int:
    return int(app.read(lambda connection, tenant: connection.rows(sql)[0][0]))


def count_bytes(app: interlock.App, file: Path) -> int:
    """The size of a database, without what its log still holds."""
    app.read(lambda connection, tenant: connection.rows("PRAGMA wal_checkpoint(TRUNCATE)"))
    return file.stat().st_size


def time_deploy_check(file: Path, jobs: int) -> None:
    """Prints what it costs to compare a program with so many jobs that wait, of tasks that it knows and one other."""
    with interlock.open(f"sqlite:///{file}") as app:
        for name in ("one", "two", "three"):
            app.task(name=name)(takes_nothing)
        for name in ("one", "two", "three", "unknown"):
            fill(app, name, jobs // 4)
        began, cpu = time.perf_counter(), time.process_time()
        report = check_deploy(app)
        took, used = time.perf_counter() - began, time.process_time() - cpu
    assert [problem.name for problem in report.problems] == ["unknown"]
    print(f"a deploy check with {report.waiting:,} waiting: {took:.2f} s, {used:.2f} s of processor time")


def takes_nothing() -> Any: ...


if __name__ == "__main__":
    main()
