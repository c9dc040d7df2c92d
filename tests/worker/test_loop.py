"""The worker's loop: what it claims, runs, tells and gives back, and what stops a handler."""

import asyncio
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import nullcontext
from contextvars import ContextVar
from itertools import pairwise
from typing import Any

import msgspec
import pytest

import interlock
from interlock.kernel.commands import LeaseGrant, Revoke, Tick
from interlock.kernel.errors import Unavailable
from interlock.store.queries.views import notes_of
from interlock.worker.context import JobContext
from interlock.worker.execution import Execution
from interlock.worker.leases import Executions, LocalLease
from interlock.worker.loop import AHEAD_MAX, Worker, WorkerQueue
from tests.worker.stage import PATIENCE, error, events, opened, triggers, unit, until, working


def test_what_ends_at_once_is_started_and_finished_in_one_transaction(url: str) -> None:
    async def story(app: interlock.App) -> None:
        go = asyncio.Event()

        @app.task
        async def quick(n: int) -> int:
            return n

        @app.task
        async def lasting() -> None:
            await go.wait()

        jobs = [quick.submit(n) for n in range(20)]
        long = lasting.submit()
        async with working(app):
            assert [await job.wait.aio(PATIENCE) for job in jobs] == list(range(20))
            await until(lambda: long.look().category == "active")
            go.set()
            await long.wait.aio(PATIENCE)
        for job in jobs:
            start, end = events(job)[-2:]
            assert (start.trigger, end.trigger) == ("start", "complete")
            assert start.at == end.at
        start, end = events(long)[-2:]
        assert start.at < end.at

    with opened(url) as app:
        asyncio.run(story(app))


@pytest.mark.req("R2-24")
def test_leases_are_renewed_before_half_of_their_time_has_passed(url: str) -> None:
    """Measured by the store's clock, with times that are twenty times as short as they are in production."""
    hurry = 20

    async def story(app: interlock.App) -> None:
        enough = asyncio.Event()

        @app.task
        async def lasting() -> None:
            await enough.wait()

        job, other = lasting.submit(), lasting.submit()
        async with working(app) as worker:

            def beats() -> list[int]:
                notes = app.read(notes_of, worker.id)
                assert all(
                    sorted(one[0] for one in msgspec.json.decode(note.payload)) == [job.unit, other.unit]
                    for note in notes
                )
                return [note.at for note in notes if note.kind == "beat"]

            await until(lambda: len(beats()) >= 4)
            renewed = [events(job)[1].at, *beats()]
            enough.set()
            await job.wait.aio(PATIENCE)
        terms = app.lifecycles["job"].options.lease
        assert terms
        assert max(after - before for before, after in pairwise(renewed)) <= terms.ttl_us / 2
        assert triggers(job) == ["submit", "claim", "start", "complete"]

    with opened(url, hurry) as app:
        asyncio.run(story(app))


def test_a_beat_is_due_after_half_a_beat_of_the_most_impatient_lease() -> None:
    executions = Executions()
    assert executions.next_heartbeat_at() is None
    for number, (beat, ttl) in enumerate([(20, 60), (10, 60), (0, 600)]):
        executions.add(held(number, beat, ttl, now=100.0))
    assert executions.next_heartbeat_at() == 105.0
    executions = Executions()
    executions.add(held(1, 0, 600, now=100.0))
    assert executions.next_heartbeat_at() == 400.0


def held(number: int, beat: int, ttl: int, now: float) -> Execution:
    grant = LeaseGrant(
        unit=number, task="a", input="{}", attempt=1, fence=1, lease="s", until=0, ttl_us=ttl * 1_000_000,
        beat_us=beat * 1_000_000, correlation="", trace="",
    )  # fmt: skip
    context = JobContext(None, grant, 1, lambda note: None)  # type: ignore[arg-type]
    return Execution(grant, context.held, LocalLease(grant, lambda: now, now), lambda _: context)


def test_a_queue_claims_ahead_only_where_handlers_are_fast() -> None:
    slow = WorkerQueue("default", 10)
    assert slow.room == 10
    slow.add_duration(10.0)
    assert slow.room == 10
    fast = WorkerQueue("default", 10)
    fast.add_duration(0.001)
    assert fast.room == 10 + AHEAD_MAX
    fast.running = 10
    fast.waiting.extend(held(n, 1, 2, 0.0) for n in range(AHEAD_MAX))
    assert fast.room == 0


def test_a_lost_lease_stops_its_handler(url: str) -> None:
    async def story(app: interlock.App) -> None:
        stopped, seen = asyncio.Event(), threading.Event()

        @app.task
        async def lasting(ctx: interlock.Context) -> int:
            assert isinstance(ctx, JobContext)
            if ctx.fence == 1:
                try:
                    await asyncio.Event().wait()
                finally:
                    stopped.set()
            return ctx.fence

        @app.task
        def threaded(ctx: interlock.Context) -> int:
            assert isinstance(ctx, JobContext)
            while ctx.fence == 1 and not ctx.cancelled:
                seen.wait(0.005)
            if ctx.fence == 1:
                seen.set()
            return ctx.fence

        jobs = [lasting.submit(), threaded.submit()]
        async with working(app) as worker:
            await until(lambda: all(job.look().category == "active" for job in jobs))
            for job in jobs:
                await app.asend(Revoke(unit=job.unit))
            assert [await job.wait.aio(PATIENCE) for job in jobs] == [2, 2]
            await until(lambda: stopped.is_set() and seen.is_set())
            assert worker.reporter.counts["refused"] == 0
        assert triggers(jobs[0]) == ["submit", "claim", "start", "lost", "claim", "start", "complete"]

    with opened(url, hurry=20) as app:
        asyncio.run(story(app))


def test_a_soft_cancel_is_seen_and_a_hard_one_felt(url: str) -> None:
    async def story(app: interlock.App) -> None:
        felt = asyncio.Event()

        @app.task
        async def softly(ctx: interlock.Context) -> None:
            assert isinstance(ctx, JobContext)
            while not ctx.cancelled:
                await asyncio.sleep(0.005)
            raise interlock.Cancelled("as you wish")

        @app.task
        async def hard() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                felt.set()
                raise

        soft, cut = softly.submit(), hard.submit()
        async with working(app):
            await until(lambda: all(job.look().category == "active" for job in (soft, cut)))
            soft.cancel()
            cut.cancel(hard=True)
            await until(lambda: soft.look().outcome == cut.look().outcome == "cancelled")
            await until(felt.is_set)
        assert triggers(soft)[-1] == "stopped"
        assert triggers(cut)[-1] == "cancel"

    with opened(url, hurry=20) as app:
        asyncio.run(story(app))


def test_a_worker_that_holds_nothing_has_nothing_to_renew(url: str) -> None:
    async def story(app: interlock.App) -> None:
        async with working(app) as worker:
            await asyncio.to_thread(worker.heartbeats.send, asyncio.get_running_loop())

    with opened(url) as app:
        asyncio.run(story(app))


@pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "elsewhere"])
def test_a_cancel_is_heard_at_once_however_seldom_the_worker_beats(
    url: str, elsewhere: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalLease, "heartbeat_at", property(lambda lease: lease.renewed_at + 3600))

    async def story(app: interlock.App, other: interlock.App) -> None:
        @app.task
        async def lasting(ctx: interlock.Context) -> None:
            assert isinstance(ctx, JobContext)
            while not ctx.cancelled:
                await asyncio.sleep(0.005)

        soft, hard, third = jobs = [lasting.submit() for _ in range(3)]
        async with working(app) as worker:
            await until(lambda: len(worker.executions) == 3 and all(each.start_reported for each in worker.executions))
            other.job(hard.unit).cancel(hard=True)
            await until(lambda: worker.executions.find(hard.unit) is None)
            assert sorted(each.grant.unit for each in worker.executions) == [soft.unit, third.unit]
            other.job(soft.unit).cancel()
            await until(lambda: soft.look().outcome is not None)
            other.send(Revoke(unit=third.unit))
            await until(lambda: third.look().outcome is None and unit(third).fence == 2)
            other.job(third.unit).cancel(hard=True)
            await until(lambda: len(worker.executions) == 0)
        assert [job.look().category for job in jobs] == ["success", "cancelled", "cancelled"]

    apart = elsewhere and "memory" not in url  # which nobody else can see
    with opened(url) as app, opened(url) if apart else nullcontext(app) as other:
        asyncio.run(story(app, other))


def test_a_handler_that_takes_too_long_has_timed_out_and_is_tried_again(url: str) -> None:
    async def story(app: interlock.App) -> None:
        told: list[bool] = []

        @app.task(timeout=0.05, attempts=2, backoff=0.001)
        async def lasting() -> None:
            await asyncio.Event().wait()

        @app.task(timeout=0.05, attempts=1)
        def threaded(ctx: interlock.Context) -> None:
            assert isinstance(ctx, JobContext)
            while not ctx.cancelled:
                threading.Event().wait(0.005)
            told.append(True)

        @app.task(timeout=PATIENCE, attempts=1)
        async def own() -> None:
            raise TimeoutError("of another clock")

        jobs = [lasting.submit(), threaded.submit(), own.submit()]
        async with working(app):
            await until(lambda: all(job.look().outcome for job in jobs))
            await until(lambda: told)
        assert unit(jobs[0]).attempt == 2
        assert "TransientError: timed out" in error(jobs[1]) or events(jobs[1])[-1].payload.count("timeout")
        assert error(jobs[2]) == "TimeoutError: of another clock"

    with opened(url) as app:
        asyncio.run(story(app))


def test_a_thread_that_cannot_be_stopped_keeps_its_place(url: str) -> None:
    async def story(app: interlock.App) -> None:
        go, began = threading.Event(), threading.Event()

        @app.task(timeout=0.05, attempts=1)
        def stuck() -> None:
            go.wait(PATIENCE)

        @app.task
        def next_one() -> None:
            began.set()

        first = stuck.submit()
        async with working(app, concurrency=1) as worker:
            queue = worker.queues["default"]
            await until(lambda: first.look().outcome)
            assert (queue.running, queue.stuck, queue.room) == (1, 1, 0)
            second = next_one.submit()
            claims = worker.claims
            queue.mean_seconds = 0.02  # as after fast handlers: it would claim ahead
            await until(lambda: worker.wakeups > 1)
            assert worker.claims == claims
            assert not began.is_set()
            go.set()
            await second.wait.aio(PATIENCE)
            assert (queue.running, queue.stuck) == (0, 0)

    with opened(url) as app:
        asyncio.run(story(app))


def test_what_a_thread_says_is_not_overtaken_by_the_end_of_its_handler(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler may have ended before anybody waits for it: its last checkpoint goes with its failure all the same."""

    def submit_and_wait(pool: ThreadPoolExecutor, *args: Any) -> "Future[Any]":
        future = submit(pool, *args)
        wait([future], PATIENCE)
        return future

    submit = ThreadPoolExecutor.submit

    async def story(app: interlock.App) -> None:
        @app.task(attempts=3, backoff="1ms", backoff_cap="1ms")
        def order(ctx: interlock.Context) -> Any:
            ctx.checkpoint({"attempt": ctx.attempt})
            if ctx.attempt < 3:
                raise OSError("away")
            return ctx.saved

        job = order.submit()
        async with working(app):
            monkeypatch.setattr(ThreadPoolExecutor, "submit", submit_and_wait)
            assert await job.wait.aio(PATIENCE) == {"attempt": 2}
            monkeypatch.undo()

    with opened(url) as app:
        asyncio.run(story(app))


def test_what_a_handler_sets_in_its_context_is_its_own(url: str) -> None:
    variable: ContextVar[str] = ContextVar("variable", default="")

    async def story(app: interlock.App) -> None:
        @app.task
        async def leave(n: int) -> str:
            before = variable.get()
            variable.set(f"of {n}")
            return before

        @app.task
        def leave_in_thread(n: int) -> str:
            before = variable.get()
            variable.set(f"of {n}")
            return before

        jobs = [job for task in (leave, leave_in_thread) for job in task.submit_many([{"n": n} for n in range(4)])]
        async with working(app, concurrency=1):  # so that one of them starts where another has ended
            assert [await job.wait.aio(PATIENCE) for job in jobs] == [""] * len(jobs)

    with opened(url) as app:
        asyncio.run(story(app))


def test_handlers_that_end_at_once_let_others_run(url: str) -> None:
    """However many wait, and whether they start within the claim or after it."""

    async def story(app: interlock.App) -> None:
        ended = list[int]()

        @app.task
        async def quick(n: int) -> int:
            ended.append(n)
            return sys.getrecursionlimit() - n

        jobs = quick.submit_many([{"n": n} for n in range(1_500)])
        async with working(app, concurrency=2):
            await jobs[-1].wait.aio(PATIENCE)
            await until(lambda: len(ended) == len(jobs))
        assert sorted(ended) == list(range(len(jobs)))

    with opened(url) as app:
        asyncio.run(story(app))


def test_whatever_a_handler_raises_is_its_own_failure_and_nobody_elses(url: str) -> None:
    async def story(app: interlock.App) -> None:
        class Speechless(Exception):
            def __str__(self) -> str:
                raise RuntimeError

        words: dict[str, BaseException] = {
            "exit": SystemExit(3), "key": KeyboardInterrupt(), "zero": ValueError("a\0b"), "half": ValueError("\ud800"),
            "mute": Speechless(), "alone": asyncio.CancelledError(), "wish": interlock.Cancelled("nobody asked"),
        }  # fmt: skip

        @app.task(attempts=1)
        async def raises(word: str) -> None:
            raise words[word]

        @app.task(attempts=1)
        def threaded(word: str) -> None:
            if word == "exit":
                sys.exit(3)
            raise words[word]

        @app.task(attempts=1)
        def stopped() -> int:
            threading.Event().wait(0.05)  # so that somebody waits for it
            return next(iter(list[int]()))

        @app.task(attempts=1)
        async def strange() -> Any:
            return object()

        @app.task
        async def fine() -> int:
            return 1

        bad = [task.submit(word=word) for word in words for task in (raises, threaded)]
        bad += [strange.submit(), stopped.submit()]
        good = [fine.submit() for _ in range(10)]
        async with working(app, concurrency=50) as worker:
            await until(lambda: all(job.look().outcome for job in bad))
            assert [await job.wait.aio(PATIENCE) for job in good] == [1] * 10
            assert worker.reporter.counts["refused"] == 0
        for job in bad:
            assert job.look().outcome in ("dead", "failure"), error(job)
            assert error(job)

    with opened(url) as app:
        asyncio.run(story(app))


def test_a_task_that_a_worker_has_lost_is_tried_again_and_says_what_is_known(url: str) -> None:
    """It said that it knows the task when it registered."""

    async def story(app: interlock.App) -> None:
        @app.task(attempts=2, backoff=0.001)
        async def known() -> None: ...

        @app.task(attempts=2, backoff=0.001)
        async def unknown() -> None: ...

        async with working(app) as worker:
            await until(lambda: worker.claims)
            del app.tasks["unknown"]
            job = unknown.submit()
            await until(lambda: job.look().outcome)
        assert error(job) == "this app has no task 'unknown'; it has known"
        assert triggers(job) == ["submit", "claim", "retry", "claim", "exhaust"]
        assert msgspec.json.decode(events(job)[-1].payload)["stage"] == "fetch"

    with opened(url) as app:
        asyncio.run(story(app))


def test_a_snooze_too_many_is_a_failure_and_not_a_lease_that_nobody_serves() -> None:
    async def story(app: interlock.App) -> None:
        @app.task
        async def sleepy() -> None:
            raise interlock.Snooze(0)

        job = sleepy.submit()
        async with working(app):
            await until(lambda: job.look().outcome)
        assert "its end was refused" in error(job)
        assert triggers(job).count("snooze") == app.lifecycles["job"].options.budget.snoozes

    with opened("sqlite://:memory:") as app:
        asyncio.run(story(app))


def test_nothing_is_kept_of_what_has_ended() -> None:
    async def story(app: interlock.App) -> None:
        @app.task
        async def one(ctx: interlock.Context) -> None:
            assert isinstance(ctx, JobContext)
            ctx.progress(1.0)

        jobs = one.submit_many([{}] * 2_000)
        async with working(app) as worker:
            await until(lambda: worker.reporter.counts["success"] == len(jobs))
            assert len(worker.executions) == 0
            reporter = worker.reporter
            assert (reporter.starts, reporter.ends, reporter.notes) == ([], [], {})
            assert not worker.queues["default"].waiting
            await until(lambda: len(asyncio.all_tasks()) <= 8)

    with opened("sqlite://:memory:") as app:
        asyncio.run(story(app))


def test_a_refused_end_in_a_crowd_spoils_only_itself(url: str) -> None:
    """A command that the engine cannot carry out is told again for each unit alone."""

    async def story(app: interlock.App) -> None:
        @app.task(attempts=1)
        async def one(n: int) -> int:
            return n

        jobs = [one.submit(n) for n in range(10)]
        worker = Worker(app, {"default": 10})
        report_end = worker.report_end

        def report_damaged(execution: Execution) -> None:
            if execution.grant.unit == jobs[3].unit:
                execution.outcome = msgspec.structs.replace(execution.outcome, stage="nowhere")  # type: ignore[type-var]
            report_end(execution)

        worker.report_end = report_damaged  # type: ignore[method-assign]
        running = asyncio.create_task(worker.run())
        await until(lambda: all(job.look().outcome for job in jobs))
        worker.stop()
        await asyncio.wait_for(running, PATIENCE)
        assert [job.look().outcome for job in jobs].count("success") == 9
        assert "its end was refused: stage" in error(jobs[3])

    with opened(url) as app:
        asyncio.run(story(app))


def test_an_answer_that_is_lost_is_asked_for_again(url: str) -> None:
    """Every command of a worker may be carried out and get no answer; nothing is done twice, and nothing is lost."""

    async def story(app: interlock.App) -> None:
        count = 0
        put_all = app.put_all

        def lossy(commands: Any) -> Any:
            nonlocal count
            count += 1
            futures = put_all(commands)
            if count % 3 or isinstance(commands[0], Tick):
                return futures
            for future in futures:
                future.exception(PATIENCE)
            raise Unavailable("the answer is lost")

        app.put_all = lossy  # type: ignore[method-assign]

        @app.task
        async def one(n: int) -> int:
            await asyncio.sleep(0.001 * (n % 7))
            return n

        jobs = one.submit_many([{"n": n} for n in range(100)])
        async with working(app, concurrency=5):
            assert [await job.wait.aio(PATIENCE) for job in jobs] == list(range(100))
        for job in jobs:
            assert triggers(job) == ["submit", "claim", "start", "complete"]

    with opened(url) as app:
        asyncio.run(story(app))
