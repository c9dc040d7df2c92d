"""Runs over the wire: as document 001 asks for them, and under /v1."""

import pytest

from interlock.client import responses
from interlock.kernel.commands import DefineTemplate, Work
from interlock.plugins.workflows.routes import TemplateResponse
from tests.server.stage import Stage
from tests.server.test_jobs import exactly


@pytest.mark.parametrize("root", ["/v1/runs", "/runs"])
def test_a_run_waits_for_its_approval_and_ends(stage: Stage, root: str) -> None:
    run = stage.run()
    seen = stage.get(f"{root}/{run}")
    exactly(seen, responses.JobDetailResponse)
    steps = stage.get(f"{root}/{run}/steps")
    exactly(steps, responses.StepsResponse)
    assert [one["task"] for one in steps["steps"]] == ["sign", "ship"]
    done = stage.post(f"{root}/{run}/approve", {"by": "ann", "comment": "fine"})
    assert done["applied"]
    assert not stage.post(f"{root}/{run}/approve", {"by": "ann"})["applied"]
    stage.finish(stage.claim())
    assert stage.get(f"{root}/{run}")["outcome"] == "success"
    exactly(stage.get(f"{root}/{run}/events"), responses.EventsResponse)
    cost = stage.get(f"{root}/{run}/cost")
    exactly(cost, responses.CostResponse)
    assert (cost["cost"], len(cost["steps"])) == (0.0, 2)
    page = stage.get(root)
    exactly(page, responses.RunsResponse)
    assert [one["id"] for one in page["runs"]] == [run]


def test_a_run_of_a_template_as_document_001_asks_for_it(stage: Stage) -> None:
    steps = (
        Work(task="build", lifecycle="step", ref="build"),
        Work(task="sign", lifecycle="approval", ref="sign", needs=("build",)),
    )
    stage.app.send(DefineTemplate(name="release", steps=steps))
    asked = {"template_name": "release", "priority": 3, "input": {"version": 7}}
    run = stage.post("/runs", asked, status=201, headers={"Idempotency-Key": "k"})["id"]
    assert stage.post("/runs", asked, headers={"Idempotency-Key": "k"})["id"] == run
    assert [one["task"] for one in stage.get(f"/runs/{run}/steps")["steps"]] == ["build", "sign"]
    assert stage.get(f"/runs/{run}")["input"] == {"version": 7}
    for wrong in (
        {},
        {"template_name": "none"},
        {"task": "a"},
        {**asked, "task": "a"},
        {"task": "a", "steps": [{"task": "b"}], "template_version": 1},
    ):
        assert stage.ask("POST", "/runs", wrong).status_code == 400, wrong
    job = stage.job()
    assert stage.post(f"/v1/jobs/{job}/signal", {"name": "paid", "payload": 5})["applied"]
    assert not stage.post(f"/v1/jobs/{job}/signal", {"name": "paid", "payload": 6})["applied"]


def test_why_of_a_step_that_waits_names_what_it_needs(stage: Stage) -> None:
    first, second = (one["id"] for one in stage.get(f"/v1/runs/{stage.run()}/steps")["steps"])
    why = stage.get(f"/v1/jobs/{second}/why")
    assert why["reason"] == "needs_unmet"
    assert first in why["answer"]


def test_an_approval_under_a_key_is_answered_again(stage: Stage) -> None:
    """A retried approve does not reach a second gate."""
    gates = [{"task": "one", "lifecycle": "approval"}, {"task": "two", "lifecycle": "approval"}]
    run = stage.post("/v1/runs", {"task": "release", "steps": gates}, status=201)["id"]
    under = {"headers": {"Idempotency-Key": "k"}}
    first = stage.post(f"/v1/runs/{run}/approve", {"by": "ann"}, **under)
    assert stage.post(f"/v1/runs/{run}/approve", {"by": "ann"}, **under) == first
    states = [one["outcome"] for one in stage.get(f"/v1/runs/{run}/steps")["steps"]]
    assert states == ["success", None]


def test_reject_cancel_and_resume(stage: Stage) -> None:
    run = stage.run()
    assert stage.post(f"/v1/runs/{run}/reject", {"comment": "no"})["applied"]
    assert stage.get(f"/v1/runs/{run}")["outcome"] == "cancelled"
    other = stage.run()
    assert stage.get(f"/v1/runs/{other}/why")["unit"] == other
    assert stage.post(f"/v1/runs/{other}/cancel", {"reason": "enough"})["applied"]
    no = stage.post(f"/v1/runs/{other}/resume", status=409)["error"]
    assert no["code"] == "INVALID_STATE"
    assert no["details"]["legal_next"] == []


def test_whoever_has_no_vote_is_told_so(stage: Stage) -> None:
    steps = [{"task": "sign", "lifecycle": "approval", "approvers": ["ops"]}]
    run = stage.post("/v1/runs", {"task": "release", "steps": steps}, status=201)["id"]
    no = stage.post(f"/v1/runs/{run}/approve", {"by": "ann"}, status=403)["error"]
    assert no["code"] == "NOT_AN_APPROVER"
    assert stage.post(f"/v1/runs/{run}/approve", {"by": "ann", "roles": ["ops"]})["applied"]


def test_a_job_is_no_run(stage: Stage) -> None:
    job = stage.job()
    assert stage.ask("GET", f"/v1/runs/{job}").status_code == 404
    assert stage.ask("GET", f"/v1/runs/workflow_run_{job.rpartition('_')[2]}").status_code == 404
    assert stage.get("/v1/runs")["runs"] == []


def test_the_inbox_is_read_and_answered(stage: Stage) -> None:
    run = stage.run()
    page = stage.get("/v1/inbox?limit=1")
    exactly(page, responses.InboxResponse)
    (item,) = page["items"]
    assert item["run"] == run
    assert stage.post(f"/v1/inbox/{item['id']}/approve", {"by": "ann"})["applied"]
    assert stage.get("/v1/inbox")["items"] == []
    stream = stage.post(
        "/v1/jobs/batch",
        {
            "jobs": [
                {"task": "w", "lifecycle": "workstream", "ref": "w"},
                {"task": "t", "lifecycle": "task", "parent": "w"},
            ]
        },
        status=201,
    )["jobs"][0]["id"]
    assert stage.post(f"/v1/inbox/{stream}/decide", {"word": "plan"})["applied"]
    assert stage.post(f"/v1/inbox/{stream}/decide", {"word": "plan"}, status=409)["error"]["code"] == "INVALID_STATE"


def test_a_template_is_defined_read_and_run(stage: Stage) -> None:
    steps = [{"task": "build"}, {"task": "sign", "lifecycle": "approval"}, {"task": "ship", "ref": "out"}]
    done = stage.post("/v1/templates", {"name": "release", "steps": steps})
    assert done == {"name": "release", "version": 1, "changed": True}
    assert not stage.post("/v1/templates", {"name": "release", "steps": steps})["changed"]
    assert stage.post("/v1/templates", {"name": "release", "steps": steps[:2]})["version"] == 2
    (line,) = stage.get("/v1/templates")["templates"]
    assert (line["version"], [step["name"] for step in line["steps"]]) == (2, ["build", "sign"])
    first = stage.get("/v1/templates/release?version=1")
    exactly(first, TemplateResponse)
    assert [step["needs"] for step in first["steps"]] == [[], ["build"], ["sign"]]
    run = stage.post("/v1/runs", {"template_name": "release"}, status=201)["id"]
    assert len(stage.get(f"/v1/runs/{run}/steps")["steps"]) == 2
    assert stage.ask("GET", "/v1/templates/release?version=3").status_code == 404
    wrong = stage.ask("POST", "/v1/templates", {"name": "release", "steps": [{"task": "a", "needs": ["b"]}]})
    assert wrong.status_code in (400, 404)
    assert stage.get("/v1/templates/release")["version"] == 2


def test_workers_schedules_and_lifecycles(stage: Stage) -> None:
    stage.job()
    grant = stage.claim(name="ann")
    page = stage.get("/v1/workers")
    exactly(page, responses.WorkersResponse)
    (worker,) = page["workers"]
    assert (worker["name"], worker["holding"]) == ("ann", 1)
    stage.post(f"/v1/workers/{worker['id']}/drain")
    assert stage.get("/v1/workers")["workers"][0]["draining"]
    stage.finish(grant)
    assert stage.get("/v1/workers")["workers"] == []
    assert len(stage.get("/v1/workers?ended=true")["workers"]) == 1

    stage.schedule()
    page = stage.get("/v1/schedules")
    exactly(page, responses.SchedulesResponse)
    assert stage.post("/v1/schedules/nightly/pause", {"reason": "full"})["paused"]
    assert "full" in stage.get("/v1/schedules")["schedules"][0]["paused"]
    assert not stage.post("/v1/schedules/nightly/resume")["paused"]
    made = stage.post("/v1/schedules/nightly/trigger", status=201)["id"]
    assert stage.get(f"/v1/jobs/{made}")["task"] == "mail"
    assert stage.post("/v1/schedules/nightly/remove")["removed"]
    assert stage.get("/v1/schedules")["schedules"] == []

    exactly(stage.get("/v1/lifecycles"), responses.LifecyclesResponse)
    exactly(stage.get("/v1/lifecycles/job"), responses.LifecycleResponse)
    drawn = stage.ask("GET", "/v1/lifecycles/job/mermaid")
    assert drawn.text.startswith("stateDiagram-v2")
    assert drawn.headers["content-type"].startswith("text/plain")


def test_no_answer_shows_a_lease(stage: Stage) -> None:
    job = stage.job()
    grant = stage.claim()
    for path in ("/v1/jobs", f"/v1/jobs/{job}", f"/v1/jobs/{job}/events", f"/v1/jobs/{job}/why", "/v1/workers"):
        text = stage.ask("GET", path).text
        assert grant.lease not in text
        assert "lease_hash" not in text
