"""A submit inside the caller's own transaction: the job is there exactly if the caller commits."""

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
from psycopg.rows import dict_row

import interlock
from interlock import InterlockError
from interlock.audit.laws import audit
from interlock.client.app import App
from interlock.core import committer
from interlock.kernel.commands import Submit
from interlock.kernel.ids import format_id
from interlock.store.queries.views import Filter, listing
from interlock.testing import staged
from interlock.worker import loop
from tests.client.test_living import PATIENCE, working
from tests.store.databases import fresh_postgres

KINDS = ("sqlite", "postgres")


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path, server: str) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/shop.db"
    else:
        with fresh_postgres(server, f"x{abs(hash(tmp_path))}") as made:
            yield made


@pytest.fixture
def app(url: str) -> Iterator[App]:
    with interlock.open(url) as made:

        @made.task
        def mail(order: int) -> int:
            return order

        @made.task
        def other() -> None: ...

        made.connect()  # a SQLite file is there from now on
        yield made
        assert made.engine.read(lambda connection: list(audit(connection, made.lifecycles))) == []


def connect(url: str, **how: Any) -> Any:
    """A connection as a program makes one, with a table of its own."""
    if url.startswith("sqlite"):
        connection: Any = sqlite3.connect(url.removeprefix("sqlite:///"), **how)
    else:
        connection = psycopg.connect(url, **how)
    connection.execute("CREATE TEMP TABLE orders (id INTEGER PRIMARY KEY)")
    connection.commit()
    return connection


def jobs(app: App) -> list[int]:
    return [one.unit.id for one in app.read(listing, Filter(lifecycle="job"), 100)]


def orders(connection: Any) -> int:
    return int(connection.execute("SELECT count(*) FROM orders").fetchone()[0])


def test_it_is_there_once_the_caller_commits(app: App, url: str) -> None:
    with closing(connect(url)) as mine:
        mine.execute("INSERT INTO orders VALUES (1)")
        job = app.tasks["mail"].submit(order=1, tx=mine)
        assert job.created
        assert jobs(app) == [], "nobody else sees it yet"
        mine.commit()
        assert jobs(app) == [job.unit]
        assert orders(mine) == 1
    with staged(app, url) as stage:
        assert stage.drain() == 1
        assert job.wait() == 1


def test_it_never_was_if_the_caller_rolls_back(app: App, url: str) -> None:
    with closing(connect(url)) as mine:
        mine.execute("INSERT INTO orders VALUES (1)")
        app.tasks["mail"].submit(order=1, tx=mine)
        app.tasks["mail"].submit_many([{"order": 2}, {"order": 3}], tx=mine, queue="new queue")
        mine.rollback()
        assert jobs(app) == []
        assert orders(mine) == 0
    assert app.tasks["mail"].submit(order=4, queue="new queue").created


def test_it_opens_the_transaction_as_a_first_write_would(app: App, url: str) -> None:
    with closing(connect(url)) as mine:
        app.tasks["mail"].submit(order=1, tx=mine)
        assert jobs(app) == []
        mine.rollback()
        assert jobs(app) == []
        app.tasks["mail"].submit(order=1, tx=mine)
        mine.commit()
        assert len(jobs(app)) == 1


def test_autocommit_is_refused_unless_a_transaction_is_open(app: App, url: str) -> None:
    how: dict[str, Any] = {"isolation_level": None} if url.startswith("sqlite") else {"autocommit": True}
    with closing(connect(url, **how)) as mine:
        with pytest.raises(InterlockError, match="autocommit and no transaction is open"):
            app.tasks["mail"].submit(order=1, tx=mine)
        mine.execute("BEGIN")
        app.tasks["mail"].submit(order=1, tx=mine)
        assert jobs(app) == []
        mine.execute("COMMIT")
        assert len(jobs(app)) == 1


def test_another_database_is_refused_and_its_transaction_goes_on(
    app: App, url: str, tmp_path: Path, running_postgres: str
) -> None:
    with closing(sqlite3.connect(tmp_path / "elsewhere.db")) as mine:
        mine.execute("CREATE TABLE orders (id INTEGER)")
        mine.execute("INSERT INTO orders VALUES (1)")
        with pytest.raises(InterlockError, match="another database than the app's"):
            app.tasks["mail"].submit(order=1, tx=mine)
        mine.commit()
        assert orders(mine) == 1
    with interlock.open(f"sqlite:///{tmp_path}/second.db") as second:
        second.connect()
        with closing(sqlite3.connect(tmp_path / "second.db")) as mine, pytest.raises(InterlockError, match="another"):
            app.tasks["mail"].submit(order=1, tx=mine)
    with (
        closing(psycopg.connect(running_postgres)) as foreign,
        pytest.raises(InterlockError, match=r"tx: .*(another|no conn)"),
    ):
        app.tasks["mail"].submit(order=1, tx=foreign)
    assert jobs(app) == []


@pytest.mark.parametrize("foreign", ["a url", 7, object(), app], ids=lambda one: type(one).__name__)
def test_what_is_no_connection_is_refused(app: App, foreign: object) -> None:
    with pytest.raises(InterlockError, match="is no connection that Interlock can join; a sqlite3 or a psycopg"):
        app.tasks["mail"].submit(order=1, tx=foreign)
    assert jobs(app) == []


def test_a_connection_that_is_closed_is_refused(app: App, url: str) -> None:
    mine = connect(url)
    mine.close()
    with pytest.raises(InterlockError, match="closed"):
        app.tasks["mail"].submit(order=1, tx=mine)


def test_a_transaction_that_has_failed_is_refused(app: App, url: str) -> None:
    if url.startswith("sqlite"):
        return  # a failed statement spoils nothing there
    with closing(connect(url)) as mine:
        with pytest.raises(psycopg.Error):
            mine.execute("SELECT 1 / 0")
        with pytest.raises(InterlockError, match="transaction"):
            app.tasks["mail"].submit(order=1, tx=mine)
        mine.rollback()


def test_the_callers_own_ways_with_rows_do_not_matter(app: App, url: str) -> None:
    with closing(connect(url)) as mine:
        if url.startswith("sqlite"):
            mine.row_factory = sqlite3.Row
            mine.text_factory = bytes
        else:
            mine.row_factory = dict_row
        first = app.tasks["mail"].submit(order=1, key="k", tx=mine)
        assert app.tasks["mail"].submit(order=1, key="k", tx=mine).unit == first.unit
        mine.commit()
    assert jobs(app) == [first.unit]


def test_a_refused_submit_leaves_the_transaction_usable(app: App, url: str) -> None:
    with closing(connect(url)) as mine:
        mine.execute("INSERT INTO orders VALUES (1)")
        first = app.tasks["mail"].submit(order=1, key="k", tx=mine)
        for wrong in ({"order": 2, "key": "k"}, {"order": 1, "key": "k", "on_duplicate": "reject"}, {"order": "x"}):
            with pytest.raises(InterlockError):
                app.tasks["mail"].submit(**wrong, tx=mine)
        with pytest.raises(InterlockError, match="priority"):
            app.tasks["mail"].submit(order=1, priority=2**40, tx=mine)
        mine.execute("INSERT INTO orders VALUES (2)")
        second = app.tasks["mail"].submit(order=2, tx=mine)
        mine.commit()
        assert orders(mine) == 2
    assert sorted(jobs(app)) == [first.unit, second.unit]


def test_others_submit_while_a_callers_transaction_is_open(app: App, url: str) -> None:
    if url.startswith("sqlite"):
        return  # one writer at a time
    with closing(connect(url)) as mine:
        app.tasks["mail"].submit(order=1, tx=mine)
        outside = app.tasks["mail"].submit(order=2)
        assert jobs(app) == [outside.unit]
        mine.commit()
    assert len(jobs(app)) == 2


def test_several_tasks_and_many_jobs_share_one_transaction(app: App, url: str) -> None:
    with closing(connect(url)) as mine:
        app.tasks["mail"].submit_many([{"order": n} for n in range(50)], tx=mine, mutex="m")
        for _ in range(20):
            app.tasks["other"].submit(tx=mine, limit=interlock.limit("l", 3))
        mine.commit()
    with staged(app, url) as stage:
        assert stage.drain() == 70


def test_a_command_that_needs_more_ids_than_were_taken_gets_them(
    app: App, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Submit, "count_rows", lambda command: 1)
    monkeypatch.setattr(committer, "IDS_PER_ROW", 1)
    with closing(connect(url)) as mine:
        mine.execute("INSERT INTO orders VALUES (1)")
        app.tasks["mail"].submit_many([{"order": 1}, {"order": 2}], tx=mine)
        mine.commit()
        assert (len(jobs(app)), orders(mine)) == (2, 1)


def test_a_worker_hears_of_what_a_caller_committed(app: App, url: str) -> None:
    with closing(connect(url)) as mine, app.engine.watch(["default"]) as watch:
        app.tasks["mail"].submit(order=1, tx=mine)
        assert not watch.wait(0)
        mine.commit()
        assert watch.wait(PATIENCE)


def test_a_worker_that_never_polls_gets_it_with_the_callers_commit(
    app: App, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "POLL_EVERY", 3_600.0)
    with working(app), closing(connect(url)) as mine:
        first = app.tasks["mail"].submit(order=0)
        first.wait(PATIENCE)  # the worker has found nothing more, and waits to be woken
        app.tasks["mail"].submit(order=1, tx=mine)
        mine.rollback()
        kept = app.tasks["mail"].submit(order=2, tx=mine)
        mine.commit()
        assert kept.wait(PATIENCE) == 2
        assert sorted(jobs(app)) == [first.unit, kept.unit]


def test_a_request_key_is_kept_exactly_if_the_caller_commits(app: App, url: str) -> None:
    command = app.tasks["mail"].make_submit([((), {"order": 1})], {})
    command = msgspec.structs.replace(command, idempotency_key="r1")
    with closing(connect(url)) as mine:
        app.sender(mine).send(command)
        mine.rollback()
        assert jobs(app) == []
        (first,) = app.sender(mine).send(command)
        assert app.sender(mine).send(command) == [first], "the same answer inside the same transaction"
        mine.commit()
        assert app.sender(mine).send(command) == [first], "and in the next one"
        other = msgspec.structs.replace(command, work=app.tasks["mail"].make_submit([((), {"order": 2})], {}).work)
        with pytest.raises(InterlockError, match="IDEMPOTENCY_CONFLICT"):
            app.sender(mine).send(other)
        mine.commit()
    assert app.send(command) == [first], "and outside of it"
    assert jobs(app) == [first.unit]


def test_an_answer_of_ours_is_found_in_a_callers_transaction(app: App, url: str) -> None:
    command = app.tasks["mail"].make_submit([((), {"order": 1})], {})
    command = msgspec.structs.replace(command, idempotency_key="r1")
    (first,) = app.send(command)
    with closing(connect(url)) as mine:
        assert app.sender(mine).send(command) == [first]
        mine.commit()
    assert jobs(app) == [first.unit]


def test_twenty_callers_transactions_are_open_at_once(app: App, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if url.startswith("sqlite"):
        return  # one writer at a time
    monkeypatch.setattr(loop, "POLL_EVERY", 3_600.0)
    with ExitStack() as stack:
        callers = [stack.enter_context(closing(connect(url))) for _ in range(20)]
        made = [app.tasks["mail"].submit(order=place, tx=mine) for place, mine in enumerate(callers)]
        assert jobs(app) == []
        stack.enter_context(working(app))
        plain = app.tasks["mail"].submit(order=100)
        plain.wait(PATIENCE)  # the worker has found nothing more, and waits to be woken
        for place, mine in enumerate(callers):
            if place % 2:
                mine.rollback()
            else:
                mine.commit()
        for place, job in enumerate(made):
            if place % 2 == 0:
                assert job.wait(PATIENCE) == place
    assert sorted(jobs(app)) == sorted(job.unit for job in [plain, *made[::2]])


def test_two_callers_with_one_key_make_one_job(app: App, url: str) -> None:
    if url.startswith("sqlite"):
        return  # one writer at a time
    with closing(connect(url)) as mine, closing(connect(url)) as theirs, ThreadPoolExecutor(1) as pool:
        first = app.tasks["mail"].submit(order=1, key="k", tx=mine)
        late = pool.submit(app.tasks["mail"].submit, order=1, key="k", tx=theirs)
        assert not late.done()
        mine.commit()
        second = late.result(PATIENCE)
        theirs.commit()
    assert (second.unit, second.created) == (first.unit, False)
    assert jobs(app) == [first.unit]


def test_an_id_needs_no_commit_and_no_read(app: App, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(connect(url)) as mine:
        job = app.tasks["mail"].submit(order=1, tx=mine)
        many = app.tasks["mail"].submit_many([{"order": 2}], tx=mine)
        with monkeypatch.context() as patch:
            patch.setattr(app, "read", None)
            ids = [job.id, many[0].id]
        assert repr(job) == f"<{job.id}>"
        mine.commit()
    assert ids == [format_id("job", job.unit), format_id("job", many[0].unit)]
    assert repr(job) == f"<{job.id} {job.state}>"
