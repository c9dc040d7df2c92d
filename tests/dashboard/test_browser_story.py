"""One story through all pages, by keyboard alone: an order is started, fails, is done again, approved and looked back at."""

import re
from typing import Any

from playwright.sync_api import expect

from interlock.kernel.commands import DefineSchedule, DefineTask, Finish, Outcome, Submit, Work
from interlock.kernel.ids import format_id
from interlock.kernel.parameters import Parameter
from tests.dashboard.browsing import NEEDS_CHROMIUM, Site, list_findings

pytestmark = NEEDS_CHROMIUM
TABS_MOST = 120
FOCUSED = """() => {
  const it = document.activeElement;
  return [it.getAttribute("aria-label"), it.labels?.[0]?.textContent, it.placeholder, it.textContent]
    .map(each => (each || "").trim()).find(Boolean) || "";
}"""


def reach(page: Any, name: str) -> None:
    """Goes on with the tab key until what has this name has the focus."""
    passed = []
    for _ in range(TABS_MOST):
        page.keyboard.press("Tab")
        focused = page.evaluate(FOCUSED)
        if focused == name:
            return
        passed.append(focused)
    raise AssertionError((name, passed))


def press(page: Any, name: str) -> None:
    """Goes to a link or a button, and presses it: another page comes."""
    reach(page, name)
    with page.expect_navigation():
        page.keyboard.press("Enter")


def unfold(page: Any, name: str) -> None:
    """Goes to what has a form in it, and opens it."""
    reach(page, name)
    page.keyboard.press("Enter")


def go(page: Any, letter: str, title: str) -> None:
    """Goes to a page by its letter."""
    page.locator("body").press("g")
    page.keyboard.press(letter)
    expect(page.locator("h1")).to_have_text(title)


def expect_state(page: Any, state: str) -> None:
    expect(page.locator(".pill.big")).to_have_text(state)


def make_shop(site: Site) -> str:
    """What the story begins with: a task, a schedule, and a run that waits for an approval."""
    site.app.send(DefineTask(work=Work(task="charge", attempts=1), parameters=(Parameter("order", ("integer",)),)))
    site.app.send(DefineSchedule(name="nightly", timing="0 3 * * *", work=Work(task="report")))
    steps = (Work(task="order", lifecycle="workflow_run", ref="run"),
             Work(task="refund", lifecycle="approval", parent="run", step="refund", input='{"cents": 61240}'))  # fmt: skip
    run = site.app.send(Submit(work=steps, actor="shop"))[0]
    return format_id(run.lifecycle, run.unit)


def test_one_story_goes_through_all_pages_by_keyboard_alone(live_site: Site) -> None:
    run = make_shop(live_site)
    page = live_site.open()

    go(page, "n", "Start a job or a run")
    press(page, "charge")
    expect(page.locator("h1")).to_have_text("Start charge")
    reach(page, "order required")
    page.keyboard.type("8812")
    press(page, "Start")
    expect_state(page, "queued")
    job = page.url.rpartition("/")[2]
    expect(page.locator("#live")).to_have_text("live")
    ended = Outcome(held=live_site.claim(), ended="failure", error="CardDeclined: do not honour")
    live_site.app.send(Finish(outcomes=(ended,)))
    expect_state(page, "dead_lettered")  # as it happens

    go(page, "o", "Overview")
    press(page, "CardDeclined")
    expect(page.locator("h1")).to_have_text("Jobs")
    page.keyboard.press("j")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    expect(page.locator(".pill.big")).to_have_text("dead_lettered")
    assert page.url.endswith(job)

    go(page, "d", "Dead letters")
    press(page, "Requeue…")
    expect(page.locator("h1")).to_have_text("Requeue 1 dead letters?")
    reach(page, "Why (kept in every event)")
    page.keyboard.type("the bank is back")
    press(page, "Go on to requeue 1")
    press(page, "Requeue 1")
    expect(page.locator("h1")).to_have_text("Requeued 1 of 1")
    new = page.locator("main a.id").last.inner_text()
    press(page, new)
    expect_state(page, "queued")
    live_site.app.send(Finish(outcomes=(Outcome(held=live_site.claim(), ended="success", result="42"),)))
    expect_state(page, "succeeded")
    reach(page, "version")
    page.keyboard.press("ArrowLeft")
    page.wait_for_url(re.compile(r"version=\d+$"))
    expect_state(page, "running")
    press(page, "Now")
    expect_state(page, "succeeded")

    go(page, "i", "Inbox")
    assert page.title().startswith("Inbox (1)")
    reach(page, "Comment on refund")
    page.keyboard.type("checked with the bank")
    press(page, "Approve")
    expect(page.get_by_text("Nothing waits for a person.")).to_be_visible()
    go(page, "r", "Runs")
    page.keyboard.press("j")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    page.wait_for_url(f"{live_site.base}/ui/runs/{run}")
    expect_state(page, "SUCCEEDED")
    press(page, "tree")
    press(page, "refund")
    expect_state(page, "SUCCEEDED")

    go(page, "q", "Queues")
    unfold(page, "Pause…")
    reach(page, "Reason")
    page.keyboard.type("the bank is closed")
    press(page, "Pause")
    expect(page.get_by_text("the bank is closed")).to_be_visible()
    unfold(page, "Unpause…")
    press(page, "Unpause")
    expect(page.get_by_text("Pause…")).to_be_visible()
    go(page, "s", "Schedules")
    press(page, "Trigger")
    go(page, "j", "Jobs")
    expect(page.locator("td.task").first).to_have_text("report")
    go(page, "w", "Workers")
    go(page, "l", "Lifecycles")
    press(page, "job")
    expect(page.locator("h1")).to_have_text("job")

    press(page, "Sign out")
    expect(page.locator("h1")).to_have_text("Sign in")
    page.goto(f"{live_site.base}/ui/jobs/{new}")  # a link from somewhere
    expect(page.locator("h1")).to_have_text("Sign in")
    assert list_findings(page) == []
    page.keyboard.type(live_site.key)  # the field has the focus
    page.keyboard.press("Enter")
    expect_state(page, "succeeded")
