"""Makes the pictures of docs/page.md: a shop's work on a database of its own, and a browser that looks at its pages.

`make pictures` runs it, and needs Chromium.
"""

import asyncio
import socket
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

from playwright.sync_api import sync_playwright

import interlock
from interlock.client.keys import issue_key
from interlock.dashboard.sessions import make_link_token
from interlock.dashboard.site import make_routes
from interlock.kernel.commands import CreateKey, Submit, Work
from interlock.kernel.ids import format_id
from interlock.server.start import serving_beside
from interlock.worker.loop import Worker

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.dashboard.browsing import CHROMIUM

FOLDER = Path(__file__).parent.parent / "docs" / "images"
SIZE = {"width": 1280, "height": 860}


def run_shop(app: interlock.App) -> tuple[str, str]:
    """Does a shop's work, and returns the ids of a job that failed once and of a run that waits for a person."""

    @app.task
    def charge(order: int) -> str:
        return f"paid {order}"

    @app.task(attempts=3, backoff="100ms")
    def notify(order: int, ctx: interlock.Context) -> str:
        if ctx.attempt == 1:
            raise interlock.TransientError("mail server: 451 try again later")
        return "sent"

    @app.task(attempts=1, queue="reports")
    def report(day: str) -> None:
        raise ValueError(f"no sales on {day}")

    orders = [charge.submit(number) for number in range(140)]
    mails = [notify.submit(number) for number in range(12)]
    reports = [report.submit(f"2026-11-{day:02}") for day in range(1, 6)]
    steps = [
        Work(task="release", lifecycle="workflow_run", ref="run"),
        Work(task="charge", lifecycle="step", parent="run", step="build", ref="build", input='{"order": 1}'),
        Work(task="charge", lifecycle="step", parent="run", step="test", ref="test", input='{"order": 2}'),
        Work(task="sign", lifecycle="approval", parent="run", step="sign", ref="sign", needs=("build", "test")),
        Work(task="charge", lifecycle="step", parent="run", step="ship", needs=("sign",), input='{"order": 3}'),
    ]
    run = app.send(Submit(work=tuple(steps)))
    worker = Worker(app, {"default": 8, "reports": 2}, name="shop-1")
    threading.Thread(target=lambda: asyncio.run(worker.run()), daemon=True).start()
    for job in (*orders, *mails):
        job.wait(60)
    for job in reports:
        with suppress(interlock.InterlockError):  # they fail
            job.wait(60)
    for number in range(200, 230):
        charge.submit(number, delay="1h")
    return mails[0].id, format_id("workflow_run", run[0].unit)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, interlock.App(f"sqlite:///{folder}/shop.db") as app:
        job, run = run_shop(app)
        key = issue_key(app, CreateKey(name="ann", scopes=("admin",))).text
        listener = socket.create_server(("127.0.0.1", 0))
        base = f"http://127.0.0.1:{listener.getsockname()[1]}/ui"
        pages = {"overview": "/", "job": f"/jobs/{job}", "run": f"/runs/{run}"}
        with serving_beside(app, listener, make_routes), sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            page = browser.new_context(viewport=SIZE, color_scheme="light").new_page()
            page.goto(f"{base}/enter/{make_link_token(key)}")
            for name, path in pages.items():
                page.goto(f"{base}{path}")
                page.screenshot(path=FOLDER / f"page-{name}.png")
            browser.close()


if __name__ == "__main__":
    main()
