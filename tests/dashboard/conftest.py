"""The pages of a server in the test's own process, and somebody who has signed in."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from litestar.testing import TestClient
from playwright.sync_api import sync_playwright

from interlock.client.app import App
from interlock.dashboard.site import make_routes
from interlock.server.app import build_app
from tests.dashboard.browsing import CHROMIUM, Site, browsing
from tests.dashboard.visitor import BASE, Visitor
from tests.server.stage import MANY, Log, Stage
from tests.store.databases import fresh_postgres


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/work.db"
        return
    with fresh_postgres(request.getfixturevalue("server"), f"d{abs(hash(tmp_path))}") as found:
        yield found


@pytest.fixture
def stage(url: str) -> Iterator[Stage]:
    """A server with pages; whatever the story was, its log has no secret."""
    app, log = App(url), Log()
    logging.getLogger().addHandler(log)
    try:
        with TestClient(build_app(app, limits=MANY, make_pages=make_routes), base_url=BASE) as client:
            stage = Stage(app, client)
            yield stage
    finally:
        logging.getLogger().removeHandler(log)
    told = "\n".join(log.lines)
    assert not [secret for secret in stage.secrets if secret in told]


@pytest.fixture
def visitor(stage: Stage) -> Visitor:
    """Somebody who has signed in with a key for everything."""
    return Visitor(stage).sign_in(stage.own)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def site(browser: Any, tmp_path: Path) -> Iterator[Site]:
    """A server on SQLite, for pages that are looked at."""
    with App(f"sqlite:///{tmp_path}/work.db") as app, browsing(app, browser) as found:
        yield found


@pytest.fixture
def live_site(browser: Any, url: str) -> Iterator[Site]:
    """A server on either database, for pages that act, or show what happens."""
    with App(url) as app, browsing(app, browser) as found:
        yield found
