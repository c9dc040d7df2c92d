"""Every story runs on SQLite file, SQLite memory and PostgreSQL."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.audit.laws.record import judge_paths
from interlock.store.postgres import PostgresConnection
from tests.engine.world import World
from tests.store.databases import KINDS, declare, fresh
from tests.store.lent import lend_connection

audited_paths: dict[str, int] = {}  # by kind: how many paths a new database has, whose laws this process has asked


@pytest.fixture(params=KINDS)
def world(request: pytest.FixtureRequest, tmp_path: Path, server: str) -> Iterator[World]:
    lent = request.param == "postgres"
    with lend_connection(server) if lent else fresh(request.param, tmp_path, server) as connection:
        assert lent == isinstance(connection, PostgresConnection)
        declare(connection, 1)
        made = World(connection)
        if request.param not in audited_paths:
            assert list(judge_paths(connection)) == []
            audited_paths[request.param] = made.count("transition_path")
        made.paths = audited_paths[request.param]
        yield made
