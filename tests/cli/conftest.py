"""Commands run on a file and on PostgreSQL."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interlock.store.postgres import PostgresConnection
from interlock.store.sqlite import SqliteConnection
from tests.cli.inside import called, inside
from tests.cli.places import Place
from tests.conftest import Run, run_command
from tests.engine.world import World
from tests.store.databases import declare, fresh_postgres


@pytest.fixture(scope="session")
def interlock() -> Run:
    """The command, without starting it: a start takes longer than most of what it is asked here."""
    return called


@pytest.fixture(scope="session")
def started() -> Run:
    """The command in a process of its own."""
    return run_command


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path, server: str) -> Iterator[Place]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/work.db"
        assert inside(url)("db", "upgrade").code == 0
        connection: Any = SqliteConnection(f"{tmp_path}/work.db")
        yield Place(url, World(connection))
        connection.close()
        return
    with fresh_postgres(server, f"u{abs(hash(tmp_path))}") as url:
        connection = PostgresConnection(url)
        declare(connection, 1)
        yield Place(url, World(connection))
        connection.close()
