"""An engine that makes its own connections: it migrates or refuses, its committers overlap, and it outlives its lines."""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from interlock.audit.laws import audit
from interlock.core.engine import Engine
from interlock.kernel.commands import Claim, Register, Start, Submit, Tick, Work
from interlock.kernel.errors import InterlockError, Unavailable
from interlock.lifecycles import shipped
from interlock.plugins import open_engine
from interlock.store import migrate
from interlock.store.postgres import PostgresConnection
from interlock.store.sqlite import SqliteConnection
from tests.engine.world import held
from tests.store.databases import declare, fresh_postgres, swap

PATIENCE = 60.0  # seconds until a test gives up; none waits so long


@pytest.fixture
def database(server: str) -> Iterator[str]:
    with fresh_postgres(server, "opened") as url:
        yield url


@pytest.fixture
def admin(server: str, database: str) -> Iterator[PostgresConnection]:
    """The owner of the database, beside the engine."""
    connection = PostgresConnection(swap(server, "opened"))
    connection.script("SET synchronous_commit = local")
    declare(connection, 1)
    yield connection
    connection.close()


def until(true: Callable[[], object]) -> None:
    """Waits for a condition."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "it never became true"
        time.sleep(0.01)


def put(engine: Engine, command: object) -> "Future[list[object]]":
    return engine.put(command)  # type: ignore[arg-type]


def waits(admin: PostgresConnection, event: str) -> list[int]:
    """The connections of the engine that wait for something of a kind."""
    sql = (
        "SELECT pid FROM pg_stat_activity WHERE usename = 'ordinary' AND datname = current_database() "
        "AND (wait_event_type = :event OR wait_event = :event)"
    )
    admin.rows("SELECT pg_stat_clear_snapshot()")  # within a transaction the first look would be all that is seen
    return [row[0] for row in admin.rows(sql, {"event": event})]


def submit(*tasks: str, **facts: object) -> Submit:
    return Submit(work=tuple(Work(task=task, **facts) for task in tasks))  # type: ignore[arg-type]


def test_a_file_is_made_and_migrated(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/work.db"
    for number in (1, 2):
        with open_engine(url, shipped()) as engine:
            assert engine.send(submit("a"))[0].created
            assert len(engine.committers) == 1
        connection = SqliteConnection(f"{tmp_path}/work.db")
        assert connection.rows("SELECT count(*) FROM unit") == [(number,)]
        connection.close()


def test_memory_lives_as_long_as_its_engine() -> None:
    with open_engine("sqlite://:memory:", shipped()) as engine:
        assert engine.send(submit("a"))[0].created


def test_an_engine_that_is_closed_says_so(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path}/work.db", shipped())
    engine.close()
    with pytest.raises(Unavailable, match="this engine is closed"):
        engine.send(submit("a"))


def test_an_old_schema_is_refused_on_postgresql(server: str, admin: PostgresConnection, database: str) -> None:
    admin.rows("UPDATE about SET value = '0' WHERE name = 'schema'")
    with pytest.raises(InterlockError, match=r"schema 0 of \d+.*interlock db upgrade"):
        open_engine(database, shipped())
    admin.rows("UPDATE about SET value = '999' WHERE name = 'schema'")
    with pytest.raises(InterlockError, match="newer than this program"):
        open_engine(database, shipped())
    admin.rows("UPDATE about SET value = :now WHERE name = 'schema'", {"now": str(migrate.numbers()[-1])})
    admin.rows("UPDATE edge SET retired = 1 WHERE lifecycle = 'job' AND trigger = 'cancel'")
    with pytest.raises(InterlockError, match=r"does not know this job.*interlock db upgrade"):
        open_engine(database, shipped())


def test_claims_submits_and_ticks_do_not_wait_for_each_other(database: str, admin: PostgresConnection) -> None:
    with open_engine(database, shipped()) as engine:
        run = engine.send(submit("run", lifecycle="workflow_run"))[0].unit
        engine.send(submit("a", "b"))
        worker = engine.send(Register(name="w", incarnation="1", capacity=9))
        claim = Claim(worker=worker, key="1", nonce="1" * 16)

        admin.begin([1])
        admin.rows("SELECT 1 FROM worker WHERE unit = :unit FOR UPDATE", {"unit": worker})
        claiming = put(engine, claim)
        until(lambda: waits(admin, "Lock"))
        assert engine.send(submit("c"))[0].created
        assert engine.send(Tick()) >= 0
        assert not claiming.done()
        admin.rollback()
        assert len(claiming.result(PATIENCE)) == 1

        admin.begin([1])
        admin.rows("SELECT 1 FROM unit WHERE id = :unit FOR UPDATE", {"unit": run})
        submitting = put(engine, submit("child", parent=run))
        until(lambda: waits(admin, "Lock"))
        assert len(engine.send(Claim(worker=worker, key="2", nonce="2" * 16))) == 1
        assert not submitting.done()
        admin.rollback()
        assert submitting.result(PATIENCE)


def test_the_order_of_a_callers_own_commands_is_kept(database: str) -> None:
    """Commands of one caller go through three connections; each sees what the one before it did."""
    with open_engine(database, shipped()) as engine:
        seen: list[list[str]] = [[] for _ in range(4)]
        callers = [threading.Thread(target=live_through, args=(engine, n, seen[n])) for n in range(len(seen))]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        assert all(said == ["claimed", "started"] * 10 for said in seen)


def live_through(engine: Engine, number: int, seen: list[str]) -> None:
    worker = engine.send(Register(name=f"w{number}", incarnation="1", capacity=99))
    for place in range(10):
        engine.send(submit("a", queue=f"q{number}"))
        engine.send(Tick())
        (grant,) = engine.send(Claim(worker=worker, key=f"{place}", nonce="n" * 16, queues=(f"q{number}",)))
        seen.append("claimed")
        if engine.send(Start(held=(held(grant),)))[0].accepted:
            seen.append("started")


def test_a_key_that_two_take_at_once_is_one_unit(database: str, admin: PostgresConnection) -> None:
    with open_engine(database, shipped()) as first, open_engine(database, shipped()) as second:
        written, may_commit, commit = threading.Event(), threading.Event(), first.committer.connection.commit

        def slow_commit() -> None:
            written.set()
            may_commit.wait(PATIENCE)
            commit()

        first.committer.connection.commit = slow_commit  # type: ignore[method-assign]
        early = put(first, submit("a", key="k"))
        assert written.wait(PATIENCE)
        late = put(second, submit("a", key="k"))
        until(lambda: waits(admin, "Lock"))
        may_commit.set()
        one, other = early.result(PATIENCE)[0], late.result(PATIENCE)[0]
        assert one.unit == other.unit  # type: ignore[attr-defined]
        assert [one.created, other.created] == [True, False]  # type: ignore[attr-defined]


def test_connections_that_were_killed_are_made_anew(database: str, admin: PostgresConnection) -> None:
    with open_engine(database, shipped()) as engine:
        worker = engine.send(Register(name="w", incarnation="1", capacity=9))
        for place in range(3):
            kill(admin)
            unit = engine.send(submit("a"))[0].unit
            (grant,) = engine.send(Claim(worker=worker, key=f"{place}", nonce="n" * 16))
            assert grant.unit == unit
            assert engine.send(Tick()) >= 0


def kill(admin: PostgresConnection) -> None:
    here = "usename = 'ordinary' AND datname = current_database()"
    admin.rows(f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE {here}")
    assert admin.rows(f"SELECT count(*) FROM pg_stat_activity WHERE {here}") == [(0,)]


def test_a_connection_that_is_killed_within_a_transaction(database: str, admin: PostgresConnection) -> None:
    with open_engine(database, shipped()) as engine:
        worker = engine.send(Register(name="w", incarnation="1", capacity=9))
        unit = engine.send(submit("a"))[0].unit
        admin.begin([1])
        admin.rows("SELECT 1 FROM worker WHERE unit = :unit FOR UPDATE", {"unit": worker})
        claiming = put(engine, Claim(worker=worker, key="1", nonce="1" * 16))
        until(lambda: waits(admin, "Lock"))
        admin.rows("SELECT pg_terminate_backend(:pid)", {"pid": waits(admin, "Lock")[0]})
        admin.rollback()
        (grant,) = claiming.result(PATIENCE)
        assert grant.unit == unit  # type: ignore[attr-defined]
        assert sound(admin)


def test_a_deadlock_costs_nobody_a_command(database: str, admin: PostgresConnection) -> None:
    with open_engine(database, shipped()) as engine:
        worker = engine.send(Register(name="w", incarnation="1", capacity=9))
        engine.send(submit("a", "b"))
        one, other = engine.send(Claim(worker=worker, key="1", nonce="1" * 16, limit=2))
        admin.script("SET deadlock_timeout = '30s'")  # so that the engine is the one who gives way
        admin.begin([1])
        admin.rows("SELECT 1 FROM unit WHERE id = :unit FOR UPDATE", {"unit": max(one.unit, other.unit)})
        starting = put(engine, Start(held=(held(one), held(other))))
        until(lambda: waits(admin, "Lock"))
        admin.rows("SELECT 1 FROM unit WHERE id = :unit FOR UPDATE", {"unit": min(one.unit, other.unit)})
        admin.rollback()
        assert [said.accepted for said in starting.result(PATIENCE)] == [True, True]  # type: ignore[attr-defined]
        assert sound(admin)


def sound(admin: PostgresConnection) -> bool:
    declare(admin, 1)
    return list(audit(admin, shipped())) == []


@pytest.fixture
def standby(admin: PostgresConnection) -> Iterator[Callable[[], None]]:
    """A synchronous standby that never answers; calling it sends it home."""

    def asked(name: str) -> None:
        admin.script(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'")
        admin.script("SELECT pg_reload_conf()")
        until(lambda: admin.rows("SHOW synchronous_standby_names") == [(name,)])

    asked("nobody")
    yield lambda: asked("")
    asked("")


@pytest.mark.parametrize("how", ["cancelled", "dead line"])
def test_a_commit_that_waits_for_its_standby_is_not_done_twice(
    how: str, database: str, admin: PostgresConnection, standby: Callable[[], None]
) -> None:
    """The server has committed, and says so only by a warning, or not at all: the work is there once."""
    with open_engine(database, shipped()) as engine:
        submitting = put(engine, submit("a"))
        until(lambda: waits(admin, "SyncRep"))  # the ids
        admin.rows("SELECT pg_cancel_backend(:pid)", {"pid": waits(admin, "SyncRep")[0]})
        until(lambda: admin.rows("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query = 'COMMIT'"))
        if how == "cancelled":
            admin.rows("SELECT pg_cancel_backend(:pid)", {"pid": waits(admin, "SyncRep")[0]})
        else:
            raw = engine.committer.connection.raw  # type: ignore[attr-defined]
            with socket.socket(fileno=os.dup(raw.pgconn.socket)) as line:
                line.shutdown(socket.SHUT_RDWR)
            until(
                lambda: admin.rows(
                    "SELECT 1 FROM pg_stat_activity WHERE query LIKE '%pg_xact_status%' AND pid <> pg_backend_pid()"
                )
            )
        assert not submitting.done()
        standby()
        assert submitting.result(PATIENCE)
        assert admin.rows("SELECT count(*) FROM unit") == [(1,)]
        assert sound(admin)


def test_a_transaction_begins_with_its_tenants_and_its_time_in_one_round_trip(database: str) -> None:
    with open_engine(database, shipped()) as engine:
        for _ in range(2):
            engine.send(submit("a"))  # from the second on it has a block of ids
        connection = engine.committer.connection
        assert isinstance(connection, PostgresConnection)
        said: list[str] = []
        execute = connection.raw.execute
        connection.raw.execute = lambda sql, *args: (said.append(sql), execute(sql, *args))[1]  # type: ignore[method-assign]
        engine.send(submit("a"))
        assert said[0] == "BEGIN"  # in one pipeline with what follows, as the round trips of test_ahead show
        assert [sql for sql in said if "app.tenants" in sql or "clock_timestamp" in sql] == said[1:2]
        assert said[-1] == "COMMIT"
