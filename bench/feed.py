"""How fast the feed is read, what a filter costs, and how long an event takes to a follower: `python bench/feed.py`.

It prints events per second of one reader that pages through the whole feed, and the milliseconds from the answer to a
submit until a follower in the same process has the event, on SQLite and on PostgreSQL. `JOBS=100000` makes it larger.
"""

import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median

import interlock
from interlock.client.app import App
from interlock.kernel.commands import Submit, Work
from interlock.lifecycles import shipped
from interlock.plugins import STANDARD
from interlock.store import migrate
from interlock.store.url import connect

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.postgres.server import postgres

JOBS = int(os.environ.get("JOBS", "20000"))
TOGETHER, SUBMITS = 500, 20


def fill(app: App, jobs: int) -> None:
    for start in range(0, jobs, TOGETHER):
        app.send(Submit(work=(Work(task="mail"),) * min(TOGETHER, jobs - start)))


def read_rate(app: App, **fields: str) -> tuple[int, float]:
    """Events that fit, and events per second that were looked at."""
    began, events = time.perf_counter(), sum(1 for _ in app.events(**fields))  # type: ignore[arg-type]
    return events, JOBS / (time.perf_counter() - began)


def measure_lag(app: App) -> list[float]:
    """Milliseconds from the answer to a submit until a follower has its event, one after the other."""
    received_at = {}
    feed = app.events(after="now", follow=True)
    begun = threading.Event()

    def follow() -> None:
        for events in feed.pages():
            begun.set()
            now = time.perf_counter()
            received_at.update({event.unit: now for event in events})
            if len(received_at) >= SUBMITS:
                return

    reader = threading.Thread(target=follow)
    reader.start()
    begun.wait()
    sent = {}
    for _ in range(SUBMITS):
        job = app.job(app.send(Submit(work=(Work(task="mail"),)))[0].unit)
        sent[job.id] = time.perf_counter()
        time.sleep(0.07)
    reader.join()
    return [1_000 * (received_at[unit] - at) for unit, at in sent.items()]


def measure(name: str, url: str) -> None:
    with interlock.open(url) as app:
        fill(app, JOBS)
        _, rate = read_rate(app)
        _, filtered = read_rate(app, task="none")
        lags = measure_lag(app)
    print(
        f"{name}: {rate:,.0f} events/s in pages, {filtered:,.0f}/s looked at by a filter that fits none; "
        f"to a follower p50 {median(lags):.0f} ms, most {max(lags):.0f} ms"
    )


def main() -> None:
    print(f"{JOBS:,} events")
    with tempfile.TemporaryDirectory() as folder:
        measure("SQLite", f"sqlite:///{folder}/feed.db")
    with postgres() as server:
        connection = connect(server)
        migrate.upgrade(connection, STANDARD.lifecycles(shipped()).values(), STANDARD.tables)
        connection.close()
        measure("PostgreSQL", server)


if __name__ == "__main__":
    main()
