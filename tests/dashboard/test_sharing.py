"""Open pages are sent anew when something happens: once for all who look, each with a token of its own."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from interlock.client.app import App
from interlock.client.keys import issue_key
from interlock.dashboard.pages import Site
from interlock.dashboard.sharing import SharedAnswers
from interlock.dashboard.site import make_routes
from interlock.kernel.commands import Cancel, CreateKey, RevokeKey, Submit, Work
from interlock.kernel.ids import format_id, parse_id
from interlock.server.start import serve_beside
from tests.dashboard.visitor import Forms


class Shop:
    """A server with pages, and sessions of it."""

    def __init__(self, app: App, base: str) -> None:
        self.app, self.base, self.clients = app, base, list[httpx.Client]()

    def make_key(self, *scopes: str) -> str:
        return issue_key(self.app, CreateKey(name="ann", scopes=scopes or ("admin",))).text

    def sign_in(self, key: str) -> httpx.Client:
        client = httpx.Client(base_url=self.base, timeout=30)
        self.clients.append(client)
        assert client.post("/ui/login", data={"key": key}).status_code == 303
        return client

    def submit(self, task: str = "mail") -> str:
        return format_id("job", self.app.send(Submit(work=(Work(task=task),)))[0].unit)


@pytest.fixture
def shop(url: str) -> Iterator[Shop]:
    with App(url) as app:
        app.connect()
        listener = socket.create_server(("127.0.0.1", 0))
        with serve_beside(app, listener, make_routes):
            shop = Shop(app, f"http://127.0.0.1:{listener.getsockname()[1]}")
            yield shop
            for client in shop.clients:
                client.close()


@contextmanager
def following(client: httpx.Client, page: str, **query: str) -> Iterator[Iterator[dict[str, str]]]:
    """What an open page is sent, from the moment on at which the server listens for it."""
    asked = "&".join(f"{name}={quote(value, safe='')}" for name, value in {"page": page, **query}.items())
    with client.stream("GET", f"/ui/live?{asked}") as answer:
        assert answer.status_code == 200, answer.read()
        lines = answer.iter_lines()
        assert next(lines) == ": still here"  # the first word
        yield read_events(lines)


def read_events(lines: Iterator[str]) -> Iterator[dict[str, str]]:
    event: dict[str, list[str]] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        if line:
            event.setdefault(name, []).append(value)
        else:
            if "event" in event:
                yield {name: "\n".join(values) for name, values in event.items()}
            event = {}


def test_those_who_look_at_a_page_are_sent_one_answer_each_with_its_own_token(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = list[tuple[str, tuple[str, ...]]]()
    make_text = Site.make_text

    async def count(site: Site, page: Any, request: Any, refusal: str = "") -> str:
        made.append((page.path, request.caller.scopes))
        return await make_text(site, page, request, refusal)

    key, other = shop.make_key(), shop.make_key("read", "operate")
    first, second, third = shop.sign_in(key), shop.sign_in(key), shop.sign_in(other)
    with following(first, "/queues") as near, following(second, "/queues") as far, following(third, "/queues") as aside:
        monkeypatch.setattr(Site, "make_text", count)
        for _ in range(20):  # unless they are told of it on both sides of an instant
            made.clear()
            shop.submit()
            texts = [next(each)["data"] for each in (near, far, aside)]
            if len(made) == 2:
                break
    assert sorted(made) == [("/queues", ("admin",)), ("/queues", ("operate", "read"))]
    assert all("default" in Forms(text).text for text in texts)
    forms = [[form for form in Forms(text).forms if form["action"] == "/ui/queues/pause"] for text in texts[:2]]
    fields = [form["fields"] for (form,) in forms]
    assert fields[0]["form_token"] != fields[1]["form_token"]
    assert fields[0]["form_key"] != fields[1]["form_key"]
    for client, own in zip((first, second), fields, strict=True):
        assert client.post("/ui/queues/pause", data=own).status_code == 303
        assert client.post("/ui/queues/unpause", data=own).status_code == 303


def test_a_page_is_sent_as_its_url_says_and_the_stream_of_what_has_ended_ends(shop: Shop) -> None:
    client, job = shop.sign_in(shop.make_key()), shop.submit("other")
    with following(client, "/jobs?task=mail") as shown:
        mail = shop.submit()
        event = next(shown)
    assert f"row-{mail}" in event["data"]
    assert f"row-{job}" not in event["data"]
    assert event["data"].startswith("<title>")
    with following(client, f"/jobs/{job}", run=job) as shown:
        shop.app.send(Cancel(unit=parse_id(job.removeprefix("job_")), reason="not needed"))
        events = list(shown)  # and then it ends by itself
    assert "cancelled" in events[-1]["data"]
    assert "data-live" not in events[-1]["data"]


def test_a_stream_goes_on_behind_what_it_sent_last(shop: Shop) -> None:
    client = shop.sign_in(shop.make_key())
    with following(client, "/jobs") as shown:
        shop.submit()
        last = next(shown)["id"]
    missed = shop.submit("missed")
    with client.stream("GET", "/ui/live?page=/jobs", headers={"Last-Event-ID": last}) as answer:
        event = next(read_events(answer.iter_lines()))
    assert missed in event["data"]


def test_what_a_key_may_not_see_is_not_sent_and_a_key_that_is_revoked_is_sent_nothing_more(shop: Shop) -> None:
    blind, key = shop.sign_in(shop.make_key("submit")), shop.make_key()
    for page, status in (("/jobs", 403), ("/nowhere", 404), ("/jobs/x/y/z", 404)):
        assert blind.get("/ui/live", params={"page": page}).status_code == status, page
    assert httpx.get(f"{shop.base}/ui/live?page=/jobs").status_code == 401
    with following(shop.sign_in(key), "/jobs") as shown:
        shop.app.send(RevokeKey(key=parse_id(key.split("_")[2]), tenant=1))
        assert list(shown) == []


def test_an_answer_is_made_once_and_outlives_the_first_who_asked() -> None:
    async def play() -> None:
        shared, made, may_end = SharedAnswers(), list[int](), asyncio.Event()

        async def make() -> str:
            made.append(1)
            await may_end.wait()
            return "page"

        instant = await shared.wait_for_instant()
        first = asyncio.create_task(shared.share(instant, "key", make))
        others = [asyncio.create_task(shared.share(instant, "key", make)) for _ in range(9)]
        while not made:
            await asyncio.sleep(0)
        first.cancel()
        may_end.set()
        assert await asyncio.gather(*others) == ["page"] * 9
        assert len(made) == 1
        assert await shared.share(instant, "other key", make) == "page"
        assert await shared.share(instant + 1, "key", make) == "page"  # what is later is made anew
        assert await shared.share(instant, "key", make) == "page"  # and who is late gets one of their own
        assert len(made) == 4

    asyncio.run(play())
