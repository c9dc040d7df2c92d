"""Keys at work: what was revoked or rotated is refused soon, and no answer or log shows a secret."""

import asyncio
import time
from typing import Any

import pytest

from interlock.client.keys import issue_key
from interlock.kernel.api_keys import digest_of, format_key, read_key
from interlock.kernel.commands import RevokeKey, RotateKey
from interlock.kernel.rows import Key as Row
from interlock.server.auth import TRUSTED_SECONDS, CachedKey, KeyCache, read_loop_time
from interlock.server.errors import ApiError
from tests.server.stage import Stage

SECRET = "5" * 64


def number(key: str) -> int:
    found = read_key(key)
    assert found
    return found[1]


def until_refused(stage: Stage, key: str) -> None:
    end = time.monotonic() + 10
    while stage.ask("GET", "/v1/jobs", key=key).status_code != 401:
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.req("X-04")
def test_a_key_that_was_used_is_refused_after_it_is_revoked(stage: Stage) -> None:
    assert TRUSTED_SECONDS < 1
    key = stage.key()
    assert stage.ask("GET", "/v1/jobs", key=key).status_code == 200
    stage.app.send(RevokeKey(key=number(key)))
    until_refused(stage, key)


def test_a_rotated_key_has_one_secret(stage: Stage) -> None:
    key = stage.key("read")
    assert stage.ask("GET", "/v1/jobs", key=key).status_code == 200
    again = issue_key(stage.app, RotateKey(key=number(key)))
    assert stage.ask("GET", "/v1/jobs", key=again.text).status_code == 200  # at once
    until_refused(stage, key)
    assert stage.ask("GET", "/v1/jobs", key=again.text).status_code == 200
    assert stage.ask("POST", "/v1/jobs", {"task": "a"}, key=again.text).status_code == 403


def test_many_who_ask_at_once_share_a_look() -> None:
    """And one whose secret does not open looks for itself: the others may have looked before it was rotated."""
    row = Row(id=7, tenant=1, digest=digest_of(SECRET), name="ci", scopes="read", created_at=0, created_by="ann")
    looks = 0

    async def look(ask: Any, tenant: int) -> CachedKey:
        nonlocal looks
        looks += 1
        await asyncio.sleep(0)
        return CachedKey(row, False, 0, read_loop_time())

    async def story() -> list[Any]:
        keys = KeyCache(look)
        texts = [format_key(1, 7, secret) for secret in [SECRET] * 64 + ["0" * 64]]
        return await asyncio.gather(*(keys.find_caller(f"Bearer {text}") for text in texts), return_exceptions=True)

    *callers, stranger = asyncio.run(story())
    assert {one.name for one in callers} == {"ci"}
    assert isinstance(stranger, ApiError)
    assert looks == 2


def test_what_a_key_lacks_is_told(stage: Stage) -> None:
    error = stage.ask("POST", "/v1/jobs", {"task": "a"}, key=stage.key("read", "worker")).json()["error"]
    assert (error["code"], error["details"]) == ("FORBIDDEN", {"needs": "submit", "has": ["read", "worker"]})


def test_the_log_has_facts_and_no_secret(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "interlock.server")
    job = stage.job()
    stage.ask("GET", f"/v1/jobs/{job}", key="nonsense")
    lines = [record for record in caplog.records if record.name == "interlock.server"]
    facts = [record.facts for record in lines]  # type: ignore[attr-defined]
    assert [(one["route"], one["status"]) for one in facts] == [("/v1/jobs", 201), ("/v1/jobs/{id}", 401)]
    assert (facts[0]["tenant"], facts[1]["tenant"], facts[1]["key"]) == (1, None, None)
    assert facts[0]["key"].startswith("key_")
    secret = stage.own.rpartition("_")[2]
    assert all(secret not in repr(vars(record)) for record in caplog.records)
