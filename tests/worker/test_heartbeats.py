"""Heartbeats come from a thread of their own, and nothing begins under a lease that is over by the worker's own clock."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import interlock
from interlock.kernel.commands import Claim, Command, Tick
from interlock.kernel.errors import StoreError, Unavailable
from interlock.store.queries.views import view
from interlock.worker import loop
from interlock.worker.heartbeats import Heartbeats
from interlock.worker.leases import Executions, read_clock
from interlock.worker.loop import Worker, WorkerQueue
from tests.conftest import ROOT
from tests.server.house import housed
from tests.store.databases import fresh_postgres
from tests.worker.stage import PATIENCE, lawful, opened, triggers, unit, working
from tests.worker.test_loop import held

HURRY = 20  # a job's lease ends after two seconds without a heartbeat
LEASE = 2.0


def pass_time(app: interlock.App) -> None:
    """Leases that are over end: a server does it by itself, beside a database somebody must."""
    if not app.engine.far:
        app.send(Tick())


def wait_until(true: Any, app: interlock.App) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "it never became true"
        pass_time(app)
        time.sleep(0.01)


@contextmanager
def working_elsewhere(app: interlock.App) -> Iterator[Worker]:
    """A worker whose loop is not the test's."""
    worker = Worker(app, {"default": 10})
    thread = Thread(target=lambda: asyncio.run(worker.run()))
    thread.start()
    try:
        yield worker
    finally:
        assert worker.loop
        worker.loop.call_soon_threadsafe(worker.stop)
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_a_handler_that_blocks_the_loop_keeps_its_lease(url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "interlock.worker")
    with opened(url, HURRY) as app:

        @app.task
        async def block() -> str:
            time.sleep(2 * LEASE)
            return "done"

        @app.task
        async def beside() -> str:
            return "beside"

        jobs = [block.submit(), beside.submit()]
        with working_elsewhere(app):
            wait_until(lambda: all(job.look().outcome for job in jobs), app)
        for job in jobs:
            assert job.look().outcome == "success"
            assert (unit(job).fence, unit(job).losses, unit(job).attempt) == (1, 0, 1)
            assert "lost" not in triggers(job)
        blocks = [record.getMessage() for record in caplog.records if "blocks the event loop" in record.getMessage()]
        assert len(blocks) == 1, "it is said once"
        assert blocks[0].startswith(f"handler blocks the event loop id={jobs[0].id} task=block attempt=1 fence=1: in ")
        assert Path(__file__).name in blocks[0], "and where"


def test_a_loop_that_is_not_blocked_is_not_called_so(url: str, caplog: pytest.LogCaptureFixture) -> None:
    with opened(url, HURRY) as app:

        @app.task
        async def lasting() -> None:
            await asyncio.sleep(LEASE)

        job = lasting.submit()
        with working_elsewhere(app):
            wait_until(lambda: job.look().outcome, app)
        assert "blocks" not in caplog.text
        assert unit(job).fence == 1


def test_nothing_begins_under_a_lease_that_is_over_by_the_workers_clock(url: str) -> None:
    """The clock jumps, as it does for a worker that was stopped, right after a grant; the next grant is sound.

    No heartbeat is sent: one that comes before the job begins renews its lease, and then it may begin.
    """

    async def story(app: interlock.App) -> None:
        begun: list[int] = []

        @app.task
        async def on_loop(n: int, ctx: interlock.Context) -> None:
            begun.append(ctx.fence)

        @app.task
        def in_thread(n: int, ctx: interlock.Context) -> None:
            begun.append(ctx.fence)

        jobs = [on_loop.submit(1), in_thread.submit(2)]
        stopped_for = [0.0]
        worker = Worker(app, {"default": 10}, clock=lambda: read_clock() + stopped_for[0])
        ask = worker.client.send

        async def one(command: Command[Any]) -> Any:
            answer = await ask(command)
            if isinstance(command, Claim) and answer and not stopped_for[0]:
                stopped_for[0] = 3_600.0
            return answer

        worker.client.send = one  # type: ignore[method-assign]
        worker.heartbeats.due_in = lambda: None  # type: ignore[method-assign]
        running = asyncio.create_task(worker.run())
        for job in jobs:
            await job.wait.aio(PATIENCE)
        worker.stop()
        await asyncio.wait_for(running, PATIENCE)
        assert begun == [2, 2]
        for job in jobs:
            assert triggers(job) == ["submit", "claim", "release", "claim", "start", "complete"]
            assert (unit(job).failures, unit(job).losses) == (0, 0), "nothing of its budget is spent"

    with opened(url) as app:
        asyncio.run(story(app))


def test_a_job_that_is_lost_before_its_first_step_frees_its_place(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its task is made, and cancelled before the loop has come to it."""
    monkeypatch.setattr(loop, "EAGER", {})

    async def story(app: interlock.App) -> None:
        @app.task
        async def nothing() -> None: ...

        jobs = [nothing.submit(), nothing.submit()]
        worker = Worker(app, {"default": 1})
        start, lost = worker.start_waiting, list[int]()

        def start_and_lose(queue: WorkerQueue) -> None:
            start(queue)
            for execution in worker.executions:
                if execution.asyncio_task and execution.started_at is None and not lost:
                    lost.append(execution.grant.unit)
                    worker.lose(execution, "planted")

        worker.start_waiting = start_and_lose  # type: ignore[method-assign]
        running = asyncio.create_task(worker.run())
        for job in jobs:
            await job.wait.aio(PATIENCE)
        worker.stop()
        await asyncio.wait_for(running, PATIENCE)
        assert lost == [jobs[0].unit]
        assert [unit(job).fence for job in jobs] == [2, 1]

    with opened(url, HURRY) as app:
        asyncio.run(story(app))


@pytest.fixture(params=["sqlite file", "postgres", "http"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, server: str
) -> Iterator[tuple[interlock.App, dict[str, str]]]:
    """An app beside the database, and how another program finds it: by the database, or by its server."""
    with ExitStack() as stack:
        url = f"sqlite:///{tmp_path}/work.db"
        if request.param == "postgres":
            url = stack.enter_context(fresh_postgres(server, f"frozen{abs(hash(tmp_path))}"))
        app = interlock.open(url, hurry=HURRY)
        env = {"FROZEN_URL": url, "FROZEN_HURRY": str(HURRY)}
        if request.param == "http":
            house = stack.enter_context(housed())
            key = stack.enter_context(house.hosts(app))
            env = {"FROZEN_URL": house.base, "FROZEN_KEY": key}
        stack.enter_context(app)
        yield app, env
        lawful(app)


def begun(folder: Path) -> list[tuple[int, int]]:
    """Each unit and fence under which a handler has begun, in order."""
    file = folder / "begun"
    lines = file.read_text().splitlines() if file.exists() else []
    return [(int(unit), int(fence)) for unit, fence in (line.split() for line in lines)]


def freeze(process: "subprocess.Popen[bytes]", app: interlock.App) -> None:
    """It is stopped, and not inside a transaction that would lock a SQLite file."""
    for _ in range(20):
        process.send_signal(signal.SIGSTOP)
        try:
            pass_time(app)
            return
        except StoreError:
            process.send_signal(signal.SIGCONT)
            time.sleep(0.1)
    raise AssertionError("it was always inside a transaction")


def test_a_worker_that_was_frozen_begins_nothing_under_leases_that_ended(
    place: tuple[interlock.App, dict[str, str]], tmp_path: Path
) -> None:
    app, env = place
    for name in ("mark", "gate"):
        app.task(name=name)(lambda folder: None)
    mark, gate, folder = app.tasks["mark"], app.tasks["gate"], str(tmp_path)
    command = [sys.executable, "-m", "tests.worker.frozen", "frozen"]
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **env})
    try:
        quick = [
            mark.submit(folder=folder) for _ in range(20)
        ]  # it learns that its handlers are fast, and claims ahead
        wait_until(lambda: all(job.look().outcome for job in quick), app)
        shut = gate.submit(folder=folder)
        wait_until(lambda: shut.look().category == "active", app)
        waiting = [mark.submit(folder=folder) for _ in range(20)]
        wait_until(lambda: all(job.look().category == "held" for job in waiting), app)
        freeze(process, app)
        leases = {(job.unit, app.read(view, job.unit).unit.fence) for job in waiting}
        wait_until(lambda: all(job.look().category != "held" for job in waiting), app)
        (tmp_path / "go").touch()  # the place is free as soon as the worker goes on
        process.send_signal(signal.SIGCONT)
        wait_until(lambda: all(job.look().outcome == "success" for job in waiting), app)
        assert not leases & set(begun(tmp_path)), "nothing began under a lease that was over"
        assert {job.unit for job in waiting} <= {one for one, _ in begun(tmp_path)}, "but everything was done"
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        process.wait(PATIENCE)


def test_jobs_that_a_blocked_loop_never_begins_go_to_others() -> None:
    class Blocked:
        blocked_for = 0.0

    executions, dog = Executions(), Blocked()
    runs, waits = held(1, 10, 60, now=100.0), held(2, 10, 60, now=100.0)
    runs.started_at = 100.0
    for one in (runs, waits):
        executions.add(one)
    beats = Heartbeats(None, executions, lambda: 200.0, 1, "w", lambda execution, answer: None)  # type: ignore[arg-type]
    beats.watchdog = dog  # type: ignore[assignment]
    for blocked, wanted in ((0.0, [runs, waits]), (59.0, [runs, waits]), (61.0, [runs])):
        dog.blocked_for = blocked
        assert [some for _, some in beats.take_due()] == [wanted]


def test_a_lease_lasts_as_long_as_the_store_says_counted_from_before_it_was_asked() -> None:
    lease, now = held(1, 10, 60, now=100.0).lease, [159.0]
    lease.clock = lambda: now[0]
    assert not lease.is_over()
    now[0] = 160.0
    assert lease.is_over()
    lease.extend(150.0, 20_000_000)
    now[0] = 169.0
    assert not lease.is_over()
    lease.extend(140.0, 20_000_000)
    assert not lease.is_over(), "an answer that comes late makes it no shorter"
    now[0] = 170.0
    assert lease.is_over()
    before = read_clock()
    assert read_clock() >= before


def test_a_heartbeat_that_gets_no_answer_is_sent_again(url: str) -> None:
    async def story(app: interlock.App) -> None:
        enough = asyncio.Event()

        @app.task
        async def lasting() -> None:
            await enough.wait()

        job = lasting.submit()
        async with working(app) as worker:
            ask, tried = worker.client.send_once, [0]

            def away(commands: Any) -> list[Any]:
                tried[0] += 1
                return [Unavailable("away")] * len(commands) if tried[0] < 3 else ask(commands)

            worker.client.send_once = away  # type: ignore[method-assign]
            worker.heartbeats.send_soon()
            async with asyncio.timeout(PATIENCE):
                while tried[0] < 4 or job.look().category != "active":
                    worker.heartbeats.send_soon()
                    await asyncio.sleep(0.05)
            enough.set()
            await job.wait.aio(PATIENCE)
        assert unit(job).fence == 1

    with opened(url) as app:
        asyncio.run(story(app))
