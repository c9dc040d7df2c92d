"""Waiting over HTTP: a holder that parks its job, approvals with other arguments, effects and checks."""

import json
from typing import Any

import pytest

from interlock.kernel.commands import LeaseGrant, LeaseRef, Record
from interlock.kernel.ids import format_id
from tests.server.stage import Stage


def hold(grant: LeaseGrant, **more: Any) -> dict[str, Any]:
    return {"fence": grant.fence, "lease": grant.lease, **more}


def begin(stage: Stage) -> tuple[str, LeaseGrant]:
    job = stage.job()
    grant = stage.claim()
    stage.post(f"/v1/jobs/{job}/start", hold(grant))
    return job, grant


def record(stage: Stage, grant: LeaseGrant, kind: str, name: str, payload: Any) -> None:
    held = LeaseRef(unit=grant.unit, fence=grant.fence, lease=grant.lease)
    command = Record(held=(held,), kind=kind, name=name, payload=json.dumps(payload))
    assert stage.app.send(command)[0].accepted


def test_a_holder_waits_for_one_of_several_signals(stage: Stage) -> None:
    job, grant = begin(stage)
    assert stage.post(f"/v1/jobs/{job}/release", hold(grant, signals=["paid", "declined"]))["state"] == "queued"
    assert "'paid' or 'declined'" in stage.get(f"/v1/jobs/{job}/why")["answer"]
    assert stage.post(f"/v1/jobs/{job}/signal", {"name": "declined", "payload": 3})["applied"]
    assert dict(stage.claim(name="v").signals) == {"declined": "3"}


@pytest.mark.parametrize("signals", [["x"] * 21, [""], "paid", [3]])
def test_wrong_signals_are_refused(stage: Stage, signals: Any) -> None:
    job, grant = begin(stage)
    answer = stage.ask("POST", f"/v1/jobs/{job}/release", hold(grant, signals=signals))
    assert answer.status_code in (400, 422)
    assert stage.get(f"/v1/jobs/{job}")["state"] == "running"


def test_a_name_of_the_engine_is_refused(stage: Stage) -> None:
    job = stage.job()
    answer = stage.ask("POST", f"/v1/jobs/{job}/signal", {"name": "child:x"})
    assert answer.status_code in (400, 409, 422)
    assert "begin names of the engine" in answer.json()["error"]["message"]


def test_an_approval_is_given_with_other_arguments(stage: Stage) -> None:
    job, grant = begin(stage)
    record(stage, grant, "child", "delete?", {"task": "delete?", "lifecycle": "approval", "input": '{"branch": "old"}'})
    (item,) = stage.get("/v1/inbox")["items"]
    assert (item["run"], item["input"]) == (job, {"branch": "old"})
    assert stage.post(f"/v1/inbox/{item['id']}/approve", {"by": "ann", "arguments": {"branch": "older"}})["applied"]
    assert stage.get(f"/v1/jobs/{item['id']}")["result"]["arguments"] == {"branch": "older"}
    answer = stage.ask("POST", f"/v1/inbox/{item['id']}/reject", {"arguments": 3})
    assert answer.status_code in (400, 422)


def test_a_person_says_what_came_of_a_call(stage: Stage) -> None:
    _, grant = begin(stage)
    record(stage, grant, "effect", "charge", {"state": "begun"})
    record(stage, grant, "child", "q", {"task": "charge", "lifecycle": "effect", "input": '{"effect": "charge"}'})
    (item,) = stage.get("/v1/inbox")["items"]
    assert item["words"] == ["happened", "not_done", "stop"]
    answer = stage.ask("POST", f"/v1/inbox/{item['id']}/decide", {"word": "stop", "data": 3})
    assert answer.status_code in (400, 409, 422)
    assert "data are not allowed with 'stop'" in answer.json()["error"]["message"]
    assert stage.post(f"/v1/inbox/{item['id']}/decide", {"word": "happened", "data": {"id": 7}})["applied"]
    stage.post(f"/v1/jobs/{format_id('job', grant.unit)}/release", hold(grant))
    (status,) = stage.claim(name="v").effects
    assert status.result == '{"id":7}'


def test_work_says_its_checks(stage: Stage) -> None:
    checks = {"checks": {"jobs": ["lint"]}}
    made = stage.post("/v1/jobs", {"task": "build", "lifecycle": "task", "options": checks}, status=201)
    assert made["id"].startswith("task_")
    answer = stage.ask("POST", "/v1/jobs", {"task": "build", "options": checks})
    assert answer.status_code in (400, 422)
    assert "checks are not allowed for a job" in answer.json()["error"]["message"]
