"""Every story runs on SQLite file, SQLite memory and PostgreSQL."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.store.postgres import PostgresConnection
from tests.engine.world import World
from tests.store.databases import KINDS, fresh


@pytest.fixture(params=KINDS)
def world(request: pytest.FixtureRequest, tmp_path: Path, server: str) -> Iterator[World]:
    with fresh(request.param, tmp_path, server) as connection:
        assert (request.param == "postgres") == isinstance(connection, PostgresConnection)
        yield World(connection)
