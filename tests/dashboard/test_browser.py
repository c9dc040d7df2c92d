"""The pages in a real browser: nothing complains, everything fits a phone, keys work, and what happens is seen."""

import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright

from interlock.client.app import App
from interlock.client.keys import issue_key
from interlock.dashboard.sessions import make_link_token
from interlock.dashboard.site import PAGES, make_routes
from interlock.kernel.commands import (
    Claim,
    CreateKey,
    DefineSchedule,
    DefineTask,
    Finish,
    LeaseRef,
    Outcome,
    Register,
    Start,
    Submit,
    Work,
)
from interlock.kernel.ids import format_id
from interlock.server.start import serving_beside

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="LEFT OUT: there is no Chromium on this machine")


class Site:
    """A server with pages, a browser, and what the browser complained about."""

    def __init__(self, app: App, base: str, browser: Any) -> None:
        self.app, self.base, self.browser = app, base, browser
        self.complaints: list[str] = []
        self.key = issue_key(app, CreateKey(name="ann", scopes=("admin",))).text

    def open(self, **options: Any) -> Any:
        """A page of a browser that has signed in."""
        page = self.browser.new_context(**options).new_page()
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.goto(f"{self.base}/ui/enter/{make_link_token(self.key)}")
        return page

    def submit(self, task: str = "mail", **facts: Any) -> int:
        return self.app.send(Submit(work=(Work(task=task, **facts),)))[0].unit

    def claim(self) -> LeaseRef:
        worker = self.app.send(Register(name="w", incarnation="i", capacity=9))
        (grant,) = self.app.send(Claim(worker=worker, key="c", nonce="n" * 16, queues=("default",)))
        held = LeaseRef(unit=grant.unit, fence=grant.fence, lease=grant.lease)
        self.app.send(Start(held=(held,)))
        return held


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def site(browser: Any, tmp_path: Path) -> Iterator[Site]:
    with App(f"sqlite:///{tmp_path}/work.db") as app:
        app.connect()
        listener = socket.create_server(("127.0.0.1", 0))
        with serving_beside(app, listener, make_routes):
            found = Site(app, f"http://127.0.0.1:{listener.getsockname()[1]}", browser)
            yield found
            for context in browser.contexts:
                context.close()
    assert found.complaints == []


def list_paths(site: Site) -> list[str]:
    site.app.send(DefineSchedule(name="nightly", timing="0 3 * * *", work=Work(task="mail")))
    site.app.send(DefineTask(work=Work(task="mail"), parameters=None))
    job = format_id("job", site.submit(input='{"a": ["long ' + "x" * 300 + '"]}', correlation="c" * 150))
    steps = (Work(task="r", lifecycle="workflow_run", ref="r"), Work(task="sign", lifecycle="approval", parent="r", step="sign"),
             Work(task="ship", lifecycle="step", parent="r", step="ship"))  # fmt: skip
    run = site.app.send(Submit(work=steps))[0]
    held = site.claim()
    site.app.send(Finish(outcomes=(Outcome(held=held, ended="failure", error="it broke " * 50),)))
    known = {"/jobs/{id}": f"/jobs/{job}", "/runs/{id}": f"/runs/{format_id(run.lifecycle, run.unit)}",
             "/lifecycles/{name}": "/lifecycles/ci_job", "/search": "/search?q=mail", "/start/form": "/start/form?task=mail"}  # fmt: skip
    return [known.get(page.path, page.path) for page in PAGES]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_page_fits_and_the_browser_has_nothing_to_complain(site: Site, width: int, scheme: str) -> None:
    page = site.open(viewport={"width": width, "height": 800}, color_scheme=scheme)
    findings: dict[str, list[str]] = {}
    for path in list_paths(site):
        answer = page.goto(f"{site.base}/ui{path}")
        assert answer.status == 200, path
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        assert page.locator("main h1").count() == 1, path
        if width > 390:  # the same elements, wherever they stand
            findings[path] = list_findings(page)
    assert not any(findings.values()), findings


def list_findings(page: Any) -> list[str]:
    """What axe finds to be against WCAG 2.1 A and AA, each with the first element."""
    response = Axe().run(page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}).response
    return [
        f"{rule['id']}: {rule['nodes'][0]['html'][:200]} {rule['nodes'][0].get('failureSummary', '')[:300]}"
        for rule in response["violations"]
    ]


def test_pages_work_without_script(site: Site) -> None:
    unit = site.submit()
    page = site.open(java_script_enabled=False)
    page.goto(f"{site.base}/ui/jobs")
    page.get_by_role("link", name=format_id("job", unit)).click()
    page.get_by_text("Cancel…").click()
    page.get_by_placeholder("Reason").first.fill("not needed")
    page.get_by_role("button", name="Cancel").click()
    assert page.locator(".pill.big").inner_text() == "cancelled"
    page.get_by_role("link", name="One event back").click()
    assert "version=1" in page.url
    assert page.locator(".pill.big").inner_text() == "queued"


def test_what_happens_is_seen_and_what_is_typed_stays(site: Site) -> None:
    unit = site.submit()
    page = site.open()
    page.goto(f"{site.base}/ui/jobs/{format_id('job', unit)}")
    page.get_by_text("Cancel…").click()
    page.get_by_placeholder("Reason").first.fill("half a sent")
    expect(page.locator("#live")).to_have_text("live")
    held = site.claim()
    expect(page.locator(".pill.big")).to_have_text("running")
    assert page.get_by_placeholder("Reason").first.input_value() == "half a sent"
    site.app.send(Finish(outcomes=(Outcome(held=held, ended="success", result="42"),)))
    expect(page.locator(".pill.big")).to_have_text("succeeded")
    assert not page.locator("main").get_attribute("data-live")  # nothing more can happen, so nobody listens


def test_lists_grow_while_they_are_looked_at_and_can_be_paused(site: Site) -> None:
    page = site.open()
    page.goto(f"{site.base}/ui/jobs")
    expect(page.locator("#live")).to_have_text("live")
    first = site.submit()
    expect(page.get_by_role("link", name=format_id("job", first))).to_be_visible()
    page.locator("#live").click()
    expect(page.locator("#live")).to_have_text("paused")
    second = format_id("job", site.submit())
    third = site.open()
    third.goto(f"{site.base}/ui/jobs")
    expect(third.get_by_role("link", name=second)).to_be_visible()
    assert page.get_by_role("link", name=second).count() == 0
    page.locator("#live").click()
    expect(page.get_by_role("link", name=second)).to_be_visible()


def test_keys_lead_from_page_to_page(site: Site) -> None:
    page = site.open()
    for letter, path in {"j": "/ui/jobs", "i": "/ui/inbox", "l": "/ui/lifecycles", "o": "/ui/"}.items():
        page.keyboard.press("g")
        page.keyboard.press(letter)
        page.wait_for_url(f"{site.base}{path}")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_contain_text("in a list: down, up, choose, open")
    assert list_findings(page) == []
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("/")
    page.keyboard.type("nothing-has-this")
    page.keyboard.press("Enter")
    page.wait_for_url(f"{site.base}/ui/search?q=nothing-has-this")
    assert site.complaints == ["Failed to load resource: the server responded with a status of 404 (Not Found)"]
    site.complaints.clear()


def test_rows_are_chosen_and_cancelled_by_keyboard_alone_and_a_view_is_kept(site: Site) -> None:
    first, second = (format_id("job", site.submit()) for _ in range(2))
    page = site.open()
    page.goto(f"{site.base}/ui/jobs?task=mail")
    page.on("dialog", lambda dialog: dialog.accept("mine"))
    page.get_by_role("button", name="Save view…").press("Enter")
    page.goto(f"{site.base}/ui/jobs")
    expect(page.get_by_role("link", name="mine")).to_have_attribute("href", "?task=mail")
    for key in "jjx":  # the second row
        page.keyboard.press(key)
    expect(page.locator("#chosen")).to_have_text("1 chosen")
    page.get_by_placeholder("Reason").focus()
    page.keyboard.type("not needed")
    page.get_by_role("button", name="Cancel…").press("Enter")
    expect(page.locator("h1")).to_have_text("Cancel 1 jobs?")
    page.get_by_role("button", name="Cancel 1").press("Enter")
    expect(page.locator("h1")).to_have_text("Cancelled 1 of 1")
    page.get_by_role("link", name=first).press("Enter")
    expect(page.locator(".pill.big")).to_have_text("cancelled")
    page.goto(f"{site.base}/ui/jobs/{second}")
    expect(page.locator(".pill.big")).to_have_text("queued")
