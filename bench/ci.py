"""What CI on one machine costs: a run of three trivial jobs, plans, runs of 50 to 800 jobs, masking, logs, messages.

Each part prints its figures, and where there is a must, whether it is met. All figures but those in MB/s are processor
time, which other work on the machine changes least. `QUICK=1` makes all of it small. A part can be run alone:
`python -m bench.ci run plan lives masking logs`.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

import interlock
from interlock.client.app import App
from interlock.kernel.commands import (
    AppendLog,
    Cancel,
    Claim,
    Enter,
    Finish,
    Heartbeat,
    LeaseGrant,
    LeaseRef,
    LogEntry,
    Outcome,
    Plan,
    Register,
    Start,
    Submit,
    Work,
)
from interlock.plugins.ci.config import CiConfig, CiJob, CiStep
from interlock.plugins.ci.options import JOB, NOBODY, RUN, CiOptions, encode_options
from interlock.plugins.ci.planner import PlanInput, plan_jobs
from interlock.process.masking import Masker

QUICK = bool(os.environ.get("QUICK"))
ROUNDS = 2 if QUICK else 5
SIZES = (50, 200) if QUICK else (50, 100, 200, 400, 800)
PLANNED_JOBS, PATHS = (50, 1_000) if QUICK else (500, 10_000)
ATTEMPTS = 20  # of a run
MEGABYTES = 4 if QUICK else 64
MUST_RUN, MUST_PLAN, MUST_WORST, MUST_GROWTH = 0.3, 0.3, 1.5, 1.15
CONFIG = "jobs:\n" + "".join(f"  {name}: {{steps: ['true']}}\n" for name in "abc")
COMMAND = """
import atexit, resource, sys
def tell():
    own, others = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    print(own.ru_utime + own.ru_stime, others.ru_utime + others.ru_stime, file=sys.stderr)
atexit.register(tell)
from interlock.cli import main
main()
"""


def judge(text: str, value: float, must: float, unit: str) -> None:
    print(f"{text}: {value:.3f} {unit}; must be at most {must:g}{'' if value <= must else ': ABOVE'}", flush=True)


def measure(call: Callable[[], Any]) -> float:
    """Returns the processor time of this process for a call, in seconds; the least of several rounds."""
    times = []
    for _ in range(ROUNDS):
        began = time.process_time()
        call()
        times.append(time.process_time() - began)
    return min(times)


# A run, end to end.


def measure_run() -> None:
    """Three trivial jobs beyond the start of the command line, and the same if all of them are reused."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "shop")
        (place / ".interlock").mkdir(parents=True)
        (place / ".interlock/ci.yaml").write_text(CONFIG)
        who = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"]
        for words in (["init", "--quiet", "--initial-branch=main"], ["add", "."], [*who, "commit", "-qm", "first"]):
            subprocess.run(["git", *words], cwd=place, check=True)
        run_command(place, "run")  # makes the database
        began = [run_command(place, "run", "--help")[0] for _ in range(ROUNDS)]
        rows = {name: [run_command(place, "run", *words) for _ in range(ROUNDS)]
                for name, words in (("run", ["--no-reuse"]), ("reused", []))}  # fmt: skip
    start = min(began)
    print(f"the start of the command line: {start:.3f} s")
    judge("three trivial jobs, beyond that", min(own for own, _ in rows["run"]) - start, MUST_RUN, "s")
    children = statistics.median(others for _, others in rows["run"])
    print(f"  and {children:.3f} s in git, the planner's process, supervisors and steps")
    each = (min(own for own, _ in rows["reused"]) - start) / 3
    print(f"a reused job: {each * 1_000:.1f} ms, a third of a run of three")


def run_command(place: Path, *words: str) -> tuple[float, float]:
    """Seconds of processor time of `interlock ci …` itself, and of what it started."""
    argv = [sys.executable, "-c", COMMAND, "ci", *words]
    done = subprocess.run(argv, cwd=place, capture_output=True, text=True, check=True)
    own, others = done.stderr.splitlines()[-1].split()
    return float(own), float(others)


# A plan.


def measure_plan() -> None:
    """Plans of many jobs over many changed paths: with usual globs, and with the worst ones."""
    changed = tuple(f"src/part{number % 100}/deep/module{number}.py" for number in range(PATHS))
    names = range(PLANNED_JOBS)
    usual = [(f"src/part{name}/**", f"docs/{name}/*.md") for name in names]
    worst = [("**/" * 8 + "*a" * 20 + f"{name}", f"{'*?' * 30}{name}*") for name in names]
    bad = tuple(f"{'a' * 60}/{'a' * 60}/{'a' * 60}{number}" for number in range(PATHS))
    for text, globs, paths, must in (
        ("usual globs", usual, changed, MUST_PLAN), ("the worst globs", worst, bad, MUST_WORST),
    ):  # fmt: skip
        jobs = {f"j{name}": CiJob(steps=(CiStep(run="make"),), inputs=globs[name]) for name in names}
        given = PlanInput(config=CiConfig(jobs=jobs), changed=paths, tree={path: f"100644 {path}" for path in paths})
        seconds = measure(lambda given=given: plan_jobs(given))
        judge(f"a plan of {PLANNED_JOBS} jobs over {PATHS:,} paths, {text}", seconds, must, "s")


# The life of a run.


def measure_lives() -> None:
    """What planning, running and cancelling a run costs for each of its jobs, and how that grows."""
    costs: dict[str, dict[int, float]] = {}
    for _ in range(ROUNDS):
        for size in SIZES:
            for name, seconds in time_life(size).items():
                known = costs.setdefault(name, {})
                known[size] = min(known.get(size, float("inf")), seconds / size)
    for name, known in costs.items():
        print(f"{name}, ms per job: " + ", ".join(f"{size}: {each * 1_000:.2f}" for size, each in known.items()))
        if name in ("plan", "cancel"):
            growth = known[SIZES[-1]] / known[SIZES[0]]
            judge(f"  {name}: {SIZES[-1]} jobs against {SIZES[0]}, per job", growth, MUST_GROWTH, "times")


def time_life(size: int) -> dict[str, float]:
    """Seconds of processor time that each part of a run's life takes, for all of its jobs."""
    with tempfile.TemporaryDirectory() as folder, interlock.open(f"sqlite:///{folder}/work.db") as app:
        seconds, run = {}, submit_run(app)
        seconds["plan"] = count(lambda: send_plan(app, run, size))
        seconds["cancel"] = count(lambda: app.send(Cancel(unit=run)))
        send_plan(app, submit_run(app), size)
        worker = app.send(Register(name="w", incarnation="1", capacity=10_000))
        spent = count(lambda: attempt_alone(app, worker, ATTEMPTS))
        return seconds | {"one attempt's five messages, one by one": spent * size / ATTEMPTS}


def count(call: Callable[[], Any]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


def submit_run(app: App) -> int:
    options = encode_options(CiOptions(report_to=NOBODY))
    (made,) = app.send(Submit(work=(Work(task="ci.run", lifecycle=RUN, settle="all", options=options),)))
    return made.unit


def send_plan(app: App, run: int, size: int) -> None:
    jobs = tuple(
        Work(
            task="ci.job", lifecycle=JOB, ref=f"j{place}", step=f"j{place}",
            options=encode_options(CiOptions(job=f"j{place}", fingerprint=f"{place}")),
        )
        for place in range(size)
    )  # fmt: skip
    app.send(Plan(unit=run, work=jobs, plan=msgspec.json.encode({"hash": "1"}).decode()))


def attempt_alone(app: App, worker: int, attempts: int) -> None:
    """Attempts from their claim to their end, each message in a transaction of its own."""
    for place in range(attempts):
        held = claim(app, worker, place)
        app.send(Start(held=(held,)))
        app.send(Heartbeat(held=(held,)))
        app.send(Enter(held=(held,), phase="upload"))
        app.send(Finish(outcomes=(Outcome(held=held),)))


def claim(app: App, worker: int, place: int) -> LeaseRef:
    grants: list[LeaseGrant] = app.send(Claim(worker=worker, key=f"c{place}", nonce=f"{place:0>32}", limit=1))
    return LeaseRef(unit=grants[0].unit, fence=grants[0].fence, lease=grants[0].lease)


# Bytes.


def measure_masking() -> None:
    """Output with few secrets in it, in chunks as they come from a pipe."""
    line = b"compiling src/module.c with flags -O2 -Wall: no problem was found here\n"
    chunk = (line * 1_000)[: 1 << 16]
    masker = Masker(["a-secret-of-usual-length", "another\nof two lines", "hunter2-and-more"])
    seconds = measure(lambda: [masker.feed(chunk) for _ in range(MEGABYTES * 16)])
    print(f"masking of three secrets: {MEGABYTES / seconds:.0f} MB/s of processor time")


def measure_logs() -> None:
    """The log of one attempt, written in entries of 64 KiB, each in a transaction of its own."""
    data = os.urandom(1 << 15).hex().encode()
    with tempfile.TemporaryDirectory() as folder, interlock.open(f"sqlite:///{folder}/work.db") as app:
        send_plan(app, submit_run(app), 1)
        held = claim(app, app.send(Register(name="w", incarnation="1", capacity=10)), 0)
        app.send(Start(held=(held,)))
        entries = MEGABYTES * 8  # half of what is kept of a log
        began, wall = time.process_time(), time.perf_counter()
        for place in range(entries):
            app.send(AppendLog(entries=(LogEntry(held, place * len(data), data),)))
        used, passed = time.process_time() - began, time.perf_counter() - wall
        size = entries * len(data) / 1_000_000
        print(f"log appends of 64 KiB: {size / used:.0f} MB/s of processor time, {size / passed:.0f} MB/s by the clock")


PARTS: dict[str, Callable[[], None]] = {
    "run": measure_run, "plan": measure_plan, "lives": measure_lives, "masking": measure_masking, "logs": measure_logs,
}  # fmt: skip

if __name__ == "__main__":
    wanted = sys.argv[1:] or list(PARTS)
    if unknown := [word for word in wanted if word not in PARTS]:
        sys.exit(f"there is no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    for word in wanted:
        PARTS[word]()
