"""Fixtures of the store's tests: each test runs on SQLite file, SQLite memory and PostgreSQL."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.databases import KINDS, Connection, fresh


@pytest.fixture(params=KINDS)
def database(request: pytest.FixtureRequest, tmp_path: Path, server: str) -> Iterator[Connection]:
    with fresh(request.param, tmp_path, server) as connection:
        yield connection
