"""The seam between the databases: how small it is, that both are exactly that, and queries that are known ahead."""

import inspect
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import interlock.store
from interlock.kernel.rows import Unit
from interlock.lifecycles import shipped
from interlock.store.caller_transaction import join_transaction
from interlock.store.connection import Connection
from interlock.store.flush import flush
from interlock.store.ids import Ids
from interlock.store.postgres import PostgresConnection
from interlock.store.query import select
from interlock.store.sqlite import SqliteConnection
from interlock.store.unit_of_work import open_unit_of_work
from tests.store.databases import fresh

FACTS = {"name", "many_writers", "private", "pooled", "mark"}
METHODS = {
    "begin", "declare", "commit", "rollback", "rows", "fetch_together", "many", "script", "pipeline", "insert",
    "update", "act_id", "write_acts", "now", "keep_time", "observe", "reconnect", "close",
}  # fmt: skip
# What each needs to be one, and nobody else calls.
OWN = {
    SqliteConnection: {"open", "state"},
    PostgresConnection: {"open", "notice_pooler", "sync", "send_query", "warn"},
}


def methods(kind: type) -> dict[str, Any]:
    return {name: made for name, made in vars(kind).items() if inspect.isfunction(made) and not name.startswith("_")}


def test_the_protocol_is_as_small_as_it_is() -> None:
    """A new method is a new place where the databases may differ: think first whether a statement would do."""
    assert methods(Connection).keys() == METHODS
    assert inspect.get_annotations(Connection).keys() == FACTS
    assert len(METHODS) == 18


@pytest.mark.parametrize("kind", OWN)
def test_a_database_is_exactly_the_protocol(kind: type) -> None:
    assert methods(kind).keys() - OWN[kind] == METHODS
    for name, made in methods(Connection).items():
        assert list(inspect.signature(getattr(kind, name)).parameters) == list(inspect.signature(made).parameters), name


def test_both_packages_have_the_same_files() -> None:
    store = Path(interlock.store.__file__).parent
    names = [sorted(path.name for path in (store / kind).glob("*.py")) for kind in ("sqlite", "postgres")]
    assert names[0] == names[1] == ["__init__.py", "bulk.py", "connection.py", "driver.py", "wakeups.py"]


def test_a_callers_connection_has_all_that_ours_has(tmp_path: Path) -> None:
    """Whatever a connection comes to have, one on a caller's has it too: it is made the same way."""
    with fresh("sqlite file", tmp_path, "") as ours:
        assert isinstance(ours, SqliteConnection)
        raw = sqlite3.connect(ours.path)
        theirs = join_transaction(raw)
        assert vars(theirs).keys() >= vars(ours).keys() - {"file"}
        raw.close()


def test_a_query_is_prefetched_by_itself_and_not_by_its_text(tmp_path: Path) -> None:
    rest = "WHERE id = :id"
    query, same_text = select(Unit, rest), select(Unit, rest)
    with fresh("sqlite memory", tmp_path, "") as connection:
        tx = open_unit_of_work(connection, shipped(), Ids(connection), [1], ahead=[query.bind(id=1)])
        asked: list[str] = []
        rows = connection.rows
        connection.rows = lambda sql, params=None: (asked.append(sql), rows(sql, params))[1]  # type: ignore[method-assign]
        assert tx.run(query.bind(id=1)) == []
        assert asked == []
        tx.run(query.bind(id=1))  # what was prefetched is used once
        assert len(asked) == 1
        tx.prefetch([query.bind(id=1)])
        asked.clear()
        tx.run(same_text.bind(id=1))
        tx.run(query.bind(id=2))
        assert len(asked) == 2
        flush(tx)  # what was read before it has not seen what it writes
        tx.run(query.bind(id=1))
        assert len(asked) == 3
        connection.rollback()
