"""An app with the real engine and the real worker: opened when it is used, from threads, from asyncio, closed twice."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

import interlock
from interlock.client.app import App
from interlock.worker.loop import Worker

PATIENCE = 60.0  # seconds until a test gives up; none waits so long


@contextmanager
def working(app: App, **queues: int) -> Iterator[None]:
    """A worker runs in a thread of its own until the block ends."""
    worker = Worker(app, queues or {"default": 10}, name="w")
    thread = threading.Thread(target=lambda: asyncio.run(worker.run()))
    thread.start()
    try:
        yield
    finally:
        worker.loop.call_soon_threadsafe(worker.stop)
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_an_app_connects_when_it_is_first_used_and_may_be_closed_twice(tmp_path: Path) -> None:
    app = interlock.open(f"sqlite:///{tmp_path}/work.db")

    @app.task
    def hello(name: str = "world") -> str:
        return f"hello {name}"

    assert not (tmp_path / "work.db").exists()
    app.close()
    job = hello.submit()
    assert (tmp_path / "work.db").exists()
    app.close()
    app.close()
    assert job.state == "queued", "it opens again, and what was durable is there"
    app.close()


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("mysql://x", "'mysql://x' is no database that Interlock knows; allowed are sqlite:///file.db"),
        ("work.db", "is no database that Interlock knows"),
        ("sqlite://work.db", "names no file"),
        ("", "is no database"),
    ],
)
def test_a_wrong_url_is_refused_where_it_is_written(url: str, text: str) -> None:
    with pytest.raises(interlock.InterlockError, match=text):
        interlock.open(url)


def test_without_a_url_it_is_the_database_of_the_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INTERLOCK_DB", raising=False)
    assert interlock.open().url == "sqlite:///interlock.db"
    monkeypatch.setenv("INTERLOCK_DB", "sqlite:///elsewhere.db")
    assert interlock.open().url == "sqlite:///elsewhere.db"
    monkeypatch.setenv("INTERLOCK_DB", "")
    with pytest.raises(interlock.InterlockError, match="is no database"):
        interlock.open()


def test_a_database_that_cannot_be_opened_says_so_when_it_is_used(tmp_path: Path) -> None:
    app = interlock.open(f"sqlite:///{tmp_path}/no/such/folder/work.db")
    app.task(name="t")(lambda: None)
    for _ in range(2):
        with pytest.raises(interlock.InterlockError, match=r"the folder of the database .* does not exist"):
            app.tasks["t"].submit()


def test_threads_and_coroutines_use_one_app(url: str, lawful: Callable[[App], None]) -> None:
    with interlock.open(url) as app:

        @app.task
        def plain(n: int) -> int:
            return n

        @app.task
        async def coloured(n: int, ctx: interlock.Context) -> int:
            async def twice() -> int:
                return 2 * n

            return await ctx.step.aio("twice", twice)

        async def many() -> list[int]:
            jobs = await asyncio.gather(*(coloured.submit.aio(n=n) for n in range(20)))
            jobs += await plain.submit_many.aio([{"n": 1}, {"n": 2}])
            return list(await asyncio.gather(*(job.wait.aio(timeout=PATIENCE) for job in jobs)))

        with working(app), ThreadPoolExecutor(8) as pool:
            threads = [pool.submit(lambda n: plain.submit(n=n).wait(timeout=PATIENCE), n) for n in range(20)]
            assert asyncio.run(many()) == [*(2 * n for n in range(20)), 1, 2]
            assert [one.result() for one in threads] == list(range(20))
        lawful(app)


def test_an_app_is_opened_once_by_many_threads(tmp_path: Path) -> None:
    with interlock.open(f"sqlite:///{tmp_path}/work.db") as app, ThreadPoolExecutor(8) as pool:
        engines = {id(one) for one in pool.map(lambda _: app.engine, range(32))}
        assert len(engines) == 1


def test_waiting_ends_with_the_time_that_was_given(tmp_path: Path) -> None:
    with interlock.open(f"sqlite:///{tmp_path}/work.db") as app:
        job = app.task(name="never")(lambda: None).submit()
        with pytest.raises(interlock.StillWaiting, match=f"{job.id} waits for a worker, and none is registered"):
            job.wait(timeout="10ms")
        with pytest.raises(interlock.StillWaiting):
            asyncio.run(job.wait.aio(timeout=0.01))


def test_the_real_worker_does_what_the_stage_does(url: str) -> None:
    with interlock.open(url) as app:
        calls: list[str] = []

        @app.task(queue="mail", attempts=3, backoff="1ms", backoff_cap="1ms")
        def order(ctx: interlock.Context) -> str:
            ctx.step("charge", lambda: calls.append("charge"))
            ctx.checkpoint({"attempt": ctx.attempt})
            ctx.progress(0.5, "half")
            if ctx.attempt == 1:
                raise OSError("away")
            return f"attempt {ctx.attempt}, saved {ctx.saved}"

        with working(app, mail=2):
            assert order.submit().wait(timeout=PATIENCE) == "attempt 2, saved {'attempt': 1}"
        assert calls == ["charge"]
