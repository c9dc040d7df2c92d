"""What pages cost the server, and how soon they show what happened: `python bench/page.py [URL ...]`.

It fills each database that is empty with `UNITS` finished jobs (a million unless told otherwise), dead letters and a
run of 200 steps, serves its pages from a process of its own, and prints the figures below. Without a URL it makes a
SQLite file and a PostgreSQL of its own; a database that is named is kept, and need not be filled again. With `FILL=1`
it only fills. A million takes about five minutes to fill, each database, and two to measure. Each figure stands beside
what it may be at most.

- the size of the files that pages load; and the processor time of the server and the size of the answer, for the
  overview, the list of jobs (also with a filter that fits nothing), the page of a job, and the page of the run, each
  asked for `LOOKS` times;
- the processor time of the server with ten viewers to whom the overview is sent while something happens all the time,
  beside that without viewers; and with and without them that of a request to the API, and of draining a job by claims
  of 100 in a process of its own;
- the time from the answer to a submit until a page that is open has the job.
"""

import http.client
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
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
from interlock.store.queries.lists import read_newest_units
from interlock.store.queries.views import Filter

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.postgres.server import postgres
from tests.store.databases import fresh_postgres

UNITS = int(os.environ.get("UNITS", "1000000"))
LOOKS = int(os.environ.get("LOOKS", "20"))
SECONDS = float(os.environ.get("SECONDS", "10"))  # for which viewers look
VIEWERS, TOGETHER, STEPS, SUBMITS = 10, 1_000, 200, 10
DRAINED, CLAIMED = 5_000, 100
REQUESTS = 20  # to the API, in a fifth of a second
MARK = "bench"  # correlation of the job and of the run whose pages are looked at
DEAD_EVERY = 100  # one of so many batches ends as dead letters
TICKS = os.sysconf("SC_CLK_TCK")


class Browser:
    """One who has signed in, and asks for pages."""

    def __init__(self, base: str, key: str) -> None:
        self.place, self.cookie = urlsplit(base).netloc, ""
        answer, _ = self.ask("POST", "/ui/login", f"key={key}")
        self.cookie = str(answer.getheader("Set-Cookie")).partition(";")[0]

    def ask(self, method: str, path: str, body: str = "") -> tuple[http.client.HTTPResponse, bytes]:
        connection = http.client.HTTPConnection(self.place, timeout=60)
        headers = {"Cookie": self.cookie, "Content-Type": "application/x-www-form-urlencoded"}
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer, text

    def get(self, path: str) -> bytes:
        answer, text = self.ask("GET", path)
        assert answer.status == 200, (path, answer.status, text[:500])
        return text

    def follow(self, page: str, seconds: float) -> Iterator[bytes]:
        """Yields what an open page is sent whenever something happened."""
        connection = http.client.HTTPConnection(self.place, timeout=seconds)
        connection.request("GET", f"/ui/live?page={page}", headers={"Cookie": self.cookie})
        answer, lines = connection.getresponse(), list[bytes]()
        with suppress(TimeoutError):
            while line := answer.fp.readline():
                if line.startswith(b"data: "):
                    lines.append(line)
                elif line == b"\n" and lines:
                    yield b"".join(lines)
                    lines.clear()
        connection.close()


def fill(app: App, units: int) -> None:
    """Makes finished jobs, dead letters, one job that waits, and a run."""
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
    app.send(Submit(work=(Work(task="release", lifecycle="workflow_run", ref="run", correlation=MARK), *steps)))
    app.send(Submit(work=(Work(task="last", correlation=MARK),)))


def find_marked(app: App) -> tuple[str, str] | None:
    """Returns the ids of the job and of the run whose pages are looked at; None if the database is not filled."""
    views = app.read(read_newest_units, app.lifecycles.values(), Filter(correlation=MARK), 1_000).units
    ids = {view.unit.lifecycle: format_id(view.unit.lifecycle, view.unit.id) for view in views}
    return (ids["job"], ids["workflow_run"]) if ids else None


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


def show(name: str, value: float, unit: str, most: float | None = None, *, must: bool = False, note: str = "") -> None:
    """Prints a row of the table: a figure beside what it may be at most, and whether it is; a must has a star."""
    allowed = "" if most is None else f"at most {most:g}{'*' if must else ''}"
    verdict = "" if most is None else "kept" if value <= most else "MISSED"
    print(f"  {name:40}{value:10,.1f} {unit:13}{allowed:15}{verdict:8}{note}".rstrip(), flush=True)


def measure_assets(browser: Browser) -> None:
    """Prints how large the files are that a page loads."""
    text = browser.get("/ui/").decode()
    files = sorted(set(re.findall(r"/ui/static/[\w.-]+", text)))
    sizes = {file: len(browser.get(file)) for file in files}
    show(f"{len(sizes)} files that pages load", sum(sizes.values()) / 1024, "KiB", 70)


def measure_pages(browser: Browser, process: int, job: str, run: str) -> None:
    pages: dict[str, tuple[str, float, bool]] = {
        "overview": ("/ui/", 40, False), "overview, 24 h": ("/ui/?range=24h", 40, False),
        "list": ("/ui/jobs", 25, True), "list by state": ("/ui/jobs?state=failed", 25, True),
        "list by error": ("/ui/jobs?error=none", 25, True),
        "list that fits nothing": ("/ui/jobs?task=none", 25, True), "job": (f"/ui/jobs/{job}", 15, True),
        f"run of {STEPS}": (f"/ui/runs/{run}", 60, False),
    }  # fmt: skip
    for name, (path, most, must) in pages.items():
        size = len(browser.get(path)) / 1024
        before, walls = read_cpu(process), list[float]()
        for _ in range(LOOKS):
            began = time.perf_counter()
            browser.get(path)
            walls.append(1_000 * (time.perf_counter() - began))
        cpu = 1_000 * (read_cpu(process) - before) / LOOKS
        show(name, cpu, "ms of CPU", most, must=must, note=f"{median(walls):7.1f} ms to the answer")
        show(f"{name}, its size", size, "KiB", 60)


def measure_viewers(app: App, url: str, base: str, key: str, process: int, job: str) -> None:
    """Prints what the server and those beside it need while things happen, without viewers and with ten."""
    over = threading.Event()

    def look(browser: Browser) -> None:
        for _ in browser.follow("/", 30):
            if over.is_set():
                return

    idle, requested, drained = dict[int, float](), dict[int, float](), dict[int, float]()
    for viewers in (0, VIEWERS):
        over.clear()
        threads = [threading.Thread(target=look, args=(Browser(base, key),), daemon=True) for _ in range(viewers)]
        for thread in threads:
            thread.start()
        idle[viewers] = measure_share(app, process, lambda: None)
        requested[viewers] = measure_share(app, process, lambda: ask_often(base, key, f"/v1/jobs/{job}"))
        drained[viewers] = float(subprocess.check_output([sys.executable, __file__, "drain", url]))
        over.set()
        app.send(Submit(work=(Work(task="mail", queue="seen"),)))
        for thread in threads:
            thread.join(30)
    alone = f"{100 * idle[0]:.1f} without viewers"
    show(f"{VIEWERS} viewers", 100 * idle[VIEWERS], "% of a core", 5, must=True, note=alone)
    for name, seconds in (
        ("a request to the API", [(requested[each] - idle[each]) / (REQUESTS * 5) for each in (0, VIEWERS)]),
        ("a drained job", [drained[each] / 1_000_000 for each in (0, VIEWERS)]),
    ):
        note = " to ".join(f"{1e6 * each:.0f}" for each in seconds) + " µs"
        show(f"{name}, with {VIEWERS} viewers", 100 * (seconds[1] / seconds[0] - 1), "% more", 10, note=note)


def measure_share(app: App, process: int, work: Callable[[], None]) -> float:
    """Returns how much of a core a process needs while something is done five times per second."""
    before, began = read_cpu(process), time.perf_counter()
    for turn in range(round(SECONDS * 5)):
        app.send(Submit(work=(Work(task="mail", queue="seen"),)))
        work()
        time.sleep(max(0.0, began + (turn + 1) / 5 - time.perf_counter()))
    return (read_cpu(process) - before) / (round(SECONDS * 5) / 5)


def ask_often(base: str, key: str, path: str) -> None:
    """Asks the API for the same some times, on one connection."""
    connection = http.client.HTTPConnection(urlsplit(base).netloc, timeout=60)
    for _ in range(REQUESTS):
        connection.request("GET", path, headers={"Authorization": f"Bearer {key}"})
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        answer.read()
    connection.close()


def drain(url: str) -> None:
    """Submits jobs, and prints the microseconds of processor time that each needs to be claimed and finished."""
    with interlock.open(url) as app:
        for _ in range(DRAINED // TOGETHER):
            app.send(Submit(work=tuple(Work(task="noop", queue="drained") for _ in range(TOGETHER))))
        worker = app.send(Register(name="drain", incarnation=os.urandom(4).hex(), capacity=CLAIMED))
        before = time.process_time()
        for _ in range(DRAINED // CLAIMED):
            key = os.urandom(16).hex()
            grants = app.send(Claim(worker=worker, key=key, nonce=key, limit=CLAIMED, queues=("drained",)))
            assert len(grants) == CLAIMED
            held = tuple(LeaseRef(unit=grant.unit, fence=grant.fence, lease=grant.lease) for grant in grants)
            app.send(Start(held=held))
            app.send(Finish(outcomes=tuple(Outcome(held=each) for each in held)))
        print(1_000_000 * (time.process_time() - before) / DRAINED)


def measure_lag(app: App, base: str, key: str) -> None:
    """Prints how long it takes from the answer to a submit until a page that is open shows the job."""
    browser, shown, sent = Browser(base, key), dict[str, float](), dict[str, float]()
    begun = threading.Event()

    def look() -> None:
        for text in browser.follow("/jobs", 30):
            now = time.perf_counter()
            begun.set()
            for job in list(sent):
                if f">{job}<".encode() in text:
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
    note = f"median {median(lags):.0f}, {len(shown)} of {SUBMITS} seen"
    show("committed to seen, the longest", max(lags), "ms", 1_500, must=True, note=note)


def measure(url: str) -> None:
    with interlock.open(url) as app:
        began = time.perf_counter()
        if find_marked(app) is None:
            fill(app, UNITS)
        if os.environ.get("FILL"):
            return
        job, run = find_marked(app) or ("", "")
        key = issue_key(app, CreateKey(name="bench", scopes=("admin",))).text
        filled = time.perf_counter() - began
        print(f"{url.partition(':')[0]}, {UNITS:,} jobs, filled in {filled:.0f} s; * is a must", flush=True)
        with serving(url) as (base, process):
            browser = Browser(base, key)
            while b"counted yet" in browser.get("/ui/"):  # it counts what happened first, once
                pass
            measure_assets(browser)
            measure_pages(browser, process, job, run)
            measure_viewers(app, url, base, key, process, job)
            measure_lag(app, base, key)
        print(f"  measured in {time.perf_counter() - began - filled:.0f} s", flush=True)


def main() -> None:
    if sys.argv[1:2] == ["drain"]:
        return drain(sys.argv[2])
    if sys.argv[1:]:
        for url in sys.argv[1:]:
            measure(url)
        return None
    with tempfile.TemporaryDirectory() as folder:
        measure(f"sqlite:///{folder}/page.db")
    with postgres() as server, fresh_postgres(server, "page") as url:
        measure(url)
    return None


if __name__ == "__main__":
    main()
