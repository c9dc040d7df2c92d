"""A real browser before a server with pages: what it complained about is kept, and every page has a path."""

import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from interlock.client.app import App
from interlock.client.keys import issue_key
from interlock.dashboard.sessions import make_link_token
from interlock.dashboard.site import collect_pages, make_routes
from interlock.kernel.commands import (
    Claim,
    CreateKey,
    DefineSchedule,
    DefineTask,
    Finish,
    LeaseRef,
    Outcome,
    PauseWork,
    Register,
    Start,
    Submit,
    Work,
)
from interlock.kernel.ids import format_id
from interlock.plugins import STANDARD
from interlock.server.start import serve_beside

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
expect.set_options(timeout=20_000)  # a machine may be busy
NEEDS_CHROMIUM = pytest.mark.skipif(CHROMIUM is None, reason="LEFT OUT: there is no Chromium on this machine")


class Site:
    """A server with pages, a browser, and what the browser complained about."""

    def __init__(self, app: App, base: str, browser: Any) -> None:
        self.app, self.base, self.browser = app, base, browser
        self.complaints: list[str] = []
        self.claims = 0
        self.key = issue_key(app, CreateKey(name="ann", scopes=("admin",))).text

    def open(self, **options: Any) -> Any:
        """A page of a browser that has signed in."""
        page = self.watch(self.browser.new_context(**options).new_page())
        page.goto(f"{self.base}/ui/enter/{make_link_token(self.key)}")
        return page

    def watch(self, page: Any) -> Any:
        """Keeps what a page complains about: messages of the console, as reports of the policy are, and errors."""
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        return page

    def submit(self, task: str = "mail", **facts: Any) -> int:
        return self.app.send(Submit(work=(Work(task=task, **facts),)))[0].unit

    def claim(self) -> LeaseRef:
        self.claims += 1
        worker = self.app.send(Register(name="w", incarnation="i", capacity=9))
        key = f"c{self.claims}"
        (grant,) = self.app.send(Claim(worker=worker, key=key, nonce=f"{key:0>16}", queues=("default",)))
        held = LeaseRef(unit=grant.unit, fence=grant.fence, lease=grant.lease)
        self.app.send(Start(held=(held,)))
        return held


@contextmanager
def browsing(app: App, browser: Any) -> Iterator[Site]:
    """A server beside the test, for a browser; at the end the browser has complained about nothing."""
    app.connect()
    listener = socket.create_server(("127.0.0.1", 0))
    with serve_beside(app, listener, make_routes):
        site = Site(app, f"http://127.0.0.1:{listener.getsockname()[1]}", browser)
        yield site
        for context in browser.contexts:
            context.close()
    assert not site.complaints, site.complaints


def list_paths(site: Site) -> list[str]:
    site.app.send(DefineSchedule(name="nightly", timing="0 3 * * *", work=Work(task="mail")))
    site.app.send(DefineTask(work=Work(task="mail"), parameters=None))
    job = format_id("job", site.submit(input='{"a": ["long ' + "x" * 300 + '"]}', correlation="c" * 150))
    steps = (Work(task="r", lifecycle="workflow_run", ref="r"), Work(task="sign", lifecycle="approval", parent="r", step="sign"),
             Work(task="ship", lifecycle="step", parent="r", step="ship"))  # fmt: skip
    run = site.app.send(Submit(work=steps))[0]
    held = site.claim()
    site.app.send(Finish(outcomes=(Outcome(held=held, ended="failure", error="it broke " * 50),)))
    site.app.send(PauseWork(queue="default", reason="the bank is closed until Monday, and so are we", actor="ben"))
    known = {"/jobs/{id}": f"/jobs/{job}", "/runs/{id}": f"/runs/{format_id(run.lifecycle, run.unit)}",
             "/lifecycles/{name}": "/lifecycles/ci_job", "/search": "/search?q=mail", "/start/form": "/start/form?task=mail"}  # fmt: skip
    paths = [known.get(page.path, page.path) for page in collect_pages(STANDARD) if page.template]
    return [*paths, f"/jobs/{job}?version=1", f"/runs/{format_id(run.lifecycle, run.unit)}?view=tree&gaps=cut"]


def list_findings(page: Any) -> list[str]:
    """What axe finds to be against WCAG 2.1 A and AA, each with the first element."""
    response = Axe().run(page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}).response
    return [
        f"{rule['id']}: {rule['nodes'][0]['html'][:200]} {rule['nodes'][0].get('failureSummary', '')[:300]}"
        for rule in response["violations"]
    ]
