"""Behind a transaction pooler: every statement is the one that was meant, and nothing is left on a connection."""

import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest

from interlock.audit.laws import audit
from interlock.core.engine import Engine
from interlock.kernel.commands import Claim, Finish, Outcome, Register, Start, Submit, Work
from interlock.kernel.errors import InterlockError
from interlock.lifecycles import shipped
from interlock.plugins import open_engine
from interlock.store.postgres import PostgresConnection, driver
from interlock.store.postgres.connection import CallerPostgresConnection
from interlock.store.postgres.driver import PipelineConnection, open_raw
from interlock.store.postgres.wakeups import Notify
from interlock.store.queries.snapshots import snapshot
from interlock.store.url import connect
from tests.conftest import Run
from tests.engine.world import held
from tests.postgres.pooler import Pooler, pooling
from tests.store.databases import fresh_postgres

KEYS = {"with a key of its own": True, "with the server's key": False}
OFTEN = driver.PREPARE_AFTER + 3
PREPARED = "SELECT name, statement FROM pg_prepared_statements ORDER BY name"


@pytest.fixture
def database(server: str, tmp_path: Path) -> Iterator[str]:
    with fresh_postgres(server, f"pooled{abs(hash(tmp_path))}") as url:
        yield url


@pytest.fixture(params=KEYS)
def pooled(request: pytest.FixtureRequest, database: str) -> Iterator[tuple[str, Pooler]]:
    with pooling(database, own_key=KEYS[request.param]) as made:
        yield made


def answers(line: PipelineConnection, sql: str) -> Any:
    return line.execute(sql, {"n": 1}).fetchall()[0][0]


def test_the_pooler_of_the_tests_swaps_always(pooled: tuple[str, Pooler]) -> None:
    url, pooler = pooled
    with psycopg.connect(url, autocommit=True, prepare_threshold=None) as raw:
        pids = [raw.execute("SELECT pg_backend_pid()").fetchall()[0][0] for _ in range(20)]
        with raw.transaction():
            within = {raw.execute("SELECT pg_backend_pid()").fetchall()[0][0] for _ in range(5)}
    assert all(one != other for one, other in pairwise(pids))
    assert len(within) == 1
    assert pooler.swaps >= 20


def test_a_statement_is_named_by_its_text_and_types(server: str) -> None:
    """Two lines give one name to one text, and none to two."""
    names: list[dict[str, str]] = []
    for texts in (("SELECT 1 + %(n)s", "SELECT 2 + %(n)s"), ("SELECT 2 + %(n)s", "SELECT 1 + %(n)s")):
        line = PipelineConnection(open_raw(server))
        for text in texts:
            for _ in range(OFTEN):
                answers(line, text)
        for _ in range(OFTEN):
            line.execute("SELECT 1 + %(n)s", {"n": 2**40})
        names.append({statement + name: name for name, statement in line.execute(PREPARED).fetchall()})
        line.psycopg.close()
    assert names[0] == names[1]
    assert len(set(names[0].values())) == 3
    assert all(re.fullmatch(r"interlock_[0-9a-f]{32}", name) for name in names[0].values())


def test_two_lines_that_share_connections_never_run_the_others_statement(pooled: tuple[str, Pooler]) -> None:
    """Although neither was told that there is a pooler."""
    url, _ = pooled
    lines = [PipelineConnection(open_raw(url)), PipelineConnection(open_raw(url))]
    for turn in range(6 * OFTEN):
        for place, line in enumerate(lines):
            assert answers(line, f"SELECT {place} + 10 * %(n)s") == place + 10
            with line.pipeline():
                line.execute("BEGIN")
                said = [line.execute(f"SELECT {place} + {n} + %(n)s", {"n": turn}) for n in range(3)]
            line.execute("COMMIT")
            assert [one.fetchall() for one in said] == [[(place + n + turn,)] for n in range(3)]
    for line in lines:
        line.psycopg.close()


def test_a_name_that_is_there_already_counts_as_prepared(server: str) -> None:
    """Somebody else has prepared the same text on the same connection."""
    raw = open_raw(server)
    first, second = PipelineConnection(raw), PipelineConnection(raw)
    for line in (first, second):
        for _ in range(OFTEN):
            assert answers(line, "SELECT 7 + %(n)s") == 8
    assert [name for name, _ in raw.execute(PREPARED).fetchall()] == [first.names.popitem()[1].decode()]
    assert second.names
    raw.close()


def test_a_name_that_is_gone_is_not_missed(server: str) -> None:
    line = PipelineConnection(open_raw(server))
    for turn in range(3 * OFTEN):
        assert answers(line, "SELECT 7 + %(n)s") == 8
        line.psycopg.execute("DEALLOCATE ALL")
        with line.pipeline():
            line.execute("BEGIN")
            said = line.execute("SELECT %(n)s + 1", {"n": turn})
        line.execute("COMMIT")
        assert said.fetchall() == [(turn + 1,)]
    line.psycopg.close()


def test_what_is_gone_in_the_middle_of_a_transaction_is_redone_by_whoever_began_it(server: str) -> None:
    connection = PostgresConnection(server)
    for _ in range(OFTEN):
        connection.rows("SELECT 5 + :n", {"n": 1})
    connection.raw.psycopg.execute("DEALLOCATE ALL")
    connection.rows("BEGIN")
    with pytest.raises(InterlockError) as error:
        connection.rows("SELECT 5 + :n", {"n": 1})
    assert type(error.value).__name__ == "NotPrepared"
    connection.rollback()
    assert connection.rows("SELECT 5 + :n", {"n": 1}) == [(6,)]
    connection.close()


def live(engine: Engine, name: str, rounds: int) -> Counter[str]:
    """A worker's life: each round something is submitted, claimed, seen and finished."""
    worker = engine.send(Register(name=name, incarnation="1", capacity=100))
    done: Counter[str] = Counter()
    for turn in range(rounds):
        work = tuple(Work(task=f"{name}{n}", queue=name) for n in range(3))
        made = [one.unit for one in engine.send(Submit(work=work))]
        claim = Claim(worker=worker, queues=(name,), key=f"{name}{turn}", nonce=f"{name}{turn}".ljust(16, "."), limit=3)
        grants = engine.send(claim)
        assert [grant.unit for grant in grants] == made
        assert [grant.task for grant in grants] == [one.task for one in work]
        engine.send(Start(held=tuple(map(held, grants))))
        receive = engine.send(Finish(outcomes=tuple(Outcome(held=held(one), result=str(turn)) for one in grants)))
        assert {one.state for one in receive} == {"succeeded"}
        sql = "SELECT state, count(*) FROM unit WHERE id {ids} GROUP BY state"
        assert engine.read(lambda connection, sql=sql, made=made: connection.rows(sql, {"ids": made})) == [
            ("succeeded", 3)
        ]
        done["units"] += len(made)
    return done


@pytest.mark.parametrize("option", ["", "?prepare=off"])
def test_two_engines_under_load_do_what_they_were_told(pooled: tuple[str, Pooler], database: str, option: str) -> None:
    url, pooler = pooled
    with open_engine(url + option, shipped()) as one, open_engine(url + option, shipped()) as other:
        with ThreadPoolExecutor() as pool:
            lifecycles = [
                pool.submit(live, engine, name, 15) for engine, name in ((one, "a"), (other, "b"), (one, "c"))
            ]
            assert sum((lifecycle.result() for lifecycle in lifecycles), Counter()) == {"units": 3 * 3 * 15}
        assert all(not committer.connection.raw.names for committer in (*one.committers, *other.committers))  # type: ignore[attr-defined]
    assert pooler.swaps > 100
    connection = connect(url + option)
    with snapshot(connection):
        assert list(audit(connection, shipped())) == []
        assert connection.rows("SELECT count(*) FROM unit WHERE state = 'succeeded'") == [(135,)]
    connection.close()


def ask_all(url: str, pooler: Pooler, sql: str) -> list[Any]:
    """What each of the server connections of a pooler says."""
    lines = [psycopg.connect(url) for _ in range(pooler.size)]
    found = [line.execute(sql).fetchall() for line in lines]
    for line in lines:
        line.close()
    return found


def test_nothing_is_left_on_a_pooled_connection(pooled: tuple[str, Pooler]) -> None:
    """Neither a setting, nor a prepared statement, nor a listener."""
    url, pooler = pooled
    with open_engine(url, shipped()) as engine, engine.watch(["a"]):
        live(engine, "a", 5)
        sender = engine.wakeups.channel
        assert sender
        sender.tell([(1, "a")])
    left = "SELECT name, setting FROM pg_settings WHERE source = 'session' AND name NOT LIKE 'app.%'"
    assert ask_all(url, pooler, left) == [[]] * pooler.size
    tenants = "SELECT coalesce(current_setting('app.tenants', true), '')"
    assert ask_all(url, pooler, tenants) == [[("",)]] * pooler.size
    assert ask_all(url, pooler, PREPARED) == [[]] * pooler.size
    assert ask_all(url, pooler, "SELECT * FROM pg_listening_channels()") == [[]] * pooler.size


def test_a_wake_up_waits_for_no_disk_and_leaves_no_setting(server: str) -> None:
    sender, listener = Notify(server, lambda: 0.0), Notify(server, lambda: 0.0)
    listener.listen([])
    sender.tell([(1, "a")])
    assert listener.receive(set, 5.0) == {(1, "a")}
    assert sender.sender
    assert sender.sender.execute("SHOW synchronous_commit").fetchall() == [("on",)]
    for one in (sender, listener):
        one.close()


def test_prepare_off_prepares_nothing(database: str) -> None:
    """On a connection without a pooler too."""
    for url, count in ((database, 1), (f"{database}?prepare=off", 0), (f"{database}?prepare=off&connect_timeout=9", 0)):
        connection = PostgresConnection(url)
        for _ in range(OFTEN):
            assert connection.rows("SELECT 3 + :n", {"n": 1}) == [(4,)]
        assert len(connection.rows(PREPARED)) == count
        connection.close()


@pytest.mark.parametrize("value", ["maybe", "", "on&prepare=off"])
def test_another_word_for_prepare_is_refused(value: str, database: str) -> None:
    with pytest.raises(InterlockError, match="prepare=off"):
        connect(f"{database}?prepare={value}")


def test_a_lent_connection_gets_no_statement_prepared(database: str) -> None:
    """The caller's driver would name ours by a counter."""
    with psycopg.connect(database, prepare_threshold=0) as raw, raw.transaction():
        connection = CallerPostgresConnection(raw)
        for _ in range(OFTEN):
            assert connection.rows("SELECT 3 + :n", {"n": 1}) == [(4,)]
        assert connection.rows("SELECT count(*) FROM pg_prepared_statements") == [(0,)]


def test_the_doctor_notices_a_pooler(pooled: tuple[str, Pooler], database: str, interlock: Run) -> None:
    def findings(url: str) -> list[str]:
        said = interlock("db", "doctor", "--db", url)
        assert "Traceback" not in said.stderr
        return [line for line in said.stdout.splitlines() if "pooler" in line]

    url, _ = pooled
    (finding,) = findings(url)
    assert "prepare" in finding
    assert "every second" in finding
    assert findings(database) == []


def test_the_commands_of_an_operator_go_through(pooled: tuple[str, Pooler], interlock: Run) -> None:
    url, _ = pooled
    for option in ("", "?prepare=off"):
        with open_engine(url + option, shipped()) as engine:
            live(engine, f"a{len(option)}", 2)
        for command in (("audit", "--rebuild"), ("list",)):
            done = interlock(*command, "--db", url + option)
            assert done.returncode == 0, (command, done.stdout, done.stderr)


def test_a_listener_without_messages_waits_no_longer_than_it_may(pooled: tuple[str, Pooler]) -> None:
    """LISTEN does not survive a pooler, so nobody listens; a worker asks every second."""
    sender = Notify(pooled[0], lambda: 0.0)
    sender.listen([(1, "a")])
    sender.tell([(1, "a")])
    assert sender.receive(lambda: {(1, "a")}, 0.01) == set()
    sender.close()
