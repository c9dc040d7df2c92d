"""Writers at the same time, whatever the isolation level of each: one wins, the other is refused, nothing in between."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from itertools import product
from typing import Any

import psycopg
import pytest

import interlock
from interlock.audit.laws import audit
from interlock.client.app import App
from interlock.kernel.commands import Register, Submit, Work
from interlock.kernel.errors import InterlockError
from interlock.lifecycles import shipped
from interlock.plugins import make_engine
from interlock.store.postgres import PostgresConnection
from interlock.store.queries.views import Filter, listing
from tests.store.databases import declare, fresh_postgres
from tests.store.raw_acts import path_of

LEVELS = ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")
OPEN = 20  # lent transactions at the same time
PATIENCE = 60
HERE = "((SELECT value::bigint FROM about WHERE name = 'generation') << 36 | pg_current_xact_id()::text::bigint) << 18"
ACT = (
    f"INSERT INTO act (id, tenant, path, path_digest, version, attempt, fence, at, actor, reason, payload, available, "
    f"units, before) SELECT {HERE}, tenant, %(path)s, %(digest)s, version, attempt, fence, %(at)s, %(actor)s, '', '{{}}', "
    "0, ARRAY[id], ARRAY[act] FROM unit WHERE id = %(unit)s"
)
CANCEL = path_of("job", "queued", None, "cancel")
BURY = path_of("job", "queued", None, "bury")


@pytest.fixture(scope="module")
def url(running_postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with fresh_postgres(running_postgres, f"races{abs(hash(tmp_path_factory.getbasetemp()))}") as made:
        yield made


@pytest.fixture
def program(url: str) -> Iterator[PostgresConnection]:
    with closing(PostgresConnection(url)) as connection:
        yield connection
        declare(connection, 1)
        assert [one.text for one in audit(connection, shipped(), rebuild=True)] == []


def begin(stack: ExitStack, url: str, level: str) -> psycopg.Connection[Any]:
    """A transaction that has its snapshot already."""
    connection = stack.enter_context(closing(psycopg.connect(url, autocommit=True)))
    connection.execute(f"BEGIN ISOLATION LEVEL {level}")
    connection.execute("SELECT set_config('app.tenants', '{1}', true), pg_current_xact_id()")
    return connection


def move(connection: psycopg.Connection[Any], unit: int, path: Any, actor: str) -> None:
    at = time.time_ns() // 1_000
    connection.execute(ACT, {"path": path.id, "digest": path.digest, "at": at, "actor": actor, "unit": unit})


def wait_for_lock(program: PostgresConnection, connection: psycopg.Connection[Any]) -> None:
    """The other writer waits for the first one's rows."""
    end = time.monotonic() + PATIENCE
    sql = "SELECT count(*) FROM pg_locks WHERE pid = :pid AND NOT granted"
    while not program.rows(sql, {"pid": connection.info.backend_pid})[0][0]:
        assert time.monotonic() < end, "it never came to the lock"
        time.sleep(0.005)


def submit(program: PostgresConnection) -> int:
    return int(make_engine(program, shipped()).send(Submit(work=(Work(task="mail"),)))[0].unit)


@pytest.mark.parametrize(("first", "second"), list(product(LEVELS, LEVELS)))
@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_one_of_two_writers_moves_a_unit(
    program: PostgresConnection, url: str, first: str, second: str, end: str
) -> None:
    """The second one read where the unit is before the first one moved it, and waits for it."""
    unit = submit(program)
    with ExitStack() as stack, ThreadPoolExecutor(1) as pool:
        one, other = begin(stack, url, first), begin(stack, url, second)
        move(one, unit, CANCEL, "first")
        late = pool.submit(move, other, unit, BURY, "second")
        wait_for_lock(program, other)
        one.execute(end)
        if end == "ROLLBACK":
            late.result(PATIENCE)
            other.execute("COMMIT")
        else:
            with pytest.raises(psycopg.Error) as refused:
                late.result(PATIENCE)
            assert isinstance(refused.value, psycopg.errors.SerializationFailure) or "[chain]" in str(refused.value)
            other.execute("ROLLBACK")
    declare(program, 1)
    told = program.rows("SELECT actor, target FROM event WHERE unit = :unit ORDER BY version DESC", {"unit": unit})
    assert told[0] == (("first", "cancelled") if end == "COMMIT" else ("second", "dead_lettered"))
    assert len(told) == 2


def test_whoever_began_first_may_move_last(program: PostgresConnection, url: str) -> None:
    """Its act has the smaller number, and follows the other one all the same: a history goes from act to act."""
    unit = submit(program)
    worker = make_engine(program, shipped()).send(Register(name="w", incarnation="1", capacity=1))
    holding = "UPDATE worker SET holding = holding + %s WHERE unit = %s"
    terms = (
        f"INSERT INTO act (id, tenant, path, path_digest, version, attempt, fence, at, actor, reason, payload, available, "
        f"units, before, leases, secrets, worker, ttl, beat, until) SELECT {HERE}, 1, {{path.id}}, '{{path.digest}}', "
        "version, attempt, fence, {at}, 'test', '', '{{}}', {available}, ARRAY[id], ARRAY[act], {leases}, {granted} "
        "FROM unit WHERE id = {unit}"
    )
    with ExitStack() as stack:
        early, late = begin(stack, url, "READ COMMITTED"), begin(stack, url, "READ COMMITTED")
        at = time.time_ns() // 1_000
        grant = f"ARRAY['h'], {worker}, 1000000, 1000000, {at} + 1000000"
        claim, release = (
            path_of("job", "queued", None, "claim/grant"),
            path_of("job", "assigned", "GRANTED", "release/revoke"),
        )
        late.execute(terms.format(path=claim, at=at, available=0, leases="NULL", granted=grant, unit=unit))
        late.execute(holding, [1, worker])
        late.execute("COMMIT")
        ended = f"NULL, NULL, NULL, NULL, {at}"
        early.execute(
            terms.format(path=release, at=at + 1, available=1, leases="ARRAY[lease_id]", granted=ended, unit=unit)
        )
        early.execute(holding, [-1, worker])
        early.execute("COMMIT")
    declare(program, 1)
    acts = program.rows("SELECT act, target FROM event WHERE unit = :unit ORDER BY version", {"unit": unit})
    assert [target for _, target in acts] == ["queued", "assigned", "queued"]
    assert acts[2][0] < acts[1][0]


@pytest.mark.parametrize("level", LEVELS)
def test_many_writers_over_the_same_units(program: PostgresConnection, url: str, level: str) -> None:
    """Each takes the same ten units in one act: exactly one of them has them all."""
    engine = make_engine(program, shipped())
    units = [one.unit for one in engine.send(Submit(work=(Work(task="mail"),) * 10))]
    sql = ACT.split("SELECT ")[0] + (
        f"SELECT {HERE}, 1, %(path)s, %(digest)s, 1, 1, 0, %(at)s, %(actor)s, '', '{{}}', 0, array_agg(id ORDER BY id), "
        "array_agg(act ORDER BY id) FROM unit WHERE id = ANY (%(units)s)"
    )

    refusals: list[str] = []

    def take(actor: int) -> bool:
        with ExitStack() as stack:
            connection = begin(stack, url, level)
            at = time.time_ns() // 1_000
            given = {"path": CANCEL.id, "digest": CANCEL.digest, "at": at, "actor": str(actor), "units": units}
            try:
                connection.execute(sql, given)
                connection.execute("COMMIT")
            except psycopg.Error as error:
                refusals.append(str(error))
                return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(take, range(8))) == 1
    assert all("could not serialize" in text or "interlock guard [chain]" in text for text in refusals), refusals
    declare(program, 1)
    found = program.rows("SELECT DISTINCT state, version FROM unit WHERE id {ids}", {"ids": units})
    assert found == [("cancelled", 2)]


# Lent transactions.


@pytest.fixture
def app(url: str) -> Iterator[App]:
    with interlock.open(url) as made:

        @made.task
        def mail(order: int) -> int:
            return order

        made.connect()
        yield made
        assert made.engine.read(lambda connection: list(audit(connection, made.lifecycles))) == []


@pytest.mark.parametrize("level", LEVELS)
def test_twenty_lent_transactions_at_once(app: App, url: str, level: str) -> None:
    """All are open when the first one commits, and all commit: writers share no row."""
    before = len(app.read(listing, Filter(lifecycle="job"), 1_000))
    with ExitStack() as stack:
        lent = [stack.enter_context(closing(psycopg.connect(url))) for _ in range(OPEN)]
        for place, connection in enumerate(lent):
            connection.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
            connection.execute("SELECT 1 FROM about")  # it has its snapshot before any of the others writes
            app.tasks["mail"].submit(order=place, tx=connection)
        refused = sum(not commits(connection) for connection in reversed(lent))
    assert refused == 0 or level == "SERIALIZABLE"
    assert refused < OPEN
    assert len(app.read(listing, Filter(lifecycle="job"), 1_000)) == before + OPEN - refused


def commits(connection: psycopg.Connection[Any]) -> bool:
    try:
        connection.commit()
    except psycopg.errors.SerializationFailure:
        return False
    return True


def test_lent_transactions_of_all_levels_over_the_same_jobs(app: App, url: str) -> None:
    """Each cancels what another one cancels too: it commits, or is refused, and every job is cancelled once."""
    jobs = [app.tasks["mail"].submit(order=place).unit for place in range(5)]
    levels = [LEVELS[place % 3] for place in range(OPEN)]

    def cancel(place: int) -> bool:
        with closing(psycopg.connect(url)) as connection:
            connection.execute(f"SET TRANSACTION ISOLATION LEVEL {levels[place]}")
            connection.execute("SELECT set_config('app.tenants', '{1}', true)")
            try:
                move(connection, jobs[place % 5], CANCEL, str(place))
                app.tasks["mail"].submit(order=place, tx=connection)
                connection.commit()
            except (psycopg.Error, InterlockError):
                connection.rollback()
                return False
        return True

    with ThreadPoolExecutor(OPEN) as pool:
        won = list(pool.map(cancel, range(OPEN)))
    assert [sum(won[job::5]) for job in range(5)] == [1] * 5
