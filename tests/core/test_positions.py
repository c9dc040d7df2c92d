"""Readers of events go by position, and miss nothing, whoever commits first."""

import sqlite3
from pathlib import Path
from typing import Any

import psycopg

from interlock.core.engine import Engine
from interlock.kernel.commands import Submit, Work
from interlock.lifecycles import shipped
from interlock.plugins import open_engine
from interlock.store.caller_transaction import join_transaction
from interlock.store.connection import Connection
from interlock.store.queries.snapshots import read_events_after
from tests.store.databases import fresh_postgres


def submitted(task: str) -> Submit:
    return Submit(work=(Work(task=task),))


def read_all(engine: Engine, after: tuple[int, ...]) -> tuple[list[int], tuple[int, ...]]:
    """The units whose events come after a position, and the position of the last of them."""
    seen: list[int] = []

    def ask(connection: Connection) -> Any:
        return read_events_after(connection, after, 1)

    while found := engine.read(ask):
        ((after, event),) = found
        seen.append(event.unit)
    return seen, after


def test_a_reader_gets_what_was_begun_first_and_committed_last(server: str) -> None:
    with fresh_postgres(server, "positions") as url, open_engine(url, shipped()) as engine:
        first = engine.send(submitted("first"))[0].unit
        with psycopg.connect(url) as slow:
            late = engine.send_within(join_transaction(slow), submitted("late"))[0].unit
            quick = engine.send(submitted("quick"))[0].unit
            seen, after = read_all(engine, ())
            assert seen == [first]  # what is behind an open transaction is not shown yet
        assert read_all(engine, after)[0] == [late, quick]


def test_a_reader_of_a_file_gets_everything_in_the_order_of_commits(tmp_path: Path) -> None:
    path = tmp_path / "work.db"
    with open_engine(f"sqlite:///{path}", shipped()) as engine:
        first = engine.send(submitted("first"))[0].unit
        assert read_all(engine, ())[0] == [first]
        slow = sqlite3.connect(path)
        second = engine.send_within(join_transaction(slow), submitted("second"))[0].unit
        seen, after = read_all(engine, ())
        assert seen == [first]
        slow.commit()
        slow.close()
        assert read_all(engine, after)[0] == [second]


def test_what_was_rolled_back_was_never_there(server: str) -> None:
    with fresh_postgres(server, "positions") as url, open_engine(url, shipped()) as engine:
        with psycopg.connect(url) as slow:
            engine.send_within(join_transaction(slow), submitted("never"))
            slow.rollback()
        quick = engine.send(submitted("quick"))[0].unit
        assert read_all(engine, ())[0] == [quick]
