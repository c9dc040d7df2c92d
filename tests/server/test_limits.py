"""How often a tenant asks in a minute: never more than it may, also across servers."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx
import pytest

from interlock.client.app import App
from interlock.kernel.commands import Admit, SetTenant
from tests.server.stage import Stage, staged

MINUTE = 60_000_000
NOW = 1_700_000_000 * 1_000_000 // MINUTE * MINUTE + MINUTE // 2  # in the middle of a minute


def stop_the_clock(app: App, now: int) -> None:
    for connection in app.engine.sessions:
        connection.keep_time(lambda: now)


@pytest.mark.req("X-05")
def test_a_burst_is_stopped_and_told_when_to_go_on(inside: Stage) -> None:
    stage = inside
    stop_the_clock(stage.app, NOW)
    stage.app.send(SetTenant(max_requests=3))
    key = stage.key()
    told = [stage.ask("GET", "/v1/jobs", key=key) for _ in range(5)]
    assert [one.status_code for one in told] == [200, 200, 200, 429, 429]
    assert [one.headers["x-ratelimit-remaining"] for one in told] == ["2", "1", "0", "0", "0"]
    assert {one.headers["x-ratelimit-limit"] for one in told} == {"3"}
    assert (told[3].headers["retry-after"], told[3].headers["x-ratelimit-reset"]) == ("30", "30")
    assert told[3].json()["error"]["code"] == "RATE_LIMITED"
    other = stage.ask("GET", "/v1/jobs", key=stage.foreign)
    assert (other.status_code, "x-ratelimit-limit" in other.headers) == (200, False)
    stop_the_clock(stage.app, NOW + MINUTE)
    assert stage.ask("GET", "/v1/jobs/none", key=key).headers["x-ratelimit-remaining"] == "2"


@pytest.mark.req("X-05")
def test_two_servers_let_no_more_through_than_one(url: str) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(staged(url))
        second = stack.enter_context(staged(url, first))
        for one in (first, second):
            stop_the_clock(one.app, NOW)
        first.app.send(SetTenant(max_requests=20))
        key = first.key()

        def ask(number: int) -> httpx.Response:
            return (first, second)[number % 2].ask("GET", "/v1/jobs", key=key)

        with ThreadPoolExecutor(8) as pool:
            told = list(pool.map(ask, range(48)))
    assert Counter(one.status_code for one in told) == {200: 20, 429: 28}


def test_a_tenant_without_a_limit_is_not_counted(stage: Stage) -> None:
    assert stage.app.send(Admit()) is None
    assert "x-ratelimit-limit" not in stage.ask("GET", "/v1/jobs").headers
