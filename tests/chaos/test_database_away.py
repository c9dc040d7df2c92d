"""The database goes away under a worker: its connections are cut, and its server is stopped and started again."""

import asyncio
import os
import pwd
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import interlock
from interlock.store import postgres as store
from tests.postgres.server import postgres
from tests.store.databases import fresh_postgres, swap
from tests.worker.stage import PATIENCE, opened, until, working


@pytest.fixture(scope="module")
def own_server() -> Iterator[str]:
    """A server that a test may stop."""
    with postgres() as url:
        yield url


def asked(server: str, name: str, sql: str) -> list[tuple[object, ...]]:
    admin = store.PostgresConnection(swap(server, name))
    try:
        return admin.rows(sql)
    finally:
        admin.close()


def restart(server: str) -> None:
    """The server is stopped as by a power cut, and started again."""
    data = Path(str(asked(server, "postgres", "SHOW data_directory")[0][0]))
    pid = (data / "postmaster.pid").read_text().split()[0]
    binary = Path(os.readlink(f"/proc/{pid}/exe")).parent / "pg_ctl"
    user = {}
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
    command = [str(binary), "-w", "-D", str(data), "-m", "immediate", "-l", str(data.parent / "log"), "restart"]
    subprocess.run(command, cwd=data.parent, check=True, capture_output=True, **user)  # type: ignore[call-overload]


@pytest.mark.parametrize("how", ["cut", "restarted"])
def test_a_worker_that_loses_its_database_waits_and_goes_on(own_server: str, how: str) -> None:
    async def story(app: interlock.App) -> None:
        @app.task(attempts=100, backoff=0.01)
        async def one(n: int) -> int:
            await asyncio.sleep(0.01)
            return n

        jobs = one.submit_many([{"n": n} for n in range(400)])
        async with working(app) as worker:
            for part in (1, 2, 3):
                await until(lambda part=part: worker.reporter.counts["success"] >= part * 80)  # type: ignore[misc]
                if how == "cut":
                    kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'ordinary'"
                    await asyncio.to_thread(asked, own_server, name, kill)
                else:
                    await asyncio.to_thread(restart, own_server)
            assert [await job.wait.aio(PATIENCE) for job in jobs] == list(range(400))

    name = f"away_{how}"
    with fresh_postgres(own_server, name) as url, opened(url) as app:
        asyncio.run(story(app))
