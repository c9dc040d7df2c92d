"""Runs under load and under fire: their steps keep their order, all of them finish, and a wait outlives everything."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.audit.laws import audit
from interlock.store.connection import Connection
from interlock.store.queries.views import count_by
from tests.chaos.flows import PLAIN, made
from tests.chaos.test_killed import HURRY, until
from tests.conftest import ROOT
from tests.store.databases import fresh_postgres


@pytest.fixture(params=["sqlite file", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path, server: str) -> Iterator[str]:
    if request.param == "postgres":
        with fresh_postgres(server, f"flows{abs(hash(tmp_path))}") as one:
            yield one
    else:
        yield f"sqlite:///{tmp_path}/work.db"


@contextmanager
def crew(url: str, size: int, first: int = 1) -> Iterator[list["subprocess.Popen[bytes]"]]:
    """So many worker processes; they are killed when it is over, if not before."""
    command = [sys.executable, "-m", "tests.chaos.flows", url, str(HURRY)]
    workers = [subprocess.Popen([*command, f"w{first + n}"], cwd=ROOT) for n in range(size)]
    try:
        yield workers
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


def ended(app: interlock.App) -> int:
    """How many runs have ended."""
    rows = app.read(count_by, ("lifecycle", "outcome"))
    return sum(count for lifecycle, outcome, count in rows if lifecycle == "workflow_run" and outcome is not None)


def done(app: interlock.App, lifecycle: str) -> int:
    rows = app.read(count_by, ("lifecycle", "outcome"))
    return sum(count for kind, outcome, count in rows if kind == lifecycle and outcome is not None)


def submitted(app: interlock.App, count: int) -> list[interlock.Run]:
    return [app.workflows["plain"].submit(n=n, key=f"run {n}") for n in range(count)]


def judge(connection: Connection, app: interlock.App, runs: int) -> None:
    """Everything succeeded, and no two steps of a run ran at a time, or out of order."""
    assert list(audit(connection, app.lifecycles, rebuild=True)) == []
    assert connection.rows("SELECT count(*) FROM unit WHERE lifecycle = 'workflow_run' AND outcome = 'success'") == [
        (runs,)
    ]
    rows = connection.rows(
        "SELECT unit.parent, unit.id, event.at, event.target FROM event JOIN unit ON unit.id = event.unit "
        "WHERE unit.lifecycle = 'step' AND event.source IS NOT NULL AND event.source <> event.target "
        "ORDER BY unit.parent, unit.id, event.version"
    )
    for _, events in groupby(rows, key=lambda row: row[0]):
        spans = [list(some) for _, some in groupby(events, key=lambda row: row[1])]
        assert len(spans) == len(PLAIN)
        for before, after in pairwise(spans):
            assert before[-1][3] == "SUCCEEDED"
            assert before[-1][2] <= after[0][2], "a step began before the one before it had ended"


def under_load(url: str, runs: int, workers: int) -> None:
    with ExitStack() as stack:
        app = stack.enter_context(made(url, HURRY))
        app.connect()
        stack.enter_context(crew(url, workers))
        submitted(app, runs)
        until(lambda: ended(app) == runs)
        app.read(lambda connection, tenant: judge(connection, app, runs))
        for n in (0, runs - 1):
            assert app.workflows["plain"].submit(n=n, key=f"run {n}").outputs["four"] == 2 * n + 2


@pytest.mark.req("R1-34", "R1-35")
def test_runs_under_load_keep_the_order_of_their_steps(url: str) -> None:
    under_load(url, runs=60, workers=2)


@pytest.mark.proof
def test_a_thousand_runs_under_load_keep_the_order_of_their_steps(url: str) -> None:
    under_load(url, runs=1_000, workers=3)


@pytest.mark.req("R1-36")
def test_all_workers_are_killed_and_one_finishes_every_run(url: str) -> None:
    killed(url, runs=40)


@pytest.mark.proof
def test_all_workers_are_killed_in_the_middle_of_five_hundred_runs(url: str) -> None:
    killed(url, runs=500)


def killed(url: str, runs: int) -> None:
    with ExitStack() as stack:
        app = stack.enter_context(made(url, HURRY))
        app.connect()
        with crew(url, 3) as first:
            submitted(app, runs)
            until(lambda: done(app, "step") >= runs // 2)
            for worker in first:
                worker.kill()
        assert ended(app) < runs
        stack.enter_context(crew(url, 1, first=9))
        until(lambda: ended(app) == runs)
        app.read(lambda connection, tenant: judge(connection, app, runs))


@pytest.mark.req("R1-19")
def test_a_wait_survives_the_restart_of_everything(url: str) -> None:
    with made(url, HURRY) as app, crew(url, 1):
        run = app.workflows["waits"].submit(n=1)
        until(lambda: run.waiting_on == ["gate"])
    with made(url, HURRY) as app:  # nobody works
        assert app.run(run.unit).approve(by="ann").applied
    with made(url, HURRY) as app, crew(url, 1, first=2):
        until(lambda: waits_for_signal(app))
    with made(url, HURRY) as app:
        assert app.run(run.unit).signal("paid", 12).applied
    with made(url, HURRY) as app, crew(url, 1, first=3):
        assert app.run(run.unit).wait(timeout="60s")["ship"] == [["ann"], 12]
        app.read(lambda connection, tenant: sound(connection, app))


def waits_for_signal(app: interlock.App) -> bool:
    sql = "SELECT count(*) FROM unit WHERE parked_on IS NOT NULL"
    return bool(app.read(lambda connection, tenant: connection.rows(sql)) == [(1,)])


def sound(connection: Connection, app: interlock.App) -> Any:
    assert list(audit(connection, app.lifecycles, rebuild=True)) == []
