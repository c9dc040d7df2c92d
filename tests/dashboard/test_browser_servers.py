"""Several tabs and servers: all show the same, one that is killed stops nobody, and nothing is done twice."""

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from interlock.client.app import App
from interlock.dashboard.sessions import make_link_token
from interlock.kernel.commands import Submit, Work
from interlock.kernel.errors import Unavailable
from interlock.kernel.ids import format_id, parse_id
from interlock.store.queries.views import events_of
from tests.dashboard.browsing import NEEDS_CHROMIUM, Site
from tests.server.serving import serving

pytestmark = NEEDS_CHROMIUM
TABS = 11


class Proxy:
    """Takes connections, and hands each to the first of some servers that is there."""

    def __init__(self, bases: Sequence[str]) -> None:
        self.places = [(urlsplit(base).hostname, urlsplit(base).port) for base in bases]
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.base = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.run, daemon=True).start()

    def run(self) -> None:
        with suppress(OSError):  # it was closed
            while True:
                client, _ = self.listener.accept()
                threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client: socket.socket) -> None:
        for place in self.places:
            with suppress(OSError):
                server = socket.create_connection(place)
                threading.Thread(target=self.pass_on, args=(client, server), daemon=True).start()
                self.pass_on(server, client)
                return
        client.close()

    def pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


@contextmanager
def proxied(bases: Sequence[str]) -> Iterator[str]:
    proxy = Proxy(bases)
    try:
        yield proxy.base
    finally:
        proxy.listener.close()


def test_two_servers_show_the_same_and_one_that_is_killed_stops_nobody(browser: Any, url: str) -> None:
    with ExitStack() as stack:
        app = stack.enter_context(App(url))
        (first, key, process), (second, _, _) = (stack.enter_context(serving(url)) for _ in range(2))
        place = stack.enter_context(proxied([first, second]))
        context = browser.new_context()
        stack.callback(context.close)
        near, far = context.new_page(), context.new_page()
        near.goto(f"{place}/ui/enter/{make_link_token(key)}")
        jobs = [format_id("job", app.send(Submit(work=(Work(task="mail"),)))[0].unit) for _ in range(2)]
        near.goto(f"{place}/ui/jobs/{jobs[0]}")
        far.goto(f"{second}/ui/jobs/{jobs[0]}")  # one session is good at both
        for page in (near, far):
            expect(page.locator("#live")).to_have_text("live")
        near.get_by_text("Cancel…").click()
        near.get_by_placeholder("Reason").first.fill("not needed")
        near.get_by_role("button", name="Cancel").click()
        for page in (near, far):
            expect(page.locator(".pill.big")).to_have_text("cancelled")

        near.goto(f"{place}/ui/jobs")
        expect(near.locator("#live")).to_have_text("live")
        again = context.new_page()
        again.goto(f"{place}/ui/jobs/{jobs[0]}")
        form = again.locator("form[action$='/rerun']")
        fields = {each.get_attribute("name"): each.input_value() for each in form.locator("input").all()}
        process.kill()
        process.wait()
        expect(near.locator("#live")).not_to_have_text("live")
        expect(near.locator("#live")).to_have_text("live")  # by itself, at the other server
        third = format_id("job", app.send(Submit(work=(Work(task="mail"),)))[0].unit)
        far.goto(f"{second}/ui/jobs")
        for page in (near, far):
            expect(page.get_by_role("link", name=third, exact=True)).to_be_visible()

        # What was loaded from the one is sent to the other, and once more: it is done once.
        for base in (place, second, second):
            answer = context.request.post(f"{base}/ui/jobs/{jobs[0]}/rerun", form=fields)
            assert answer.ok, answer.text()
        made = [job.id for job in app.jobs(task="mail")]
        assert len(made) == 4  # two, the third, and the one that does the first again
        moves = app.read(events_of, parse_id(jobs[0]), 0)
        assert [event.target for event in moves] == ["queued", "cancelled"]


def test_the_eleventh_tab_loads_and_all_of_them_are_live(site: Site) -> None:
    first = site.open()
    tabs = [first, *(site.watch(first.context.new_page()) for _ in range(TABS - 1))]
    for tab in tabs:  # all are seen at once, as in windows beside each other; over HTTP/1.1
        tab.goto(f"{site.base}/ui/jobs")
    job = format_id("job", site.submit())
    for tab in tabs:
        expect(tab.get_by_role("link", name=job, exact=True)).to_be_visible()
    tabs[0].close()  # what it had is free for another
    job = format_id("job", site.submit())
    for tab in tabs[1:]:
        expect(tab.get_by_role("link", name=job, exact=True)).to_be_visible()


def test_a_tab_that_is_hidden_listens_no_more(site: Site) -> None:
    page = site.open()
    page.goto(f"{site.base}/ui/jobs")
    expect(page.locator("#live")).to_have_text("live")
    hide = "hidden => { Object.defineProperty(document, 'hidden', {value: hidden, configurable: true}); document.dispatchEvent(new Event('visibilitychange')); }"
    with page.expect_event("requestfailed", lambda request: "/ui/live" in request.url):
        page.evaluate(hide, True)
    job = format_id("job", site.submit())
    with page.expect_request(lambda request: "/ui/live" in request.url):
        page.evaluate(hide, False)
    expect(page.get_by_role("link", name=job, exact=True)).to_be_visible()


def test_a_page_says_that_the_database_is_away_and_comes_back_by_itself(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, open_before = site.open(), site.open()
    open_before.goto(f"{site.base}/ui/jobs")
    expect(open_before.locator("#live")).to_have_text("live")

    def fail(*_: Any) -> None:
        raise Unavailable("nobody is there")

    with monkeypatch.context() as away:
        away.setattr(site.app.engine, "read", fail)
        answer = page.goto(f"{site.base}/ui/jobs")
        assert answer.status == 503
        assert answer.headers["refresh"] == "2"
        expect(page.get_by_role("alert")).to_contain_text("the database does not answer")
    job = format_id("job", site.submit())
    for each in (page, open_before):
        expect(each.get_by_role("link", name=job, exact=True)).to_be_visible()
    site.complaints = [text for text in site.complaints if "503" not in text]
