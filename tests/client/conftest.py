"""Every test of the SDK runs on SQLite file, SQLite memory and PostgreSQL."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from interlock.audit.laws import audit
from interlock.testing import Stage
from tests.store.databases import KINDS, declare, fresh_postgres


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path, server: str) -> Iterator[str]:
    """A database of the test's own."""
    if request.param == "postgres":
        with fresh_postgres(server, f"c{abs(hash(tmp_path))}") as made:
            yield made
    else:
        yield "sqlite://:memory:" if "memory" in request.param else f"sqlite:///{tmp_path}/work.db"


@pytest.fixture
def stage(url: str, interlock_app: Callable[..., Stage]) -> Iterator[Stage]:
    """A stage whose record is sound when the test is over."""
    made = interlock_app(url=url)
    yield made
    declare(made.engine.reader, 1)  # type: ignore[arg-type]
    assert list(audit(made.engine.reader, made.app.lives)) == []
