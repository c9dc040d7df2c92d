"""Runs with steps of their own over the wire, on document 001's path and on /v1: their gates and their outputs."""

import pytest

from tests.server.stage import Stage

ROOTS = ("/v1/runs", "/runs")


@pytest.mark.req("R1-31")
@pytest.mark.parametrize("root", ROOTS)
def test_the_step_approval_waits_for_a_person(stage: Stage, root: str) -> None:
    steps = [{"task": "build"}, {"task": "APPROVAL"}, {"task": "ship"}]
    run = stage.post(root, {"task": "release", "steps": steps}, status=201)["id"]
    build = stage.claim()
    assert build.task == "build"
    stage.finish(build)
    assert stage.get(f"{root}/{run}")["state"] == "WAITING_APPROVAL"
    with pytest.raises(IndexError):
        stage.claim()
    gate = stage.get(f"{root}/{run}/steps")["steps"][1]
    assert (gate["lifecycle"], gate["state"], gate["attempts"]) == ("approval", "WAITING_APPROVAL", 0)
    assert stage.post(f"{root}/{run}/approve", {"by": "ann", "step": "APPROVAL"})["applied"]
    assert stage.claim().task == "ship"


@pytest.mark.req("R1-31")
def test_the_step_approval_of_a_template_is_shown_as_a_gate(stage: Stage) -> None:
    steps = [{"task": "build"}, {"task": "APPROVAL", "ref": "sign", "quorum": 2}]
    stage.post("/v1/templates", {"name": "release", "steps": steps})
    kept = stage.get("/v1/templates/release")["steps"]
    assert [(one["name"], one["lifecycle"]) for one in kept] == [("build", "step"), ("sign", "approval")]
    assert stage.post("/v1/templates", {"name": "release", "steps": steps})["changed"] is False


@pytest.mark.parametrize("root", ROOTS)
def test_a_step_gets_the_outputs_of_those_before_it(stage: Stage, root: str) -> None:
    steps = [{"task": "build", "ref": "image"}, {"task": "test"}, {"task": "ship", "input": {"dry": True}}]
    stage.post(root, {"task": "release", "steps": steps}, status=201)
    stage.finish(stage.claim(), result='{"tag": "v7"}')
    stage.finish(stage.claim(), result="true")
    ship = stage.claim()
    assert (ship.task, ship.input) == ("ship", '{"dry":true}')
    assert dict(ship.outputs or ()) == {"image": '{"tag": "v7"}', "test": "true"}


def test_a_step_is_voted_on_by_its_ref_or_its_task(stage: Stage) -> None:
    gates = [{"task": "sign", "ref": name, "lifecycle": "approval", "needs": []} for name in ("legal", "ops")]
    run = stage.post("/v1/runs", {"task": "release", "steps": gates}, status=201)["id"]
    assert stage.post(f"/v1/runs/{run}/approve", {"by": "ann", "step": "ops"})["applied"]
    assert stage.post(f"/v1/runs/{run}/approve", {"by": "ann", "step": "sign"})["applied"]
    assert stage.get(f"/v1/runs/{run}")["outcome"] == "success"
