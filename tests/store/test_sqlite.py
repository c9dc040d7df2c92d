"""What SQLite does in its own way: many rows a statement, what it remembers of held units, and how often it looks."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from interlock.kernel.commands import (
    Cancel,
    Claim,
    Finish,
    LeaseGrant,
    LeaseRef,
    LeaseStatus,
    Outcome,
    Register,
    Start,
    Submit,
    Work,
)
from interlock.kernel.errors import Corrupt
from interlock.kernel.rows import Note, Unit
from interlock.lifecycles import shipped
from interlock.plugins import make_engine
from interlock.store.cache import NUMBERS
from interlock.store.flush import WRITTEN
from interlock.store.queries.snapshots import read_rows
from interlock.store.sqlite import SqliteConnection, wakeups
from interlock.store.sqlite.bulk import SIZES, build_statements, insert_text, update_text
from tests.store.databases import fresh
from tests.store.raw_acts import move


@pytest.fixture
def database(tmp_path: Path) -> Iterator[SqliteConnection]:
    with fresh("sqlite file", tmp_path, "") as connection:
        assert isinstance(connection, SqliteConnection)
        yield connection


def note(number: int) -> Note:
    return Note(
        id=number, tenant=1, unit=number % 7, kind="x", name="" if number % 2 else "'; é", fence=0, at=number % 3,
        expires=None if number % 5 else 9, payload="{}",
    )  # fmt: skip


def unborn(unit: int, **changes: Any) -> Unit:
    """The row of a job that no act has borne yet."""
    return Unit(**{"id": unit, "tenant": 1, "lane": NUMBERS + 1, "lifecycle": "job", **changes})


# Many rows in one statement.


@pytest.mark.parametrize("count", [1, 2, 5, 124, 626, 1_003])
def test_rows_are_written_as_they_are_and_in_their_order(database: SqliteConnection, count: int) -> None:
    rows = [note(number) for number in range(count, 0, -1)]
    database.insert(rows)
    listed = ", ".join(Note.__struct_fields__)
    assert database.rows(f"SELECT {listed} FROM note ORDER BY rowid") == [msgspec.structs.astuple(row) for row in rows]
    database.insert([unborn(unit) for unit in range(1, count + 1)])
    changed = [unborn(unit, parked_on=None if unit % 2 else f"k{unit}", wake_at=7) for unit in range(1, count + 1)]
    database.update(changed, ("parked_on", "wake_at"), "id")
    written = database.rows("SELECT id, parked_on, wake_at FROM unit ORDER BY id")
    assert written == [(unit.id, unit.parked_on, 7) for unit in changed]


def test_however_many_rows_there_are_few_texts_write_them() -> None:
    rows = [(number, 1, None) for number in range(3_000)]
    names, counts = ("a", "b", "c"), range(1, 3_000, 7)
    texts = {sql for count in counts for sql, _ in build_statements(insert_text, "t", names, rows[:count], 0)}
    assert len(texts) == len(SIZES)
    assert all("?, ?" in sql and sql.count("(?)") in SIZES for sql in texts if "VALUES (?, ?, ?)" not in sql)


def test_what_rows_share_is_given_once() -> None:
    rows = [("x", number % 2, number) for number in range(4)]
    ((sql, given),) = build_statements(update_text, "t", ("a", "b", "id"), rows, 2)
    assert sql.startswith("UPDATE t SET a = ?, b = given.column1 FROM")
    assert given == ["x", 0, 0, 1, 1, 0, 2, 1, 3]


def test_one_row_that_the_guard_refuses_takes_its_statement_with_it(database: SqliteConnection) -> None:
    with pytest.raises(Corrupt, match=r"interlock guard \[event-first\]"):
        database.insert([*map(unborn, range(1, 100)), unborn(100, state="queued", version=1)])
    assert database.rows("SELECT count(*) FROM unit") == [(0,)]


@pytest.mark.parametrize("statistics", ["", "0", "1 1", "1000000 1"])
@pytest.mark.parametrize("size", SIZES)
def test_a_row_is_found_by_its_key_whatever_the_planner_believes(
    database: SqliteConnection, statistics: str, size: int
) -> None:
    if statistics:
        database.rows("ANALYZE")
        database.rows("DELETE FROM sqlite_stat1 WHERE tbl = 'unit'")
        insert = "INSERT INTO sqlite_stat1 VALUES ('unit', 'sqlite_autoindex_unit_1', :stat)"
        database.rows(insert, {"stat": statistics})
        database.reconnect()
    names = (*WRITTEN, "id")
    sql = update_text("unit", names, tuple(range(len(names))), size)
    plan = database.raw.execute("EXPLAIN QUERY PLAN " + sql, (0,) * len(names) * size).fetchall()
    assert any("SEARCH unit USING" in row[3] and "(id=?)" in row[3] for row in plan)
    assert not any(row[3].startswith("SCAN unit") for row in plan)


# What is remembered of units that are held.


class Holder:
    """A worker that runs one job."""

    def __init__(self, database: SqliteConnection) -> None:
        self.engine, self.database = make_engine(database, shipped()), database
        worker = self.engine.send(Register(name="w", incarnation="1", capacity=9, capabilities=()))
        # On terms of its own: plain jobs go the fast path, which remembers nothing.
        self.engine.send(Submit(work=(Work(task="mail", ttl_us=90_000_000),)))
        (self.grant,) = self.engine.send(Claim(worker=worker, key="c", nonce="n" * 16, limit=1, queues=("default",)))
        self.engine.send(Start(held=(held(self.grant),)))

    def finish(self) -> tuple[LeaseStatus, list[str]]:
        """The answer to its end, and what was asked of the units before."""
        asked: list[str] = []
        self.database.raw.set_trace_callback(asked.append)
        (heard,) = self.engine.send(Finish(outcomes=(Outcome(held=held(self.grant), result="1"),)))
        self.database.raw.set_trace_callback(None)
        return heard, [
            sql
            for sql in asked
            if sql.startswith("SELECT unit.id, unit.tenant, unit.lane") and str(self.grant.unit) in sql
        ]


def held(grant: LeaseGrant) -> LeaseRef:
    return LeaseRef(unit=grant.unit, fence=grant.fence, lease=grant.lease)


def test_what_this_connection_left_is_not_read_again(database: SqliteConnection) -> None:
    heard, asked = Holder(database).finish()
    assert heard.accepted
    assert asked == []


def test_what_another_connection_wrote_is_seen(database: SqliteConnection) -> None:
    holder = Holder(database)
    other = SqliteConnection(database.path)
    make_engine(other, shipped()).send(Cancel(unit=holder.grant.unit))
    other.close()
    heard, asked = holder.finish()
    assert len(asked) == 1
    assert (heard.accepted, heard.cancel) == (True, False)
    events = database.rows("SELECT version, source, target FROM event WHERE unit = :unit", {"unit": holder.grant.unit})
    assert [version for version, _, _ in events] == list(range(1, len(events) + 1))


@pytest.mark.parametrize("elsewhere", [True, False], ids=["by another program", "by this connection"])
def test_what_was_written_past_the_engine_is_seen(database: SqliteConnection, elsewhere: bool) -> None:
    """An act that another program writes, or that this connection writes without the engine."""
    holder = Holder(database)
    other = SqliteConnection(database.path) if elsewhere else database
    move(other, holder.grant.unit, "self/revoke")
    if elsewhere:
        other.close()
    heard, asked = holder.finish()
    assert len(asked) == 1
    assert (heard.accepted, heard.why) == (False, "LEASE_REVOKED")


def test_what_was_undone_is_not_remembered(database: SqliteConnection) -> None:
    holder = Holder(database)
    database.begin()
    (known,) = read_rows(database, Unit, "WHERE id = :id", id=holder.grant.unit)
    unit = msgspec.structs.replace(known, due_at=1)
    database.update([unit], ("due_at",), "id")
    database.rollback()
    heard, asked = holder.finish()
    assert heard.accepted
    assert len(asked) == 1


# How often the file is looked at.


def test_the_longer_no_work_came_the_less_it_is_looked_for() -> None:
    pauses = [wakeups.pause(quiet / 100) for quiet in range(1_000)]
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (wakeups.POLL_LEAST, wakeups.POLL_MOST)
    assert all(
        wakeups.pause(quiet / 100) <= wakeups.POLL_LEAST + quiet / 100 * wakeups.POLL_SHARE for quiet in range(1_000)
    )
