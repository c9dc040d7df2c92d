"""How a worker ends: it is stopped or drained, it breaks, or it counted as gone and registers again."""

import asyncio
import threading
from typing import Any

import pytest

import interlock
from interlock.kernel.commands import Claim, Drain
from interlock.kernel.errors import Gone
from interlock.store.queries.views import workers_seen
from interlock.worker.context import JobContext
from interlock.worker.loop import Worker
from tests.worker.stage import PATIENCE, opened, triggers, unit, until, working


def test_a_worker_that_stops_gives_back_what_it_cannot_finish(url: str) -> None:
    async def story(app: interlock.App) -> None:
        go, ended = threading.Event(), asyncio.Event()

        @app.task
        async def deaf() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        @app.task
        def threaded() -> None:
            go.wait(PATIENCE)

        @app.task
        async def soon(ctx: interlock.Context) -> None:
            assert isinstance(ctx, JobContext)
            while not ctx.sender.stopping:  # type: ignore[attr-defined]
                await asyncio.sleep(0.005)

        app.stopping = False  # type: ignore[attr-defined]
        jobs = [deaf.submit(), threaded.submit()]
        done = soon.submit()
        waiting = [deaf.submit() for _ in range(5)]
        async with working(app, concurrency=3, grace=0.5) as worker:
            worker.queues["default"].mean_seconds = 0.02  # as after fast handlers: it claims ahead
            await until(lambda: len(worker.executions) == 8)
            await until(lambda: all(job.look().category == "active" for job in (*jobs, done)))
            app.stopping = True  # type: ignore[attr-defined]
        go.set()
        assert ended.is_set()
        assert done.look().outcome == "success"
        for job in (*jobs, *waiting):
            seen = unit(job)
            assert (job.look().category, seen.failures, seen.losses) == ("ready", 0, 0)
            assert triggers(job)[-1] == "release"

    with opened(url) as app:
        asyncio.run(story(app))


def test_what_is_granted_after_the_stop_is_given_back_and_never_begun(url: str) -> None:
    async def story(app: interlock.App) -> None:
        begun: list[int] = []

        @app.task
        async def one() -> None:
            begun.append(1)

        job = one.submit()
        worker = Worker(app, {"default": 10})
        tried = worker.client.try_all

        async def late(commands: Any) -> list[Any]:
            answers = await tried(commands)
            if isinstance(commands[0], Claim) and answers and answers[0]:
                worker.stop()
            return answers

        worker.client.try_all = late  # type: ignore[method-assign]
        await asyncio.wait_for(worker.run(), PATIENCE)
        assert begun == []
        assert triggers(job) == ["submit", "claim", "release"]

    with opened(url) as app:
        asyncio.run(story(app))


@pytest.mark.parametrize("loop", ["heartbeats", "ticker", "claimer", "reporter"])
def test_a_loop_that_breaks_ends_the_worker_and_what_it_holds_is_given_back(loop: str) -> None:
    async def story(app: interlock.App) -> None:
        @app.task
        async def lasting() -> None:
            await asyncio.Event().wait()

        jobs = [lasting.submit() for _ in range(15)]  # more than may run
        worker = Worker(app, {"default": 10})
        worker.heartbeats.due_now = True

        async def broken() -> None:
            await until(lambda: loop == "claimer" or any(each.started_at for each in worker.executions))
            raise RuntimeError("broken")

        def broken_thread(_: object) -> None:
            raise RuntimeError("broken")

        if loop == "heartbeats":
            worker.heartbeats.send = broken_thread  # type: ignore[method-assign]
        elif loop == "claimer":
            worker.claim_until_stopped = broken  # type: ignore[method-assign]
        else:
            getattr(worker, loop).run = broken
        with pytest.raises(RuntimeError, match="broken"):
            await asyncio.wait_for(worker.run(), PATIENCE)
        assert len(worker.executions) == 0
        assert [(unit(job).holder, unit(job).losses, job.look().category) for job in jobs] == [(None, 0, "ready")] * 15
        assert loop == "claimer" or max(unit(job).fence for job in jobs) == 1
        ((_, itself),) = app.read(workers_seen, True)
        assert itself.category == "closed"

    with interlock.open("sqlite://:memory:") as app:
        asyncio.run(story(app))


def test_a_worker_that_counted_as_gone_registers_again(url: str) -> None:
    async def story(app: interlock.App) -> None:
        @app.task
        async def one() -> int:
            return 1

        async with working(app) as worker:
            await until(lambda: worker.claims)
            tried, first = worker.client.try_all, worker.id

            async def silent(commands: Any) -> list[Any]:
                if isinstance(commands[0], Claim) and commands[0].worker == first:
                    return [Gone("worker ann has shut down; it may register again as a new incarnation")]
                return await tried(commands)

            worker.client.try_all = silent  # type: ignore[method-assign]
            await until(lambda: worker.id != first)
            assert await one.submit().wait.aio(PATIENCE) == 1

    with opened(url) as app:
        asyncio.run(story(app))


def test_a_worker_that_is_drained_ends(url: str) -> None:
    async def story(app: interlock.App) -> None:
        @app.task
        async def one() -> None: ...

        worker = Worker(app, {"default": 1})
        running = asyncio.create_task(worker.run())
        await until(lambda: worker.claims)
        await app.asend(Drain(worker=worker.id))
        await asyncio.wait_for(running, PATIENCE)
        one.submit()

    with opened(url) as app:
        asyncio.run(story(app))


def test_two_workers_on_one_machine_do_not_drive_each_other_out(url: str) -> None:
    async def story(app: interlock.App) -> None:
        @app.task
        async def one() -> None:
            await asyncio.sleep(0)

        async with working(app) as ann, working(app) as bob:
            assert ann.name != bob.name
            for job in [one.submit() for _ in range(50)]:
                await job.wait.aio(PATIENCE)
            await until(lambda: ann.claims > 2 and bob.claims > 2)
            assert not ann.stopping
            assert not bob.stopping

    with opened(url) as app:
        asyncio.run(story(app))
