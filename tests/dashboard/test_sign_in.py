"""Signing in and out: cookies that stand for a key, links that sign in once, and forms that only our pages send."""

import time
from functools import partial

import pytest
from litestar.testing import TestClient

from interlock.client.app import App
from interlock.dashboard import sessions
from interlock.dashboard.pages import parse_public_url
from interlock.dashboard.sessions import make_link_token
from interlock.dashboard.site import choose_next, make_routes
from interlock.kernel.commands import RevokeKey, RotateKey
from interlock.kernel.errors import InterlockError
from interlock.kernel.ids import parse_id
from interlock.server.app import build_app
from tests.dashboard.visitor import Forms, Visitor
from tests.server.stage import MANY, Stage


def test_who_has_not_signed_in_is_led_to_it_and_then_to_the_page(stage: Stage) -> None:
    visitor = Visitor(stage)
    answer = visitor.send("GET", "/ui/jobs?task=mail")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/ui/login?next=/ui/jobs%3Ftask%3Dmail"
    form = visitor.open(answer.headers["location"]).forms[-1]
    assert form["fields"]["next"] == "/ui/jobs?task=mail"
    done = visitor.send("POST", "/ui/login", data={**form["fields"], "key": stage.own})
    assert (done.status_code, done.headers["location"]) == (303, "/ui/jobs?task=mail")


def test_a_cookie_is_kept_from_scripts_and_from_the_api(stage: Stage) -> None:
    answer = Visitor(stage).send("POST", "/ui/login", data={"key": stage.own})
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "Path=/ui" in cookie
    assert "samesite=lax" in cookie.lower()
    assert "Secure" not in cookie  # it stays on this machine
    assert stage.own.rpartition("_")[2] not in cookie


@pytest.mark.parametrize("key", ["", "nonsense", "ilk_1_1_" + "0" * 64, "ilk_99_1_" + "0" * 64])
def test_a_wrong_key_is_refused(stage: Stage, key: str) -> None:
    answer = Visitor(stage).send("POST", "/ui/login", data={"key": key})
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    assert "this key is not valid" in Forms(answer.text).text


def test_after_five_wrong_secrets_of_a_key_this_key_has_to_wait_and_others_do_not(stage: Stage) -> None:
    wrong = stage.own[:-4] + "0000"
    visitor = Visitor(stage)
    assert [visitor.send("POST", "/ui/login", data={"key": wrong}).status_code for _ in range(6)] == [401] * 5 + [429]
    assert visitor.send("POST", "/ui/login", data={"key": stage.own}).status_code == 429
    assert visitor.send("POST", "/ui/login", data={"key": stage.key("read")}).status_code == 303


@pytest.mark.parametrize("order", [RevokeKey, RotateKey])
def test_a_key_that_is_revoked_or_rotated_ends_its_sessions(stage: Stage, order: type) -> None:
    key = stage.key("read")
    visitor = Visitor(stage).sign_in(key)
    visitor.open("/ui/jobs")
    number = parse_id(key.split("_")[2])
    more = {"digest": "0" * 64} if order is RotateKey else {}
    stage.app.send(order(key=number, tenant=1, **more))
    until = time.monotonic() + 10
    while visitor.send("GET", "/ui/jobs").status_code != 303:
        assert time.monotonic() < until
    assert visitor.send("GET", "/ui/jobs").headers["location"].startswith("/ui/login")


def test_a_session_that_is_over_or_forged_is_none(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    visitor = Visitor(stage).sign_in(stage.own)
    good = visitor.cookie
    tenant, key, end, nonce, signature = good.split(".")
    forged = [
        "", "x", good[:-1] + ("0" if good[-1] != "0" else "1"), f"2.{key}.{end}.{nonce}.{signature}",
        f"{tenant}.{key}.{int(end) + 1}.{nonce}.{signature}", f"{tenant}.zzzzzzzzzzzzz.{end}.{nonce}.{signature}",
        f"99999999999.{key}.{end}.{nonce}.{signature}", good + ".x", "é" * 20, "." * 400, "1" * 600,
    ]  # fmt: skip
    for cookie in forged:
        visitor.cookie = cookie if cookie.isascii() else ""
        assert visitor.send("GET", "/ui/jobs").status_code == 303, cookie
    visitor.cookie = make_link_token(stage.own)  # signed for another purpose
    assert visitor.send("GET", "/ui/jobs").status_code == 303
    visitor.cookie = good
    visitor.open("/ui/jobs")
    later = time.time() + sessions.LASTS_SECONDS + 1
    monkeypatch.setattr(sessions.time, "time", lambda: later)
    assert visitor.send("GET", "/ui/jobs").status_code == 303


def test_a_link_signs_in_once_and_for_ten_minutes(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    visitor, token = Visitor(stage), make_link_token(stage.own)
    answer = visitor.send("GET", f"/ui/enter/{token}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/")
    assert visitor.send("GET", f"/ui/enter/{token}").status_code == 401
    visitor.cookie = str(answer.cookies.get("interlock_session"))
    visitor.open("/ui/jobs")
    late = make_link_token(stage.own)
    later = time.time() + sessions.LINK_SECONDS + 1
    monkeypatch.setattr(sessions.time, "time", lambda: later)
    assert visitor.send("GET", f"/ui/enter/{late}").status_code == 401


def test_signing_out_takes_the_cookie_away(visitor: Visitor) -> None:
    answer = visitor.press("/ui/jobs", "/ui/logout")
    assert answer.headers["location"] == "/ui/login"
    assert "Max-Age=0" in answer.headers["set-cookie"]
    assert visitor.send("POST", "/ui/logout", data={"form_token": "x"}).status_code == 403


@pytest.mark.parametrize(
    ("wanted", "place"),
    [
        ("/ui/jobs?task=a", "/ui/jobs?task=a"), ("", "/ui/"), ("https://evil.example", "/ui/"),
        ("//evil.example/ui/", "/ui/"), ("/\\evil.example", "/ui/"), ("/ui/\\evil", "/ui/"), ("/v1/jobs", "/ui/"),
        ("/ui/\r\nSet-Cookie: a=b", "/ui/"), ("javascript:alert(1)", "/ui/"),
    ],
)  # fmt: skip
def test_signing_in_leads_to_our_own_pages_alone(wanted: str, place: str) -> None:
    assert choose_next(wanted) == place


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "", "[::1", "10.0.0.1"]
)
def test_pages_are_served_to_this_machine_alone(visitor: Visitor, host: str) -> None:
    answer = visitor.send("GET", "/ui/jobs", headers={"Host": host})
    assert answer.status_code == 400
    assert "--public-url" in Forms(answer.text).text


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost", "[::1]:80", "127.8.8.8"])
def test_every_name_of_this_machine_is_served(visitor: Visitor, host: str) -> None:
    assert visitor.send("GET", "/ui/jobs", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Origin": "http://127.0.0.1:9000"},
        {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"},
    ],
)  # fmt: skip
def test_forms_of_other_sites_are_refused(visitor: Visitor, stage: Stage, headers: dict[str, str]) -> None:
    job = stage.job()
    form = visitor.open(f"/ui/jobs/{job}").find(f"/ui/jobs/{job}/cancel")
    assert visitor.send("POST", form["action"], headers=headers, data=form["fields"]).status_code == 403
    assert visitor.send("POST", "/ui/login", headers=headers, data={"key": stage.own}).status_code == 403
    assert stage.get(f"/v1/jobs/{job}")["state"] == "queued"


def test_with_a_public_url_cookies_are_secure_and_the_host_is_that_one(url: str) -> None:
    public = parse_public_url("https://jobs.example.com/team")
    app = App(url)
    pages = partial(make_routes, public=public)
    with TestClient(build_app(app, limits=MANY, make_pages=pages), base_url="http://jobs.example.com") as client:
        stage = Stage(app, client)
        visitor = Visitor(stage)
        answer = visitor.send(
            "POST", "/ui/login", data={"key": stage.own}, headers={"Origin": "https://jobs.example.com"}
        )
        assert answer.status_code == 303
        assert answer.headers["location"] == "/team/ui/"
        assert "Secure" in answer.headers["set-cookie"]
        assert "Path=/team/ui" in answer.headers["set-cookie"]
        assert visitor.send("GET", "/ui/jobs", headers={"Host": "evil.example"}).status_code == 400


def test_a_key_is_not_taken_over_plain_http_of_a_network(url: str) -> None:
    app = App(url)
    pages = partial(make_routes, public=parse_public_url("http://jobs.example.com"))
    with TestClient(build_app(app, limits=MANY, make_pages=pages), base_url="http://jobs.example.com") as client:
        stage = Stage(app, client)
        answer = Visitor(stage).send("POST", "/ui/login", data={"key": stage.own})
        assert answer.status_code == 403
        assert "--tls-cert" in Forms(answer.text).text


@pytest.mark.parametrize(
    "text", ["jobs.example.com", "ftp://a", "https://", "https://a?b", "https://u@a", "http://[::1"]
)
def test_a_public_url_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InterlockError, match="--public-url"):
        parse_public_url(text)
