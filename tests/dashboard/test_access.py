"""Every page and every action, asked by everybody: own, foreign, nobody, and each scope."""

import re
import time
from urllib.parse import quote

import pytest

from interlock.client.app import App
from interlock.dashboard.bulk_pages import VERBS
from interlock.dashboard.pages import POLICY, WebPage
from interlock.dashboard.sessions import SIGN_IN, make_signed
from interlock.dashboard.site import ACTIONS, collect_pages
from interlock.kernel.api_keys import SCOPES, digest_of
from interlock.kernel.commands import Register, RevokeKey, RotateKey
from interlock.kernel.ids import format_id, parse_id
from interlock.plugins import STANDARD
from interlock.server.app import collect_operations
from tests.dashboard.visitor import Forms, Visitor
from tests.server.stage import Stage

SHOWS_AND_ACTS = [verb.page for verb in VERBS]  # previews show jobs, which needs `read` too
ALL_PAGES = collect_pages(STANDARD)
ALL_ACTIONS = [*ACTIONS, *(action for page in ALL_PAGES for action in page.actions)]


@pytest.fixture
def places(stage: Stage) -> dict[str, str]:
    """A path of each page that shows something of the tenant."""
    job, run = stage.job(), stage.run()
    done = stage.job(queue="done")
    stage.finish(stage.claim(queue="done"), result="1")
    return {"/jobs/{id}": f"/jobs/{job}", "/runs/{id}": f"/runs/{run}", "/lifecycles/{name}": "/lifecycles/job",
            "/jobs/{id}/input": f"/jobs/{done}/input", "/jobs/{id}/result": f"/jobs/{done}/result",
            "/start/form": "/start/form?task=mail", "/search": f"/search?q={job}"}  # fmt: skip


def store_task(stage: Stage) -> None:
    with App(stage.app.url) as app:

        @app.task
        def mail(to: str = "") -> None: ...

        app.store_definitions()


def list_scopes(page: WebPage) -> list[str]:
    """The scopes of which one is enough to see a page."""
    if page.scope is None:
        return [*SCOPES]
    return ["admin"] if page.path in SHOWS_AND_ACTS else [page.scope, "admin"]


def find_ended(stage: Stage) -> dict[str, Visitor]:
    """Those whose session is over, by why; a key is known to be void within a second."""
    revoked, rotated, expired = (Visitor(stage).sign_in(stage.key("admin")) for _ in range(3))
    keys = [visitor.cookie.split(".")[1] for visitor in (revoked, rotated)]
    stage.app.send(RevokeKey(key=parse_id(keys[0]), tenant=1))
    stage.app.send(RotateKey(key=parse_id(keys[1]), tenant=1, digest="0" * 64))
    key = stage.key("admin")
    seal = digest_of(f"seal {digest_of(key.rpartition('_')[2])}")
    expired.cookie = make_signed(SIGN_IN, 1, parse_id(key.split("_")[2]), seal, 1)
    assert expired.send("GET", "/ui/me").status_code == 200
    ended = {"revoked": revoked, "rotated": rotated, "expired": expired}
    until = time.monotonic() + 10
    while any(visitor.send("GET", "/ui/me").status_code == 200 for visitor in ended.values()):
        assert time.monotonic() < until
    return {"nobody": Visitor(stage), **ended}


def test_every_page_needs_a_session_and_its_scope(stage: Stage, places: dict[str, str]) -> None:
    store_task(stage)
    visitors = {scope: Visitor(stage).sign_in(stage.key(scope)) for scope in SCOPES}
    ended = find_ended(stage)
    for page in ALL_PAGES:
        path = f"/ui{places.get(page.path, page.path)}"
        for why, visitor in ended.items():
            answer = visitor.send("GET", path)
            assert (answer.status_code, answer.text) == (303, ""), (path, why)
            assert answer.headers["location"] == f"/ui/login?next={quote(path.rstrip('/'))}", (path, why)
        for scope, visitor in visitors.items():
            answer = visitor.send("GET", path)
            allowed = scope in list_scopes(page)
            assert (answer.status_code in (200, 303)) == allowed, (path, scope, answer.status_code)
            if not allowed:
                assert answer.status_code == 403
                assert "lacks the scope" in Forms(answer.text).text


def test_what_another_tenant_has_is_what_nobody_has(stage: Stage, places: dict[str, str]) -> None:
    store_task(stage)
    visitor = Visitor(stage).sign_in(stage.foreign)
    own = [job["id"] for job in stage.get("/v1/jobs")["jobs"]]
    assert len(own) > 3
    for page in ALL_PAGES:
        path = places.get(page.path, page.path)
        shown = visitor.send("GET", f"/ui{path}")
        if "{id}" in page.path:
            nobodys = visitor.send("GET", f"/ui{path.replace(path.split('/')[2], 'job_zzzz')}")
            assert (shown.status_code, nobodys.status_code) == (404, 404), path
            assert strip(shown.text, path.split("/")[2]) == strip(nobodys.text, "job_zzzz"), path
        assert not [unit for unit in own if unit in shown.text and unit not in path], path


def strip(text: str, unit: str) -> str:
    """A page without the tokens of its forms and the id that was asked for."""
    return re.sub(r'value="[0-9a-f]+"', "", text).replace(unit, "")


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


def list_requests(objects: dict[str, dict[str, str]]) -> list[tuple[str, str]]:
    """The path of each button, with the scope that it needs."""
    requests = []
    for action in ALL_ACTIONS:
        path = action.path
        for name, value in objects[path.split("/")[1]].items():
            path = path.replace(f"{{{name}}}", value)
        requests.append((f"/ui{path}", SCOPE_OF[action.operation]))
    job = objects["jobs"]["id"]
    requests += [(f"/ui/jobs/{job}/bury", "operate"), ("/ui/start/form", "submit")]
    return requests + [(f"/ui{verb.page}", "operate") for verb in VERBS]


SCOPE_OF = {operation.path: operation.scope for operation in collect_operations(STANDARD) if operation.changes}


def test_every_action_needs_a_session_and_the_token_of_its_form(
    stage: Stage, objects: dict[str, dict[str, str]]
) -> None:
    visitor, other = Visitor(stage).sign_in(stage.own), Visitor(stage).sign_in(stage.own)
    stale = visitor.open("/ui/jobs").find("/ui/logout")["fields"]["form_token"]
    visitor.sign_in(stage.own)  # anew: what the session before has loaded is good no more
    foreign = other.open("/ui/jobs").find("/ui/logout")["fields"]["form_token"]
    ended = find_ended(stage)
    before = stage.get("/v1/events?limit=1000")["next"]
    for path, _ in list_requests(objects):
        for why, gone in ended.items():
            assert gone.send("POST", path, data={"form_token": foreign}).status_code == 401, (path, why)
        for token in ("", "00" * 64, foreign, stale, "é", None):
            answer = visitor.send(
                "POST", path, data={"reason": "x", **({} if token is None else {"form_token": token})}
            )
            assert answer.status_code == 403, (path, token)
        assert visitor.send("POST", path, json={}).status_code == 415
        if not path.startswith(("/ui/start", *(f"/ui{verb.page}" for verb in VERBS))):
            assert visitor.send("GET", path).status_code in (404, 405), path
    assert stage.get("/v1/events?limit=1000")["next"] == before


def test_every_action_needs_the_scope_of_what_it_sends(stage: Stage, objects: dict[str, dict[str, str]]) -> None:
    own = {scope: Visitor(stage).sign_in(stage.key(scope)) for scope in SCOPES if scope != "admin"}
    tokens = {
        scope: visitor.open("/ui/me").find("/ui/logout")["fields"]["form_token"] for scope, visitor in own.items()
    }
    stranger = Visitor(stage).sign_in(stage.foreign)
    store_task(stage)
    strange = stranger.open("/ui/me").find("/ui/logout")["fields"]["form_token"]
    before = stage.get("/v1/events?limit=1000")["next"]
    for path, needed in list_requests(objects):
        for scope, visitor in own.items():
            if scope != needed:
                fields = {
                    "form_token": tokens[scope],
                    "all": "true",
                    "confirm": "x",
                    "reason": "operator",
                    "task": "mail",
                }
                answer = visitor.send("POST", path, data=fields)
                assert answer.status_code == 403, (path, scope, answer.status_code)
                assert "lacks the scope" in Forms(answer.text).text, (path, scope)
        if any(each in path for known in objects.values() for each in known.values() if "_" in each):
            answer = stranger.send("POST", path, data={"form_token": strange, "reason": "operator", "word": "x"})
            assert answer.status_code == 404, path
            assert "mail" not in answer.text, path
    assert stage.get("/v1/events?limit=1000")["next"] == before


def test_no_page_may_load_or_frame_anything_else(visitor: Visitor, places: dict[str, str], stage: Stage) -> None:
    store_task(stage)
    for page in ALL_PAGES:
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
