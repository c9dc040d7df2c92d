"""Makes the pictures of docs/page.md: a shop's work on a database of its own, and a browser that looks at its pages.

`make pictures` runs it, and needs Chromium.
"""

import asyncio
import socket
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

import interlock
from interlock.client.keys import issue_key
from interlock.dashboard.sessions import make_link_token
from interlock.dashboard.site import make_routes
from interlock.kernel.commands import CreateKey, DefineSchedule, Submit, Vote, Work
from interlock.kernel.ids import format_id
from interlock.server.start import serve_beside
from interlock.worker.loop import Worker

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.dashboard.browsing import CHROMIUM

FOLDER = Path(__file__).parent.parent / "docs" / "images"
HEIGHT, HOUR_US = 860, 3_600_000_000
# What stands behind the name of a picture, how wide it is, in which theme, and of which pages; none: of all.
PICTURES = (("", 1280, "light", ()), ("-dark", 1280, "dark", ("job",)), ("-phone", 390, "light", ("inbox",)))


def run_shop(app: interlock.App) -> dict[str, str]:
    """Does a shop's work, and returns the pages that tell of order 8812, which a customer sends back."""

    @app.task
    def reserve(order: int) -> str:
        return f"reserved for {order}"

    @app.task(queue="charge", attempts=4, backoff="300ms")
    def charge_card(order: int, ctx: interlock.Context) -> dict[str, Any]:
        ctx.step("authorize", lambda: "authorized")
        if order == 8812 and ctx.attempt < 3:
            raise interlock.TransientError("the bank did not answer within 2 s")
        return {"order": order, "paid": {"cents": 61240, "currency": "EUR"}}

    @app.task(queue="mail", attempts=3, backoff="100ms")
    def send_mail(order: int, ctx: interlock.Context) -> str:
        if order % 5 == 0 and ctx.attempt == 1:
            raise interlock.TransientError("mail server: 451 try again later")
        return "sent"

    @app.task(queue="reports", attempts=1)
    def report(day: str) -> None:
        raise ValueError(f"no sales on {day}")

    app.store_definitions()
    order = '{"order": 8812}'
    refund = '{"order": 8812, "amount": {"cents": 61240, "currency": "EUR"}, "why": "both items came back"}'
    price_list = '{"week": "2026-W47", "articles": 1204, "largest change": "38 %"}'
    steps = (
        Work(task="order", lifecycle="workflow_run", ref="run", correlation="order-8812"),
        Work(task="reserve", lifecycle="step", parent="run", step="reserve", ref="reserve", input=order),
        Work(task="charge_card", lifecycle="step", parent="run", step="charge_card", ref="charge", input=order,
             queue="charge", attempts=4, backoff_us=300_000),
        Work(task="send_mail", lifecycle="step", parent="run", step="confirm", needs=("charge",), input=order,
             queue="mail"),
        Work(task="refund over 500 €", lifecycle="approval", parent="run", step="refund", ref="refund",
             needs=("reserve", "charge"), quorum=2, approvers=("managers",), expires_us=4 * HOUR_US, input=refund),
        Work(task="reserve", lifecycle="step", parent="run", step="pay_back", needs=("refund",), input=order),
    )  # fmt: skip
    run = app.send(Submit(work=steps, actor="shop"))[0]
    app.send(Submit(actor="shop", work=(
        Work(task="prices", lifecycle="workflow_run", ref="run"),
        Work(task="publish price list", lifecycle="approval", parent="run", step="publish", input=price_list),
    )))  # fmt: skip
    app.send(DefineSchedule(name="nightly report", timing="0 3 * * *", work=Work(task="report")))
    jobs = [charge_card.submit(number, key=f"order-{number}") for number in range(8770, 8813)]
    others = [send_mail.submit(number) for number in range(90)]
    others += [report.submit(f"2026-11-{day:02}") for day in range(1, 6)]
    worker = Worker(app, {"default": 8, "charge": 4, "mail": 4, "reports": 2}, name="shop-1")
    threading.Thread(target=lambda: asyncio.run(worker.run()), daemon=True).start()
    for job in (*jobs, *others):
        with suppress(interlock.InterlockError):  # reports fail
            job.wait(60)
    until = time.monotonic() + 60
    while not any(item.task.startswith("refund") for item in app.inbox()):
        assert time.monotonic() < until
    (wanted,) = [item for item in app.inbox() if item.task.startswith("refund")]
    app.send(
        Vote(
            unit=wanted.unit,
            voter="ben",
            roles=("managers",),
            approve=True,
            actor="ben",
            reason="checked with the bank",
        )
    )
    for number in range(8813, 8843):
        send_mail.submit(number, delay="1h")
    return {
        "overview": "/", "job": f"/jobs/{jobs[-1].id}", "run": f"/runs/{format_id('workflow_run', run.unit)}",
        "inbox": "/inbox", "requeue": "/dead-letters/requeue?task=report",
    }  # fmt: skip


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, interlock.App(f"sqlite:///{folder}/shop.db") as app:
        pages = run_shop(app)
        key = issue_key(app, CreateKey(name="ann", scopes=("admin",), roles=("managers",))).text
        listener = socket.create_server(("127.0.0.1", 0))
        base = f"http://127.0.0.1:{listener.getsockname()[1]}/ui"
        with serve_beside(app, listener, make_routes), sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            for suffix, width, scheme, names in PICTURES:
                size = {"width": width, "height": HEIGHT}
                page = browser.new_context(viewport=size, color_scheme=scheme).new_page()
                page.goto(f"{base}/enter/{make_link_token(key)}")
                for name in names or pages:
                    page.goto(f"{base}{pages[name]}")
                    page.screenshot(path=FOLDER / f"page-{name}{suffix}.png")
            browser.close()


if __name__ == "__main__":
    main()
