"""What an engine remembers of held units is never believed before the database has said that nobody touched them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.core.engine import Engine
from interlock.kernel.commands import (
    Cancel,
    Claim,
    Finish,
    Heartbeat,
    LeaseGrant,
    LeaseRef,
    Outcome,
    Register,
    Start,
    Submit,
    Work,
)
from interlock.lifecycles import shipped
from interlock.plugins import make_engine
from interlock.store.postgres import PostgresConnection
from tests.store.databases import fresh


@pytest.fixture
def engines(tmp_path: Path, server: str) -> Iterator[tuple[Engine, Engine]]:
    """Two engines on one database, each with a memory of its own."""
    with fresh("postgres", tmp_path, server) as connection:
        assert isinstance(connection, PostgresConnection)
        other = PostgresConnection(connection.url)
        yield make_engine(connection, shipped()), make_engine(other, shipped())
        other.close()


def granted(engine: Engine, count: int = 3) -> list[LeaseGrant]:
    # On terms of their own: plain jobs go the fast path, which remembers nothing.
    engine.send(Submit(work=(Work(task="mail", ttl_us=90_000_000),) * count))
    worker = engine.send(Register(name="w", incarnation="1", capacity=count))
    return engine.send(Claim(worker=worker, key="k", nonce="n" * 16, limit=count))


def held(grant: LeaseGrant) -> LeaseRef:
    return LeaseRef(unit=grant.unit, fence=grant.fence, lease=grant.lease)


def reads(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The whole units that are read from here on."""
    said: list[str] = []
    rows = engine.reader.rows
    monkeypatch.setattr(engine.reader, "rows", lambda sql, params=None: (said.append(sql), rows(sql, params))[1])
    return said


def test_what_nobody_touched_is_not_read_again(engines: tuple[Engine, Engine], monkeypatch: pytest.MonkeyPatch) -> None:
    one, _ = engines
    *grants, last = granted(one)  # the last one stays, or its worker would be read, to be idle
    said = reads(one, monkeypatch)
    assert all(heard.accepted for heard in one.send(Start(held=tuple(map(held, grants)))))
    assert all(heard.accepted for heard in one.send(Finish(outcomes=tuple(Outcome(held=held(g)) for g in grants))))
    assert not [sql for sql in said if "FROM body" in sql or "FROM lease" in sql or "unit.lane" in sql]
    assert [sql for sql in said if "FROM" in sql]
    cache = one.committer.cache.held
    assert cache
    assert list(cache.units) == [last.unit]


def test_what_another_engine_changed_is_read_anew(engines: tuple[Engine, Engine]) -> None:
    one, other = engines
    first, second, third = granted(one)
    one.send(Start(held=tuple(map(held, (first, second, third)))))
    other.send(Cancel(unit=first.unit))
    other.send(Cancel(unit=second.unit, hard=True))
    heard = one.send(Heartbeat(held=tuple(map(held, (first, second, third)))))
    assert [(one.accepted, one.cancel) for one in heard] == [(True, True), (False, False), (True, False)]
    ended = one.send(Finish(outcomes=tuple(Outcome(held=held(grant)) for grant in (first, second, third))))
    assert [one.accepted for one in ended] == [True, False, True]


def test_a_transaction_that_was_rolled_back_teaches_nothing(
    engines: tuple[Engine, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = engines
    (grant, *_) = granted(one)
    cache = one.committer.cache.held
    assert cache
    before = dict(cache.units)

    def fail() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(one.reader, "commit", fail)
        with pytest.raises(KeyboardInterrupt):
            one.send(Start(held=(held(grant),)))
    assert cache.units == before
    assert one.send(Start(held=(held(grant),)))[0].accepted
