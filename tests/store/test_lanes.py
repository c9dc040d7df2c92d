"""Lanes are numbered by tenant, made once, and found without looking at those in between."""

import pytest

from interlock.lifecycles import shipped
from interlock.store import cache
from interlock.store.cache import NUMBERS, EngineCache, Lane, Lanes, remember_lanes
from interlock.store.ids import Ids
from interlock.store.postgres import PostgresConnection
from interlock.store.queries.for_verbs import find_or_make_lane, load_lanes
from interlock.store.unit_of_work import UnitOfWork, open_unit_of_work
from tests.store.databases import Connection, fresh_postgres, insert


def test_what_a_worker_can_serve_lies_in_stretches() -> None:
    rows = [("q", ""), ("q", "a"), ("q", "x"), ("q", "a,b"), ("other", ""), ("q", "b"), ("r", "a")]
    known = Lanes(1, [Lane(10 + place, *row) for place, row in enumerate(rows)])
    served = known.served(("q", "r"), "a,b")
    assert served.queues == {10: "q", 11: "q", 13: "q", 15: "q", 16: "r"}
    assert served.runs == [(10, 11), (13, 13), (15, 16)]
    known.extend([Lane(17, "r", "")])
    assert known.served(("q", "r"), "a,b").runs[-1] == (15, 17)
    assert known.served(("none",), "a").runs == []


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "LANES_MAX", 10)
    monkeypatch.setattr(cache, "SERVED_MAX", 3)
    memory: dict[int, Lanes] = {}
    for tenant in range(1, 100):
        remember_lanes(
            memory, tenant, Lanes(tenant, [Lane(tenant * NUMBERS + place, f"q{place}", "") for place in range(3)])
        )
        assert sum(len(known.lanes) for known in memory.values()) <= 15
    for place in range(10):
        memory[99].served((f"q{place}",), "")
    assert len(memory[99].served_before) <= 3


def test_a_lane_has_a_number_of_its_tenant(database: Connection) -> None:
    with pytest.raises(Exception, match=r"(?i)check constraint"):
        insert(database, "lane", id=2 * NUMBERS + 1, tenant=1, queue="q", capabilities="")
    with pytest.raises(Exception, match=r"(?i)check constraint"):
        insert(database, "lane", id=7, tenant=1, queue="q", capabilities="")


def begun(connection: Connection, cache: EngineCache) -> UnitOfWork:
    return open_unit_of_work(connection, shipped(), Ids(connection), [1], cache=cache)


def test_two_who_make_lanes_at_once(server: str) -> None:
    """Each has looked before the other committed."""
    with fresh_postgres(server, "lanes") as url:
        one, other = PostgresConnection(url), PostgresConnection(url)
        cache = EngineCache()
        mine, theirs = begun(one, cache), begun(other, EngineCache())
        assert not load_lanes(mine, 1).ids
        assert not load_lanes(theirs, 1).ids
        made = [find_or_make_lane(theirs, 1, "q", ()), find_or_make_lane(theirs, 1, "r", ("b", "a"))]
        other.commit()
        assert [find_or_make_lane(mine, 1, "q", ()), find_or_make_lane(mine, 1, "r", ("a", "b"))] == made
        assert find_or_make_lane(mine, 1, "s", ()) == made[-1] + 1
        one.rollback()
        assert find_or_make_lane(begun(one, cache), 1, "t", ()) == made[-1] + 1
        assert cache.lanes[1].ids.keys() == {("q", "", ""), ("r", "a,b", "")}
        for connection in (one, other):
            connection.close()
