"""Lists go by time, the newest first, and read little more than they show, on every database."""

from collections.abc import Iterator
from typing import Any

import pytest

from interlock.core.engine import Engine
from interlock.kernel.commands import Cancel, Submit, Work
from interlock.kernel.ids import parse_id
from interlock.lifecycles import shipped
from interlock.plugins import make_engine
from interlock.plugins.state_files.documents import list_workstreams
from interlock.store.postgres import PostgresConnection
from interlock.store.queries import dead_letters, feed, lists
from interlock.store.queries.feed import read_latest
from interlock.store.queries.views import Filter
from tests.store.databases import KINDS, Connection, declare, fresh
from tests.store.filling import fill, watched
from tests.store.test_plans import analyze, large_scans

MANY, MANY_PROOF = 9_999, 999_999
LANES, PAGE = 100, 50


@pytest.fixture(params=KINDS)
def empty(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, server: str
) -> Iterator[Connection]:
    with fresh(request.param, tmp_path_factory.mktemp("lists"), server) as connection:
        yield connection


def page(engine: Engine, wanted: Filter, limit: int, after: str | None = None) -> lists.Page:
    start = None if after is None else parse_id(after)
    return engine.read(
        lambda connection: lists.read_newest_units(connection, 1, shipped().values(), wanted, limit, start)
    )


def everything(engine: Engine, wanted: Filter, limit: int) -> list[int]:
    found, after = list[int](), None
    while True:
        one = page(engine, wanted, limit, after)
        found += [view.unit.id for view in one.units]
        if one.next is None:
            return found
        after = one.next


def test_the_newest_comes_first_whatever_its_id(empty: Connection) -> None:
    engine = make_engine(empty, shipped())
    made: list[int] = []
    now = 1_700_000_000_000_000
    for place in range(12):
        empty.keep_time(lambda at=now + place: at)
        empty.begin([1])
        empty.rows("UPDATE id_block SET next_id = :next", {"next": (20 - place) * 100_000})  # as of another process
        empty.commit()
        engine.committer.ids.next = engine.committer.ids.end = 0
        kind = "approval" if place % 4 == 0 else "job"
        work = Work(task=f"t{place % 3}", lifecycle=kind, correlation="c")
        made += [one.unit for one in engine.send(Submit(work=(work, work)))]
    assert made != sorted(made)
    pairs = [{*made[place : place + 2]} for place in range(0, 24, 2)][::-1]
    for limit in (1, 5, 24, 100):
        found = everything(engine, Filter(), limit)
        assert [{*found[place : place + 2]} for place in range(0, 24, 2)] == pairs
    assert set(everything(engine, Filter(lifecycle="approval"), 4)) == set(made[0:2] + made[8:10] + made[16:18])
    assert len(everything(engine, Filter(task="t1"), 3)) == 8
    assert everything(engine, Filter(correlation="c"), 100)[::-1] == sorted(
        made, key=lambda one: (made.index(one) // 2, one)
    )
    assert everything(engine, Filter(task="none"), 5) == []
    for unit in made:
        engine.send(Cancel(unit=unit))
    for limit in (1, 5, 24, 100):  # by the index of states
        found = everything(engine, Filter(categories=("cancelled",)), limit)
        assert [{*found[place : place + 2]} for place in range(0, 24, 2)] == pairs
    assert len(everything(engine, Filter(categories=("cancelled", "dead"), task="t1"), 3)) == 8
    assert everything(engine, Filter(categories=("failure",)), 5) == []
    assert len(everything(engine, Filter(categories=("cancelled", "success")), 5)) == 24  # one has no index


def test_a_filter_that_fits_few_is_answered_in_parts(empty: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "LOOKED_MOST", 200)
    engine = make_engine(empty, shipped())
    (rare,) = engine.send(Submit(work=(Work(task="rare"),)))
    engine.send(Submit(work=tuple(Work(task="usual") for _ in range(900))))
    first = page(engine, Filter(task="rare"), PAGE)
    assert (first.units, first.next is None) == ([], False)
    assert first.looked_until is not None
    assert everything(engine, Filter(task="rare"), PAGE) == [rare.unit]


def test_of_many_births_few_are_read(empty: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """An act can be the birth of a thousand, so as many acts as units are wanted would be far too much to read."""
    monkeypatch.setattr(lists, "LOOKED_MOST", 200)
    engine = make_engine(empty, shipped())
    for _ in range(200):
        engine.send(Submit(work=tuple(Work(task="usual") for _ in range(10))))
    births, expanded = list[int](), list[int]()
    rows = empty.rows

    def count(sql: str, params: Any = None) -> list[tuple[Any, ...]]:
        answer = rows(sql, params)
        if sql.lstrip().startswith("SELECT * FROM (\nSELECT at, id, units"):
            births.append(len(answer))
        if "FROM journal WHERE act" in sql:
            expanded.append(len(params["ids"]))
        return answer

    monkeypatch.setattr(empty, "rows", count)
    assert len(page(engine, Filter(), PAGE).units) == PAGE
    assert page(engine, Filter(task="none"), PAGE).looked_until is not None
    few = lists.ACTS_FEW
    assert births == [few, few, 4 * few, 16 * few]  # for 50 units; and for 500, none of them twice
    assert len(engine.read(lambda connection: read_latest(connection, 1, 15))) == 15
    assert expanded == [feed.ACTS_FEW]


def test_counts_are_exact_up_to_a_bound(empty: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "COUNT_MOST", 10)
    engine = make_engine(empty, shipped())
    for many, wanted in ((10, (10, False)), (1, (10, True))):
        engine.send(Submit(work=tuple(Work(task="a") for _ in range(many))))
        found = engine.read(lambda connection: lists.amount(connection, 1, Filter(task="a")))
        assert (found.count, found.more) == wanted


def reads_little(database: Connection, server: str, many: int) -> None:
    """A page reads its own rows, and no list of anything reads more than it may look at."""
    fill(database, many, LANES)
    if isinstance(database, PostgresConnection):  # a SQLite file is not analyzed unless somebody does
        analyze(database, server)
    engine = make_engine(database, shipped())
    declare(database, 1)
    for wanted, most in (
        (Filter(), PAGE + 1),
        (Filter(lifecycles=("job", "workflow_run")), PAGE + 1),
        (Filter(lifecycle="workflow_run"), 0),
        (Filter(lifecycle="workstream"), 0),
        (Filter(parent=7, lifecycle="task", states=("queued", "running")), 0),
        (Filter(task="none"), lists.LOOKED_MOST + lists.CHUNK),
        (Filter(categories=("failure", "cancelled", "dead", "gate", "closing")), 0),
        (Filter(states=("dead_lettered",)), 0),
        (Filter(parent=7), 0),
        (Filter(holder="w"), 0),
        (Filter(correlation="none"), 0),
    ):
        with watched(database) as reads:
            found = page(engine, wanted, PAGE)
        assert len(found.units) == (PAGE if most == PAGE + 1 else 0), wanted
        if wanted.task and many < MANY_PROOF:
            continue  # PostgreSQL may read all of a small table, and rightly so
        # Nothing is held, and a planner reads an empty table as it is.
        scans = [scan for scan in large_scans(reads) if scan != "Seq Scan lease"]
        assert [scan for scan in scans if not scan.startswith("Bitmap")] == [], wanted
        if isinstance(database, PostgresConnection):
            for table in ("unit", "body"):
                assert sum(read.rows.get(table, 0) for read in reads) <= most, (wanted, table)
            assert sum(read.rows.get("act", 0) for read in reads) <= 5 * most + 10, wanted
    with watched(database) as reads:
        assert engine.read(lambda connection: list_workstreams(connection, 1)) == []
    assert large_scans(reads) == []
    with watched(database) as reads:
        engine.read(
            lambda connection: dead_letters.read_newest(
                connection, 1, dead_letters.DeadLetterConditions(task="x"), PAGE, dead_letters.END
            )
        )
    assert "unit_dead" in {index for read in reads for index in read.indexes}
    with watched(database) as reads:
        none = engine.read(lambda connection: lists.amount(connection, 1, Filter(categories=("failure", "dead"))))
    assert (none.count, large_scans(reads)) == (0, [])
    assert engine.read(lambda connection: lists.amount(connection, 1, Filter())).more == (many > lists.COUNT_MOST)


def test_lists_read_little(empty: Connection, server: str) -> None:
    reads_little(empty, server, MANY)


@pytest.mark.proof
def test_lists_of_a_million_units_read_little(empty: Connection, server: str) -> None:
    reads_little(empty, server, MANY_PROOF)
