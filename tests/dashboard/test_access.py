"""Every page and every action, asked by everybody: own, foreign, nobody, and each scope."""

import re
from typing import Any

import pytest

from interlock.client.app import App
from interlock.dashboard.bulk_pages import VERBS
from interlock.dashboard.pages import POLICY
from interlock.dashboard.site import ACTIONS, PAGES
from interlock.kernel.api_keys import SCOPES
from interlock.kernel.commands import Register
from interlock.kernel.ids import format_id
from tests.dashboard.visitor import Forms, Visitor
from tests.server.stage import Stage


@pytest.fixture
def places(stage: Stage) -> dict[str, str]:
    """A path of each page that shows something of the tenant."""
    job, run = stage.job(), stage.run()
    return {"/jobs/{id}": f"/jobs/{job}", "/runs/{id}": f"/runs/{run}", "/lifecycles/{name}": "/lifecycles/job",
            "/start/form": "/start/form?task=mail", "/search": f"/search?q={job}"}  # fmt: skip


def store_task(stage: Stage) -> None:
    with App(stage.app.url) as app:

        @app.task
        def mail(to: str = "") -> None: ...

        app.store_definitions()


def test_every_page_needs_a_session_and_its_scope(stage: Stage, places: dict[str, str]) -> None:
    store_task(stage)
    visitors = {scope: Visitor(stage).sign_in(stage.key(scope)) for scope in SCOPES}
    nobody = Visitor(stage)
    for page in PAGES:
        path = f"/ui{places.get(page.path, page.path)}"
        assert nobody.send("GET", path).headers["location"].startswith("/ui/login"), path
        for scope, visitor in visitors.items():
            answer = visitor.send("GET", path)
            allowed = page.scope is None or scope in (page.scope, "admin")
            if page.path in [verb.page for verb in VERBS] and scope == "operate":
                allowed = False  # it shows jobs, which needs `read` too
            assert (answer.status_code in (200, 303)) == allowed, (path, scope, answer.status_code)
            if not allowed:
                assert answer.status_code == 403
                assert "lacks the scope" in Forms(answer.text).text


def test_what_another_tenant_has_is_what_nobody_has(stage: Stage) -> None:
    foreign = stage.job(key=stage.foreign)
    visitor = Visitor(stage).sign_in(stage.own)
    page = visitor.get(f"/ui/jobs/{foreign}", 404)
    other = visitor.get("/ui/jobs/job_zzzz", 404)

    def strip(text: str) -> str:
        return re.sub(r'value="[0-9a-f]+"', "", text)

    assert strip(page) == strip(other)
    assert "mail" not in page
    assert foreign not in visitor.get("/ui/jobs")


@pytest.fixture
def objects(stage: Stage) -> dict[str, dict[str, str]]:
    """For each kind of action, what it can be done to."""
    stage.schedule()
    worker = stage.app.send(Register(name="w", incarnation="i", capacity=1, tenant=1))
    run = stage.run()
    approval = stage.get("/v1/inbox")["items"][0]["id"]
    return {
        "jobs": {"id": stage.job()}, "runs": {"id": run}, "inbox": {"id": approval}, "queues": {"name": "default"},
        "schedules": {"name": "nightly"}, "workers": {"id": format_id("worker", worker)},
    }  # fmt: skip


def list_requests(objects: dict[str, dict[str, str]]) -> list[tuple[Any, str]]:
    requests = []
    for action in ACTIONS:
        path = action.path
        for name, value in objects[path.split("/")[1]].items():
            path = path.replace(f"{{{name}}}", value)
        requests.append((action, f"/ui{path}"))
    return requests


def test_every_action_needs_a_session_and_the_token_of_its_form(
    stage: Stage, objects: dict[str, dict[str, str]]
) -> None:
    visitor, other = Visitor(stage).sign_in(stage.own), Visitor(stage).sign_in(stage.own)
    foreign = other.open("/ui/jobs").find("/ui/logout")["fields"]["form_token"]
    before = stage.get("/v1/events?limit=1000")["next"]
    for _, path in list_requests(objects):
        assert Visitor(stage).send("POST", path, data={}).status_code == 401, path
        for token in (
            {"reason": "x"},
            {"form_token": ""},
            {"form_token": "00" * 64},
            {"form_token": foreign},
            {"form_token": "é"},
        ):
            answer = visitor.send("POST", path, data=token)
            assert answer.status_code == 403, (path, token)
        assert visitor.send("POST", path, json={}).status_code == 415
        assert visitor.send("GET", path).status_code in (404, 405), path
    assert stage.get("/v1/events?limit=1000")["next"] == before


def test_every_action_needs_the_scope_of_what_it_sends(stage: Stage, objects: dict[str, dict[str, str]]) -> None:
    reader = Visitor(stage).sign_in(stage.key("read"))
    token = reader.open("/ui/jobs").find("/ui/logout")["fields"]["form_token"]
    before = stage.get("/v1/events?limit=1000")["next"]
    for _, path in list_requests(objects):
        answer = reader.send("POST", path, data={"form_token": token})
        assert answer.status_code == 403, (path, answer.status_code)
        assert "lacks the scope" in Forms(answer.text).text
    assert stage.get("/v1/events?limit=1000")["next"] == before


def test_no_page_may_load_or_frame_anything_else(visitor: Visitor, places: dict[str, str], stage: Stage) -> None:
    store_task(stage)
    for page in PAGES:
        answer = visitor.send("GET", f"/ui{places.get(page.path, page.path)}")
        assert answer.headers["content-security-policy"] == POLICY
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["cache-control"] == "no-store"
        for tag, own in Forms(answer.text).tags:
            assert "style" not in own, (page.path, tag)
            assert not any(name.startswith("on") for name in own), (page.path, tag)
            assert tag != "style"
            assert not (own.get("src") or "").startswith(("http:", "https:", "//"))


def test_who_has_not_signed_in_gets_the_policy_too(stage: Stage) -> None:
    for path in ("/", "/ui/login"):
        answer = stage.ask("GET", path, key="")
        policy = answer.headers.get("content-security-policy", "")
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; "), (
            path,
            answer.status_code,
        )
        assert policy.endswith("frame-ancestors 'none'")


def test_files_of_the_pages_are_sent_and_no_others(stage: Stage) -> None:
    for name, media in (("interlock.css", "text/css"), ("interlock.js", "javascript")):
        answer = stage.client.get(f"/ui/static/{name}")
        assert answer.status_code == 200
        assert media in answer.headers["content-type"]
    for name in ("..%2Fsite.py", "none.css"):
        assert stage.client.get(f"/ui/static/{name}").status_code == 404
