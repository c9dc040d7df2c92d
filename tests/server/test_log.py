"""The log of a server: a line of facts a request, by which a request is found again, and nothing that was said in it."""

import json
import logging
from pathlib import Path

import httpx
import pytest

from interlock.cli.logs import StderrHandler
from interlock.kernel.api_keys import read_key, redact_keys
from tests.server.serving import serving
from tests.server.stage import Stage

FACTS = {"method", "route", "status", "took_ms", "tenant", "key", "request"}


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs/none", "/v2", "/healthz"])
def test_a_request_has_a_name(stage: Stage, path: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "interlock.server")
    name = stage.ask("GET", path).headers["x-request-id"]
    assert [one.facts["request"] for one in caplog.records if hasattr(one, "facts")] == [name]


def test_an_event_names_the_request_that_caused_it(stage: Stage) -> None:
    made = stage.ask("POST", "/v1/jobs", {"task": "a"})
    event = stage.get(f"/v1/jobs/{made.json()['id']}/events")["events"][0]
    assert event["cause"] == made.headers["x-request-id"]


def test_what_looks_like_a_secret_is_cut_short(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    lines = StderrHandler(None)
    lines.setFormatter(logging.Formatter("%(message)s"))
    lease = "ab" * 32
    lines.emit(logging.LogRecord("x", 20, "", 0, f"{stage.own} and {lease}", None, None))
    told = capsys.readouterr().err
    assert (stage.own in told, lease in told) == (False, False)
    assert "ababab…" in told
    assert read_key(redact_keys(stage.own)) is None


def test_the_log_of_a_real_server(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/work.db"
    with serving(url) as (base, key, process):
        with httpx.Client(base_url=base, headers={"Authorization": f"Bearer {key}"}, timeout=30) as client:
            body = {"task": "hidden-task", "input": "hidden-input", "key": "hidden-key"}
            made = client.post("/v1/jobs", json=body, headers={"Idempotency-Key": "hidden-idem"})
            client.get(f"/v1/jobs/{made.json()['id']}?x=hidden-query")
            client.get("/v1/jobs?task=hidden-query")
            client.get("/hidden-path")
            fresh = client.post("/v1/keys", json={"name": "hidden-name", "scopes": ["read"]}).json()["key"]
            client.get("/v1/jobs", headers={"Authorization": f"Bearer {fresh}"})
            client.get("/v1/jobs", headers={"Authorization": "Bearer hidden-nonsense"})
        process.terminate()
        log = process.stderr.read() if process.stderr else ""
    found = [json.loads(line) for line in log.splitlines() if "route" in line]
    assert all(set(line) >= FACTS for line in found)
    assert [(line["route"], line["status"]) for line in found] == [
        ("/v1/jobs", 201), ("/v1/jobs/{id}", 400), ("/v1/jobs", 200), ("", 404), ("/v1/keys", 201), ("/v1/jobs", 200),
        ("/v1/jobs", 401),
    ]  # fmt: skip
    for word in ("hidden", key, fresh, key.rpartition("_")[2], fresh.rpartition("_")[2]):
        assert word not in log
