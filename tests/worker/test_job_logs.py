"""The logs of jobs at their worker: gathered, sent together and before the end, and copied from processes."""

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.kernel.commands import AppendLog, Command, Emit, Finish, LeaseRef, Revoke
from interlock.kernel.errors import InterlockError
from interlock.worker.job_logs import WAITING_MAX, JobLog, split_entry
from interlock.worker.loop import Worker
from tests.worker.stage import opened, until, working
from tests.worker.test_process_jobs import chores, play  # noqa: F401 - a fixture

HELD = LeaseRef(unit=1, fence=1, lease="secret")


@pytest.fixture
def app() -> Iterator[interlock.App]:
    with opened("sqlite://:memory:", hurry=20) as made:
        yield made


def test_bytes_are_taken_in_order_and_each_once() -> None:
    log = JobLog(HELD)
    log.add(b"hello ")
    log.add(b"world")
    first, second = log.take(7), log.take(100)
    assert first
    assert second
    assert [(entry.start, entry.data) for entry in (first, second)] == [(0, b"hello w"), (7, b"orld")]
    assert log.take(100) is None
    log.close()
    log.add(b"more")
    assert log.take(100) is None


def test_what_comes_too_fast_is_dropped_and_a_line_says_so() -> None:
    log = JobLog(HELD)
    log.add(b"x" * (WAITING_MAX - 3))
    log.add(b"does not fit")
    while entry := log.take(1024 * 1024):
        last = entry
    assert last.data.endswith(b"\n[12 bytes were dropped here: they came faster than they could be sent]\n")
    log.add(b"fits again")
    entry = log.take(100)
    assert entry
    assert entry.data == b"fits again"


def test_what_is_emitted_keeps_its_place_and_its_step_however_it_is_cut() -> None:
    log = JobLog(HELD)
    for data, step in ((b"line\n", None), (b"ab", "plan"), (b"cd", "plan"), (b"ef", ""), (b"end\n", None)):
        log.add(data, step)
    entries = [entry for entry in (log.take(7), log.take(100)) if entry]
    assert [entry.emits for entry in entries] == [(Emit(5, 7, "plan"),), (Emit(7, 9, "plan"), Emit(9, 11))]
    assert [piece for entry in entries for piece in split_entry(entry)] == [
        (b"line\n", None), (b"ab", "plan"), (b"cd", "plan"), (b"ef", ""), (b"end\n", None),
    ]  # fmt: skip
    assert log.emits == []


def test_a_process_emits_and_a_follower_has_it_before_the_job_ends(chores: Any, tmp_path: Path) -> None:  # noqa: F811
    async def story(worker: Worker) -> None:
        job = chores.stream.submit(str(tmp_path / "go"))
        await until(lambda: job.log() == "a word ")
        (tmp_path / "go").touch()
        await job.wait.aio(timeout=60)
        assert job.log() == "a word and another"

    play(chores, story)


def test_many_lines_of_many_jobs_are_few_commands(app: interlock.App) -> None:
    @app.task
    async def chat(number: int, ctx: interlock.Context) -> None:
        for line in range(20):
            ctx.log(number, line)
            await asyncio.sleep(0)

    sent: list[Command[Any]] = []

    async def story() -> list[interlock.Job]:
        jobs = chat.submit_many([{"number": number} for number in range(10)])
        async with working(app) as worker:
            send_all = worker.client.send_all

            async def count(commands: Any) -> Any:
                sent.extend(commands)
                return await send_all(commands)

            worker.client.send_all = count  # type: ignore[method-assign]
            for job in jobs:
                await job.wait.aio(timeout=60)
        return jobs

    jobs = asyncio.run(story())
    for number, job in enumerate(jobs):
        assert job.log() == "".join(f"{number} {line}\n" for line in range(20))
    appends = [command for command in sent if isinstance(command, AppendLog)]
    assert sum(len(command.entries) for command in appends) < 50  # of 200 lines
    assert len(appends) <= len([command for command in sent if isinstance(command, Finish)]) + 2


def test_a_thread_logs_while_it_runs(app: interlock.App) -> None:
    go_on: list[bool] = []

    @app.task
    def work(ctx: interlock.Context) -> None:
        ctx.log("begun")
        while not go_on:
            time.sleep(0.01)
        ctx.log("x" * 2_000_000)

    async def story() -> None:
        job = work.submit()
        async with working(app):
            await until(lambda: job.log() == "begun\n")
            go_on.append(True)
            await job.wait.aio(timeout=60)
        assert job.log() == "begun\n" + "x" * 2_000_000 + "\n"

    asyncio.run(story())


def test_what_a_stopped_handler_has_logged_comes_late(app: interlock.App) -> None:
    stopped: list[bool] = []

    @app.task(attempts=1)
    def work(ctx: interlock.Context) -> None:
        ctx.log("before")
        while not ctx.cancelled:
            time.sleep(0.01)
        ctx.log("after it was stopped")
        stopped.append(True)

    async def story() -> None:
        job = work.submit()
        async with working(app):
            await until(lambda: job.log() == "before\n")
            app.send(Revoke(unit=job.unit, reason="an operator"))
            await until(lambda: stopped)
            await until(lambda: job.log(1) == "before\nafter it was stopped\n")

    asyncio.run(story())


def test_a_result_that_cannot_be_a_blob_stays_in_its_row(app: interlock.App, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.task
    def make() -> str:
        return "x" * 300_000

    def fail(*args: Any, **facts: Any) -> Any:
        raise InterlockError("blobs cannot be kept in '/full': No space left on device")

    monkeypatch.setattr("interlock.client.blobs.write_pieces", fail)

    async def story() -> None:
        job = make.submit()
        async with working(app):
            assert await job.wait.aio(timeout=60) == "x" * 300_000

    asyncio.run(story())


def test_what_handlers_print_in_threads_and_on_the_loop_is_in_the_log_of_each(
    app: interlock.App, capsys: pytest.CaptureFixture[str]
) -> None:
    both = threading.Barrier(2)

    @app.task
    def in_thread(name: str, ctx: interlock.Context) -> None:
        for line in range(20):
            both.wait(timeout=60)  # two handlers print at the same time
            print(name, line)
        ctx.log.warning("at the end of %s", name)
        print("to stderr", file=sys.stderr)

    @app.task
    async def on_loop(name: str) -> None:
        for line in range(20):
            print(name, line)
            await asyncio.sleep(0)
        await asyncio.gather(*(asyncio.to_thread(print, f"{name} in a thread\n", end="") for _ in range(3)))

    async def story() -> None:
        async with working(app):
            for task, last in (
                (in_thread, ["WARNING at the end of {}", "to stderr"]),
                (on_loop, ["{} in a thread"] * 3),
            ):
                jobs = {name: task.submit(name=name) for name in ("ann", "bob")}
                for name, job in jobs.items():
                    await job.wait.aio(timeout=60)
                    wanted = [*(f"{name} {line}" for line in range(20)), *(line.format(name) for line in last)]
                    assert job.log().splitlines() == wanted

    before = sys.stdout, sys.stderr
    asyncio.run(story())
    assert (sys.stdout, sys.stderr) == before
    printed = capsys.readouterr()
    assert printed.out.count("\n") == 2 * (20 + 20 + 3)  # and at the worker
    assert printed.err.count("to stderr\n") == 2


def test_what_a_handler_left_behind_prints_in_no_log(app: interlock.App) -> None:
    left: list[asyncio.Task[None]] = []
    go_on = asyncio.Event()

    @app.task
    async def leave() -> None:
        async def print_later() -> None:
            await go_on.wait()
            print("too late")

        print("in time")
        left.append(asyncio.create_task(print_later()))

    @app.task
    async def after() -> None:
        go_on.set()
        await left[0]
        print("its own")

    async def story() -> None:
        async with working(app):
            first = leave.submit()
            await first.wait.aio(timeout=60)
            second = after.submit()
            await second.wait.aio(timeout=60)
        assert (first.log(), second.log()) == ("in time\n", "its own\n")

    asyncio.run(story())


def test_what_a_process_prints_and_logs_is_in_the_log_of_its_job(chores: Any) -> None:  # noqa: F811
    async def story(worker: Worker) -> None:
        job = chores.speak.submit()
        await job.wait.aio(timeout=60)
        assert sorted(job.log().splitlines()) == ["to stderr", "to stdout"]
        added = chores.add.submit([1, 2])
        await added.wait.aio(timeout=60)
        assert added.log() == "WARNING adding 2 numbers\n"
        started = chores.start_programs.submit()
        await started.wait.aio(timeout=60)
        lines = started.log().splitlines()
        out, error = [line for line in lines if line != "its error"], lines.index("its error")
        assert out == [
            "printed first", "by a program", "logged after it", r"as bytes \xff", "given its output", "past python",
            "printed last",
        ]  # fmt: skip
        assert lines.index("printed first") < error < lines.index("logged after it")
        if "memory" not in chores.app.url:  # another process has another memory
            left = chores.leave.submit()
            await left.wait.aio(timeout=60)
            assert left.read_artifact("a.bin") == b"\x00\x01"

    play(chores, story)


def test_what_a_left_program_prints_is_in_no_other_jobs_log(chores: Any, tmp_path: Path) -> None:  # noqa: F811
    async def story(worker: Worker) -> None:
        left = chores.leave_program.submit(str(tmp_path))
        pid = await left.wait.aio(timeout=60)
        try:
            waits = chores.look_for.submit(str(tmp_path / "done"))
            (tmp_path / "go").touch()
            await waits.wait.aio(timeout=60)
            assert waits.log() + left.log() == ""
        finally:
            os.kill(pid, signal.SIGKILL)

    play(chores, story)
