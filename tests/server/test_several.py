"""Three servers in processes of their own on one PostgreSQL are one; the whole suite before two is in the proof."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from interlock.kernel.commands import RevokeKey, SetTenant
from interlock.store.queries.views import Filter, find_matching
from tests.server.pair import Turns, paired
from tests.server.stage import Stage
from tests.server.test_keys import number, until_refused
from tests.server.test_stream import ACCEPT, listen
from tests.store.databases import fresh_postgres

MINUTE = 60_000_000
RUN = {"task": "release", "steps": [{"task": "ship"}]}


@pytest.fixture(scope="module")
def several(running_postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder: Path = tmp_path_factory.mktemp("several")
    name = f"several{abs(hash(folder))}"
    with fresh_postgres(running_postgres, name) as url, paired(url, folder, 3) as stage:
        yield stage


def alone(several: Stage, place: int) -> Stage:
    """One of them."""
    return Stage(several.app, Turns(several.client.clients[place : place + 1]), several)


@pytest.mark.req("R1-41", "X-25")
def test_sixty_four_posts_at_a_time_make_one_run(several: Stage) -> None:
    def post(_: int) -> Any:
        return several.ask("POST", "/v1/runs", RUN, headers={"Idempotency-Key": "one"})

    with ThreadPoolExecutor(64) as pool:
        told = list(pool.map(post, range(64)))
    assert Counter(one.status_code for one in told) == {201: 1, 200: 63}
    assert len({one.content for one in told}) == 1
    assert len(several.app.read(find_matching, Filter(task="release"))) == 1
    for place in range(3):
        no = alone(several, place).ask("POST", "/v1/runs", {**RUN, "priority": 1}, headers={"Idempotency-Key": "one"})
        assert (no.status_code, no.json()["error"]["code"]) == (409, "IDEMPOTENCY_CONFLICT")


def test_what_one_made_the_other_shows(several: Stage) -> None:
    first, second = alone(several, 0), alone(several, 1)
    for one, other in ((first, second), (second, first)):
        job = one.job(key=one.own)
        assert other.get(f"/v1/jobs/{job}")["id"] == job
        assert other.post(f"/v1/jobs/{job}/cancel")["applied"]
        assert one.get(f"/v1/jobs/{job}")["outcome"] == "cancelled"
        assert one.ask("GET", f"/v1/jobs/{job}", key=one.foreign).status_code == 404


@pytest.mark.req("X-04")
def test_a_revoked_key_is_refused_by_all(several: Stage) -> None:
    key = several.key()
    for place in range(3):
        assert alone(several, place).ask("GET", "/v1/jobs", key=key).status_code == 200
    several.app.send(RevokeKey(key=number(key)))
    for place in range(3):
        until_refused(alone(several, place), key)


@pytest.mark.req("X-05")
def test_they_let_no_more_through_than_one_would(several: Stage) -> None:
    """Asked again if the minute ended meanwhile: nobody holds the clock of a real database."""
    several.app.send(SetTenant(tenant=5, name="busy", max_requests=20))
    key = several.key(tenant=5)

    def minute() -> int:
        return several.app.engine.read(lambda connection: connection.now()) // MINUTE

    def counted() -> Counter[int]:
        with ThreadPoolExecutor(8) as pool:
            return Counter(
                one.status_code for one in pool.map(lambda _: several.ask("GET", "/v1/jobs", key=key), range(48))
            )

    before = minute()
    found = counted()
    while minute() != before:
        before = minute()
        found = counted()
    assert found == {200: 20, 429: 28}


def test_a_stream_of_one_tells_what_happens_through_the_other(several: Stage) -> None:
    first, second = alone(several, 0), alone(several, 1)
    job = first.job(queue="streamed")
    with ThreadPoolExecutor(1) as pool:
        heard = pool.submit(listen, second, f"/v1/jobs/{job}/events")
        first.post(f"/v1/jobs/{job}/cancel")
        assert heard.result(60) == (200, first.get(f"/v1/jobs/{job}/events")["events"])


def test_a_stream_that_one_lost_goes_on_at_the_other(several: Stage) -> None:
    first, second = alone(several, 0), alone(several, 1)
    job = first.job(queue="cut")
    path, sent = f"/v1/jobs/{job}/events", {"Authorization": f"Bearer {several.own}", **ACCEPT}
    with first.client.stream("GET", path, headers=sent) as answer:
        told = next(line for line in answer.iter_lines() if line.startswith("id: "))
    first.post(f"/v1/jobs/{job}/cancel")
    every = first.get(path)["events"]
    seen = int(told.removeprefix("id: "))
    status, rest = listen(second, path, **{"Last-Event-ID": str(seen)})
    assert (status, rest) == (200, [one for one in every if one["version"] > seen])
    assert rest
