"""Questions to the database: several at a time, each within its limit, and every connection closed at the end."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from interlock.client.app import App
from interlock.core.engine import READERS
from interlock.kernel.commands import Submit, Work
from interlock.kernel.errors import StoreError, TooSlow
from interlock.server import jobs
from interlock.server.limits import Limits
from interlock.store.connection import Connection
from interlock.store.queries.lists import Page
from interlock.store.queries.lists import read_newest_units as real_newest
from interlock.store.url import connect
from tests.server.house import housed
from tests.server.stage import Stage, staged

COUNT = "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < {most}) SELECT count(*) FROM n"
ENDLESS = COUNT.format(most=5 * 10**8)  # minutes
SHORT = COUNT.format(most=10_000)
PATIENCE = 30.0


def keep_busy(connection: Connection) -> None:
    connection.rows(ENDLESS)


def ask_on_and_on(connection: Connection) -> None:
    """Each statement is short, and there are very many."""
    end = time.monotonic() + PATIENCE / 3
    while time.monotonic() < end:
        connection.rows(SHORT)


@contextmanager
def slow_lists(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Semaphore]:
    """A list of the task `slow` would never end; the semaphore counts those that have begun."""
    begun = threading.Semaphore(0)

    def newest(connection: Connection, tenant: int, lifecycles: Any, wanted: Any, *rest: Any) -> Page:
        if wanted.task == "slow":
            begun.release()
            keep_busy(connection)
        return real_newest(connection, tenant, lifecycles, wanted, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(jobs, "read_newest_units", newest)
        yield begun


def test_a_slow_question_does_not_delay_another(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with staged(url, limits=Limits(question_seconds=3.0)) as stage, slow_lists(monkeypatch) as begun:
        job = stage.job()
        with ThreadPoolExecutor(READERS - 1) as pool:
            slow = [pool.submit(stage.ask, "GET", "/v1/jobs?task=slow") for _ in range(READERS - 1)]
            for _ in slow:
                assert begun.acquire(timeout=PATIENCE)
            assert stage.get(f"/v1/jobs/{job}")["id"] == job
            assert [one["id"] for one in stage.get("/v1/jobs")["jobs"]] == [job]
            assert not any(one.done() for one in slow)
            assert [one.result().status_code for one in slow] == [503] * len(slow)


def test_a_question_over_its_limit_is_stopped_and_says_what_to_narrow(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with staged(url, limits=Limits(question_seconds=0.2)) as stage, slow_lists(monkeypatch):
        job = stage.job()
        began = time.monotonic()
        for _ in range(READERS + 1):  # none of them keeps its connection
            refused = stage.ask("GET", "/v1/jobs?task=slow")
            assert refused.status_code == 503
        assert time.monotonic() - began < PATIENCE
        fault = refused.json()["error"]
        assert fault["code"] == "TOO_SLOW"
        assert fault["message"].startswith("GET /v1/jobs: this took longer than 0.2 s and was stopped")
        assert "a smaller `limit` or no `count` or fewer units by `state`" in fault["message"]
        assert "retry-after" not in refused.headers
        assert [one["id"] for one in stage.get("/v1/jobs?task=mail")["jobs"]] == [job]
        assert stage.post(f"/v1/jobs/{job}/cancel", {})["applied"]


@pytest.mark.parametrize("question", [keep_busy, ask_on_and_on])
def test_the_limit_is_of_the_whole_question_and_leaves_nothing_behind(url: str, question: Any) -> None:
    with App(url) as app:
        app.connect()
        for _ in range(2 * READERS):
            with pytest.raises(TooSlow, match=r"longer than 0\.1 s"):
                app.engine.read(question, 1, 0.1)
        app.send(Submit(work=(Work(task="mail"),)))
        # A question without a limit takes as long as it takes, on the connections that had one.
        assert [
            app.engine.read(lambda connection: connection.rows(COUNT.format(most=300_000)), 1) for _ in range(READERS)
        ]
        if not url.startswith("sqlite"):
            asked = "SELECT current_setting('statement_timeout')"
            assert app.engine.read(lambda connection: connection.rows(asked), 1) == [("0",)]


def test_what_is_wrong_within_the_limit_is_not_called_slow(url: str) -> None:
    with App(url) as app:
        app.connect()
        with pytest.raises(StoreError) as told:
            app.engine.read(lambda connection: connection.rows("SELECT nothing FROM nowhere"), 1, 5.0)
        assert not isinstance(told.value, TooSlow)


def test_memory_has_one_connection_and_its_questions_have_limits_too() -> None:
    with App("sqlite://:memory:") as app:
        app.connect()
        assert app.engine.readers is None
        for question in (keep_busy, ask_on_and_on):
            with pytest.raises(TooSlow):
                app.engine.read(question, 1, 0.05)
            time.sleep(0.06)
            assert len(app.send(Submit(work=tuple(Work(task="mail") for _ in range(200))))) == 200


def test_every_connection_is_closed_at_the_end(url: str) -> None:
    app = App(url)
    engine: Any = app.connect()
    together = threading.Barrier(READERS)

    def ask(connection: Connection) -> Connection:
        together.wait(PATIENCE)
        return connection

    with ThreadPoolExecutor(READERS) as pool:
        used = list(pool.map(lambda _: engine.read(ask, 1), range(READERS)))
    assert {id(one) for one in used} == {id(one) for one in engine.readers.sessions}
    began = threading.Event()

    def linger(connection: Connection) -> int:
        began.set()
        time.sleep(0.2)
        return int(connection.rows("SELECT 7")[0][0])

    with ThreadPoolExecutor(1) as pool:
        last = pool.submit(engine.read, linger, 1)
        assert began.wait(PATIENCE)
        app.close()
        assert last.result() == 7  # what was asked before is answered
    if url.startswith("sqlite"):
        for connection in used:
            with pytest.raises(StoreError, match="closed"):
                connection.rows("SELECT 1")
    else:
        assert all(connection.raw.closed for connection in used)  # type: ignore[attr-defined]
    with pytest.raises(StoreError, match="this engine is closed"):
        engine.read(linger, 1)


def test_a_stream_goes_on_beside_slow_questions(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with staged(url, limits=Limits(question_seconds=2.0)) as stage, slow_lists(monkeypatch) as begun:
        job = stage.job()
        with ThreadPoolExecutor(READERS) as pool:
            told = pool.submit(read_stream, stage, job)
            slow = [pool.submit(stage.ask, "GET", "/v1/jobs?task=slow") for _ in range(READERS - 1)]
            for _ in slow:
                assert begun.acquire(timeout=PATIENCE)
            stage.post(f"/v1/jobs/{job}/cancel", {})
            assert "event: " in told.result(PATIENCE)
            assert {one.result().status_code for one in slow} == {503}


def read_stream(stage: Stage, job: str) -> str:
    """All events of a job, until it has ended."""
    headers = {"Accept": "text/event-stream"}
    return stage.ask("GET", f"/v1/jobs/{job}/events", headers=headers).text


def test_a_client_over_http_is_told_so_at_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with housed() as house, house.hosts(App(url)) as key, App(house.base, key=key) as app:
        house.guest.state.server.limits = Limits(question_seconds=0.2)
        job = app.job(app.send(Submit(work=(Work(task="mail"),)))[0].unit)
        assert house.app

        def read(question: Any, tenant: int, seconds: float) -> Any:
            return real(lambda connection: keep_busy(connection), tenant, seconds)

        engine, began = house.app.engine, time.monotonic()
        real = engine.read
        monkeypatch.setattr(engine, "read", read)
        with pytest.raises(TooSlow, match=r"POST /v1/views/glimpse: this took longer than 0\.2 s"):
            job.look()
        assert time.monotonic() - began < PATIENCE / 10


def test_no_connection_is_left_open_on_postgres(url: str) -> None:
    if url.startswith("sqlite"):
        return  # a file has no list of its connections
    watcher = connect(url)
    try:
        asked = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        with App(url) as app:
            app.connect()
            with ThreadPoolExecutor(8) as pool:
                list(pool.map(lambda _: app.engine.read(lambda connection: connection.now(), 1), range(50)))
        end = time.monotonic() + PATIENCE
        while watcher.rows(asked)[0][0] and time.monotonic() < end:
            time.sleep(0.01)
        assert watcher.rows(asked)[0][0] == 0
    finally:
        watcher.close()
