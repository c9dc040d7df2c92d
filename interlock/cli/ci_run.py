"""`interlock ci run`: the jobs of a working tree, here and now, and what a person sees of them."""

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from interlock.cli.ci_local import LocalCi, revoke_attempts, take_slot
from interlock.cli.options import get_actor
from interlock.cli.output import (
    FINDING,
    USAGE,
    format_count,
    make_console,
    make_state_cell,
    on_terminal,
    print_json,
    print_line,
)
from interlock.client.durations import format_rounded
from interlock.client.evidence import read_log
from interlock.kernel.commands import Cancel, Decide, Submit
from interlock.kernel.errors import InterlockError
from interlock.kernel.ids import format_id
from interlock.plugins.ci.checkout import find_notices, read_request, take_snapshot
from interlock.plugins.ci.config import CiRun
from interlock.plugins.ci.options import RUN
from interlock.plugins.ci.orders import APPROVAL, PlanOrder, make_plan_job, make_run
from interlock.plugins.ci.queries import (
    CiJobRow,
    CiRunRow,
    list_ci_attempts,
    list_ci_jobs,
    read_ci_plan,
    read_ci_run,
    read_plan_failure,
)
from interlock.plugins.ci.requests import find_config
from interlock.worker.ci import CiRunner, CiSettings
from interlock.worker.loop import Worker

CANCELLED = 130  # the exit code of a run that was cancelled, as after Ctrl-C
LOOK_EVERY = 0.1  # seconds
LINES_SHOWN, TAIL_SHOWN = 3, 40  # last lines of what runs, and of what failed
STOP_WITHIN = 1.0  # seconds for handlers when the run has ended
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# What of the caller's environment a step gets, beside what its job says.
HANDED_ON = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "SSL_CERT_FILE",
    "SSL_CERT_DIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
)  # fmt: skip
OFFER = "steps had this machine's tools and network; `interlock ci run --sandbox` runs them as a fleet would"
OUTCOMES = {"success": "succeeded", "failure": "has failed", "cancelled": "was cancelled"}


@dataclass(frozen=True, kw_only=True)
class LocalOptions:
    """What somebody says of a run."""

    order: PlanOrder
    at_once: int
    sandbox: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    terms: CiRun = field(default_factory=CiRun)
    retry_of: int | None = None
    json: bool = False


def snapshot_tree(
    local: LocalCi, *, branch: str | None, base: str | None, tracked: bool, quiet: bool
) -> tuple[str, CiRun, dict[str, str]]:
    """Return the working tree as a commit, what its config says of runs, and the labels of a run of it.

    What is wrong with the config is told by the plan, so nothing of it is refused here.
    """
    snapshot = take_snapshot(local.checkout, tracked=tracked)
    request = read_request(local.checkout, snapshot, base=base, branch=branch)
    terms = CiRun()
    with suppress(InterlockError):
        terms = find_config(request.files, request.tree, request.ignored)[0].run
    for notice in [] if quiet else find_notices(local.checkout, snapshot):
        print_line(f"note: {notice}")
    return snapshot.commit, terms, {"commit": snapshot.commit, "branch": branch or ""}


def run_locally(local: LocalCi, options: LocalOptions) -> int:
    """Run the jobs of a plan, and returns the exit code: 0 green, 1 red, 2 plan failed, 130 cancelled."""
    with take_slot(local) as queue:
        run = submit_run(local, options, queue)
        local.checkout.repository.keep(f"ci/{format_id(RUN, run)}", options.order.commit)
        runner = CiRunner(
            CiSettings(
                checkout=local.checkout, folder=local.worktrees, queue=queue, secrets=os.environ,
                environment={name: os.environ[name] for name in HANDED_ON if name in os.environ},
                sandbox=options.sandbox,
            )
        )  # fmt: skip
        runner.offer(local.app)
        worker = Worker(local.app, {queue: options.at_once}, name=f"{queue}-{os.getpid()}", grace=STOP_WITHIN)
        screen = Screen(local, run, runner, quiet=options.json)
        with log_nothing():
            asyncio.run(LocalRun(local, run, worker, runner, screen).drive())
        code = screen.finish()
        if options.json:
            print_json(describe_run(local, local.app.read(read_ci_run, run)))
        return code


@contextmanager
def log_nothing() -> Iterator[None]:
    """Keep the worker from writing its log to the screen, which shows the same."""
    log = logging.getLogger("interlock")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)


def submit_run(local: LocalCi, options: LocalOptions, queue: str) -> int:
    """Make a run and the job that plans it, and returns the run."""
    actor = get_actor(None)
    work = make_run(queue, options.terms, options.labels, options.retry_of)
    (made,) = local.app.send(Submit(work=(work,), actor=actor))
    order = msgspec.structs.replace(options.order, run=made.unit)
    local.app.send(Submit(work=(make_plan_job(queue, order, options.terms),), actor=actor))
    return made.unit


class LocalRun:
    """A run while its jobs run in this process."""

    def __init__(self, local: LocalCi, run: int, worker: Worker, runner: CiRunner, screen: "Screen") -> None:
        self.local, self.run, self.worker, self.runner, self.screen = local, run, worker, runner, screen
        self.interrupts = 0
        self.asked_for: set[int] = set()  # approvals that somebody was asked for

    async def drive(self) -> None:
        """Work until the run and all its jobs have ended. The first signal cancels it, the second forces that."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self.interrupt)
        working = asyncio.create_task(self.worker.run())
        try:
            with self.screen:
                while not working.done():
                    row, jobs = await asyncio.to_thread(self.look)
                    self.screen.update(row, jobs)
                    if row.outcome is not None and all(job.outcome is not None for job in jobs):
                        break
                    await self.answer_gates(jobs)
                    await asyncio.sleep(LOOK_EVERY)
        finally:
            self.worker.stop()
            await working
            for number in SIGNALS:
                loop.remove_signal_handler(number)

    def look(self) -> tuple[CiRunRow, list[CiJobRow]]:
        app = self.local.app
        return app.read(read_ci_run, self.run), app.read(list_ci_jobs, self.run)

    def interrupt(self) -> None:
        """Somebody wants it to stop: first in time, then at once."""
        self.interrupts += 1
        if self.interrupts > 1:
            self.runner.no_grace.set()
        self.screen.say("stopping at once" if self.interrupts > 1 else "stopping; once more stops at once")
        task = asyncio.get_running_loop().run_in_executor(None, self.cancel, self.interrupts > 1)
        task.add_done_callback(lambda done: done.exception())

    def cancel(self, forced: bool) -> None:
        """Cancel the run; a forced cancel takes the leases, so that nobody is waited for."""
        with suppress(InterlockError):
            self.local.app.send(Cancel(unit=self.run, actor=get_actor(None), reason="interrupted"))
        if forced:
            revoke_attempts(self.local, self.run, "interrupted twice")

    async def answer_gates(self, jobs: list[CiJobRow]) -> None:
        """Ask the terminal about a gate that is open; without one says where it waits."""
        for job in jobs:
            if job.lifecycle != APPROVAL or job.category != "gate" or job.unit in self.asked_for:
                continue
            self.asked_for.add(job.unit)
            name = job.name.removesuffix(":gate")
            if not (sys.stdin.isatty() and on_terminal()):
                self.screen.say(f"'{name}' waits for {format_id(APPROVAL, job.unit)}: interlock inbox --db {self.url}")
                continue
            self.screen.pause()
            answer = await asyncio.to_thread(ask_person, f"'{name}' waits for approval; may it begin? [y/n] ")
            self.screen.go_on()
            trigger = "approve" if answer else "reject"
            decision = Decide(unit=job.unit, trigger=trigger, actor=get_actor(None), reason="asked on the terminal")
            try:
                await self.local.app.asend(decision)
            except InterlockError as error:
                self.screen.say(str(error))

    @property
    def url(self) -> str:
        return self.local.app.url


def ask_person(question: str) -> bool:
    """Ask on the terminal. Returns whether the answer is yes; no answer is none."""
    try:
        return input(question).strip().lower() in ("y", "yes")
    except (EOFError, KeyboardInterrupt):
        return False


class Screen:
    """What a person sees of a run: a live table on a terminal, else a line for each job that ends."""

    def __init__(self, local: LocalCi, run: int, runner: CiRunner, *, quiet: bool) -> None:
        self.local, self.run, self.runner, self.quiet = local, run, runner, quiet
        self.printed: set[int] = set()
        self.began = time.monotonic()
        self.planned = False
        self.row: CiRunRow | None = None
        self.jobs: list[CiJobRow] = []
        self.live = Live(console=make_console(), auto_refresh=False, transient=True) if self.is_live else None

    @property
    def is_live(self) -> bool:
        return on_terminal() and not self.quiet

    def __enter__(self) -> "Screen":
        self.say(f"{format_id(RUN, self.run)} of {self.local.checkout.root}")
        self.go_on()
        return self

    def __exit__(self, *_: object) -> None:
        self.pause()

    def pause(self) -> None:
        if self.live:
            self.live.stop()

    def go_on(self) -> None:
        if self.live:
            self.live.start()

    def say(self, text: str) -> None:
        """Print a line, above the live table if there is one."""
        if not self.quiet:
            print_line(text) if self.live is None or not self.live.is_started else self.live.console.print(text)
            sys.stdout.flush()

    def update(self, row: CiRunRow, jobs: list[CiJobRow]) -> None:
        """Show how a run stands now."""
        self.row, self.jobs = row, jobs
        if jobs and not self.planned:
            self.planned = True
            self.say_plan()
        for job in jobs:
            if job.outcome is not None and job.unit not in self.printed:
                self.printed.add(job.unit)
                self.say(self.describe_job(job))
        if self.live:
            self.live.update(self.draw(jobs), refresh=True)

    def say_plan(self) -> None:
        plan = self.local.app.read(read_ci_plan, self.run)
        if plan is not None:
            left = f", {len(plan.skipped)} left out" if plan.skipped else ""
            self.say(f"plan {plan.hash[:12]}: {format_count(len(plan.jobs), 'job')}{left}")

    def describe_job(self, job: CiJobRow) -> str:
        """Return the line of a job that has ended."""
        took = "" if job.started_at is None else f"\t{format_rounded(max(0, job.changed_at - job.started_at))}"
        attempts = self.local.app.read(list_ci_attempts, job.unit) if job.lifecycle != APPROVAL else []
        last = attempts[-1] if attempts else None
        tries = f" (attempt {len(attempts)})" if len(attempts) > 1 else ""
        note = "\treused" if last and last.kind == "reused" else ""
        if last and job.outcome == "failure":
            note = f"\t{last.kind or 'unknown'}: {last.explanation}"
        return f"{job.name}\t{job.state}{tries}{took}{note}"

    def draw(self, jobs: list[CiJobRow]) -> RenderableType:
        """Return the live table, with the last lines of what runs."""
        table = Table(box=None, pad_edge=False, show_header=False)
        parts: list[RenderableType] = [table]
        now = time.time_ns() // 1_000
        for job in jobs:
            if job.outcome is None:
                length = "" if job.started_at is None else format_rounded(max(0, now - job.started_at))
                table.add_row(job.name, make_state_cell(job.state, job.category), length)
                parts += [Text(f"  {line}", style="dim", no_wrap=True) for line in self.read_tail(job)]
        return Group(*parts)

    def read_tail(self, job: CiJobRow) -> list[str]:
        return list(self.runner.tails.get(job.unit, ()))[-LINES_SHOWN:]

    # The end.

    def finish(self) -> int:
        """Print what came of the run. Returns the exit code."""
        row = self.local.app.read(read_ci_run, self.run)
        jobs = self.local.app.read(list_ci_jobs, self.run)
        failed = self.local.app.read(read_plan_failure, self.run)
        code = find_exit_code(row, failed)
        if self.quiet:
            return code
        if failed is not None:
            self.say(failed)
        for job in jobs:
            if job.outcome == "failure" and job.lifecycle != APPROVAL:
                self.say_failure(job)
        took = format_rounded(round((time.monotonic() - self.began) * 1_000_000))
        words = OUTCOMES.get(row.outcome or "", f"is {row.state}")
        self.say(f"{format_id(RUN, self.run)} {words}: {count_jobs(jobs)} in {took}")
        if code == 0 and not self.runner.settings.sandbox:
            self.say(OFFER)
        return code

    def say_failure(self, job: CiJobRow) -> None:
        """Print the last lines of a job that failed, and how to run it alone."""
        if job.last_attempt is None:
            return
        log = b"".join(read_log(self.local.app, job.last_attempt))
        lines = log.decode(errors="replace").splitlines()[-TAIL_SHOWN:]
        self.say(f"── {job.name}: {job.state}" + ("" if job.required else " (allowed to fail)"))
        for line in lines:
            self.say(f"  {clean_line(line)}")
        self.say(f"── alone: interlock ci run {job.name}")


def clean_line(line: str) -> str:
    """Return a line of a log without what would move a terminal's cursor."""
    return "".join(each if each.isprintable() or each == "\t" else "\N{REPLACEMENT CHARACTER}" for each in line)


def count_jobs(jobs: list[CiJobRow]) -> str:
    """Return how many jobs ended how."""
    counts: dict[str, int] = {}
    for job in jobs:
        if job.lifecycle != APPROVAL:
            counts[job.state] = counts.get(job.state, 0) + 1
    return ", ".join(f"{number} {state}" for state, number in counts.items()) or "no jobs"


def find_exit_code(row: CiRunRow, failed: str | None) -> int:
    """Return the exit code for the end of a run."""
    if failed is not None:
        return USAGE
    if row.outcome == "success":
        return 0
    return CANCELLED if row.outcome == "cancelled" else FINDING


def describe_run(local: LocalCi, row: CiRunRow) -> dict[str, Any]:
    """Return a run and its jobs as JSON has them."""
    jobs = []
    for job in local.app.read(list_ci_jobs, row.unit):
        attempts = [] if job.lifecycle == APPROVAL else local.app.read(list_ci_attempts, job.unit)
        jobs.append(
            {
                "name": job.name, "id": format_id(job.lifecycle, job.unit), "state": job.state, "outcome": job.outcome,
                "required": job.required,
                "attempts": [
                    {
                        "id": format_id("ci_attempt", each.unit), "state": each.state, "class": each.kind,
                        "explanation": each.explanation,
                    }
                    for each in attempts
                ],
            }
        )  # fmt: skip
    failed = local.app.read(read_plan_failure, row.unit)
    plan = local.app.read(read_ci_plan, row.unit)
    return {
        "id": format_id(RUN, row.unit), "state": row.state, "outcome": row.outcome, "plan_failed": failed,
        "plan_hash": None if plan is None else plan.hash, "commit": row.labels.get("commit"),
        "branch": row.labels.get("branch"), "jobs": jobs,
        "retry_of": None if row.retry_of is None else format_id(RUN, row.retry_of),
    }  # fmt: skip
