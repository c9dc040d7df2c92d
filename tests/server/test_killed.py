"""The server is killed under load, again and again: what it acknowledged is there, and nothing is there twice."""

import random
import threading
from pathlib import Path

import httpx
import pytest

from interlock.audit.laws import audit
from interlock.client.app import App
from interlock.lifecycles import shipped
from interlock.store.queries.views import Filter, find_matching, views_of
from tests.server.serving import serving
from tests.store.databases import fresh_postgres

CALLERS = 4


def load(
    base: str, key: str, names: "list[str]", acknowledged: dict[str, str], enough: threading.Event, most: int
) -> None:
    """Submits what is left under keys of its own, until the server is gone."""
    headers = {"Authorization": f"Bearer {key}"}
    with httpx.Client(base_url=base, headers=headers, timeout=30) as client:
        while names:
            name = names.pop()
            try:
                answer = client.post("/v1/jobs", json={"task": name}, headers={"Idempotency-Key": name})
            except httpx.TransportError:
                names.append(name)  # nobody knows: it is asked again
                return
            assert answer.status_code in (200, 201), answer.text
            acknowledged[name] = answer.json()["id"]
            if len(acknowledged) >= most:
                enough.set()


def killed_again_and_again(url: str, lifecycles: int, jobs: int) -> None:
    dice = random.Random(1)
    names, acknowledged = [f"t{n}" for n in range(jobs)], dict[str, str]()
    key = ""
    for lifecycle in range(lifecycles + 1):
        with serving(url) as (base, fresh, process):
            key = key or fresh  # keys of idempotency belong to it
            most = jobs if lifecycle == lifecycles else len(acknowledged) + dice.randint(1, jobs // lifecycles)
            enough = threading.Event()
            callers = [
                threading.Thread(target=load, args=(base, key, names, acknowledged, enough, most))
                for _ in range(CALLERS)
            ]
            reader = threading.Thread(target=lambda pipe=process.stderr: [*pipe])  # else the pipe of its log fills up
            for thread in (reader, *callers):
                thread.start()
            assert enough.wait(120)
            process.kill()
            for thread in (reader, *callers):
                thread.join(60)
    assert len(acknowledged) == jobs
    with App(url) as app:
        there = app.read(find_matching, Filter())
        tasks = sorted(one.body.task for one in app.read(views_of, there).values())
        assert tasks == sorted(acknowledged)
        assert sorted(app.job(one).unit for one in acknowledged.values()) == sorted(there)
        assert app.read(lambda connection, tenant: list(audit(connection, shipped()))) == []


def killed_on(kind: str, folder: Path, server: str, lifecycles: int, jobs: int) -> None:
    if kind == "sqlite":
        killed_again_and_again(f"sqlite:///{folder}/work.db", lifecycles, jobs)
        return
    with fresh_postgres(server, f"k{abs(hash(folder))}") as url:
        killed_again_and_again(url, lifecycles, jobs)


@pytest.mark.req("X-24")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_what_a_killed_server_acknowledged_is_there(kind: str, tmp_path: Path, server: str) -> None:
    killed_on(kind, tmp_path, server, 1, 60)


@pytest.mark.proof
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_server_is_killed_thirty_times(kind: str, tmp_path: Path, server: str) -> None:
    killed_on(kind, tmp_path, server, 30, 3_000)
