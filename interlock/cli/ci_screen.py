"""Output of a CI run while it runs: a live table on a terminal, else one line per job that ends."""

import sys
import time

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from interlock.cli.ci_local import LocalCi
from interlock.cli.ci_words import OUTCOMES, count_jobs, find_lost_need, list_attempts
from interlock.cli.output import (
    FINDING,
    INTERRUPTED,
    USAGE,
    format_count,
    make_console,
    make_state_cell,
    on_terminal,
    print_line,
)
from interlock.client.durations import format_rounded
from interlock.client.evidence import read_log
from interlock.kernel.ids import format_id
from interlock.plugins.ci.options import JOB, RUN
from interlock.plugins.ci.planner import CiPlan
from interlock.plugins.ci.queries import (
    CiJobRow,
    CiRunRow,
    list_ci_jobs,
    read_ci_plan,
    read_ci_run,
    read_plan_failure,
    read_why_stopped,
)
from interlock.worker.ci import CiRunner
from interlock.worker.ci_output import clean_line
from interlock.worker.ci_steps import NO_MATTER, STEP_ENDED

LINES_SHOWN, TAIL_SHOWN = 3, 40  # last lines of what runs, and of what failed
OFFER = "steps had this machine's tools and network; `interlock ci run --sandbox` runs them as a fleet would"


class Screen:
    """What a person sees of a run."""

    def __init__(self, local: LocalCi, run: int, runner: CiRunner, *, quiet: bool) -> None:
        self.local, self.run, self.runner, self.quiet = local, run, runner, quiet
        self.printed: set[int] = set()
        self.began = time.monotonic()
        self.plan: CiPlan | None = None
        self.live = (
            Live(console=make_console(), auto_refresh=False, transient=True) if on_terminal() and not quiet else None
        )

    def __enter__(self) -> "Screen":
        self.say(f"{format_id(RUN, self.run)} of {self.local.checkout.root}")
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live:
            self.live.stop()

    def say(self, text: str) -> None:
        """Print a line, above the live table if there is one."""
        if not self.quiet:
            if self.live is not None and self.live.is_started:
                self.live.console.print(text, soft_wrap=True)
            else:
                print_line(text)
            sys.stdout.flush()

    def update(self, jobs: list[CiJobRow]) -> None:
        """Show how a run stands now."""
        if self.live:
            self.live.update(self.draw(jobs))
        if jobs and self.plan is None:
            self.say_plan()
        for job in jobs:
            if job.outcome is not None and job.unit not in self.printed:
                self.printed.add(job.unit)
                self.say(self.describe_end(job, jobs))
        if self.live:
            self.live.refresh()

    def say_plan(self) -> None:
        self.plan = plan = self.local.app.read(read_ci_plan, self.run)
        if plan is not None:
            left = f", {len(plan.skipped)} left out" if plan.skipped else ""
            self.say(f"plan {plan.hash[:12]}: {format_count(len(plan.jobs), 'job')}{left}")

    def describe_end(self, job: CiJobRow, jobs: list[CiJobRow]) -> str:
        """Return the line of a job that has ended."""
        took = "" if job.started_at is None else f"\t{format_rounded(max(0, job.changed_at - job.started_at))}"
        attempts = list_attempts(self.local, job)
        last = attempts[-1] if attempts else None
        tries = f" (attempt {len(attempts)})" if len(attempts) > 1 else ""
        note = "\treused" if last and last.kind == "reused" else ""
        if last and job.outcome == "failure":
            note = f"\t{last.kind or 'unknown'}: {clean_line(last.explanation)}"
        elif job.outcome == "cancelled" and (need := find_lost_need(job, jobs, self.plan)):
            note = f"\t{need}"
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
                lines = list(self.runner.tails.get(job.unit, ()))[-LINES_SHOWN:]
                parts += [Text(f"  {line}", style="dim", no_wrap=True, overflow="ellipsis") for line in lines]
        return Group(*parts)

    # The end.

    def finish(self, *, interrupted: bool) -> int:
        """Print what came of the run. Returns the exit code."""
        row = self.local.app.read(read_ci_run, self.run)
        jobs = self.local.app.read(list_ci_jobs, self.run)
        failed = self.local.app.read(read_plan_failure, self.run)
        code = find_exit_code(row, failed, interrupted=interrupted)
        if self.quiet:
            return code
        if failed is not None:
            self.say(failed)
        for job in jobs:
            if job.outcome == "failure" and job.lifecycle == JOB:
                self.say_failure(job)
        if why := self.local.app.read(read_why_stopped, self.run):
            self.say(why)
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
        last = list_attempts(self.local, job)[-1]
        lines = cut_what_follows(log.decode(errors="replace").splitlines(), last.step)[-TAIL_SHOWN:]
        self.say(f"── {job.name}: {job.state}" + ("" if job.required else " (allowed to fail)"))
        for line in lines:
            self.say(f"  {clean_line(line)}")
        self.say(f"── {last.kind or 'unknown'}: {clean_line(last.explanation)}")
        self.say(f"── alone: interlock ci run {job.name}")


def cut_what_follows(lines: list[str], step: str) -> list[str]:
    """Return the lines of a log up to the end of the step that failed: what runs afterwards may write more than it."""
    ended = STEP_ENDED if not step else f"the step '{step}' "
    places = [
        place + 1
        for place, line in enumerate(lines)
        if line.startswith(ended) and not "".join(lines[place + 1 : place + 2]).startswith(NO_MATTER)
    ]
    return lines[: places[-1]] if places else lines


def find_exit_code(row: CiRunRow, failed: str | None, *, interrupted: bool) -> int:
    """Return the exit code for the end of a run."""
    if row.outcome == "success":
        return 0
    if interrupted or row.outcome == "cancelled":
        return INTERRUPTED
    return USAGE if failed is not None else FINDING
