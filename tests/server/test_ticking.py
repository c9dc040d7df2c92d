"""A server alone, without a worker, lets time pass for every tenant."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from interlock.client.app import App
from interlock.core.tick import Ticker
from interlock.kernel.commands import Claim, DefineSchedule, Register, SetTenant, Submit, Tick, Work
from interlock.lifecycles import shipped
from interlock.plugins import open_engine
from interlock.store.queries.snapshots import read_due_tenants
from interlock.store.queries.views import Filter, find_matching, view
from tests.engine.world import SECOND, World
from tests.server.serving import serving
from tests.store.databases import KINDS, declare, fresh, fresh_postgres

SOON_US = SECOND // 5
KINDS_OF_FILE = ["sqlite file", "postgres"]


@contextmanager
def database(kind: str, folder: Path, server: str) -> Iterator[str]:
    if kind == "postgres":
        with fresh_postgres(server, f"ticking{abs(hash(folder))}") as url:
            yield url
    else:
        yield f"sqlite:///{folder / 'ticking.db'}"


def until(true: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.05)


@pytest.mark.parametrize("kind", KINDS_OF_FILE)
def test_a_server_alone_lets_time_pass_for_every_tenant(kind: str, tmp_path: Path, server: str) -> None:
    """An approval expires, a queue timeout ends a job, and a schedule makes its unit."""
    with database(kind, tmp_path, server) as url, App(url) as app:
        tenants = {tenant: App(url, tenant=tenant) for tenant in (1, 2, 3)}
        app.send(SetTenant(tenant=2, name="second"))  # the third was never named
        waiting = {tenant: made(one, tenant) for tenant, one in tenants.items()}
        with serving(url):
            for tenant, one in tenants.items():
                until(lambda one=one, tenant=tenant: has_ended(one, waiting[tenant]), f"tenant {tenant}")  # type: ignore[misc]
        for one in tenants.values():
            one.close()


def has_ended(app: App, waiting: list[tuple[int, str]]) -> bool:
    """Whether time did to these units what it must, and the schedule has made a unit."""
    ends = [app.read(view, unit).unit.outcome == outcome for unit, outcome in waiting]
    return all(ends) and bool(app.read(find_matching, Filter(task="hourly")))


def made(app: App, tenant: int) -> list[tuple[int, str]]:
    """Work of a tenant that only time ends, and the outcome of each piece."""
    expires = Work(task="ask", lifecycle="approval", expires_us=SOON_US)
    late = Work(task="late", queue_timeout_us=SOON_US)
    asked, job = app.send(Submit(tenant=tenant, work=(expires, late)))
    app.send(DefineSchedule(tenant=tenant, name="soon", timing="every 1s", work=Work(task="hourly")))
    return [(asked.unit, "cancelled"), (job.unit, "dead")]


@pytest.fixture(params=KINDS)
def world(request: pytest.FixtureRequest, tmp_path: Path, server: str) -> Iterator[World]:
    with fresh(request.param, tmp_path, server) as connection:
        yield World(connection)


def test_only_tenants_with_something_due_are_ticked(world: World) -> None:
    second = 2
    assert world.engine.read(read_due_tenants, None) == []
    world.submit(queue_timeout_us=10 * SECOND)
    world.send(Submit(tenant=second, work=(Work(task="a", queue_timeout_us=20 * SECOND),)))
    ticker = Ticker(world.engine, "test")
    assert world.engine.read(read_due_tenants, None) == [1, second], "what they did is not sealed yet"
    ticker.tick_all()
    assert world.engine.read(read_due_tenants, None) == []
    world.pass_time(11)
    assert world.engine.read(read_due_tenants, None) == [1]
    world.pass_time(11)
    assert world.engine.read(read_due_tenants, None) == [1, second]
    ticker.tick_all()
    world.pass_time(2)
    ticker.tick_all()  # what the first one did is sealed by the second
    assert world.engine.read(read_due_tenants, None) == []
    declare(world.connection, 1, 2)
    assert world.count("unit", "category = 'dead'") == 2


def test_several_that_tick_do_everything_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'several.db'}"
    with open_engine(url, shipped()) as first, open_engine(url, shipped()) as second:
        worker = first.send(Register(name="w", incarnation="1", capacity=100))
        units = [one.unit for one in first.send(Submit(work=tuple(Work(task="a") for _ in range(20))))]
        first.send(Claim(worker=worker, limit=20, key="c", nonce="the-nonce-of-the-claim"))
        first.send(DefineSchedule(name="soon", timing="every 1s", overlap="allow", work=Work(task="scheduled")))
        tickers = [Ticker(one, "test", every=0.01) for one in (first, second)]
        for ticker in tickers:
            ticker.start()
        until(lambda: len(first.see(find_matching, 1, Filter(task="scheduled"))) >= 2, "the schedule")
        for ticker in tickers:
            ticker.stop()
        made = [first.see(view, 1, one).body.key for one in first.see(find_matching, 1, Filter(task="scheduled"))]
        assert len(made) == len(set(made))
        assert {first.see(view, 1, one).unit.fence for one in units} == {1}
        assert first.send(Tick()) >= 0
