"""Counting reads every event once, and a look at the counts and gauges reads little, however much there is."""

from collections.abc import Iterator

import pytest

from interlock.core.engine import Engine
from interlock.kernel.commands import CountEvents, Submit, Work
from interlock.kernel.metrics import MOVES
from interlock.lifecycles import shipped
from interlock.plugins import make_engine
from interlock.store.postgres import PostgresConnection
from interlock.store.queries import metrics
from tests.store.databases import KINDS, Connection, declare, fresh
from tests.store.filling import Read, fill, watched
from tests.store.test_plans import analyze, large_scans

MANY, MANY_PROOF = 9_999, 999_999
LANES, NEW = 100, 7


@pytest.fixture(params=KINDS)
def empty(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, server: str
) -> Iterator[Connection]:
    with fresh(request.param, tmp_path_factory.mktemp("tallies"), server) as connection:
        yield connection


def next_tally(engine: Engine) -> tuple[CountEvents | None, bool]:
    return engine.read(lambda connection: metrics.read_next_counts(connection, 1, shipped()))


def caught_up(engine: Engine) -> int:
    """Everything is counted; answers how many steps that took."""
    steps, more = 0, True
    while more:
        tally, more = next_tally(engine)
        steps += 1
        assert tally is None or engine.send(tally)
    return steps


def counts_once_and_reads_little(database: Connection, server: str, many: int) -> None:
    fill(database, many, LANES)
    analyze(database, server)
    engine = make_engine(database, shipped())
    assert caught_up(engine) == many // metrics.PAGE + 1
    engine.send(Submit(work=tuple(Work(task="new", priority=place) for place in range(NEW))))
    declare(database, 1)
    with watched(database) as reads:
        tally, more = next_tally(engine)
    assert (tally is not None, more) == (True, False)
    refuse_scans(reads)
    if isinstance(database, PostgresConnection):
        assert sum(read.rows.get("act", 0) for read in reads) <= 3 * NEW
    assert tally
    assert engine.send(tally)
    assert not engine.send(tally)  # it counts from where somebody counted before
    assert next_tally(engine) == (None, False)
    found = engine.read(lambda connection: metrics.read_counts(connection, 1))
    assert sum(value for name, _, value in found if name == MOVES) == many + NEW
    with watched(database) as reads:
        now = engine.read(lambda connection: metrics.read_gauges(connection, 1))
    refuse_scans(reads)
    assert sum(one.units for one in now.depths) == many // 3 + NEW


def refuse_scans(reads: list[Read]) -> None:
    """No large table is read from one end to the other."""
    assert [scan for scan in large_scans(reads) if not scan.startswith("Bitmap")] == []  # which goes by an index


def test_counting(empty: Connection, server: str) -> None:
    counts_once_and_reads_little(empty, server, MANY)


@pytest.mark.proof
def test_counting_a_million(empty: Connection, server: str) -> None:
    counts_once_and_reads_little(empty, server, MANY_PROOF)


@pytest.mark.parametrize("informed", [False, True], ids=["never analyzed", "analyzed"])
def test_a_scrape_sorts_no_events(empty: Connection, server: str, informed: bool) -> None:
    """A file that was never analyzed read all events of the tenant and sorted them; a server analyzes by itself."""
    fill(empty, MANY, LANES)
    if informed or isinstance(empty, PostgresConnection):
        analyze(empty, server)
    engine = make_engine(empty, shipped())
    with watched(empty) as reads:
        tally, more = next_tally(engine)
        engine.read(lambda connection: (metrics.read_counts(connection, 1), metrics.read_gauges(connection, 1)))
    assert tally
    assert more
    refuse_scans(reads)
    # An act's own units are put in their order; all acts never are.
    sorts = [(read.sql, set(read.sorts) - {"Incremental Sort"}) for read in reads if "journal" in read.sql]
    assert [sql for sql, sorted_by in sorts if sorted_by] == []


@pytest.mark.parametrize("few", [1, 1_000])
def test_the_oldest_of_a_queue_is_found_whatever_its_priority(
    empty: Connection, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(metrics, "FEW", few)
    engine = make_engine(empty, shipped())
    for priority, queue, task in ((1, "a", "x"), (9, "a", "x"), (5, "a", "y"), (5, "b", "x")):
        engine.send(Submit(work=(Work(task=task, queue=queue, priority=priority),)))
    declare(empty, 1)
    born = dict(empty.rows("SELECT id, available_at FROM unit"))
    with watched(empty) as reads:
        depths = engine.read(lambda connection: metrics.read_gauges(connection, 1)).depths
    assert [(depth.queue, depth.units, depth.oldest_at) for depth in depths] == [
        ("a", 3, min(born.values())),
        ("b", 1, max(born.values())),
    ]
    assert few == 1 or len(reads) < 12  # however many tasks wait: each has a lane of its own
