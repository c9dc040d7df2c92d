"""Pauses and outages over HTTP: of a job, a run, a queue or a task; who may, and what is refused."""

import pytest

from tests.server.stage import Stage


def test_a_job_and_a_run_are_paused_and_unpaused(stage: Stage) -> None:
    for path, name in (("jobs", stage.job()), ("runs", stage.run())):
        paused = stage.post(f"/v1/{path}/{name}/pause", {"reason": "the bank is closed", "until": "2h"})
        assert (paused["kind"], paused["name"], paused["paused"], paused["changed"]) == ("id", name, True, True)
        assert paused["until"] > paused["since"]
        assert "the bank is closed" in stage.get(f"/v1/{path}/{name}/why")["text"]
        (row,) = stage.get("/v1/pauses")["pauses"]
        assert (row["kind"], row["name"], row["reason"]) == ("id", name, "the bank is closed")
        assert not stage.post(f"/v1/{path}/{name}/unpause", {})["paused"]
        assert stage.get("/v1/pauses")["pauses"] == []
    assert len(stage.get("/v1/pauses?ended=true")["pauses"]) == 2


def test_a_queue_and_a_task_are_paused_and_unpaused(stage: Stage) -> None:
    job = stage.job()
    for target in ({"queue": "default"}, {"task": "a"}):
        ((kind, name),) = target.items()
        paused = stage.post("/v1/pause", {**target, "until": "23:59"})
        assert (paused["kind"], paused["name"], paused["changed"]) == (kind, name, True)
        assert paused["until"].endswith("T23:59:00.000Z")
        assert stage.get(f"/v1/jobs/{job}/why")["state"] == "queued"
        assert not stage.post("/v1/unpause", target)["paused"]
        assert not stage.post("/v1/unpause", target)["changed"]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({}, "name one thing to pause"),
        ({"queue": "a", "task": "b"}, "name one thing to pause"),
        ({"queue": "a", "until": "soon"}, "until = 'soon' is not allowed"),
        ({"queue": "a", "until": "1999-01-01"}, "it must be a time to come"),
        ({"queue": ""}, "queue"),
        ({"queue": "a", "till": "2h"}, "till"),
        ({"queue": 5}, "queue"),
    ],
)
def test_a_wrong_pause_is_refused(stage: Stage, body: dict[str, object], text: str) -> None:
    answer = stage.ask("POST", "/v1/pause", body)
    assert 400 <= answer.status_code < 500
    assert text in answer.text
    assert stage.get("/v1/pauses?ended=true")["pauses"] == []


def test_terms_and_resources_are_taken(stage: Stage) -> None:
    body = {
        "task": "a", "losses": 4, "cancel_timeout_seconds": 5, "depends": ["stripe"],
        "resources": [{"name": "gpu", "mode": "counted", "n": 2, "of": 8}, {"name": "db"}],
    }  # fmt: skip
    made = stage.post("/v1/jobs", body, status=201)["id"]
    policy = stage.get(f"/v1/jobs/{made}")["policy"]
    assert (policy["losses"], policy["cancel_timeout_us"], policy["depends"]) == (4, 5_000_000, ["stripe"])
    assert [each["name"] for each in policy["resources"]] == ["gpu", "db"]
    run = stage.post("/v1/runs", {"task": "r", "settle": "all", "steps": [{"task": "s"}]}, status=201)["id"]
    assert stage.get(f"/v1/runs/{run}")["policy"]["settle"] == "all"
    again = {"task": "r", "retry_of": run, "steps": [{"task": "s"}]}
    assert "allowed is one that has ended" in stage.ask("POST", "/v1/runs", again).text
    stage.post(f"/v1/runs/{run}/cancel", {})
    new = stage.post("/v1/runs", again, status=201)["id"]
    assert stage.get(f"/v1/runs/{new}")["retry_of"] == run
