"""The words of documents 001 and 002 over HTTP: a reader of the documents finds them, on their own paths and on /v1."""

import time
from typing import Any

import pytest

from interlock.client import responses
from interlock.client.stats import Stats
from interlock.kernel.commands import Archive, Bury, DefineTemplate, Tick, Work
from interlock.kernel.errors import InterlockError
from interlock.kernel.ids import parse_id
from interlock.lifecycles import shipped
from interlock.plugins import make_engine
from interlock.store.url import connect
from tests.server.pair import PATIENCE
from tests.server.stage import Stage
from tests.server.test_jobs import exactly

ROOTS = ("/v1/runs", "/runs")
STEPS = [{"task": "build", "attempts": 3, "backoff_seconds": 0.05}, {"task": "sign", "lifecycle": "approval"}]
HOOK = "https://ci.example/hooks/7?run=1"


def made(stage: Stage, root: str = "/runs", **more: Any) -> str:
    return str(stage.post(root, {"task": "release", "steps": STEPS, **more}, status=201)["id"])


def step(stage: Stage, run: str, root: str = "/runs", place: int = 0) -> dict[str, Any]:
    found = stage.get(f"{root}/{run}/steps")
    exactly(found, responses.StepsResponse)
    return dict(found["steps"][place])


@pytest.mark.req("R1-21")
@pytest.mark.parametrize("root", ROOTS)
def test_attempts_are_counted_by_claims_from_0(stage: Stage, root: str) -> None:
    run = made(stage, root)
    counts = [step(stage, run, root)["attempts"]]
    for ended in ("failure", "success"):
        grant = claim_when_due(stage)
        counts.append(step(stage, run, root)["attempts"])
        stage.finish(grant, ended=ended, error="it broke", result='{"tag": "v7"}', cost=0.25)
    assert counts == [0, 1, 2]
    job = stage.job()
    assert stage.get(f"/v1/jobs/{job}")["attempts"] == 0


def claim_when_due(stage: Stage) -> Any:
    """The next grant, as soon as there is one."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            return stage.claim()
        except IndexError:
            time.sleep(0.02)
    raise AssertionError("nothing is due")


@pytest.mark.req("R1-22", "R1-23")
@pytest.mark.parametrize("root", ROOTS)
def test_a_step_tells_its_status_times_output_and_cost(stage: Stage, root: str) -> None:
    run = made(stage, root)
    waiting = step(stage, run, root)
    assert (waiting["status"], waiting["started_at"], waiting["output"]) == ("PENDING", None, None)
    assert waiting["next_run_at"] is not None
    grant = stage.claim()
    held = step(stage, run, root)
    assert (held["status"], held["next_run_at"]) == ("RUNNING", None)
    assert held["started_at"] is not None
    stage.finish(grant, ended="failure", error="it broke", cost=0.5)
    again = step(stage, run, root)
    assert (again["status"], again["state"], again["error"]) == ("PENDING", "PENDING", "it broke")
    assert again["next_run_at"] > held["started_at"]
    stage.finish(claim_when_due(stage), result='{"tag": "v7"}', cost=0.25)
    done = step(stage, run, root)
    assert (done["status"], done["output"], done["cost"]) == ("SUCCEEDED", {"tag": "v7"}, 0.75)
    assert done["next_run_at"] is None
    told = stage.get(f"/v1/jobs/{done['id']}")
    assert (told["output"], told["result"], told["attempts"]) == ({"tag": "v7"}, {"tag": "v7"}, 2)
    assert stage.get(f"{root}/{run}/cost")["total_cost"] == stage.get(f"{root}/{run}")["total_cost"] == 0.75


@pytest.mark.req("R1-20")
@pytest.mark.parametrize("root", ROOTS)
def test_a_run_tells_what_it_waits_on(stage: Stage, root: str) -> None:
    run = made(stage, root)
    assert (stage.get(f"{root}/{run}")["status"], stage.get(f"{root}/{run}")["waiting_on"]) == ("PENDING", [])
    stage.finish(stage.claim())
    seen = stage.get(f"{root}/{run}")
    exactly(seen, responses.JobDetailResponse)
    gate = step(stage, run, root, 1)["id"]
    assert (seen["status"], seen["waiting_on"]) == ("WAITING_APPROVAL", [gate])
    assert [one["id"] for one in stage.get(f"{root}?status=WAITING_APPROVAL")["runs"]] == [run]
    assert stage.get(f"{root}?status=RUNNING")["runs"] == []
    assert stage.ask("GET", f"{root}?status=odd").status_code == 400
    told = stage.post(f"{root}/{run}/approve", {})
    assert (told["status"], told["applied"]) == (told["state"], True)
    assert (stage.get(f"{root}/{run}")["status"], stage.get(f"{root}/{run}")["waiting_on"]) == ("SUCCEEDED", [])


def test_a_run_that_has_others_below_it_waits_on_their_gates(stage: Stage) -> None:
    """And on several at once, though nothing else waits."""
    sign = Work(task="sign", lifecycle="approval", ref="sign")
    stage.app.send(DefineTemplate(name="inner", steps=(sign,)))
    inner = Work(task="inner", lifecycle="workflow_run", template="inner", ref="inner")
    stage.app.send(DefineTemplate(name="outer", steps=(inner, Work(task="look", lifecycle="approval", ref="look"))))
    run = stage.post("/runs", {"template_name": "outer"}, status=201)["id"]
    gates = [one["id"] for one in stage.get(f"/runs/{run}/steps")["steps"] if one["lifecycle"] == "approval"]
    assert sorted(stage.get(f"/runs/{run}")["waiting_on"]) == sorted(gates)
    assert len(gates) == 2


@pytest.mark.parametrize("root", ROOTS)
def test_reject_answers_on_both_paths(stage: Stage, root: str) -> None:
    run = made(stage, root)
    stage.finish(stage.claim())
    told = stage.post(f"{root}/{run}/reject", {"comment": "no"})
    exactly(told, responses.ActionResponse)
    assert (told["applied"], stage.get(f"{root}/{run}")["status"]) == (True, "CANCELED")


@pytest.mark.req("R1-28")
@pytest.mark.parametrize("root", ROOTS)
def test_reclaim_after_and_webhook_url_where_a_run_is_made(stage: Stage, root: str) -> None:
    steps = [{"task": "build"}, {"task": "own", "reclaim_after": 5}, {"task": "sign", "lifecycle": "approval"}]
    run = stage.post(root, {"task": "release", "steps": steps, "reclaim_after": 300, "webhook_url": HOOK}, status=201)[
        "id"
    ]
    seen = stage.get(f"{root}/{run}")
    assert (seen["reclaim_after"], seen["webhook_url"]) == (300.0, HOOK)
    below = [stage.get(f"/v1/jobs/{one['id']}") for one in stage.get(f"{root}/{run}/steps")["steps"]]
    assert [one["reclaim_after"] for one in below] == [300.0, 5.0, None]
    assert {one["webhook_url"] for one in below} == {None}
    stage.post("/v1/templates", {"name": "ship", "steps": steps})
    other = stage.post(root, {"template_name": "ship", "reclaim_after": 60, "webhook_url": HOOK}, status=201)["id"]
    ids = [one["id"] for one in stage.get(f"{root}/{other}/steps")["steps"]]
    assert [stage.get(f"/v1/jobs/{one}")["reclaim_after"] for one in ids] == [60.0, 5.0, None]
    assert stage.get(f"{root}/{other}")["webhook_url"] == HOOK


@pytest.mark.parametrize(
    "wrong",
    [
        {"webhook_url": "ftp://ci.example/"},
        {"webhook_url": "ci.example"},
        {"webhook_url": "https://user:secret@ci.example/"},
        {"webhook_url": "https://ci.example/a b"},
        {"webhook_url": "https://"},
        {"webhook_url": ""},
        {"webhook_url": "https://ci.example/" + "a" * 2_000},
        {"reclaim_after": 0},
        {"reclaim_after": "soon"},
        {"correlation": "a", "correlation_id": "b"},
        {"lifecycle": "ci_run", "steps": [{"task": "a"}], "reclaim_after": 5},
        {"steps": [{"task": "sign", "lifecycle": "approval", "reclaim_after": 5}]},
    ],
)
def test_what_is_no_such_thing_is_refused_and_makes_nothing(stage: Stage, wrong: dict[str, Any]) -> None:
    answer = stage.ask("POST", "/runs", {"task": "release", "steps": STEPS, **wrong})
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["code"] == "INVALID_REQUEST"
    assert stage.get("/runs")["runs"] == []


def test_a_webhook_of_a_job_is_refused_also_as_a_command(stage: Stage) -> None:
    asked = {"commands": [{"command": "Submit", "work": [{"task": "a", "webhook_url": HOOK}]}]}
    (told,) = stage.post("/v1/commands/submit", asked)["answers"]
    assert "webhook_url is not allowed for a job" in told["refused"]["text"]


@pytest.mark.req("R2-34")
def test_a_dead_letter_has_the_six_fields_of_document_002(stage: Stage) -> None:
    job = stage.job(attempts=1, correlation_id="order-7", trace_id="t-1")
    stage.finish(stage.claim(), ended="failure", error="it broke")
    (letter,) = stage.get("/v1/dead-letters")["letters"]
    assert letter["id"] == job
    six = ("reason_code", "last_error", "attempts", "last_owner", "last_lease_expires_at", "correlation_id")
    assert all(letter[name] is not None for name in six)
    assert (letter["attempts"], letter["correlation_id"], letter["last_owner"]) == (1, "order-7", "w")
    seen = stage.get(f"/v1/jobs/{job}")
    assert (seen["correlation_id"], seen["correlation"], seen["trace_id"]) == ("order-7", "order-7", "t-1")


def test_a_dead_letter_that_nobody_ever_claimed_has_no_attempts(stage: Stage) -> None:
    job = stage.job()
    stage.app.send(Bury(unit=parse_id(job), reason="policy_violation"))
    (letter,) = stage.get("/v1/dead-letters")["letters"]
    assert (letter["attempts"], letter["last_owner"], letter["last_lease_expires_at"]) == (0, None, None)
    exactly(letter, responses.DeadLetterResponse)


def later(url: str, days: int) -> None:
    """Another process lets time pass, which is much later by its clock: what is kept for a while is gone."""
    connection = connect(url)
    try:
        now = connection.now()
        connection.keep_time(lambda: now + days * 86_400_000_000)
        make_engine(connection, shipped()).send(Tick())
    finally:
        connection.close()


@pytest.mark.req("R1-41", "R1-42")
@pytest.mark.parametrize("root", ROOTS)
def test_a_key_maps_to_one_run_for_ever(stage: Stage, url: str, root: str) -> None:
    asked, under = {"task": "release", "steps": STEPS}, {"headers": {"Idempotency-Key": "k"}}
    run = stage.post(root, asked, status=201, **under)["id"]
    stop = stage.post(f"{root}/{run}/cancel", {}, headers={"Idempotency-Key": "stop"})
    assert stop["applied"]
    later(url, 4_000)
    assert stage.post(root, asked, **under)["id"] == run
    other = stage.ask("POST", root, {**asked, "priority": 7}, **under)
    assert (other.status_code, other.json()["error"]["code"]) == (409, "IDEMPOTENCY_CONFLICT")
    assert [one["id"] for one in stage.get(root)["runs"]] == [run]
    job = {"task": "mail"}
    first = stage.post("/v1/jobs", job, status=201, headers={"Idempotency-Key": "j"})["id"]
    later(url, 4_000)
    assert stage.post("/v1/jobs", job, headers={"Idempotency-Key": "j"})["id"] == first


def test_a_key_stands_for_a_run_that_has_been_archived(stage: Stage) -> None:
    asked, under = {"task": "release", "steps": STEPS}, {"headers": {"Idempotency-Key": "k"}}
    run = stage.post("/runs", asked, status=201, **under)["id"]
    stage.post(f"/runs/{run}/cancel", {})
    with pytest.raises(InterlockError) as told:
        stage.archive(Archive(unit=parse_id(run), file="f", digest="none"))
    stage.archive(Archive(unit=parse_id(run), file="f", digest=str(told.value).rsplit(" ", 1)[-1]))
    assert stage.ask("GET", f"/runs/{run}").status_code == 404
    assert stage.post("/runs", asked, **under)["id"] == run
    assert stage.get("/runs")["runs"] == []


@pytest.mark.req("R2-41", "R2-42")
def test_stats_tell_document_002s_metrics(stage: Stage) -> None:
    stage.job()
    stage.finish(stage.claim())
    stage.dead()
    told = stage.get("/v1/stats")
    exactly(told, Stats)
    assert (told["claims"], told["failures"], told["DLQ_count"], told["behind"]) == (2, 1, 1, False)
    (one,) = told["types"]
    assert (one["type"], one["queue"]["count"], one["run"]["count"]) == ("mail", 2, 2)
    assert 0 <= one["run"]["p50"] <= one["run"]["p95"]
    foreign = stage.get("/v1/stats", key=stage.foreign)
    assert (foreign["claims"], foreign["types"]) == (0, [])
