"""`interlock demo`: real processes show what the promises mean, told step by step, and an audit has the last word."""

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
from interlock.cli.output import FINDING, counted, say, table
from interlock.client.app import App
from interlock.client.jobs import Job
from interlock.kernel.commands import LeaseStatus, Tick
from interlock.kernel.errors import InterlockError
from interlock.kernel.lifecycle import Category
from interlock.store.queries.views import events_of, view
from interlock.worker.demo_tasks import made

app = typer.Typer(help="See it happen: real workers, real kills, and an audit.", invoke_without_command=True)
HURRY = 20  # so many times shorter than in production
PATIENCE = 25.0  # seconds that one step may take
MIX = {"greet": 0.5, "flaky": 0.2, "slow": 0.15, "broken": 0.05, "refused": 0.05, "stoppable": 0.05}
CREW = ("ann", "bob", "cid")
JobsResponse = Annotated[int, typer.Option(envvar="INTERLOCK_DEMO_JOBS", min=20, max=5_000, help="How many jobs.")]
Seed = Annotated[int, typer.Option(envvar="INTERLOCK_DEMO_SEED", help="Which mixture, and who is killed.")]


class Actor:
    """A worker in a process of its own, which speaks in lines."""

    def __init__(self, part: str, app: App, name: str) -> None:
        command = [sys.executable, "-m", "interlock.cli.demo_worker", part, app.url, str(HURRY), name]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)

    def hear(self) -> str:
        """Its next line. Raises InterlockError if it has ended without a word."""
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise InterlockError(f"a worker of the demo has ended with {self.process.wait()}")
        return line.strip()

    def tell(self, word: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def end(self) -> None:
        self.process.kill()
        with self.process:  # closes its pipes, and waits
            pass


@contextmanager
def stage() -> Iterator[tuple[App, ExitStack]]:
    """An app on a database that is gone afterwards, and a stack for whoever plays on it."""
    with tempfile.TemporaryDirectory(prefix="interlock-demo-") as folder, ExitStack() as stack:
        yield stack.enter_context(made(f"sqlite:///{Path(folder).absolute()}/demo.db", HURRY)), stack


def until(true: Callable[[], object], what: str, patience: float = PATIENCE) -> None:
    """Waits for a condition. Raises InterlockError."""
    end = time.monotonic() + patience
    while not true():
        if time.monotonic() > end:
            raise InterlockError(f"the demo waited {patience:g} s for this, in vain: {what}")
        time.sleep(0.05)


def lease_seconds(app: App) -> float:
    lease = app.lifecycles["job"].options.lease
    assert lease
    return min(lease.ttl_us, (lease.missed_beats or 1_000) * lease.beat_us) / 1_000_000


def sound(app: App) -> bool:
    """Whether the audit finds nothing; what it finds is said."""
    broken = app.read(lambda connection, tenant: list(audit(connection, app.lifecycles, rebuild=True)))
    for one in broken:
        say(f"unit {one.unit}: {one.text} [{one.law}]")
    say(f"audit: {len(LAWS)} laws asked, every row rebuilt from its events, {counted(len(broken), 'finding')}")
    return not broken


# Split brain.


@app.command("split-brain")
def split_brain() -> None:
    """Two workers, one job: the first is frozen past its lease, the second finishes, the first comes back."""
    with stage() as (app, stack):
        right = told_split_brain(app, stack)
    if not right:
        raise typer.Exit(FINDING)


def told_split_brain(app: App, stack: ExitStack) -> bool:
    seconds = lease_seconds(app)
    say(f"Leases here last {seconds:g} s, {HURRY} times shorter than in production, so that you need not wait.\n")
    job = app.tasks["greet"].submit(name="world")
    say(f"1. {job.id} is submitted. Whoever runs it must hold its lease.")
    ann = Actor("hold", app, "ann")
    stack.callback(ann.end)
    fence = ann.hear()
    say(f"2. Process {ann.process.pid}, 'ann', claims it under fence {fence}, begins and beats.")
    os.kill(ann.process.pid, signal.SIGSTOP)
    say("3. ann is frozen (SIGSTOP): as by a long pause, a swap storm, a lost network. ann does not know.")
    until(lambda: app.send(Tick()) is not None and job.look().category == Category.READY, "the lease of ann to end")
    say("4. Nobody hears of ann, and the lease ends. The job waits for another worker.")
    bob = Actor("work", app, "bob")
    stack.callback(bob.end)
    until(lambda: job.look().outcome is not None, "bob to finish")
    say(f"5. Process {bob.process.pid}, 'bob', claims it under the next fence and finishes: {job.wait(0)!r}.")
    os.kill(ann.process.pid, signal.SIGCONT)
    say("6. ann wakes up, believes that the job is still ann's, and sends the outcome \"ann's late answer\".")
    ann.tell("finish")
    heard = msgspec.json.decode(ann.hear(), type=LeaseStatus)
    say(f"7. The engine refuses it: {heard.why}. The result is still {job.wait(0)!r}.\n")
    history(app, job)
    return sound(app) and not heard.accepted and job.wait(0) == "hello, world"


def history(app: App, job: Job) -> None:
    """What the record says."""
    events = app.read(events_of, job.unit)
    rows = [[str(one.version), one.name, one.target, str(one.attempt), str(one.fence), one.actor] for one in events]
    table(("event", "name", "state", "attempt", "fence", "by"), rows)
    say("")


# A few hundred jobs.


@app.callback()
def demo(ctx: typer.Context, jobs: JobsResponse = 300, seed: Seed = 1) -> None:
    """A few hundred mixed jobs, three workers, one of them killed; then what was seen, and an audit."""
    if ctx.invoked_subcommand is None:
        with stage() as (app, stack):
            right = told_many(app, stack, jobs, random.Random(seed))
        if not right:
            raise typer.Exit(FINDING)


def told_many(app: App, stack: ExitStack, jobs: int, dice: random.Random) -> bool:
    wanted = Counter(MIX.keys()) + Counter(dice.choices(list(MIX), list(MIX.values()), k=jobs - len(MIX)))
    say(f"{jobs} jobs: " + ", ".join(f"{number} {name}" for name, number in wanted.items()))
    say(f"Leases last {lease_seconds(app):g} s here, {HURRY} times shorter than in production.\n")
    made = {name: submitted(app, name, number) for name, number in wanted.items()}
    crew = {name: Actor("work", app, name) for name in CREW}
    for one in crew.values():
        stack.callback(one.end)
    play(app, made, crew)
    right = summary(app, [job for some in made.values() for job in some])
    return sound(app) and right


def submitted(app: App, name: str, number: int) -> list[Job]:
    calls: list[dict[str, Any]] = [{"seconds": 0.5} if name == "slow" else {}] * number
    return app.tasks[name].submit_many(calls)


def play(app: App, made: dict[str, list[Job]], crew: dict[str, Actor]) -> None:
    """Everything has ended. After a third, a worker is killed; once that is noticed, what waits to be stopped is."""
    total, left = sum(map(len, made.values())), dict(made)
    plot = strikes(app, made["stoppable"], crew)
    with bars(made) as show:

        def over() -> bool:
            for name, jobs in left.items():
                left[name] = [job for job in jobs if job.look().outcome is None]
                show(name, len(made[name]) - len(left[name]))
            ended = total - sum(map(len, left.values()))
            if ended > total // 3:
                next(plot, None)
            return ended == total

        until(over, f"{total} jobs to end", 4 * PATIENCE)


def strikes(app: App, jobs: list[Job], crew: dict[str, Actor]) -> Iterator[None]:
    """Whoever runs one of these jobs is killed; when that is noticed, all these jobs are asked to stop."""
    while not (running := [job for job in jobs if job.look().category == Category.ACTIVE]):
        yield
    crew[app.read(view, running[0].unit).holder or ""].process.kill()
    while not any(event.trigger == "lost" for event in app.read(events_of, running[0].unit)):
        yield
    for job in jobs:
        job.cancel(reason="the demo asks")


@contextmanager
def bars(made: dict[str, list[Job]]) -> Iterator[Callable[[str, int], None]]:
    """How far each kind of job is: bars on a terminal, and nothing where nobody looks."""
    columns = (TextColumn("{task.description:>10}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, disable=not sys.stdout.isatty()) as progress:
        rows = {name: progress.add_task(name, total=len(jobs)) for name, jobs in made.items()}
        yield lambda name, done: progress.update(rows[name], completed=done)


def summary(app: App, jobs: list[Job]) -> bool:
    """What was seen is explained from the record. Answers whether all of it was seen."""
    ends: Counter[str] = Counter(job.look().outcome or "" for job in jobs)
    fired: Counter[str] = Counter(event.trigger for job in jobs for event in app.read(events_of, job.unit))
    facts = [
        (ends[Category.SUCCESS], "succeeded, each once, whatever happened on the way"),
        (fired["retry"], "times a handler failed for now and was tried again, after a pause"),
        (fired["lost"], "times a job was lost, for a worker was killed; its lease ended, and another worker took it"),
        (
            ends[Category.DEAD],
            "never worked, and are dead letters: kept, with reason and stage, for somebody to look at",
        ),
        (ends[Category.FAILURE], "were refused for good by their handler: not tried again"),
        (ends[Category.CANCELLED], "were asked to stop, and did"),
    ]
    say("")
    for number, text in facts:
        say(f"{number:>5}  {text}")
    say("")
    return all(number for number, _ in facts)
