"""Every operation that the API describes, with every kind of key: a route without an entry here fails the build."""

from collections.abc import Callable
from typing import Any, NamedTuple

import httpx
import msgspec
import pytest

from interlock.client import responses
from interlock.client.remote_views import RemoteView, index_remote_views
from interlock.kernel.api_keys import SCOPES, read_key
from interlock.kernel.commands import DefineTask, RevokeKey, SetTenant, Work
from interlock.kernel.ids import format_id, parse_id
from interlock.plugins import STANDARD
from interlock.store.queries import lists, views
from tests.server.stage import FOREIGN, OWN, Stage

Prepare = Callable[[Stage], tuple[str, str, Any]]  # what is there, what is not, and the body


class Entry(NamedTuple):
    """How an operation is asked; `there` and `not_there` are the last words of its path's parameter."""

    prepare: Prepare
    status: int = 200
    shared: bool = False  # the same for all tenants
    finds: bool = False  # the body names what may not be there
    plain: bool = False  # no lists: another test says what it tells whom
    besides: tuple[str, ...] = ()  # scopes that it needs with its own


def nothing(body: Any = None) -> Prepare:
    return lambda stage: ("", "", body)


def job(body: Any = None) -> Prepare:
    return lambda stage: (stage.job(), "job_zzzzzz", body)


def run(body: Any = None) -> Prepare:
    return lambda stage: (stage.run(), "workflow_run_zzzzzz", body)


def item(body: Any) -> Prepare:
    def prepare(stage: Stage) -> tuple[str, str, Any]:
        above = stage.run()
        (waits,) = [one["id"] for one in stage.get("/v1/inbox")["items"] if one["run"] == above]
        return waits, "approval_zzzzzz", body

    return prepare


def plan(stage: Stage) -> tuple[str, str, Any]:
    jobs = [{"task": "w", "lifecycle": "workstream", "ref": "w"}, {"task": "t", "lifecycle": "task", "parent": "w"}]
    made = stage.post("/v1/jobs/batch", {"jobs": jobs}, status=201)["jobs"]
    return made[0]["id"], "workstream_zzzzzz", {"word": "plan"}


def worker(stage: Stage) -> tuple[str, str, Any]:
    stage.job()
    stage.claim()
    return stage.get("/v1/workers")["workers"][0]["id"], "worker_zzzzzz", {}


def hold(stage: Stage) -> tuple[str, str, Any]:
    stage.job()
    grant = stage.claim()
    return format_id("job", grant.unit), "job_zzzzzz", {"fence": grant.fence, "lease": grant.lease}


def begun(stage: Stage) -> tuple[str, str, Any]:
    there, unknown, body = hold(stage)
    stage.post(f"/v1/jobs/{there}/start", body)
    return there, unknown, body


def artifact(stage: Stage) -> tuple[str, str, Any]:
    """One that is named as its job is: the path takes both from the same word."""
    there, unknown, body = begun(stage)
    stage.post("/v1/commands/worker", {"commands": [{
        "command": "Record", "kind": "artifact", "name": there, "payload": "1",
        "held": [{"unit": parse_id(there), **body}],
    }]})  # fmt: skip
    return there, unknown, None


def logged(stage: Stage) -> tuple[str, str, Any]:
    there, unknown, body = begun(stage)
    return there, unknown, {**body, "start": 0, "text": "a"}


def schedule(stage: Stage) -> tuple[str, str, Any]:
    stage.schedule()
    return "nightly", "none", {}


def key(stage: Stage) -> tuple[str, str, Any]:
    return stage.post("/v1/keys", {"name": "n", "scopes": ["read"]}, status=201)["id"], "key_zzzzzz", {}


STREAM = {"name": "site", "tasks": [{"name": "build"}]}


def stream(body: Any = None) -> Prepare:
    return lambda stage: (stage.post("/v1/workstreams", STREAM, status=201)["id"], "workstream_zzzzzz", body)


def cancelled_stream(stage: Stage) -> tuple[str, str, Any]:
    there = stage.post("/v1/workstreams", STREAM, status=201)["id"]
    stage.post(f"/v1/runs/{there}/cancel", {})
    return there, "workstream_zzzzzz", {}


def stream_task(state: str) -> Prepare:
    """A task in this state, which is not critical, of a workstream that goes on."""

    def prepare(stage: Stage) -> tuple[str, str, Any]:
        queue = f"{state}{stage.claims}"
        tasks = [{"name": "build", "critical": False, "queue": queue}, {"name": "other", "queue": "none"}]
        there = stage.post("/v1/workstreams", {"name": "site", "tasks": tasks}, status=201)["id"]
        named = {task["name"]: task["id"] for task in stage.get(f"/v1/workstreams/{there}/tasks")["tasks"]}
        if state == "cancelled":
            stage.post(f"/v1/jobs/{named['build']}/cancel", {"hard": True})
        if state == "running":
            stage.claim(queue=queue)
        return named["build"], "task_zzzzzz", {}

    return prepare


def agent(failed: bool = False, body: Any = None) -> Prepare:
    """An agent run with a recorded step, which has failed if that is wanted."""

    def prepare(stage: Stage) -> tuple[str, str, Any]:
        queue = f"agents{stage.claims}"
        there = stage.post("/v1/agent-runs", {"agent": "goal", "queue": queue, "budget": {"usd": 5}}, status=201)["id"]
        grant = stage.claim(queue=queue)
        held = {"unit": grant.unit, "fence": grant.fence, "lease": grant.lease}
        one = {"command": "Record", "kind": "step", "name": "plan", "payload": "1", "held": [held]}
        stage.post("/v1/commands/worker", {"commands": [one]})
        if failed:
            stage.finish(grant, ended="failure", error_class="PermanentError")
        return there, "agent_run_zzzzzz", body

    return prepare


TEMPLATE = {"name": "release", "steps": [{"task": "build"}, {"task": "sign", "lifecycle": "approval"}]}


def template(stage: Stage) -> tuple[str, str, Any]:
    stage.post("/v1/templates", TEMPLATE)
    return "release", "none", None


def task(stage: Stage) -> tuple[str, str, Any]:
    stage.app.send(DefineTask(tenant=OWN, work=Work(task="send", attempts=3)))
    return "send", "none", None


FINDING = {
    "glimpse",
    "view",
    "explain",
    "picture",
    "inbox_item",
    "why_schedule",
    "list_logs",
    "read_log_part",
    "child_named",
}  # they know that something is not there
SHARED = {"read_edges"}  # they say the same to every tenant
ASKED = {
    "ends": None,
    "limit": 1, "after": 0, "by": None, "roles": [], "checks": False, "word": "approve", "units": [1], "wanted": {},
    "name": "nightly", "attempt": None, "start": 0, "size": 1, "task": "build", "run": 1, "job": 1,
    "fingerprints": ["f"], "since": 0, "workstreams": [], "first": 0, "strict": False,
}  # fmt: skip


def seen(one: RemoteView) -> Prepare:
    """What a view takes, of a run that waits for an approval, or of a schedule."""

    def prepare(stage: Stage) -> tuple[str, str, Any]:
        stage.schedule()
        body = {name: ASKED[name] for name in one.request_type.__struct_fields__ if name in ASKED}
        if "unit" in one.request_type.__struct_fields__:
            body["unit"] = parse_id(stage.run())
        return "", "", body

    return prepare


def named(stage: Stage) -> tuple[str, str, Any]:
    """A run with a step that is named as the run is: the path takes both from the same word."""
    there = stage.run()
    stage.post("/v1/jobs", {"task": "a", "lifecycle": "step", "parent": there, "step": there}, status=201)
    return there, "workflow_run_zzzzzz", None


def seen_by_name(stage: Stage) -> tuple[str, str, Any]:
    there, _, _ = named(stage)
    return "", "", {"unit": parse_id(there), "name": there}


STEPS = {"task": "release", "steps": [{"task": "ship"}]}
RUNS = {
    "": Entry(run()),
    "_steps": Entry(run()),
    "_steps_name": Entry(named),
    "_events": Entry(run()),
    "_cost": Entry(run()),
}
ENTRIES: dict[str, Entry] = {
    "post_v1_jobs": Entry(nothing({"task": "a"}), 201),
    "post_v1_jobs_batch": Entry(nothing({"jobs": [{"task": "a"}]}), 201),
    "post_v1_shell": Entry(nothing({"command": "true"}), 201, besides=("shell",)),
    "get_metrics_server": Entry(nothing(), plain=True),
    "post_v1_jobs_cancel": Entry(nothing({"filter": {"task": "none"}})),
    "post_v1_jobs_requeue": Entry(nothing({"filter": {"task": "none"}})),
    "get_v1_jobs": Entry(nothing()),
    "get_v1_events": Entry(nothing()),
    "get_v1_jobs_id": Entry(job()),
    "get_v1_jobs_id_events": Entry(job()),
    "get_v1_jobs_id_why": Entry(job()),
    "get_v1_jobs_id_steps": Entry(job()),
    "post_v1_jobs_id_cancel": Entry(job({})),
    "post_v1_jobs_id_run_now": Entry(lambda stage: (stage.job(delay_seconds=3600), "job_zzzzzz", {})),
    "post_v1_jobs_id_rerun": Entry(lambda stage: (stage.dead(), "job_zzzzzz", {}), 201),
    "post_v1_jobs_id_approve": Entry(run({})),
    "post_v1_jobs_id_reject": Entry(run({})),
    "post_v1_jobs_id_signal": Entry(job({"name": "paid"})),
    "post_v1_jobs_id_requeue": Entry(lambda stage: (stage.dead(), "job_zzzzzz", {}), 201),
    "post_v1_jobs_id_start": Entry(hold),
    "post_v1_jobs_id_heartbeat": Entry(begun),
    "post_v1_jobs_id_finish": Entry(begun),
    "post_v1_jobs_id_release": Entry(hold),
    **{f"get_{root}runs_id{part}": entry for root in ("v1_", "") for part, entry in RUNS.items()},
    "get_v1_runs": Entry(nothing()),
    "get_runs": Entry(nothing()),
    "post_v1_runs": Entry(nothing(STEPS), 201),
    "post_runs": Entry(nothing(STEPS), 201),
    "get_v1_runs_id_why": Entry(run()),
    "get_runs_id_why": Entry(run()),
    "post_v1_runs_id_approve": Entry(run({})),
    "post_runs_id_approve": Entry(run({})),
    "post_v1_runs_id_reject": Entry(run({})),
    "post_runs_id_reject": Entry(run({})),
    "post_v1_runs_id_cancel": Entry(run({})),
    "post_runs_id_cancel": Entry(run({})),
    "post_v1_runs_id_rerun": Entry(run({}), 409),
    "post_runs_id_rerun": Entry(run({}), 409),
    "post_v1_runs_id_resume": Entry(run({}), 409),
    "post_runs_id_resume": Entry(run({}), 409),
    "get_v1_inbox": Entry(nothing()),
    "post_v1_inbox_id_approve": Entry(item({})),
    "post_v1_inbox_id_reject": Entry(item({})),
    "post_v1_inbox_id_decide": Entry(plan),
    "get_v1_dead_letters": Entry(nothing()),
    "post_v1_dead_letters_requeue": Entry(nothing({"filter": {}})),
    "get_v1_workers": Entry(nothing()),
    "post_v1_workers_id_drain": Entry(worker),
    "get_v1_schedules": Entry(nothing()),
    "post_v1_schedules_name_pause": Entry(schedule),
    "post_v1_schedules_name_resume": Entry(schedule),
    "post_v1_schedules_name_unpause": Entry(schedule),
    "get_v1_pauses": Entry(nothing()),
    "post_v1_pause": Entry(nothing({"queue": "none"})),
    "post_v1_unpause": Entry(nothing({"task": "none"})),
    "post_v1_jobs_id_pause": Entry(job({})),
    "post_v1_jobs_id_unpause": Entry(job({})),
    "post_v1_runs_id_pause": Entry(run({})),
    "post_v1_runs_id_unpause": Entry(run({})),
    "post_v1_schedules_name_remove": Entry(schedule),
    "post_v1_schedules_name_trigger": Entry(schedule, 201),
    "get_metrics": Entry(nothing(), plain=True),
    "get_v1_stats": Entry(nothing()),
    "get_v1_stats_history": Entry(nothing(), plain=True),
    "post_v1_keys": Entry(nothing({"name": "n", "scopes": ["read"]}), 201),
    "get_v1_keys": Entry(nothing(), plain=True),
    "post_v1_keys_id_rotate": Entry(key),
    "post_v1_keys_id_revoke": Entry(key),
    "get_v1_tenant": Entry(nothing(), plain=True),
    "get_v1_tasks": Entry(task),
    "get_v1_tasks_name": Entry(task),
    "post_v1_workstreams": Entry(nothing(STREAM), 201),
    "get_v1_workstreams": Entry(stream()),
    "get_v1_workstreams_id": Entry(stream()),
    "get_v1_workstreams_id_tasks": Entry(stream()),
    "get_v1_workstreams_id_progress": Entry(stream()),
    "post_v1_workstreams_id_rerun": Entry(cancelled_stream, 201),
    "post_v1_tasks_id_retry": Entry(stream_task("cancelled"), 201),
    "post_v1_tasks_id_skip": Entry(stream_task("queued")),
    "post_v1_tasks_id_reassign": Entry(stream_task("running")),
    "get_v1_workstreams_id_plan": Entry(stream()),
    "get_v1_workstreams_id_archive": Entry(lambda stage: (*cancelled_stream(stage)[:2], None)),
    "post_v1_workstreams_id_tasks": Entry(stream({"tasks": [{"name": "more"}]}), 201),
    "post_v1_agent_runs": Entry(nothing({"agent": "goal"}), 201),
    "get_v1_agent_runs_id_steps": Entry(agent()),
    "get_v1_agent_runs_id_transcript": Entry(agent()),
    "get_v1_agent_runs_id_budget": Entry(agent()),
    "get_v1_agent_runs_id_decision": Entry(agent()),
    "get_v1_agent_runs_id_contract": Entry(agent()),
    "post_v1_agent_runs_id_resume": Entry(agent(failed=True, body={"reason": "again"}), 202),
    "post_v1_agent_runs_id_fork": Entry(agent(body={"at": "plan"}), 201),
    "get_v1_templates": Entry(template),
    "get_v1_templates_name": Entry(template),
    "post_v1_templates": Entry(nothing({**TEMPLATE, "name": "other"})),
    "get_v1_lifecycles": Entry(nothing(), shared=True),
    "get_v1_lifecycles_name": Entry(lambda stage: ("job", "none", None), shared=True),
    "get_v1_lifecycles_name_mermaid": Entry(lambda stage: ("job", "none", None), shared=True),
}
ENTRIES |= {
    f"post_v1_commands_{scope}": Entry(nothing({"commands": [one]}))
    for scope, one in {
        "submit": {"command": "Submit", "work": [{"task": "a"}]},
        "operate": {"command": "Pause", "name": "none"},
        "approve": {"command": "Vote", "unit": 1, "voter": "ci"},
        "worker": {"command": "Register", "name": "w", "incarnation": "1"},
        "admin": {"command": "Force", "unit": 1, "state": "x"},
    }.items()
}
ENTRIES |= {
    f"post_v1_views_{one.name}": Entry(seen(one), finds=one.name in FINDING, shared=one.name in SHARED)
    for one in index_remote_views(STANDARD.queries).values()
}
ENTRIES |= {
    "get_v1_jobs_id_artifacts": Entry(job()),
    "get_v1_jobs_id_artifacts_name": Entry(artifact, plain=True),
    "post_v1_jobs_id_artifacts": Entry(
        lambda stage: (*begun(stage)[:2], {**begun(stage)[2], "name": "a", "digest": "x"}), 400
    ),
    "get_v1_jobs_id_log": Entry(job()),
    "get_v1_runs_id_log": Entry(run()),
    "get_v1_jobs_id_logs": Entry(job()),
    "post_v1_jobs_id_log": Entry(logged),
    # Which blobs a key reaches is shown in tests/server/test_evidence.py; this path names none.
    **{
        f"{method}_v1_{place}blobs_digest": Entry(nothing(), 400, plain=True)
        for method in ("get", "post")
        for place in ("", "worker_")
    },
}
ENTRIES["post_v1_views_child_named"] = Entry(seen_by_name, finds=True)
ENTRIES |= {
    f"post_v1_views_{name}": Entry(
        lambda stage: ("", "", {"unit": parse_id(stage.job(lifecycle="workstream", task="site"))}), finds=True
    )
    for name in ("progress", "plan")
}
ENTRIES["post_v1_views_read_ci_run"] = Entry(
    lambda stage: ("", "", {"unit": parse_id(stage.job(lifecycle="ci_run", task="ci.run"))}), finds=True
)
ENTRIES["post_v1_wait"] = Entry(nothing({"ear": "e", "queues": ["default"]}))
OPEN = {"get_healthz", "get_readyz"}


class EmptyFeed:
    """A page without events, or counts or an overview of nothing: it has a cursor or a time all the same."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, answer: object) -> bool:
        lists = ("events", "transitions", "open_tasks")
        counts = answer.get("counts", {}) if isinstance(answer, dict) else {}
        empty = isinstance(answer, dict) and ("counts" in answer or any(answer.get(name) == [] for name in lists))
        return empty and not any(answer.get(name) for name in lists) and not any(counts.values())


# What views say where nothing is.
EMPTY = (None, "", [], {}, {"count": 0, "more": False}, {"units": [], "next": None}, EmptyFeed())


def described(stage: Stage) -> list[tuple[str, str, dict[str, Any]]]:
    paths = stage.ask("GET", "/openapi.json", key="").json()["paths"]
    return [(path, method.upper(), one) for path, methods in paths.items() for method, one in methods.items()]


def bad_keys(stage: Stage, scope: str) -> dict[str, tuple[str, int]]:
    """Keys that open nothing, and what each is answered."""
    revoked = stage.key()
    _, number, _ = read_key(revoked) or (0, 0, "")
    stage.app.send(RevokeKey(key=number))
    others = [one for one in SCOPES if one not in (scope, "admin")]
    return {
        "none": ("", 401),
        "nonsense": ("nonsense", 401),
        "another secret": (stage.own[:-1] + ("0" if stage.own[-1] != "0" else "1"), 401),
        "another tenant's": (stage.own.replace(f"ilk_{OWN}_", f"ilk_{FOREIGN}_"), 401),
        "revoked": (revoked, 401),
        "expired": (stage.key(expires_us=1), 401),
        "wrong scopes": (stage.key(*others), 403),
        **({"worker": (stage.key("worker"), 403)} if scope != "worker" else {}),
    }


def same(one: httpx.Response, other: httpx.Response) -> bool:
    """Whether nobody could tell two answers apart, but by the time of day."""
    for answer in (one, other):
        answer.headers.pop("date", None)
    heads = [{**answer.headers, "x-request-id": ""} for answer in (one, other)]
    return (one.status_code, one.content, heads[0]) == (other.status_code, other.content, heads[1])


def missed(stage: Stage, path: str, body: dict[str, Any]) -> Any:
    """What is answered for something that nobody has, in the words of what was asked for."""
    other = body | ({"unit": 2**40} if "unit" in body else {"name": "none"})
    answer = stage.ask("POST", path, other, key=stage.foreign)
    assert answer.status_code == 404
    text = answer.text.replace(str(2**40), str(body.get("unit"))).replace("'none'", f"'{body.get('name')}'")
    return msgspec.json.decode(text)


@pytest.mark.req("R1-44", "R1-45", "X-04")
def test_every_operation_with_every_kind_of_key(stage: Stage) -> None:
    operations = described(stage)
    assert {one["operationId"] for _, _, one in operations} == ENTRIES.keys() | OPEN
    stage.app.send(SetTenant(tenant=3, name="empty"))
    empty = stage.key(tenant=3)
    bad = {scope: bad_keys(stage, scope) for scope in SCOPES}
    for path, method, one in operations:
        name = one["operationId"]
        if name in OPEN:
            assert stage.ask(method, path, key="").status_code == 200
            continue
        entry = ENTRIES[name]
        there, unknown, body = entry.prepare(stage)
        own, missing = (path.replace("{id}", word).replace("{name}", word) for word in (there, unknown))
        for kind, (key, status) in bad[one["x-scope"]].items():
            assert stage.ask(method, own, body, key=key).status_code == status, (name, kind)
        foreign = stage.ask(method, own, body, key=stage.foreign)
        if own != path and not entry.shared:
            assert foreign.status_code == 404, (name, foreign.text)
            assert same(foreign, stage.ask(method, missing, body, key=stage.foreign)), name
            assert same(foreign, stage.ask(method, missing, body)), name
        elif entry.finds:
            assert foreign.status_code == 404, (name, foreign.text)
            assert foreign.json() == missed(stage, path, body), name
        elif "/views/" in path and not entry.shared:
            assert stage.ask(method, path, body, key=empty).json()["answer"] in EMPTY, name
        elif method == "GET" and not entry.shared and not entry.plain:
            values = stage.ask(method, own, key=empty).json().values()
            pages = [value for value in values if isinstance(value, list)]
            assert (len(pages) > 0, any(pages)) == (True, False), name
        allowed = stage.ask(method, own, body, key=stage.key(one["x-scope"], *entry.besides))
        assert allowed.status_code == entry.status, (name, allowed.text)
        assert str(entry.status) in one["responses"], name


def test_the_policies_hold_without_the_filter(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """On PostgreSQL; a SQLite file has the filter alone, and all other tests are its own."""
    job = stage.job()
    monkeypatch.setattr(lists, "OWN", "(unit.tenant = :tenant OR unit.tenant > 0)")
    monkeypatch.setattr(views, "OWN", lists.OWN)
    monkeypatch.setattr(lists, "BORN", lists.BORN.replace("tenant = :tenant", "(tenant = :tenant OR tenant > 0)"))
    seen = stage.get("/v1/jobs", key=stage.foreign)["jobs"]
    assert [one["id"] for one in seen] == ([] if stage.app.url.startswith("postgres") else [job])


def test_the_words_of_the_lifecycles_are_in_the_api(stage: Stage) -> None:
    schemas = stage.ask("GET", "/openapi.json", key="").json()["components"]["schemas"]
    assert "workflow_run" in schemas["RunRequest"]["properties"]["lifecycle"]["enum"]
    assert "job" not in schemas["RunRequest"]["properties"]["lifecycle"]["enum"]
    assert "worker" not in schemas["JobRequest"]["properties"]["lifecycle"]["enum"]
    told = schemas[responses.JobResponse.__name__]["properties"]
    assert set(told["state"]["enum"]) == {
        state for lifecycle in stage.app.lifecycles.values() for state in lifecycle.states
    }
    assert "dead" in told["category"]["enum"]
