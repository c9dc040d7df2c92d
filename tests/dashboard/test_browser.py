"""The pages in a real browser: nothing complains, everything fits a phone, keys work, and what happens is seen."""

import pytest
from playwright.sync_api import expect

from interlock.kernel.commands import Finish, Outcome
from interlock.kernel.ids import format_id
from tests.dashboard.browsing import NEEDS_CHROMIUM, Site, list_findings, list_paths

pytestmark = NEEDS_CHROMIUM
CUT_OFF = """() => [...document.querySelectorAll("main button, main .button")]
  .filter(each => each.getClientRects().length && each.getBoundingClientRect().right > innerWidth)
  .map(each => each.textContent)"""


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
        assert page.evaluate(CUT_OFF) == [], path
        findings[path] = list_findings(page)
    assert not any(findings.values()), findings


def test_pages_work_without_script(live_site: Site) -> None:
    unit = live_site.submit()
    page = live_site.open(java_script_enabled=False)
    page.goto(f"{live_site.base}/ui/jobs")
    page.get_by_role("link", name=format_id("job", unit)).click()
    page.get_by_text("Cancel…").click()
    page.get_by_placeholder("Reason").first.fill("not needed")
    page.get_by_role("button", name="Cancel").click()
    assert page.locator(".pill.big").inner_text() == "cancelled"
    page.get_by_role("link", name="One event back").click()
    assert "version=1" in page.url
    assert page.locator(".pill.big").inner_text() == "queued"


def test_what_happens_is_seen_and_what_is_typed_stays(live_site: Site) -> None:
    unit = live_site.submit()
    page = live_site.open()
    page.goto(f"{live_site.base}/ui/jobs/{format_id('job', unit)}")
    page.get_by_text("Cancel…").click()
    page.get_by_placeholder("Reason").first.fill("half a sent")
    expect(page.locator("#live")).to_have_text("live")
    held = live_site.claim()
    expect(page.locator(".pill.big")).to_have_text("running")
    assert page.get_by_placeholder("Reason").first.input_value() == "half a sent"
    live_site.app.send(Finish(outcomes=(Outcome(held=held, ended="success", result="42"),)))
    expect(page.locator(".pill.big")).to_have_text("succeeded")
    assert not page.locator("main").get_attribute("data-live")  # nothing more can happen, so nobody listens


def test_lists_grow_while_they_are_looked_at_and_can_be_paused(live_site: Site) -> None:
    page = live_site.open()
    page.goto(f"{live_site.base}/ui/jobs")
    expect(page.locator("#live")).to_have_text("live")
    first = live_site.submit()
    expect(page.get_by_role("link", name=format_id("job", first))).to_be_visible()
    page.locator("#live").click()
    expect(page.locator("#live")).to_have_text("paused")
    second = format_id("job", live_site.submit())
    third = live_site.open()
    third.goto(f"{live_site.base}/ui/jobs")
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


def test_rows_are_chosen_and_cancelled_by_keyboard_alone_and_a_view_is_kept(live_site: Site) -> None:
    first, second = (format_id("job", live_site.submit()) for _ in range(2))
    page = live_site.open()
    page.goto(f"{live_site.base}/ui/jobs?task=mail")
    page.on("dialog", lambda dialog: dialog.accept("mine"))
    page.get_by_role("button", name="Save view…").press("Enter")
    page.goto(f"{live_site.base}/ui/jobs")
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
    page.goto(f"{live_site.base}/ui/jobs/{second}")
    expect(page.locator(".pill.big")).to_have_text("queued")
