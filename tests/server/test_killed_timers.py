"""A server is killed at random points while timers run: the next one does what was due, each timer once."""

import random
import time
from pathlib import Path

import httpx
import pytest

from interlock.audit.laws import audit
from interlock.client.app import App
from interlock.kernel.commands import Claim, DefineSchedule, Register, Submit, Work
from interlock.lifecycles import shipped
from interlock.store.connection import Connection
from tests.server.serving import serving
from tests.store.databases import fresh_postgres

PATIENCE = 120.0
SECOND = 1_000_000
NONCE = "a-nonce-of-a-worker-that-never-speaks-again"
# By kind of timer: how often it has done its work for a unit. It must come to one.
DONE = {
    "approval": "SELECT count(*) FROM event WHERE unit = :unit AND name = 'approval_expired'",
    "late": "SELECT count(*) FROM event WHERE unit = :unit AND trigger = 'time_out' AND target = 'dead_lettered'",
    "delayed": "SELECT count(*) FROM unit WHERE id = :unit AND available_at IS NOT NULL",
    "lease": "SELECT count(*) FROM event WHERE unit = :unit AND lease_to = 'EXPIRED'",
}
TWICE = """
SELECT input, count(*) FROM body WHERE task = 'every second' GROUP BY created_at, input HAVING count(*) > 1
"""
Timers = dict[int, str]  # the kind, by unit


def plant_by_worker(app: App) -> Timers:
    """A schedule, and a step whose worker is never heard of again."""
    app.send(DefineSchedule(name="pulse", timing="every 1s", work=Work(task="every second"), overlap="allow"))
    made = app.send(Submit(work=(Work(task="lost", lifecycle="step", silent=True, ttl_us=5 * SECOND, attempts=9),)))
    worker = app.send(Register(name="gone", incarnation="1"))
    (grant,) = app.send(Claim(worker=worker, key="k", nonce=NONCE))
    assert grant.unit == made[0].unit
    return {grant.unit: "lease"}


def plant_by_request(client: httpx.Client, dice: random.Random, name: str) -> tuple[str, str]:
    """A timer that runs out soon, whichever server is there by then: its kind, and its unit's id."""
    kind, soon = dice.choice(("approval", "late", "delayed")), round(dice.uniform(0.1, 3), 2)
    headers = {"Idempotency-Key": name}
    if kind == "approval":
        steps = [{"task": "sign", "lifecycle": "approval", "expires_seconds": soon}, {"task": "ship"}]
        run = client.post("/v1/runs", json={"task": name, "steps": steps}, headers=headers)
        assert run.status_code in (200, 201), run.text
        return kind, str(client.get(f"/v1/runs/{run.json()['id']}/steps").json()["steps"][0]["id"])
    facts = {"queue_timeout_seconds": soon} if kind == "late" else {"delay_seconds": soon}
    made = client.post("/v1/jobs", json={"task": name, "queue": "nobody", **facts}, headers=headers)
    assert made.status_code in (200, 201), made.text
    return kind, str(made.json()["id"])


def wait_until_done(app: App, timers: Timers) -> None:
    """Nothing but the server lets time pass here."""

    def left(connection: Connection, tenant: int) -> Timers:
        return {unit: kind for unit, kind in timers.items() if connection.rows(DONE[kind], {"unit": unit}) == [(0,)]}

    end = time.monotonic() + PATIENCE
    while waiting := app.read(left):
        assert time.monotonic() < end, waiting
        time.sleep(0.1)


def count_done(connection: Connection, tenant: int, timers: Timers) -> Timers:
    """The units whose timer has done its work more often than once."""
    return {unit: kind for unit, kind in timers.items() if connection.rows(DONE[kind], {"unit": unit}) != [(1,)]}


def kill_again_and_again(url: str, lifecycles: int, timers_a_life: int) -> None:
    dice = random.Random(24)
    with App(url) as app:
        timers, key = plant_by_worker(app), ""
        for lifecycle in range(lifecycles + 1):
            with serving(url) as (base, fresh, process):
                key = key or fresh
                with httpx.Client(base_url=base, headers={"Authorization": f"Bearer {key}"}, timeout=30) as client:
                    for number in range(dice.randint(1, timers_a_life)):
                        kind, unit = plant_by_request(client, dice, f"{lifecycle}.{number}")
                        timers[app.job(unit).unit] = kind
                if lifecycle < lifecycles:
                    time.sleep(dice.uniform(0, 0.5))  # at whatever point it is then
                    process.kill()
                    process.wait()
                else:
                    wait_until_done(app, timers)
        assert set(timers.values()) == set(DONE)
        assert app.read(count_done, timers) == {}
        assert app.read(lambda connection, tenant: connection.rows(TWICE)) == []
        assert app.read(lambda connection, tenant: list(audit(connection, shipped()))) == []


def killed_on(kind: str, folder: Path, server: str, lifecycles: int, timers_a_life: int) -> None:
    if kind == "sqlite":
        kill_again_and_again(f"sqlite:///{folder}/work.db", lifecycles, timers_a_life)
        return
    with fresh_postgres(server, f"z{abs(hash(folder))}") as url:
        kill_again_and_again(url, lifecycles, timers_a_life)


@pytest.mark.req("X-24")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_timers_outlive_the_server_that_was_told_of_them(kind: str, tmp_path: Path, server: str) -> None:
    killed_on(kind, tmp_path, server, 2, 8)


@pytest.mark.proof
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_timers_outlive_twenty_servers(kind: str, tmp_path: Path, server: str) -> None:
    killed_on(kind, tmp_path, server, 20, 30)
