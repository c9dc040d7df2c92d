"""A server on each database, and two servers in processes of their own on one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.pair import TWO, paired
from tests.server.stage import Stage, staged
from tests.store.databases import fresh_postgres

INSIDE = {
    "inside",
    "monkeypatch",
    "caplog",
}  # fixtures of those who reach into the server, which must be in their process


@pytest.fixture(params=["sqlite", "postgres", pytest.param(TWO, marks=pytest.mark.proof)])
def url(request: pytest.FixtureRequest, tmp_path: Path, server: str) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/work.db"
        return
    with fresh_postgres(server, f"s{abs(hash(tmp_path))}") as found:
        yield found


@pytest.fixture
def stage(request: pytest.FixtureRequest, url: str, tmp_path: Path) -> Iterator[Stage]:
    """What a story plays on; before two servers, each request goes to the next one in turn."""
    two = request.node.callspec.params["url"] == TWO
    with paired(url, tmp_path) if two else staged(url) as found:
        yield found


@pytest.fixture
def inside(stage: Stage) -> Stage:
    """A stage whose server is in the test's own process."""
    return stage


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Who reaches into a server, or starts one, does so before one server alone."""

    def can(item: pytest.Item) -> bool:
        used, known = set(getattr(item, "fixturenames", ())), getattr(item, "callspec", None)
        return known is None or known.params.get("url") != TWO or ("stage" in used and not used & INSIDE)

    items[:] = filter(can, items)
