"""Every test of the SDK runs on SQLite file, SQLite memory and PostgreSQL, and over HTTP."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from interlock.audit.laws import audit
from interlock.client.app import App
from interlock.plugins import STANDARD
from interlock.testing import Stage
from tests.server.house import House, housed
from tests.store.databases import KINDS, declare, fresh_postgres

HTTP = "http"
LONG = pytest.param("http postgres", marks=pytest.mark.proof)


@pytest.fixture(scope="session")
def house() -> Iterator[House]:
    """A server, for whichever test is its guest."""
    with housed() as made:
        yield made


@pytest.fixture(params=[*KINDS, HTTP, LONG])
def url(request: pytest.FixtureRequest, tmp_path: Path, server: str) -> Iterator[str]:
    """A database of the test's own, or the server of one; its key is where a program finds it."""
    with ExitStack() as stack:
        made = "sqlite://:memory:" if "memory" in request.param else f"sqlite:///{tmp_path}/work.db"
        if "postgres" in request.param:
            made = stack.enter_context(fresh_postgres(server, f"c{abs(hash(tmp_path))}"))
        if HTTP in request.param:
            house: House = request.getfixturevalue("house")
            house.url = made
            if "stage" not in request.fixturenames:  # which is its own server's guest
                patch = stack.enter_context(pytest.MonkeyPatch.context())
                patch.setenv("INTERLOCK_KEY", stack.enter_context(house.hosts(App(made))))
            made = house.base
        yield made


@pytest.fixture
def neighbour(request: pytest.FixtureRequest) -> Iterator[Callable[[App], App]]:
    """Makes an app of tenant 2 on the database of another app."""
    made: list[App] = []

    def another(app: App) -> App:
        if app.engine.far:
            house: House = request.getfixturevalue("house")
            made.append(App(app.url, key=house.key("admin", tenant=2)))
        else:
            made.append(App(app.url, tenant=2))
            made[-1].opener = app.connect
        return made[-1]

    yield another
    for one in made:
        one.close()


@pytest.fixture
def lawful(request: pytest.FixtureRequest) -> Callable[[App], None]:
    """Asserts that the database of an app breaks no law."""

    def sound(app: App) -> None:
        there = request.getfixturevalue("house").app if app.engine.far else app
        assert there.engine.read(lambda connection: list(audit(connection, app.lifecycles, laws=STANDARD.laws))) == []

    return sound


@pytest.fixture
def stage(url: str, request: pytest.FixtureRequest, interlock_app: Callable[..., Stage]) -> Iterator[Stage]:
    """A stage whose record is sound when the test is over."""
    if url.startswith("http"):
        house: House = request.getfixturevalue("house")
        made = interlock_app(url=house.url)
        guest = App(house.url)
        guest.lifecycles, guest.opener = made.app.lifecycles, lambda: made.engine
        with house.hosts(guest) as key:
            made.app.opened = None
            made.app.reach(house.base, key)
            yield made
            made.app.close()
    else:
        made = interlock_app(url=url)
        yield made
    declare(made.engine.reader, 1)  # type: ignore[arg-type]
    assert list(audit(made.engine.reader, made.app.lifecycles, laws=STANDARD.laws)) == []
