"""The databases that a worker's test runs on, and a server that is all a worker has."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.databases import KINDS, fresh_postgres
from tests.worker.stage import FAR


@pytest.fixture(params=[*KINDS, FAR, pytest.param("http postgres", marks=pytest.mark.proof)])
def url(request: pytest.FixtureRequest, tmp_path: Path, server: str) -> Iterator[str]:
    """A fresh database."""
    if "postgres" in request.param:
        with fresh_postgres(server, f"worker{abs(hash(tmp_path))}") as one:
            yield one if request.param == "postgres" else f"{FAR} {one}"
    elif request.param == FAR:
        yield f"{FAR} sqlite:///{tmp_path}/work.db"
    else:
        yield "sqlite://:memory:" if request.param == "sqlite memory" else f"sqlite:///{tmp_path}/work.db"
