"""A server on each database."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.stage import Stage, staged
from tests.store.databases import fresh_postgres


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path, server: str) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/work.db"
        return
    with fresh_postgres(server, f"s{abs(hash(tmp_path))}") as found:
        yield found


@pytest.fixture
def stage(url: str) -> Iterator[Stage]:
    with staged(url) as found:
        yield found
