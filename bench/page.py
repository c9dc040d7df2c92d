"""What pages cost the server, and how soon they show what happened: `python bench/page.py`.

It fills a database with `UNITS` finished jobs (a million unless told otherwise), dead letters and a run of 200 steps,
serves its pages from a process of its own, and prints, on SQLite and on PostgreSQL:

- the size of the files that pages load; and the processor time of the server and the size of the answer, for the
  overview, the list of jobs (also with a filter that fits nothing), the page of a job, and the page of the run, each
  asked for `LOOKS` times;
- the processor time of the server with ten viewers who load the overview whenever they are told that something
  happened, while something happens all the time, beside that without viewers;
- the time from the answer to a submit until a page that is open has been told, and has the job.
"""

import http.client
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

import interlock
from interlock.client.app import App
from interlock.client.keys import issue_key
from interlock.kernel.commands import (
    Claim,
    CreateKey,
    Finish,
    LeaseRef,
    Outcome,
    Register,
    Start,
    Submit,
    Work,
)  # fmt: skip
from interlock.kernel.ids import format_id

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.postgres.server import postgres
from tests.store.databases import fresh_postgres

UNITS = int(os.environ.get("UNITS", "1000000"))
LOOKS = int(os.environ.get("LOOKS", "20"))
SECONDS = float(os.environ.get("SECONDS", "20"))  # for which viewers look
VIEWERS, TOGETHER, STEPS, SUBMITS = 10, 1_000, 200, 10
DEAD_EVERY = 100  # one of so many batches ends as dead letters
TICKS = os.sysconf("SC_CLK_TCK")


class Browser:
    """One who has signed in, and asks for pages."""

    def __init__(self, base: str, key: str) -> None:
        self.place, self.cookie = urlsplit(base).netloc, ""
        answer, _ = self.ask("POST", "/ui/login", f"key={key}")
        self.cookie = str(answer.getheader("Set-Cookie")).partition(";")[0]

    def ask(
        self, method: str, path: str, body: str = "", change: str = ""
    ) -> tuple[http.client.HTTPResponse, bytes]:  # fmt: skip
        connection = http.client.HTTPConnection(self.place, timeout=60)
        headers = {"Cookie": self.cookie, "Content-Type": "application/x-www-form-urlencoded"}
        headers |= {"Interlock-Change": change} if change else {}
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer, text

    def get(self, path: str, change: str = "") -> bytes:
        answer, text = self.ask("GET", path, change=change)
        assert answer.status == 200, (path, answer.status, text[:500])
        return text

    def follow(self, seconds: float) -> Iterator[str]:
        """Yields what it is told whenever something happened."""
        connection = http.client.HTTPConnection(self.place, timeout=seconds)
        connection.request("GET", "/ui/live", headers={"Cookie": self.cookie})
        answer = connection.getresponse()
        with suppress(TimeoutError):
            while line := answer.fp.readline():
                if line.startswith(b"data: "):
                    yield line.removeprefix(b"data: ").decode().strip()
        connection.close()


def fill(app: App, units: int) -> tuple[str, str]:
    """Makes finished jobs, dead letters, one job that waits, and a run; returns the ids of the last two."""
    worker = app.send(Register(name="bench", incarnation="1", capacity=TOGETHER))
    for number in range(units // TOGETHER):
        queue = f"q{number % 5}"
        app.send(Submit(work=tuple(Work(task=f"task{number % 20}", queue=queue, attempts=1) for _ in range(TOGETHER))))
        key = f"fill{number}"
        grants = app.send(Claim(worker=worker, key=key, nonce=f"{key:0>16}", limit=TOGETHER, queues=(queue,)))
        held = tuple(LeaseRef(unit=grant.unit, fence=grant.fence, lease=grant.lease) for grant in grants)
        app.send(Start(held=held))
        ended = {"ended": "failure", "error": "no"} if number % DEAD_EVERY == DEAD_EVERY - 1 else {}
        app.send(Finish(outcomes=tuple(Outcome(held=each, **ended) for each in held)))
    steps = tuple(
        Work(task=f"step{number}", lifecycle="step", parent="run", ref=f"s{number}") for number in range(STEPS)
    )
    run = app.send(Submit(work=(Work(task="release", lifecycle="workflow_run", ref="run"), *steps)))[0]
    job = app.send(Submit(work=(Work(task="last"),)))[0]
    return format_id("job", job.unit), format_id(run.lifecycle, run.unit)


@contextmanager
def serving(url: str) -> Iterator[tuple[str, int]]:
    """A server in a process of its own: where its pages are, and its process."""
    command = [str(Path(sys.executable).parent / "interlock"), "serve", "--db", url, "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    base = ""
    for line in process.stdout:
        if matched := re.search(r"http://127\.0\.0\.1:[1-9]\d*", line):
            base = matched.group()
            break
    threading.Thread(target=process.stdout.read, daemon=True).start()
    try:
        yield base, process.pid
    finally:
        process.terminate()
        process.wait()


def read_cpu(process: int) -> float:
    """Returns the seconds of processor time that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def measure_assets(browser: Browser) -> None:
    """Prints how large the files are that a page loads."""
    text = browser.get("/ui/").decode()
    files = sorted(set(re.findall(r"/ui/static/[\w.-]+", text)))
    sizes = {file: len(browser.get(file)) for file in files}
    print(f"  {len(sizes)} files that pages load: {sum(sizes.values()) / 1024:.1f} KiB")


def measure_pages(browser: Browser, process: int, job: str, run: str) -> None:
    pages = {
        "overview": "/ui/", "overview, 24 h": "/ui/?range=24h", "list": "/ui/jobs",
        "list by state": "/ui/jobs?state=failed",
        "list that fits nothing": "/ui/jobs?task=none", "job": f"/ui/jobs/{job}", f"run of {STEPS}": f"/ui/runs/{run}",
    }  # fmt: skip
    for name, path in pages.items():
        size = len(browser.get(path))
        before, walls = read_cpu(process), list[float]()
        for _ in range(LOOKS):
            began = time.perf_counter()
            browser.get(path)
            walls.append(1_000 * (time.perf_counter() - began))
        cpu = 1_000 * (read_cpu(process) - before) / LOOKS
        print(f"  {name:24}{cpu:8.1f} ms of processor time{median(walls):8.1f} ms to the answer{size / 1024:7.1f} KiB")


def measure_viewers(app: App, base: str, key: str, process: int) -> None:
    """Prints how much of a core the server needs while things happen, without viewers and with ten."""

    def look(browser: Browser) -> None:
        end = time.perf_counter() + SECONDS
        for change in browser.follow(SECONDS):
            if time.perf_counter() > end:
                return
            browser.get("/ui/", change)

    used = {}
    for viewers in (0, VIEWERS):
        threads = [threading.Thread(target=look, args=(Browser(base, key),), daemon=True) for _ in range(viewers)]
        for thread in threads:
            thread.start()
        before, began = read_cpu(process), time.perf_counter()
        while time.perf_counter() < began + SECONDS:
            app.send(Submit(work=(Work(task="mail", queue="seen"),)))
            time.sleep(0.2)
        used[viewers] = (read_cpu(process) - before) / (time.perf_counter() - began)
        for thread in threads:
            thread.join(SECONDS)
    print(f"  {VIEWERS} viewers: {100 * used[VIEWERS]:.1f} % of a core, without viewers {100 * used[0]:.1f} %")


def measure_lag(app: App, base: str, key: str) -> None:
    """Prints how long it takes from the answer to a submit until a page that is open shows the job."""
    browser, shown, sent = Browser(base, key), dict[str, float](), dict[str, float]()
    begun = threading.Event()

    def look() -> None:
        for change in browser.follow(30):
            begun.set()
            text = browser.get("/ui/jobs", change).decode()
            now = time.perf_counter()
            for job in list(sent):
                if f">{job}<" in text:
                    shown.setdefault(job, now)
            if len(shown) == SUBMITS:
                return

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    while not begun.wait(0.2):
        app.send(Submit(work=(Work(task="first"),)))
    for _ in range(SUBMITS):
        job = format_id("job", app.send(Submit(work=(Work(task="seen"),)))[0].unit)
        sent[job] = time.perf_counter()
        time.sleep(1.3)
    thread.join(30)
    lags = [1_000 * (shown[job] - sent[job]) for job in shown]
    print(f"  committed to seen: p50 {median(lags):.0f} ms, most {max(lags):.0f} ms ({len(shown)} of {SUBMITS} seen)")


def measure(name: str, url: str) -> None:
    with interlock.open(url) as app:
        job, run = fill(app, UNITS)
        key = issue_key(app, CreateKey(name="bench", scopes=("admin",))).text
        print(f"{name}, {UNITS:,} jobs")
        with serving(url) as (base, process):
            browser = Browser(base, key)
            while b"counted yet" in browser.get("/ui/"):  # it counts what happened first, once
                pass
            measure_assets(browser)
            measure_pages(browser, process, job, run)
            measure_viewers(app, base, key, process)
            measure_lag(app, base, key)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        measure("SQLite", f"sqlite:///{folder}/page.db")
    with postgres() as server, fresh_postgres(server, "page") as url:
        measure("PostgreSQL", url)


if __name__ == "__main__":
    main()
