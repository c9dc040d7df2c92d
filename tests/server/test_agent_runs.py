"""Agent runs over HTTP: submitted, looked at, resumed and forked, and what nobody may ask."""

from typing import Any

import pytest

from interlock.kernel.commands import LeaseGrant
from interlock.kernel.ids import format_id
from interlock.plugins.agents.options import WORKER
from tests.server.stage import Stage


def record(stage: Stage, grant: LeaseGrant, kind: str, name: str, payload: str = "1", **more: Any) -> Any:
    held = {"unit": grant.unit, "fence": grant.fence, "lease": grant.lease}
    one = {"command": "Record", "kind": kind, "name": name, "payload": payload, "held": [held], **more}
    (answer,) = stage.post("/v1/commands/worker", {"commands": [one]})["answers"]
    return answer["answer"][0]


def make_run(stage: Stage, **facts: Any) -> str:
    body = {"agent": "goal", "arguments": {"goal": "mend"}, "budget": {"usd": {"hard": 5, "soft": 4}}, **facts}
    return str(stage.post("/v1/agent-runs", body, status=201)["id"])


def fail(stage: Stage) -> LeaseGrant:
    grant = stage.claim()
    record(stage, grant, "step", "plan", '{"a": 1}', usage={"tokens": 9, "usd": 0.25})
    record(stage, grant, "step", "act")
    stage.finish(grant, ended="failure", error="no", error_class="PermanentError")
    return grant


def test_a_run_from_its_submit_to_its_decision(stage: Stage) -> None:
    run = make_run(stage, key="monday", labels={"team": "a"}, corrections=2)
    assert stage.post("/v1/agent-runs", {"agent": "goal", "key": "monday", "arguments": {"goal": "mend"}})["id"] == run
    path, grant = f"/v1/agent-runs/{run}", fail(stage)
    assert (grant.task, grant.input) == ("goal", '{"goal":"mend"}')
    page = stage.get(f"{path}/steps?limit=1")
    assert [(step["name"], step["result"], step["job"]) for step in page["steps"]] == [
        ("plan", {"a": 1}, format_id("agent_job", grant.unit))
    ]
    assert [step["name"] for step in stage.get(f"{path}/steps?first={page['next']}")["steps"]] == ["act"]
    meters = {meter["name"]: meter for meter in stage.get(f"{path}/budget")["meters"]}
    assert meters["usd"] == {"name": "usd", "used": 0.25, "soft": 4, "hard": 5}
    assert (meters["tokens"]["used"], meters["tokens"]["hard"], meters["steps"]["used"]) == (9, None, 2)
    decision = stage.get(f"{path}/decision")
    assert (decision["decision"], "RUN_NOT_COMPLETE" in decision["reasons"]) == ("FAIL", True)
    again = stage.post(f"{path}/resume", {"reason": "more", "budget": {"usd": 10}}, status=202)
    assert (again["state"], again["applied"]) == ("queued", True)
    third = stage.claim()
    assert [name for name, _ in third.steps] == ["plan", "act"]
    stage.finish(third)
    told = stage.get(f"{path}/transcript?limit=200")
    assert ([entry["name"] for entry in told["entries"] if entry["what"] == "step"], told["next"]) == (
        ["plan", "act"], None,
    )  # fmt: skip
    first = stage.get(f"{path}/transcript?limit=2")
    assert (first["entries"], first["next"]) == (told["entries"][:2], 2)
    assert stage.get(f"/v1/runs/{run}")["state"] == "complete"
    assert {entry["by"] for entry in told["entries"] if entry["name"] == "queued"} == {"ci"}


@pytest.mark.req("R0-23")
def test_a_resume_is_202_then_200_under_its_key_and_409_in_all_other_states(stage: Stage) -> None:
    run = make_run(stage)
    for state in ("queued", "running"):
        assert stage.get(f"/v1/runs/{run}")["state"] == state
        refused = stage.ask("POST", f"/v1/runs/{run}/resume", {"reason": "now"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "INVALID_STATE")
        if state == "queued":
            grant = stage.claim()
    stage.finish(grant, ended="failure", error_class="PermanentError")
    nameless = stage.ask("POST", f"/v1/runs/{run}/resume", {})
    assert (nameless.status_code, "a reason is missing" in nameless.text) == (400, True)
    under = {"Idempotency-Key": "again"}
    for status in (202, 200, 200):
        answer = stage.ask("POST", f"/v1/runs/{run}/resume", {"reason": "now"}, headers=under)
        assert (answer.status_code, answer.json()["id"]) == (status, run), answer.text
    assert stage.ask("POST", f"/v1/agent-runs/{run}/resume", {"reason": "now"}).status_code == 409
    other = stage.ask("POST", f"/v1/runs/{run}/resume", {"reason": "then"}, headers=under)
    assert other.status_code in (409, 422)
    stage.finish(stage.claim())
    assert stage.ask("POST", f"/v1/runs/{run}/resume", {"reason": "now"}).status_code == 409


def test_a_fork_goes_on_from_a_step_once_under_its_key(stage: Stage) -> None:
    run = make_run(stage)
    fail(stage)
    under, body = {"Idempotency-Key": "f"}, {"at": "act", "replace": {"plan": {"a": 2}}, "reason": "try"}
    made = stage.ask("POST", f"/v1/agent-runs/{run}/fork", body, headers=under)
    assert made.status_code == 201
    again = stage.ask("POST", f"/v1/agent-runs/{run}/fork", body, headers=under)
    assert (again.status_code, again.json()["id"]) == (200, made.json()["id"])
    steps = stage.get(f"/v1/agent-runs/{made.json()['id']}/steps")["steps"]
    assert [(step["name"], step["result"]) for step in steps] == [("plan", {"a": 2})]


BAD: list[tuple[str, Any, int, str]] = [
    ("", {}, 400, "agent"),
    ("", {"agent": "goal", "budget": {"usd": -1}}, 400, "usd = -1"),
    ("", {"agent": "goal", "budget": {"usd": {"hard": 1, "soft": 2}}}, 400, "soft = 2"),
    ("", {"agent": "goal", "budget": {"a b": 1}}, 400, "usage called 'a b'"),
    ("", {"agent": "goal", "budget": {"tokens": 1.5}}, 400, "without a fraction"),
    ("", {"agent": "goal", "corrections": -1}, 400, "corrections"),
    ("", {"agent": "goal", "options": {"none": 1}}, 400, "none"),
    ("/resume", {"reason": "more", "budget": {"usd": 0.1}}, 400, "0.25 are used already"),
    ("/resume", {"reason": "more", "budget": {"usd": "much"}}, 400, "budget"),
    ("/resume", {"reason": "more", "cap": 1}, 400, "cap"),
    ("/fork", {"at": "none"}, 404, "no step 'none' is recorded; there are 'plan', 'act'"),
    ("/fork", {"at": "plan", "replace": {"act": 1}}, 400, "was recorded after 'plan'"),
    ("/fork", {}, 400, "at"),
    ("/steps?first=-1", None, 400, "first"),
    ("/transcript?limit=0", None, 400, "limit"),
    ("/decision?strict=perhaps", None, 400, "strict"),
]


@pytest.mark.parametrize(("part", "body", "status", "why"), BAD)
def test_what_cannot_be_is_refused_and_changes_nothing(
    stage: Stage, part: str, body: Any, status: int, why: str
) -> None:
    run = make_run(stage)
    fail(stage)
    path = f"/v1/agent-runs/{run}{part}" if part else "/v1/agent-runs"
    answer = stage.ask("GET" if body is None else "POST", path, body)
    assert (answer.status_code, why in answer.text) == (status, True), answer.text
    assert stage.get(f"/v1/runs/{run}")["state"] == "failed"
    assert [one["id"] for one in stage.get("/v1/runs")["runs"]] == [run]


def test_what_is_no_agent_run_has_none_of_this(stage: Stage) -> None:
    run = stage.run()
    for part in ("steps", "transcript", "budget", "decision"):
        assert stage.ask("GET", f"/v1/agent-runs/{run}/{part}").status_code == 404
    assert stage.ask("POST", f"/v1/agent-runs/{run}/fork", {"at": "plan"}).status_code == 404
    assert WORKER == "agent"


@pytest.mark.req("X-12")
def test_a_step_that_expects_another_number_is_skipped(stage: Stage) -> None:
    run = make_run(stage)
    grant = stage.claim()
    assert record(stage, grant, "step", "a", expects=0)["accepted"]
    stale = record(stage, grant, "step", "b", expects=0)
    assert (stale["accepted"], stale["why"]) == (
        False, "STALE_TICK: 1 steps are recorded, and 0 were expected; it is skipped",
    )  # fmt: skip
    assert [step["name"] for step in stage.get(f"/v1/agent-runs/{run}/steps")["steps"]] == ["a"]


@pytest.mark.req("X-10")
def test_a_resume_under_another_contract_is_409_with_the_difference_and_overridden_if_that_is_said(
    stage: Stage,
) -> None:
    run = make_run(stage, contract={"agent": "goal", "model": "m", "corrections": 1})
    path = f"/v1/agent-runs/{run}"
    contract = stage.get(f"{path}/contract")
    assert (contract["contract"]["model"], contract["contract"]["corrections"], contract["overridden_by"]) == (
        "m",
        1,
        None,
    )
    other = {"agent": "goal", "model": "n", "corrections": 1}
    assert stage.post(f"/v1/runs/{run}/cancel", {})["state"] == "cancelled"
    refused = stage.ask("POST", f"{path}/resume", {"reason": "now", "contract": other})
    error = refused.json()["error"]
    assert (refused.status_code, error["code"], error["details"]["difference"]) == (
        409, "CONTRACT_MISMATCH", ['model: "m" is now "n"'],
    )  # fmt: skip
    missing = stage.ask("POST", f"{path}/resume", {"reason": "now", "contract": "0" * 64})
    assert (missing.status_code, "is stored" in missing.text) == (404, True)
    assert stage.get(f"/v1/runs/{run}")["state"] == "cancelled"
    stage.post(f"{path}/resume", {"reason": "now", "contract": other, "override": True}, status=202)
    changed = stage.get(f"{path}/contract")
    assert (changed["contract"]["model"], changed["overridden_by"]) == ("n", "ci")


@pytest.mark.req("X-09")
@pytest.mark.parametrize(
    ("contract", "status", "why"),
    [
        ({"agent": "goal", "mood": "good"}, 400, "unknown field `mood`; allowed are agent"),
        ({"agent": "other"}, 400, "the contract is that of 'other'"),
        ("0" * 64, 400, "is stored; allowed is the digest of one that is"),
        ("abc", 400, ""),
        ({"agent": "goal", "validation": "some"}, 400, "validation = 'some' is not allowed"),
    ],
)
def test_a_wrong_contract_is_refused_with_a_sentence(stage: Stage, contract: Any, status: int, why: str) -> None:
    answer = stage.ask("POST", "/v1/agent-runs", {"agent": "goal", "contract": contract})
    assert (answer.status_code, why in answer.text) == (status, True), answer.text


@pytest.mark.req("X-09")
@pytest.mark.req("R0-06")
def test_a_run_with_a_contract_of_another_kind_fails_at_once(stage: Stage) -> None:
    run = make_run(stage, contract={"agent": "goal", "schema": 99})
    assert stage.get(f"/v1/runs/{run}")["state"] == "failed"
    decision = stage.get(f"/v1/agent-runs/{run}/decision")
    assert "UNSUPPORTED_CONTRACT" in decision["reasons"]
