"""Several programs add the same graph at the same time, in orders of their own: every name is one child."""

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from threading import Barrier

import pytest

from interlock.audit.laws import audit
from interlock.core.engine import Engine
from interlock.kernel.commands import Submit, Work
from interlock.kernel.errors import InterlockError
from interlock.lifecycles import shipped
from interlock.plugins import STANDARD, make_engine
from interlock.store import migrate
from interlock.store.postgres import PostgresConnection
from interlock.store.sqlite import SqliteConnection
from tests.store.databases import Connection, declare, fresh_postgres

ENGINES, STEPS, PAGE = 3, 24, 4


@pytest.fixture(params=["sqlite file", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path, server: str) -> Iterator[str]:
    if request.param == "postgres":
        with fresh_postgres(server, f"places{abs(hash(tmp_path))}") as made:
            yield made
        return
    path = tmp_path / "work.db"
    with closing(SqliteConnection(str(path))) as first:
        migrate.upgrade(first, shipped().values(), STANDARD.tables)
    yield f"sqlite:///{path}"


def connect(url: str) -> Connection:
    return SqliteConnection(url.removeprefix("sqlite:///")) if url.startswith("sqlite") else PostgresConnection(url)


def add_all(engine: Engine, run: int, seed: int) -> dict[str, int]:
    """Adds every step in an order of its own; returns the units by name."""
    works = [
        Work(task="t", lifecycle="step", parent=run, step=f"s{n}", needs=(f"s{n - 1}",) if n else ())
        for n in range(STEPS)
    ]
    random.Random(seed).shuffle(works)
    units: dict[str, int] = {}
    for start in range(0, STEPS, PAGE):
        page = works[start : start + PAGE]
        units |= {
            work.step or "": made.unit for work, made in zip(page, engine.send(Submit(work=tuple(page))), strict=True)
        }
    return units


def test_every_name_is_one_child_whoever_adds_it(url: str) -> None:
    with ExitStack() as stack:
        connections = [stack.enter_context(closing(connect(url))) for _ in range(ENGINES)]
        engines = [make_engine(connection, shipped()) for connection in connections]
        run = engines[0].send(Submit(work=(Work(task="run", lifecycle="workflow_run"),)))[0].unit
        with ThreadPoolExecutor(ENGINES) as pool:
            units = list(pool.map(lambda place: add_all(engines[place], run, place), range(ENGINES)))
        assert all(each == units[0] for each in units)
        declare(connections[0], 1)
        assert list(audit(connections[0], shipped())) == []


def test_of_two_halves_of_a_circle_one_is_refused(url: str) -> None:
    with ExitStack() as stack:
        connections = [stack.enter_context(closing(connect(url))) for _ in range(2)]
        engines = [make_engine(connection, shipped()) for connection in connections]

        def add(engine: Engine, run: int, name: str, need: str) -> str:
            try:
                engine.send(Submit(work=(Work(task="t", lifecycle="step", parent=run, step=name, needs=(need,)),)))
            except InterlockError as refused:
                return str(refused).partition(":")[0]
            return ""

        for _ in range(10):
            run = engines[0].send(Submit(work=(Work(task="run", lifecycle="workflow_run"),)))[0].unit
            with ThreadPoolExecutor(2) as pool:
                first = pool.submit(add, engines[0], run, "a", "b")
                second = pool.submit(add, engines[1], run, "b", "a")
                assert {first.result(), second.result()} == {"", "a circle of needs"}


def test_of_two_halves_of_a_circle_through_two_runs_one_is_refused(url: str) -> None:
    """Each half is in a run of its own, so neither program waits for the other's run."""
    with ExitStack() as stack:
        connections = [stack.enter_context(closing(connect(url))) for _ in range(2)]
        engines = [make_engine(connection, shipped()) for connection in connections]
        barrier = Barrier(2)

        def close_half(engine: Engine, run: int, name: str, after: int) -> str:
            barrier.wait()
            try:
                engine.send(Submit(work=(Work(task="t", lifecycle="step", parent=run, step=name, after=(after,)),)))
            except InterlockError as refused:
                return str(refused).partition(":")[0]
            return ""

        for _ in range(10):
            runs, waiting = [], []
            for name in "ab":
                runs.append(engines[0].send(Submit(work=(Work(task="run", lifecycle="workflow_run"),)))[0].unit)
                step = Work(task="t", lifecycle="step", parent=runs[-1], step="waits", needs=(name,))
                waiting.append(engines[0].send(Submit(work=(step,)))[0].unit)
            with ThreadPoolExecutor(2) as pool:
                halves = [
                    pool.submit(close_half, engines[place], runs[place], "ab"[place], waiting[1 - place])
                    for place in range(2)
                ]
                assert {half.result() for half in halves} == {"", "a circle of needs"}
