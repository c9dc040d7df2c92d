"""`interlock demo`: real workers and real kills, explained step by step, and an audit at the end."""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from interlock.audit.laws import audit
from interlock.audit.laws.rows import LAWS
from interlock.cli.output import FINDING, format_problems, print_line, print_table
from interlock.client.app import App
from interlock.client.jobs import Job
from interlock.kernel.commands import LeaseStatus, Tick
from interlock.kernel.errors import InterlockError
from interlock.kernel.lifecycle import Category
from interlock.store.queries.views import events_of, view
from interlock.worker.demo_tasks import make_app

app = typer.Typer(
    help="Run a few hundred jobs with real workers, kill some of the workers, and audit the result.",
    invoke_without_command=True,
)
HURRY = 20  # so many times shorter than in production
PATIENCE = 25.0  # seconds that one step may take
MIX = {"greet": 0.5, "flaky": 0.2, "slow": 0.15, "broken": 0.05, "refused": 0.05, "stoppable": 0.05}
CREW = ("ann", "bob", "cid")
Jobs = Annotated[int, typer.Option(envvar="INTERLOCK_DEMO_JOBS", min=20, max=5_000, help="Number of jobs.")]
Seed = Annotated[
    int,
    typer.Option(envvar="INTERLOCK_DEMO_SEED", help="Random seed: which jobs there are, and which workers are killed."),
]


class DemoWorker:
    """A worker in a process of its own, which reads and writes lines."""

    def __init__(self, part: str, app: App, name: str) -> None:
        command = [sys.executable, "-m", "interlock.cli.demo_worker", part, app.url, str(HURRY), name]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)

    def read_line(self) -> str:
        """Return its next line.

        Raises:
            InterlockError: the process has ended.
        """
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise InterlockError(f"a worker of the demo has ended with {self.process.wait()}")
        return line.strip()

    def write_line(self, word: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        with self.process:  # closes its pipes, and waits
            pass


@contextmanager
def open_stage() -> Iterator[tuple[App, ExitStack]]:
    """Open an app on a database that is deleted afterwards, and a stack for the workers."""
    with tempfile.TemporaryDirectory(prefix="interlock-demo-") as folder, ExitStack() as stack:
        yield stack.enter_context(make_app(f"sqlite:///{Path(folder).absolute()}/demo.db", HURRY)), stack


def wait_until(condition: Callable[[], object], what: str, patience: float = PATIENCE) -> None:
    """Wait for a condition, `patience` seconds at most.

    Raises:
        InterlockError: it did not come true.
    """
    end = time.monotonic() + patience
    while not condition():
        if time.monotonic() > end:
            raise InterlockError(f"the demo waited {patience:g} s for something that did not happen: {what}")
        time.sleep(0.05)


def get_lease_seconds(app: App) -> float:
    """Return how long a lease lasts without heartbeats, in seconds."""
    lease = app.lifecycles["job"].options.lease
    assert lease
    return min(lease.ttl_us, (lease.missed_beats or 1_000) * lease.beat_us) / 1_000_000


def print_audit(app: App) -> bool:
    """Audit the database, print what was found, and return whether it was nothing."""
    broken = app.read(lambda connection, tenant: list(audit(connection, app.lifecycles, rebuild=True)))
    for finding in broken:
        print_line(f"id {finding.unit}: {finding.text} [{finding.law}]")
    print_line(f"audit: {len(LAWS) + 1} checks run, every row rebuilt from its events, {format_problems(len(broken))}")
    return not broken


# Split brain.


@app.command("split-brain")
def show_split_brain() -> None:
    """Two workers, one job: the first is frozen past its lease, the second finishes, the first comes back."""
    with open_stage() as (app, stack):
        right = play_split_brain(app, stack)
    if not right:
        raise typer.Exit(FINDING)


def play_split_brain(app: App, stack: ExitStack) -> bool:
    """Play the story of two workers and one job; return whether the late result was rejected."""
    seconds = get_lease_seconds(app)
    print_line(
        f"Leases here last {seconds:g} s, {HURRY} times shorter than in production, so that you need not wait.\n"
    )
    job = app.tasks["greet"].submit(name="world")
    print_line(f"1. {job.id} is submitted. Whoever runs it must hold its lease.")
    ann = DemoWorker("hold", app, "ann")
    stack.callback(ann.kill)
    fence = ann.read_line()
    print_line(
        f"2. Process {ann.process.pid}, 'ann', claims it with fencing token {fence}, starts it and sends heartbeats."
    )
    os.kill(ann.process.pid, signal.SIGSTOP)
    print_line("3. ann is frozen (SIGSTOP), as by a long pause, a swap storm or a lost network. ann does not notice.")
    wait_until(
        lambda: app.send(Tick()) is not None and job.look().category == Category.READY, "the lease of ann to end"
    )
    print_line("4. No heartbeat comes from ann, and the lease expires. The job waits for another worker.")
    bob = DemoWorker("work", app, "bob")
    stack.callback(bob.kill)
    wait_until(lambda: job.look().outcome is not None, "bob to finish")
    print_line(
        f"5. Process {bob.process.pid}, 'bob', claims it with the next fencing token and finishes: {job.wait(0)!r}."
    )
    os.kill(ann.process.pid, signal.SIGCONT)
    print_line("6. ann wakes up, believes that the job is still ann's, and sends the result \"ann's late answer\".")
    ann.write_line("finish")
    reply = msgspec.json.decode(ann.read_line(), type=LeaseStatus)
    print_line(f"7. Its late result is rejected: {reply.why}. The result is still {job.wait(0)!r}.\n")
    print_history(app, job)
    return print_audit(app) and not reply.accepted and job.wait(0) == "hello, world"


def print_history(app: App, job: Job) -> None:
    """Print the events of a job."""
    events = app.read(events_of, job.unit)
    rows = [
        [str(event.version), event.name, event.target, str(event.attempt), str(event.fence), event.actor]
        for event in events
    ]
    print_table(("EVENT", "NAME", "STATE", "ATTEMPT", "FENCE", "BY"), rows)
    print_line("")


# A few hundred jobs.


@app.callback()
def show_demo(ctx: typer.Context, jobs: Jobs = 300, seed: Seed = 1) -> None:
    """Run a few hundred mixed jobs on three workers, kill one of them, and explain what happened."""
    if ctx.invoked_subcommand is None:
        with open_stage() as (app, stack):
            right = play_many(app, stack, jobs, random.Random(seed))
        if not right:
            raise typer.Exit(FINDING)


def play_many(app: App, stack: ExitStack, jobs: int, dice: random.Random) -> bool:
    """Play many jobs of several kinds, and kill a worker; return whether the audit found no problem."""
    wanted = Counter(MIX.keys()) + Counter(dice.choices(list(MIX), list(MIX.values()), k=jobs - len(MIX)))
    print_line(f"{jobs} jobs: " + ", ".join(f"{number} {name}" for name, number in wanted.items()))
    print_line(f"Leases last {get_lease_seconds(app):g} s here, {HURRY} times shorter than in production.\n")
    made = {name: submit_jobs(app, name, number) for name, number in wanted.items()}
    crew = {name: DemoWorker("work", app, name) for name in CREW}
    for worker in crew.values():
        stack.callback(worker.kill)
    play(app, made, crew)
    right = print_summary(app, [job for jobs_made in made.values() for job in jobs_made])
    return print_audit(app) and right


def submit_jobs(app: App, name: str, number: int) -> list[Job]:
    """Submit many jobs of one task."""
    calls: list[dict[str, Any]] = [{"seconds": 0.5} if name == "slow" else {}] * number
    return app.tasks[name].submit_many(calls)


def play(app: App, made: dict[str, list[Job]], crew: dict[str, DemoWorker]) -> None:
    """Wait until all jobs have ended. After a third, kill a worker; once that is noticed, cancel the stoppable jobs."""
    total, left = sum(map(len, made.values())), dict(made)
    plot = kill_and_cancel(app, made["stoppable"], crew)
    with show_bars(made) as show:

        def has_ended() -> bool:
            for name, jobs in left.items():
                left[name] = [job for job in jobs if job.look().outcome is None]
                show(name, len(made[name]) - len(left[name]))
            ended = total - sum(map(len, left.values()))
            if ended > total // 3:
                next(plot, None)
            return ended == total

        wait_until(has_ended, f"{total} jobs to end", 4 * PATIENCE)


def kill_and_cancel(app: App, jobs: list[Job], crew: dict[str, DemoWorker]) -> Iterator[None]:
    """Kill the worker that runs one of these jobs; when that is noticed, cancel all of them."""
    while not (running := [job for job in jobs if job.look().category == Category.ACTIVE]):
        yield
    crew[app.read(view, running[0].unit).holder or ""].process.kill()
    while not any(event.trigger == "lost" for event in app.read(events_of, running[0].unit)):
        yield
    for job in jobs:
        job.cancel(reason="the demo asks")


@contextmanager
def show_bars(made: dict[str, list[Job]]) -> Iterator[Callable[[str, int], None]]:
    """Show a progress bar per task on a terminal; yield the function that moves it."""
    columns = (TextColumn("{task.description:>10}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, disable=not sys.stdout.isatty()) as progress:
        rows = {name: progress.add_task(name, total=len(jobs)) for name, jobs in made.items()}
        yield lambda name, done: progress.update(rows[name], completed=done)


def print_summary(app: App, jobs: list[Job]) -> bool:
    """Print what happened, counted from the events; return whether each of it happened."""
    ends: Counter[str] = Counter(job.look().outcome or "" for job in jobs)
    fired: Counter[str] = Counter(event.trigger for job in jobs for event in app.read(events_of, job.unit))
    facts = [
        (ends[Category.SUCCESS], "succeeded, each once, whatever happened on the way"),
        (fired["retry"], "times a handler failed and was retried, after a pause"),
        (
            fired["lost"],
            "times a job was lost because its worker was killed; the lease expired, and another worker took it",
        ),
        (
            ends[Category.DEAD],
            "used up their attempts and are dead letters: kept, with reason and stage, for somebody to look at",
        ),
        (ends[Category.FAILURE], "were rejected by their handler: not retried"),
        (ends[Category.CANCELLED], "were cancelled: asked to stop, and did"),
    ]
    print_line("")
    for number, text in facts:
        print_line(f"{number:>5}  {text}")
    print_line("")
    return all(number for number, _ in facts)
