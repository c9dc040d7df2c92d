"""Who may have commands run: only keys with the scope `shell`, by whichever way in."""

from typing import Any

import pytest

from interlock.core.engine import VERBS
from interlock.kernel.commands import DefineSchedule, DefineTemplate, Plan, Submit, Work
from interlock.kernel.commands.submit import list_work
from interlock.plugins import STANDARD
from tests.server.stage import Stage

OPTIONS = '{"shell": {"command": "id"}}'
SHELL = {"task": "shell", "capabilities": ["shell"], "options": OPTIONS}
CHECKED = {"task": "site", "lifecycle": "workstream"}
# A key may be spelled in other letters: they are the same key.
SPELLED = '{"checks": {"jobs": [{"\\u0074ask": "shell", "capabilities": ["shell"], "options": "{\\"\\\\u0073hell\\": {\\"command\\": \\"id\\"}}"}]}}'
WAYS: dict[str, tuple[str, str, dict[str, Any]]] = {  # by name: the scope of the way in, the path, and the body
    "route": ("submit", "/v1/shell", {"command": "id"}),
    "submit": ("submit", "/v1/commands/submit", {"commands": [{"command": "Submit", "work": [{"task": "a"}, SHELL]}]}),
    "spelled": (
        "submit",
        "/v1/commands/submit",
        {"commands": [{"command": "Submit", "work": [{**SHELL, "options": '{"\\u0073hell": {"command": "id"}}'}]}]},
    ),
    "template": (
        "submit",
        "/v1/commands/submit",
        {"commands": [{"command": "DefineTemplate", "name": "t", "steps": [{**SHELL, "lifecycle": "step", "ref": "s"}]}]},
    ),
    "check": ("submit", "/v1/jobs", {**CHECKED, "options": {"checks": {"jobs": ["lint", SHELL]}}}),
    "check of a step": (
        "submit",
        "/v1/runs",
        {**CHECKED, "steps": [{"task": "a", "options": {"checks": {"jobs": [SHELL]}}}]},
    ),
    "spelled check": (
        "submit",
        "/v1/commands/submit",
        {"commands": [{"command": "Submit", "work": [{**CHECKED, "options": SPELLED}]}]},
    ),
    "workstream": ("submit", "/v1/workstreams", {"name": "a", "tasks": [{"name": "b", "run": "id"}]}),
    "check of a workstream": (
        "submit",
        "/v1/workstreams",
        {"name": "a", "tasks": [{"name": "b"}], "checks": [{"run": "id"}]},
    ),
    "check of a task": ("submit", "/v1/workstreams", {"name": "a", "tasks": [{"name": "b", "checks": [{"run": "id"}]}]}),
    "schedule": (
        "operate",
        "/v1/commands/operate",
        {"commands": [{"command": "DefineSchedule", "name": "s", "timing": "0 3 * * *", "work": SHELL}]},
    ),
}  # fmt: skip


def is_refused(status: int, answer: dict[str, Any]) -> bool:
    """Whether a request was refused for lack of the scope."""
    text = str(answer)
    return "lacks the scope 'shell'" in text and (status == 403 or "refused" in text)


@pytest.mark.parametrize("way", WAYS)
def test_without_the_scope_it_is_refused_and_nothing_is_made(way: str, stage: Stage) -> None:
    scope, path, body = WAYS[way]
    for scopes in ((scope,), ("admin",), ("admin", "vouch"), ("submit", "read", "operate", "approve", "worker")):
        answer = stage.ask("POST", path, body, key=stage.key(*scopes))
        assert is_refused(answer.status_code, answer.json()), (scopes, answer.text)
    assert stage.get("/v1/jobs")["jobs"] == []
    assert stage.get("/v1/templates")["templates"] == []
    assert stage.get("/v1/schedules")["schedules"] == []


@pytest.mark.parametrize("way", WAYS)
def test_with_the_scope_it_is_taken(way: str, stage: Stage) -> None:
    scope, path, body = WAYS[way]
    answer = stage.ask("POST", path, body, key=stage.key(scope, "shell"))
    assert answer.status_code in (200, 201), answer.text
    assert "refused" not in answer.text


@pytest.mark.parametrize("way", WAYS)
def test_the_scope_alone_is_not_enough(way: str, stage: Stage) -> None:
    scope, path, body = WAYS[way]
    answer = stage.ask("POST", path, body, key=stage.key("shell"))
    assert (answer.status_code, answer.json()["error"]["details"]["needs"]) == (403, scope)


@pytest.mark.parametrize("task", [{"run": "id"}, {"checks": [{"run": "id"}]}])
def test_a_command_is_added_with_the_scope_alone(stage: Stage, task: dict[str, Any]) -> None:
    stream = stage.post("/v1/workstreams", {"name": "a", "tasks": [{"name": "b"}]}, status=201)["id"]
    body = {"tasks": [{"name": "c"}, {"name": "d", **task}]}
    for scopes in (("submit",), ("admin",), ("submit", "read", "operate", "approve", "worker")):
        answer = stage.ask("POST", f"/v1/workstreams/{stream}/tasks", body, key=stage.key(*scopes))
        assert is_refused(answer.status_code, answer.json()), (scopes, answer.text)
    assert [one["name"] for one in stage.get(f"/v1/workstreams/{stream}/tasks")["tasks"]] == ["b"]
    stage.post(f"/v1/workstreams/{stream}/tasks", body, status=201, key=stage.key("submit", "shell"))


def test_the_holder_of_a_task_adds_commands_with_the_scope_alone(stage: Stage) -> None:
    stream = stage.post("/v1/workstreams", {"name": "a", "tasks": [{"name": "b"}]}, status=201)["id"]
    grant = stage.claim()
    lease = {"unit": grant.unit, "fence": grant.fence, "lease": grant.lease}
    added = {"command": "AddTasks", "lease": lease, "work": [{**SHELL, "lifecycle": "task", "step": "c"}]}
    for scopes, taken in ((("worker",), False), (("admin",), False), (("worker", "shell"), True)):
        answer = stage.ask("POST", "/v1/commands/worker", {"commands": [added]}, key=stage.key(*scopes))
        assert is_refused(answer.status_code, answer.json()) is not taken, (scopes, answer.text)
    assert len(stage.get(f"/v1/workstreams/{stream}/tasks")["tasks"]) == 2


def test_an_administrator_cannot_give_a_scope_that_it_lacks(stage: Stage) -> None:
    answer = stage.ask("POST", "/v1/keys", {"name": "n", "scopes": ["shell"]}, key=stage.key("admin"))
    assert answer.status_code == 403
    assert "lacks the scope 'shell', so it cannot give it" in answer.text
    stage.post("/v1/keys", {"name": "n", "scopes": ["shell"]}, key=stage.key("admin", "shell"), status=201)


def test_every_command_that_has_work_is_looked_at() -> None:
    """Also those of plugins: whatever field has it."""
    works = {
        Submit: {"work": (Work(task="a"),)}, Plan: {"unit": 1, "work": (Work(task="a"),)},
        DefineTemplate: {"name": "t", "steps": (Work(task="a"),)},
    }  # fmt: skip
    for kind, fields in works.items():
        assert [work.task for work in list_work(kind(**fields))] == ["a"]
    schedule = DefineSchedule(name="s", timing="every 5m", work=Work(task="a"))
    assert [work.task for work in list_work(schedule)] == ["a"]
    having = {
        kind.__name__
        for kind in {**VERBS, **STANDARD.commands}
        if any("Work" in str(hint).replace("Worker", "") for hint in kind.__annotations__.values())
    }
    assert having == {"Submit", "DefineTemplate", "DefineSchedule", "DefineTask", "AddTasks", "Plan"}, (
        "is the work of this command found by list_work?"
    )


def test_plain_work_needs_no_more_than_before(stage: Stage) -> None:
    key = stage.key("submit")
    stage.post("/v1/jobs", {"task": "shell"}, key=key, status=201)
    stage.post("/v1/jobs", {"task": "a", "capabilities": ["shell"]}, key=key, status=201)
    grant = stage.claim()
    assert (grant.task, grant.options) == ("shell", None)


def test_the_job_says_what_it_runs(stage: Stage) -> None:
    body = {
        "command": "make test", "environment": {"CI": "true"}, "directory": "app", "timeout_seconds": 90, "attempts": 1,
        "limits": {"memory_bytes": 1 << 30, "grace_seconds": 0.5}, "key": "k", "labels": {"a": "b"},
    }  # fmt: skip
    job = stage.post("/v1/shell", body, status=201)["id"]
    assert stage.post("/v1/shell", body, status=200)["id"] == job
    shown = stage.get(f"/v1/jobs/{job}")
    assert (shown["task"], shown["input"]) == ("shell", {"command": "make test"})
    other = stage.ask("POST", "/v1/shell", {**body, "command": "make clean"})
    assert other.status_code in (400, 409), other.text


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({}, "command"),
        ({"command": ""}, "command"),
        ({"command": "x" * 70_000}, "command"),
        ({"command": 7}, "command"),
        ({"command": "a\0b"}, "command"),
        ({"command": "a", "user": "root"}, "user"),
        ({"command": "a", "environment": {"A": 1}}, "environment"),
        ({"command": "a", "environment": {"A B": "1"}}, "the name 'A B' is not allowed"),
        ({"command": "a", "environment": {"INTERLOCK_X": "1"}}, "not INTERLOCK_"),
        ({"command": "a", "directory": "/etc"}, "below the worker's"),
        ({"command": "a", "limits": {"seconds": 1}}, "there is no limit 'seconds'"),
        ({"command": "a", "limits": {"open_files": 0}}, "open_files = 0 is not allowed"),
        ({"command": "a", "limits": {"open_files": 1e300}}, "limits"),
        ({"command": "a", "attempts": 0}, "attempts"),
        ({"command": "a", "timeout_seconds": -1}, "timeout_seconds"),
        ({"command": "a", "capabilities": ["a,b"]}, "comma"),
    ],
)
def test_a_wrong_body_is_refused(body: dict[str, Any], why: str, stage: Stage) -> None:
    answer = stage.ask("POST", "/v1/shell", body)
    assert answer.status_code in (400, 422), answer.text
    assert why in answer.text
    assert stage.get("/v1/jobs")["jobs"] == []
