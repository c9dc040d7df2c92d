"""A claim asks ahead and writes into its worker's row at last: it saves round trips, and it is never wrong for it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from interlock.audit.laws import audit
from interlock.core import claims
from interlock.core.engine import Engine
from interlock.kernel.commands import (
    Claim,
    Drain,
    Finish,
    LeaseGrant,
    LeaseRef,
    Outcome,
    Record,
    Register,
    Start,
    Submit,
    Work,
)
from interlock.lifecycles import shipped
from interlock.plugins import make_engine
from interlock.store.postgres import PostgresConnection
from interlock.store.postgres.driver import PipelineConnection
from tests.store.databases import fresh

CAPACITY = 4


@pytest.fixture
def engines(tmp_path: Path, server: str) -> Iterator[tuple[Engine, Engine]]:
    """Two engines on one database."""
    with fresh("postgres", tmp_path, server) as connection:
        assert isinstance(connection, PostgresConnection)
        other = PostgresConnection(connection.url)
        yield make_engine(connection, shipped()), make_engine(other, shipped())
        assert not list(audit(connection, shipped()))
        other.close()


def busy(engine: Engine) -> tuple[int, list[LeaseGrant]]:
    """A worker that held something when it last claimed, and what it holds; two more units wait."""
    # On terms of their own: plain jobs are chosen in another way.
    engine.send(Submit(work=(Work(task="mail", ttl_us=90_000_000),) * CAPACITY))
    worker = engine.send(Register(name="w", incarnation="1", capacity=CAPACITY))
    grants = [grant for key in "ab" for grant in engine.send(claim(worker, key, limit=1))]
    engine.send(Start(held=tuple(map(held, grants))))
    return worker, grants


def held(grant: LeaseGrant) -> LeaseRef:
    return LeaseRef(unit=grant.unit, fence=grant.fence, lease=grant.lease)


def claim(worker: int, key: str, limit: int = 1) -> Claim:
    return Claim(worker=worker, key=key, nonce=f"{key:0>16}", limit=limit)


def in_the_middle(monkeypatch: pytest.MonkeyPatch, what: Callable[[], object]) -> None:
    """Somebody does this, once, when a claim has seen its worker and chosen what to take."""
    choose, left = claims.find_claimable, [what]

    def chosen(*args: Any) -> Any:
        found = choose(*args)
        if left:
            left.pop()()
        return found

    monkeypatch.setattr(claims, "find_claimable", chosen)


def holding(engine: Engine, worker: int) -> tuple[int, int]:
    """What the worker's row says, and what is true."""
    rows = engine.reader.rows
    (said,) = rows("SELECT holding FROM worker WHERE unit = :unit", {"unit": worker})[0]
    (true,) = rows("SELECT count(*) FROM unit WHERE holder = :unit", {"unit": worker})[0]
    return said, true


def test_what_is_given_back_does_not_wait_for_a_claim(
    engines: tuple[Engine, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = engines
    worker, (first, *_) = busy(one)
    outcome = Outcome(held=held(first), result="1")
    in_the_middle(monkeypatch, lambda: two.send(Finish(outcomes=(outcome,))))
    assert len(one.send(claim(worker, "c", limit=2))) == 2
    assert holding(one, worker) == (3, 3)


def test_a_worker_that_is_drained_meanwhile_gets_nothing(
    engines: tuple[Engine, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = engines
    worker, _ = busy(one)
    in_the_middle(monkeypatch, lambda: two.send(Drain(worker=worker)))
    assert one.send(claim(worker, "c")) == []
    assert holding(one, worker) == (2, 2)


def test_a_worker_that_claims_elsewhere_meanwhile_never_holds_more_than_it_can(
    engines: tuple[Engine, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = engines
    worker, _ = busy(one)
    one.send(Submit(work=(Work(task="mail"),) * CAPACITY))
    got: list[LeaseGrant] = []
    in_the_middle(monkeypatch, lambda: got.extend(two.send(claim(worker, "elsewhere"))))
    got += one.send(claim(worker, "c", limit=2))
    assert len({grant.unit for grant in got}) == len(got) == 2
    assert holding(one, worker) == (CAPACITY, CAPACITY)
    assert one.send(claim(worker, "c", limit=2)) != []  # said again, it is answered again


@contextmanager
def round_trips(connection: PostgresConnection, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How often the server is waited for, and how many statements it was sent each time."""
    trips: list[int] = []
    hear = connection.raw.sync

    def counted() -> None:
        trips.append(len(connection.raw.sent))
        hear()

    with monkeypatch.context() as patched:
        patched.setattr(connection.raw, "sync", counted)
        yield trips


def test_round_trips_are_counted(engines: tuple[Engine, Engine], monkeypatch: pytest.MonkeyPatch) -> None:
    """A submit waits twice for the server; so does a claim of a worker that is idle; one that is busy waits five times."""
    one, _ = engines
    connection = one.reader
    assert isinstance(connection, PostgresConnection)
    worker = one.send(Register(name="w", incarnation="1", capacity=CAPACITY))
    one.send(Submit(work=(Work(task="mail"),)))
    (grant,) = one.send(claim(worker, "a"))
    one.send(Start(held=(held(grant),)))
    one.send(Finish(outcomes=(Outcome(held=held(grant), result="1"),)))
    assert one.send(claim(worker, "b")) == []  # from here on it is known to be idle
    with round_trips(connection, monkeypatch) as trips:
        one.send(Submit(work=(Work(task="mail"),) * 3))
        assert len(trips) == 2, trips
        trips.clear()
        assert len(one.send(claim(worker, "c"))) == 1
        assert len(trips) == 2, trips
        assert len(one.send(claim(worker, "d"))) == 1
        trips.clear()
        assert len(one.send(claim(worker, "e"))) == 1
        assert len(trips) <= 5, trips


# How often the server is asked: what is declared ahead goes with BEGIN, what is written with COMMIT.


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One for each round trip."""
    made: list[int] = []
    read = PipelineConnection.read_results

    def count(connection: PipelineConnection) -> Any:
        made.append(1)
        return read(connection)

    monkeypatch.setattr(PipelineConnection, "read_results", count)
    return made


def test_a_step_of_a_held_job_costs_two_round_trips(engines: tuple[Engine, Engine], trips: list[int]) -> None:
    engine = engines[0]
    _, grants = busy(engine)
    for name in ("first", "second"):
        trips.clear()
        (status,) = engine.send(Record(held=(held(grants[0]),), kind="step", name=name, payload="1"))
        assert status.accepted
    assert len(trips) == 2
    trips.clear()
    (status,) = engine.send(Record(held=(held(grants[0]),), kind="step", name="second", payload="2"))  # said again
    assert (status.accepted, len(trips)) == (True, 2)


def test_a_step_of_another_engines_job_is_not_believed_of_the_cache(engines: tuple[Engine, Engine]) -> None:
    """The cache knows a unit as it was; what the database says is what counts."""
    _, grants = busy(engines[0])
    engines[1].send(Finish(outcomes=(Outcome(held=held(grants[0])),)))
    (status,) = engines[0].send(Record(held=(held(grants[0]),), kind="step", name="late", payload="1"))
    assert (status.accepted, status.why) == (False, "LEASE_ENDED")


def test_a_start_that_comes_alone_costs_two_round_trips(engines: tuple[Engine, Engine], trips: list[int]) -> None:
    engine = engines[0]
    engine.send(Submit(work=(Work(task="mail"),) * 2))
    worker = engine.send(Register(name="w", incarnation="1", capacity=CAPACITY))
    for grant in engine.send(claim(worker, "a", limit=2)):
        trips.clear()
        (status,) = engine.send(Start(held=(held(grant),)))
        assert (status.accepted, status.state) == (True, "running")
    assert len(trips) == 2


def test_a_claim_of_a_worker_that_holds_nothing_costs_two_round_trips(
    engines: tuple[Engine, Engine], trips: list[int]
) -> None:
    engine = engines[0]
    worker = engine.send(Register(name="w", incarnation="1", capacity=CAPACITY))
    engine.send(Submit(work=(Work(task="mail"),)))
    for key in "abc":  # the first ones make known what there is to be asked
        for grant in engine.send(claim(worker, key, limit=2)):
            engine.send(Start(held=(held(grant),)))
            (status,) = engine.send(Finish(outcomes=(Outcome(held=held(grant)),)))
            assert status.accepted
    engine.send(Submit(work=(Work(task="mail"),)))
    trips.clear()
    assert len(engine.send(claim(worker, "d", limit=2))) == 1
    assert len(trips) == 2
