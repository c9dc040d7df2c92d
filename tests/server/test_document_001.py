"""Document 001 over its own paths: what POST approve and POST cancel do, and what GET steps shows."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.server.stage import Stage

STEPS = [{"task": "build"}, {"task": "sign", "lifecycle": "approval"}, {"task": "ship"}]


def made(stage: Stage, steps: list[dict[str, str]] = STEPS) -> str:
    return str(stage.post("/runs", {"task": "release", "steps": steps}, status=201)["id"])


def state(stage: Stage, run: str) -> str:
    return str(stage.get(f"/runs/{run}")["state"])


def steps(stage: Stage, run: str) -> list[str]:
    return [one["state"] for one in stage.get(f"/runs/{run}/steps")["steps"]]


def events(stage: Stage, run: str) -> list[Any]:
    return list(stage.get(f"/runs/{run}/events")["events"])


@pytest.mark.req("R1-20")
def test_a_run_is_shown_as_waiting_only_while_nothing_else_can_run(stage: Stage) -> None:
    """A gate and a step side by side: what GET shows of the run is what can be done for it."""
    stage.post("/v1/templates", {"name": "both", "steps": [
        {"task": "sign", "lifecycle": "approval", "ref": "sign", "needs": []},
        {"task": "build", "ref": "build", "needs": []},
        {"task": "ship", "ref": "ship", "needs": ["sign", "build"]},
    ]})  # fmt: skip
    run = str(stage.post("/runs", {"template_name": "both"}, status=201)["id"])
    assert (state(stage, run), steps(stage, run)) == ("PENDING", ["WAITING_APPROVAL", "PENDING", "PENDING"])
    grant = stage.claim()
    assert (state(stage, run), steps(stage, run)) == ("RUNNING", ["WAITING_APPROVAL", "RUNNING", "PENDING"])
    stage.finish(grant)
    assert (state(stage, run), steps(stage, run)) == ("WAITING_APPROVAL", ["WAITING_APPROVAL", "SUCCEEDED", "PENDING"])
    listed = {one["id"]: one["state"] for one in stage.get("/runs")["runs"]}
    assert listed[run] == "WAITING_APPROVAL"
    stage.post(f"/runs/{run}/approve", {"by": "ann"})
    assert (state(stage, run), steps(stage, run)) == ("RUNNING", ["SUCCEEDED", "SUCCEEDED", "PENDING"])


@pytest.mark.req("R1-13", "R1-32")
def test_approve_moves_a_run_on_with_every_worker_stopped(stage: Stage) -> None:
    run = made(stage)
    stage.finish(stage.claim())
    assert (state(stage, run), steps(stage, run)) == (
        "WAITING_APPROVAL",
        ["SUCCEEDED", "WAITING_APPROVAL", "PENDING"],
    )
    assert stage.post(f"/runs/{run}/approve", {"by": "ann"})["applied"]
    assert (state(stage, run), steps(stage, run)) == ("RUNNING", ["SUCCEEDED", "SUCCEEDED", "PENDING"])


@pytest.mark.req("R1-15")
def test_approve_of_the_last_gate_ends_the_run(stage: Stage) -> None:
    run = made(stage, STEPS[:2])
    stage.finish(stage.claim())
    stage.post(f"/runs/{run}/approve", {"by": "ann"})
    assert (state(stage, run), steps(stage, run)) == ("SUCCEEDED", ["SUCCEEDED"] * 2)


@pytest.mark.req("R1-29")
def test_approve_before_the_gate_opens_changes_nothing(stage: Stage) -> None:
    run = made(stage)
    stage.claim()
    before = steps(stage, run), events(stage, run)
    answer = stage.ask("POST", f"/runs/{run}/approve", {"by": "ann"})
    assert answer.status_code == 409 or not answer.json()["applied"]
    assert (steps(stage, run), events(stage, run)) == before


@pytest.mark.req("R1-30")
def test_fifty_approves_at_once_are_one_move(stage: Stage) -> None:
    run = made(stage)
    stage.finish(stage.claim())
    with ThreadPoolExecutor(10) as pool:
        told = list(pool.map(lambda _: stage.post(f"/runs/{run}/approve", {"by": "ann"}), range(50)))
    assert sum(one["applied"] for one in told) == 1
    gate = stage.get(f"/runs/{run}/steps")["steps"][1]["id"]
    assert [one["to"] for one in stage.get(f"/v1/jobs/{gate}/events")["events"]][-1] == "SUCCEEDED"


@pytest.mark.req("R1-18", "R1-27")
@pytest.mark.parametrize("where", ["PENDING", "RUNNING", "WAITING_APPROVAL"])
def test_cancel_ends_a_run_wherever_it_is(stage: Stage, where: str) -> None:
    run = made(stage)
    if where != "PENDING":
        grant = stage.claim()
        if where == "WAITING_APPROVAL":
            stage.finish(grant)
    assert state(stage, run) == where
    assert stage.post(f"/runs/{run}/cancel")["applied"]
    first = "SUCCEEDED" if where == "WAITING_APPROVAL" else "CANCELED"
    assert (state(stage, run), steps(stage, run)) == ("CANCELED", [first, "CANCELED", "CANCELED"])


@pytest.mark.req("R1-33")
def test_steps_are_shown_in_the_order_of_their_template(stage: Stage) -> None:
    names = [f"step-{number}" for number in range(12)]
    stage.post("/v1/templates", {"name": "long", "steps": [{"task": name} for name in names]})
    run = stage.post("/runs", {"template_name": "long"}, status=201)["id"]
    assert [one["task"] for one in stage.get(f"/runs/{run}/steps")["steps"]] == names
