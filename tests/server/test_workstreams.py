"""Workstreams over HTTP: made in one request or in pages, with the sentences that a program gets."""

from typing import Any

import pytest

from interlock.kernel.ids import parse_id
from tests.server.stage import Stage

SITE: dict[str, Any] = {
    "name": "site",
    "arguments": {"ref": "v1"},
    "labels": {"team": "web"},
    "tasks": [
        {"name": "build", "needs": ["fetch"], "attempts": 2, "timeout": "20m", "checks": ["lint"], "critical": False},
        {"name": "fetch"},
    ],
    "checks": [{"approval": "ship", "quorum": 1}],
}


def finish_next(stage: Stage, task: str, **facts: Any) -> None:
    grant = stage.claim()
    assert grant.task == task
    stage.finish(grant, **facts)


def test_a_workstream_from_a_request_to_its_end(stage: Stage) -> None:
    """R3-02, R3-03, R3-05, R3-07, R3-12, R3-21, R3-22, R3-24, R3-25, R3-27 by their routes."""
    made = stage.post("/v1/workstreams", SITE, status=201)
    path = f"/v1/workstreams/{made['id']}"
    assert made["state"] == "ready"
    shown = stage.get(path)
    assert (shown["task"], shown["input"], shown["labels"]) == ("site", {"ref": "v1"}, {"team": "web"})
    tasks = {task["name"]: task for task in stage.get(f"{path}/tasks")["tasks"]}
    assert {name: (task["state"], task["critical"]) for name, task in tasks.items()} == {
        "build": ("pending", False), "fetch": ("queued", True),
    }  # fmt: skip
    plan = stage.get(f"{path}/plan")
    assert [(task["name"], task["stage"]) for task in plan["tasks"]] == [("fetch", 1), ("build", 2)]
    assert (stage.get(f"{path}/plan?first=1&limit=1")["tasks"][0]["name"], plan["critical_path"]) == (
        "build", ["fetch", "build"],
    )  # fmt: skip
    finish_next(stage, "fetch", result='{"n": 1}')
    assert stage.get(path)["state"] == "executing"
    progress = stage.get(f"{path}/progress")
    assert (progress["done"], progress["of"], progress["critical_path"]) == (1, 2, ["build"])
    grant = stage.claim()
    assert (grant.task, dict(grant.needed), grant.input) == ("build", {"fetch": '{"n": 1}'}, '{"ref":"v1"}')
    stage.finish(grant)
    assert stage.get(f"{path}/tasks?state=validating")["tasks"][0]["name"] == "build"
    finish_next(stage, "lint")
    assert stage.get(path)["state"] == "validating"
    refused = stage.ask("POST", f"/v1/runs/{made['id']}/cancel", {})
    assert refused.status_code == 409, "R3-29: none while it is validated"
    (item,) = stage.get("/v1/inbox")["items"]
    stage.post(f"/v1/inbox/{item['id']}/approve", {})
    assert [event["to"] for event in stage.get(f"/v1/runs/{made['id']}/events")["events"]] == [
        "planned", "ready", "executing", "validating", "completed",
    ]  # fmt: skip
    assert [one["id"] for one in stage.get("/v1/workstreams?state=completed")["workstreams"]] == [made["id"]]


@pytest.mark.req("R3-22")
def test_pages_come_until_all_that_are_expected_are_there(stage: Stage) -> None:
    """R3-22: it stays planned while tasks are missing, and a page with too many is refused whole."""
    made = stage.post("/v1/workstreams", {"name": "many", "expects": 3, "arguments": {"ref": "v1"}}, status=201)
    path = f"/v1/workstreams/{made['id']}"
    assert made["state"] == "planned"
    first = {"tasks": [{"name": "a", "needs": ["c"]}, {"name": "b"}]}
    assert len(stage.post(f"{path}/tasks", first, status=201)["jobs"]) == 2
    stage.post(f"{path}/tasks", first)
    assert stage.get(path)["state"] == "planned"
    answer = stage.ask("POST", f"{path}/tasks", {"tasks": [{"name": "c"}, {"name": "d"}]})
    assert (answer.status_code, "expects 3 tasks and has 2" in answer.text) == (400, True)
    assert len(stage.get(f"{path}/tasks")["tasks"]) == 2
    stage.post(f"{path}/tasks", {"tasks": [{"name": "c"}]}, status=201)
    assert stage.get(path)["state"] == "ready"
    assert stage.claim().input == '{"ref":"v1"}'
    stage.post(f"{path}/tasks", {"tasks": [{"name": "late", "needs": ["a"]}]}, status=201)
    page = stage.get(f"{path}/tasks?limit=3")
    more = stage.get(f"{path}/tasks?limit=3&after={page['next']}")
    names = [task["name"] for task in (*page["tasks"], *more["tasks"])]
    assert (sorted(names), more["next"]) == (["a", "b", "c", "late"], None)


def test_a_key_and_an_idempotency_key_make_one(stage: Stage) -> None:
    body = {**SITE, "key": "site-1"}
    made = stage.post("/v1/workstreams", body, status=201)["id"]
    assert stage.post("/v1/workstreams", body)["id"] == made
    more = {**body, "tasks": [*SITE["tasks"], {"name": "more"}]}
    assert stage.post("/v1/workstreams", more)["id"] == made
    assert len(stage.get(f"/v1/workstreams/{made}/tasks")["tasks"]) == 2
    other = stage.ask("POST", "/v1/workstreams", {**body, "arguments": {"ref": "v2"}})
    assert (other.status_code, "IDEMPOTENCY_CONFLICT" in other.text) == (409, True)
    headers = {"Idempotency-Key": "once"}
    first = stage.post("/v1/workstreams", SITE, status=201, headers=headers)["id"]
    assert stage.post("/v1/workstreams", SITE, headers=headers)["id"] == first
    half = {"name": "half", "key": "h", "expects": 2, "tasks": [{"name": "a"}]}
    made = stage.post("/v1/workstreams", half, status=201)["id"]
    assert stage.post("/v1/workstreams", {**half, "tasks": [{"name": "a"}, {"name": "b"}]}, status=201)["id"] == made
    assert stage.get(f"/v1/workstreams/{made}")["state"] == "ready"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"name": "a"}, "has no tasks; it takes at least one"),
        ({"name": "a", "tasks": "b"}, "tasks"),
        ({"name": "a", "tsaks": []}, "unknown field `tsaks`; did you mean 'tasks'?"),
        ({"name": "a", "tasks": [{"name": "b", "rnu": "x"}]}, "`rnu` - at `$.tasks[0]`; did you mean 'run'?"),
        ({"name": "a", "checks": [{"aproval": "x"}]}, "`aproval` - at `$.checks[0]`; did you mean 'approval'?"),
        ({"name": "a", "tasks": [{"name": "b", "resources": {"x": {"mode": "counted", "off": 2}}}]}, "did you mean 'of'?"),
        ({"name": "a", "tasks": [{"name": "b"}, {"name": "b"}]}, "two tasks are called 'b'"),
        ({"name": "a", "tasks": [{"name": "b", "needs": ["b"]}]}, "a circle of needs: b needs b"),
        ({"name": "a", "tasks": [{"name": "b", "needs": ["c"]}]}, "needs 'c', which is no task of it"),
        ({"name": "a", "tasks": [{"name": "b"}, {"name": "c"}], "expects": 1}, "there are 2 tasks already"),
        ({"name": "a", "tasks": [{"name": "b", "timeout": "soon"}]}, "task 'b': timeout: 'soon'"),
        ({"name": "a", "tasks": [{"name": "b", "attempts": 0}]}, "attempts"),
        ({"name": "a", "tasks": [{"name": f"t{n}"} for n in range(1_001)]}, "tasks"),
        ({"name": "a", "tasks": [{"name": "b", "checks": [{}]}]}, "a check says one of task, run, merge and approval"),
        ({"name": "a", "tasks": [{"name": "b", "resources": {"gpu": {"mode": "counted", "n": 9, "of": 8}}}]}, "gpu"),
        ({"name": "a", "repo": "a b", "tasks": [{"name": "b"}]}, "the repository 'a b' is not allowed"),
        ({"name": "a", "ref": "v1", "tasks": [{"name": "b"}]}, "ref is not allowed without repo"),
        ({"name": "a", "checks": [{"merge": "main"}], "tasks": [{"name": "b"}]}, "that has a repository"),
        ({"name": "a", "repo": "s", "checks": [{"merge": "a b"}], "tasks": [{"name": "b"}]}, "the branch 'a b' is not"),
        ({"name": "a", "tasks": [{"name": "b", "timeout": 0}]}, "timeout = 0 is not allowed; allowed is at least 1"),
        ({"name": "a", "tasks": [{"name": "b", "run": "x", "timeout": 0}]}, "timeout = 0 is not allowed"),
        ({"name": "a", "checks": [{"run": "x", "timeout": 0}], "tasks": [{"name": "b"}]}, "timeout = 0 is not allowed"),
        ({"name": "a", "tasks": [{"name": "f"}, {"name": "b", "over": "f..x"}]}, "over = 'f..x' is not allowed; a part"),
        ({"name": "a", "tasks": [{"name": "f"}, {"name": "b", "over": "f."}]}, "over = 'f.' is not allowed; a part"),
        ({"name": "a", "tasks": [{"name": "b", "resources": {"x": {"mode": "shared", "n": 2}}}]}, "n is not allowed for mode"),
        ({"name": "a", "tasks": [{"name": "b", "resources": {"x": {"mode": "rated", "per": "1m", "of": 2}}}]}, "of is not"),
        ({"name": "a", "checks": ["git.clean"], "tasks": [{"name": "b"}]}, "'git.clean' is no check"),
        ({"name": "a", "timeout": 1e9, "tasks": [{"name": "b", "timeout": 1e9}]}, ""),
    ],
)  # fmt: skip
def test_a_wrong_body_is_a_sentence_and_makes_nothing(stage: Stage, body: dict[str, Any], why: str) -> None:
    answer = stage.ask("POST", "/v1/workstreams", body)
    if why:
        assert (answer.status_code, why in answer.text) == (400, True), answer.text
        assert stage.get("/v1/workstreams")["workstreams"] == []
    assert answer.status_code < 500


def test_the_tasks_of_a_workstream_with_a_repository_need_a_worker_that_has_it(stage: Stage) -> None:
    body = {"name": "a", "repo": "site", "ref": "v1", "checks": [{"merge": "main"}], "tasks": [{"name": "b"}]}
    made = stage.post("/v1/workstreams", body, status=201)["id"]
    (task,) = stage.get(f"/v1/workstreams/{made}/tasks")["tasks"]
    assert stage.get(f"/v1/jobs/{task['id']}")["capabilities"] == ["repo:site"]


def test_a_page_names_each_task_once_and_a_name_stands_for_its_command(stage: Stage) -> None:
    made = stage.post("/v1/workstreams", {"name": "a", "expects": 3}, status=201)["id"]
    path = f"/v1/workstreams/{made}/tasks"
    twice = stage.ask("POST", path, {"tasks": [{"name": "x", "run": "make"}, {"name": "x", "run": "make"}]})
    assert (twice.status_code, f"{made}: two tasks are called 'x'" in twice.text) == (400, True), twice.text
    assert stage.get(path)["tasks"] == []
    page = {"tasks": [{"name": "x", "run": "make"}, {"name": "y", "run": "make"}]}
    stage.post(path, page, status=201)
    stage.post(path, page)
    other = stage.ask("POST", path, {"tasks": [{"name": "z", "run": "make"}, {"name": "x", "run": "make all"}]})
    assert (other.status_code, other.json()["error"]["code"]) == (409, "NAME_TAKEN"), other.text
    assert "with another command" in other.text
    assert [task["name"] for task in stage.get(path)["tasks"]] == ["y", "x"]


@pytest.mark.req("R3-23")
def test_cycles_over_pages_and_tasks_of_others_are_refused(stage: Stage) -> None:
    """R3-23: a cycle is named, and the workstream stays planned."""
    made = stage.post("/v1/workstreams", {"name": "a", "expects": 2}, status=201)["id"]
    path = f"/v1/workstreams/{made}/tasks"
    stage.post(path, {"tasks": [{"name": "x", "needs": ["y"]}]}, status=201)
    answer = stage.ask("POST", path, {"tasks": [{"name": "y", "needs": ["x"]}]})
    assert (answer.status_code, "a circle of needs: y needs x needs y" in answer.text) == (400, True), answer.text
    assert stage.get(f"/v1/workstreams/{made}")["state"] == "planned"
    job = stage.job()
    for wrong in (job, "workstream_zzzzzz", "nothing"):
        assert stage.ask("GET", f"/v1/workstreams/{wrong}/tasks").status_code == 404
        assert stage.ask("POST", f"/v1/workstreams/{wrong}/tasks", {"tasks": [{"name": "z"}]}).status_code == 404
    assert stage.ask("GET", f"{path}?state=odd").status_code == 400
    assert stage.ask("GET", "/v1/workstreams?lifecycle=job").status_code == 400
    stage.post(f"/v1/runs/{made}/cancel", {})
    late = stage.ask("POST", path, {"tasks": [{"name": "z"}]})
    assert (late.status_code, "has ended" in late.text) == (409, True), late.text
    assert parse_id(made)


def test_operators_retry_skip_reassign_and_rerun(stage: Stage) -> None:
    """R3-09, R3-10, R3-13, R3-31 by their routes, and X-18: each has who and why in an event."""
    tasks = [
        {"name": "a", "critical": False, "attempts": 1},
        {"name": "b", "needs": ["a"], "critical": False},
        {"name": "c", "queue": "other"},
    ]
    made = stage.post("/v1/workstreams", {"name": "site", "tasks": tasks}, status=201)["id"]
    path = f"/v1/workstreams/{made}"
    ids = {task["name"]: task["id"] for task in stage.get(f"{path}/tasks")["tasks"]}
    grant = stage.claim()
    again = stage.post(f"/v1/tasks/{ids['a']}/reassign", {"reason": "its disk is full"})
    assert (again["applied"], again["state"]) == (True, "queued")
    finish_next(stage, "a", ended="failure", error="it broke")
    assert stage.get(f"/v1/jobs/{ids['a']}")["state"] == "failed"
    blocked = stage.ask("POST", f"/v1/tasks/{ids['b']}/skip", {})
    assert (blocked.status_code, "retry or skip that first" in blocked.text) == (409, True), blocked.text
    for verb in ("retry", "skip", "reassign"):
        assert stage.ask("POST", f"/v1/tasks/{made}/{verb}", {}).status_code == 404, "a workstream is no task"
    new = stage.post(f"/v1/tasks/{ids['a']}/retry", {"reason": "a mirror was down"}, status=201)["id"]
    assert stage.get(f"/v1/jobs/{new}")["retry_of"] == ids["a"]
    assert stage.get(f"/v1/jobs/{new}/events")["events"][0]["reason"] == "a mirror was down"
    assert stage.ask("POST", f"/v1/tasks/{ids['a']}/retry", {}).status_code == 409, "once"
    finish_next(stage, "a")
    assert stage.post(f"/v1/tasks/{ids['b']}/skip", {"reason": "not wanted"})["state"] == "completed"
    early = stage.ask("POST", f"{path}/rerun", {})
    assert (early.status_code, "no 'rerun' from 'executing'" in early.text) == (409, True), early.text
    stage.finish(stage.claim(queue="other"))
    assert stage.get(path)["state"] == "completed"
    run = path.replace("workstreams", "runs")
    for root, part in ((run, {"step": "c"}), (run, {"from_task": "c"}), (path, {"failed": True})):
        assert stage.post(f"{root}/rerun", part, status=201)["id"].startswith("workstream_")
    assert stage.ask("POST", f"{run}/rerun", {"step": "c", "failed": True}).status_code == 400
    rerun = stage.post(f"{path}/rerun", {"from_task": "c"}, status=201)["id"]
    states = {task["name"]: task["state"] for task in stage.get(f"/v1/workstreams/{rerun}/tasks")["tasks"]}
    assert states == {"a": "completed", "b": "completed", "c": "queued"}
    assert grant.unit == parse_id(ids["a"])
