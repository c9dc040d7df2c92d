"""What is wrong is told in one shape, changes nothing, and never shows what is inside."""

import json
from typing import Any

import pytest

from interlock.kernel.commands import SetTenant
from interlock.kernel.errors import StoreError, Unavailable
from interlock.store import migrate
from interlock.store.queries.views import Filter, find_matching
from tests.server.stage import Stage

DEEP = '{"task": "a", "input": ' + "[" * 70 + "]" * 70 + "}"
WRONG: dict[str, tuple[str, str, Any, int]] = {
    "no JSON": ("POST", "/v1/jobs", "{", 400),
    "not an object": ("POST", "/v1/jobs", "[]", 400),
    "empty": ("POST", "/v1/jobs", "", 400),
    "unknown field": ("POST", "/v1/jobs", {"task": "a", "tsak": 1}, 400),
    "unknown field inside": ("POST", "/v1/runs", {"task": "a", "steps": [{"task": "b", "x": 1}]}, 400),
    "wrong kind": ("POST", "/v1/jobs", {"task": 1}, 400),
    "text for a number": ("POST", "/v1/jobs", {"task": "a", "priority": "1"}, 400),
    "no name": ("POST", "/v1/jobs", {"task": ""}, 400),
    "long name": ("POST", "/v1/jobs", {"task": "a" * 201}, 400),
    "NUL": ("POST", "/v1/jobs", {"task": "a", "correlation": "\0"}, 400),
    "surrogate": ("POST", "/v1/jobs", '{"task": "a", "input": "\\ud800"}', 400),
    "bad UTF-8": ("POST", "/v1/jobs", b'{"task": "\xff"}', 400),
    "huge number": ("POST", "/v1/jobs", {"task": "a", "priority": 2**70}, 400),
    "endless delay": ("POST", "/v1/jobs", '{"task": "a", "delay_seconds": 1e300}', 400),
    "time without zone": ("POST", "/v1/jobs", {"task": "a", "at": "2030-01-01T00:00:00"}, 400),
    "the end of time": ("POST", "/v1/jobs", {"task": "a", "at": "9999-12-31T23:59:59-14:00"}, 400),
    "before time": ("POST", "/v1/jobs", {"task": "a", "at": "0001-01-01T00:00:00+14:00"}, 400),
    "lease over its bounds": ("POST", "/v1/jobs", {"task": "a", "lease_seconds": 1}, 400),
    "beat over half the lease": ("POST", "/v1/jobs", {"task": "a", "lease_seconds": 30, "beat_seconds": 29}, 400),
    "unknown word": ("POST", "/v1/jobs", {"task": "a", "on_duplicate": "maybe"}, 400),
    "unknown lifecycle": ("POST", "/v1/jobs", {"task": "a", "lifecycle": "none"}, 400),
    "unknown parent": ("POST", "/v1/jobs", {"task": "a", "parent": "job_zzz"}, 400),
    "no steps": ("POST", "/v1/runs", {"task": "a", "steps": []}, 400),
    "a job as a run": ("POST", "/v1/runs", {"task": "a", "lifecycle": "job", "steps": [{"task": "b"}]}, 400),
    "deep": ("POST", "/v1/jobs", DEEP, 400),
    "large": ("POST", "/v1/jobs", {"task": "a", "input": "x" * (1 << 20)}, 413),
    "page": ("GET", "/v1/jobs?limit=201", None, 400),
    "no page": ("GET", "/v1/jobs?limit=0", None, 400),
    "unknown query": ("GET", "/v1/jobs?limti=1", None, 400),
    "twice": ("GET", "/v1/jobs?limit=1&limit=2", None, 400),
    "NUL in a query": ("GET", "/v1/jobs?task=%00", None, 400),
    "bad query": ("GET", "/v1/jobs?task=%ff", None, 400),
    "unknown state": ("GET", "/v1/jobs?state=none", None, 400),
    "no id": ("GET", "/v1/jobs/u!", None, 404),
    "huge id": ("GET", "/v1/jobs/zzzzzzzzzzzzz", None, 404),
    "NUL id": ("GET", "/v1/jobs/a%00", None, 404),
    "nothing there": ("GET", "/v1/jobs/job_4r1", None, 404),
    "no lifecycle": ("GET", "/v1/lifecycles/none", None, 404),
    "no schedule": ("POST", "/v1/schedules/none/pause", {}, 404),
    "no path": ("GET", "/v2/jobs", None, 404),
    "no method": ("PUT", "/v1/jobs", {}, 405),
}  # fmt: skip


@pytest.mark.req("X-03")
def test_what_is_wrong_is_told_and_changes_nothing(stage: Stage) -> None:
    for name, (method, path, body, status) in WRONG.items():
        content = body if isinstance(body, str | bytes) else None if body is None else json.dumps(body)
        headers = {"Authorization": f"Bearer {stage.own}", "Content-Type": "application/json"}
        answer = stage.client.request(method, path, content=content, headers=headers)
        assert answer.status_code == status, (name, answer.text)
        error = answer.json()["error"]
        assert set(error) == {"code", "message", "details"}, name
        assert "Traceback" not in answer.text, name
    assert stage.app.read(find_matching, Filter()) == []


def test_a_body_that_is_no_json_is_refused(stage: Stage) -> None:
    headers = {"Authorization": f"Bearer {stage.own}", "Content-Type": "text/plain"}
    assert stage.client.post("/v1/jobs", content="x", headers=headers).status_code == 415


def test_an_idempotency_key_has_bounds(stage: Stage) -> None:
    for key in ("", "k" * 201):
        answer = stage.ask("POST", "/v1/jobs", {"task": "a"}, headers={"Idempotency-Key": key})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "INVALID_REQUEST")


def test_a_full_queue_is_a_429(stage: Stage) -> None:
    stage.app.send(SetTenant(max_waiting=1))
    stage.job()
    answer = stage.ask("POST", "/v1/jobs", {"task": "a"})
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")


def test_our_own_faults_are_told_to_the_log_alone(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("a secret of the inside")

    monkeypatch.setattr(stage.app.engine, "put", broken)
    answer = stage.ask("POST", "/v1/jobs", {"task": "a"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "INTERNAL_ERROR")
    assert "secret" not in answer.text
    assert "a secret of the inside" in caplog.text


@pytest.mark.parametrize("fault", [Unavailable("nobody there"), StoreError("it is corrupt")])
def test_health_asks_the_process_and_readiness_the_database(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    for path in ("/healthz", "/readyz"):
        assert stage.ask("GET", path, key="").json() == {"status": "ok"}
    monkeypatch.setattr(migrate, "numbers", lambda: [999])
    answer = stage.ask("GET", "/readyz", key="")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert "is not that of this program" in answer.json()["error"]["message"]

    def away(*_: Any) -> None:
        raise fault

    monkeypatch.setattr(stage.app.engine, "read", away)
    answer = stage.ask("GET", "/readyz", key="")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "UNAVAILABLE")
    assert "the database does not answer" in answer.json()["error"]["message"]
    answer = stage.ask("GET", "/healthz", key="")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
