"""Steps of a CI job: commands in a worktree, one after another, each with a time limit; then cleanup steps.

A step that is to stop gets TERM, then a grace, then KILL. Of the time that a job has to stop in, its step has one half,
and what runs afterwards the other; the rest is left for the answer.
"""

import os
import shutil
import time
from collections.abc import Callable

from interlock.kernel.durations import microseconds
from interlock.kernel.errors import InterlockError, PermanentError
from interlock.kernel.ids import format_id
from interlock.plugins.ci.config import CiStep
from interlock.plugins.ci.failures import START, STEPS, Sight
from interlock.plugins.ci.orders import JobOrder
from interlock.process import ProcessEnd, ProcessLimits, choose_sandbox, run
from interlock.process.run import CROWDED, LOG, never_stop
from interlock.worker.ci_output import CiOutput
from interlock.worker.ci_worktrees import WORKSPACE, CiSettings
from interlock.worker.context import JobContext

# How lines of the log begin: of a step that failed, and then of one that runs afterwards and may fail.
STEP_ENDED, NO_MATTER = "the step '", "this does not fail the job"
STOP_RESERVE = 2.0  # seconds of the time to stop in that are left for the answer


class CiSteps:
    """The steps of one attempt."""

    def __init__(
        self, settings: CiSettings, ctx: JobContext, order: JobOrder, place: str, output: CiOutput,
        has_no_grace: Callable[[], bool],
    ) -> None:  # fmt: skip
        """`place`: the worktree. `has_no_grace`: whether what stops has no more time."""
        self.settings, self.ctx, self.order, self.spec = settings, ctx, order, order.spec
        self.place, self.output, self.has_no_grace = place, output, has_no_grace
        self.ends_at = float("inf")  # when the time of the job is over, by a clock that only grows
        self.stop_by = float("inf")  # by when it has stopped, once it was asked to
        self.secrets = {name: settings.secrets[name] for name in self.spec.secrets}

    def run(self) -> Sight | None:
        """Runs the steps until one fails. Returns what was seen of that."""
        self.ends_at = time.monotonic() + microseconds(self.spec.timeout) / 1_000_000
        if not self.spec.steps:
            self.output.write_line(f"nothing to run: {self.order.reason}")
        for number, step in enumerate(self.spec.steps, start=1):
            if self.ctx.cancelled:
                return None
            if (sight := self.run_step(step, step.name or f"step {number}", self.find_limits(step))) is not None:
                return sight
        return None

    def run_after(self) -> None:
        """Runs what runs afterwards in any case; of a job that is to stop, as far as there is time."""
        for number, step in enumerate(self.spec.after, start=1):
            limits = self.find_limits(step, after=True)
            if self.has_no_grace() or (limits.seconds or 0) <= 0.1:
                self.output.write_line("there is no time left for what runs afterwards")
                return
            sight = self.run_step(step, step.name or f"after {number}", limits, after=True)
            if sight is not None:
                self.output.write_line(f"{NO_MATTER}: {sight.summary or sight.exit_code}")

    @property
    def time_is_over(self) -> bool:
        """Whether the job has used up its time, by the clock of the runner."""
        return time.monotonic() >= self.ends_at

    def find_limits(self, step: CiStep, *, after: bool = False) -> ProcessLimits:
        """Returns how long a step may take, and how long to stop."""
        now, stop_within = time.monotonic(), microseconds(self.spec.cancel_within) / 1_000_000
        own = microseconds(step.timeout) / 1_000_000 if step.timeout else float("inf")
        reserve = min(STOP_RESERVE, stop_within / 4)
        grace = (stop_within - reserve) / (2 if self.spec.after else 1)
        if not after:
            seconds = max(0.1, min(own, self.ends_at - now))
            return ProcessLimits(
                seconds=seconds, grace_seconds=grace, output_bytes=None, tree_processes=self.spec.processes
            )
        is_over = self.ctx.cancelled or now >= self.ends_at
        if is_over and self.stop_by == float("inf"):
            self.stop_by = now + grace
        left = self.stop_by - now if is_over else max(self.ends_at - now, grace)
        return ProcessLimits(
            seconds=max(0.1, min(own, left)), grace_seconds=reserve / 2, output_bytes=None,
            tree_processes=self.spec.processes,
        )  # fmt: skip

    def run_step(self, step: CiStep, name: str, limits: ProcessLimits, *, after: bool = False) -> Sight | None:
        """Runs a step. Returns what was seen of its end, unless it succeeded or was asked to stop."""
        first, *more = step.run.strip().splitlines()
        self.output.write_line(f"$ {first}{' …' if more else ''}")
        environment = self.make_environment()
        try:
            end = run(
                [*find_shell(environment["PATH"]), step.run], directory=self.place, environment=environment,
                on_output=self.add_output, limits=limits, secrets=list(self.secrets.values()),
                stop=never_stop if after else (lambda: self.ctx.cancelled), kill=self.has_no_grace,
                sandbox=choose_sandbox(
                    "bubblewrap" if self.settings.sandbox else "none", self.place, network=self.spec.network
                ),
            )  # fmt: skip
        except (PermanentError, InterlockError) as error:
            self.output.end_line()
            return Sight(stage=START, step=name, summary=str(error))
        self.output.end_line()
        if (end.killed or end.left) and not self.settings.sandbox:  # a sandbox ends with all that is in it
            count = end.killed + end.left
            self.output.write_line(
                f"{count} {'process was' if count == 1 else 'processes were'} left behind and killed"
            )
        if end.succeeded or (end.stopped == "request" and not after):
            return None
        return self.describe_end(name, end)

    def describe_end(self, name: str, end: ProcessEnd) -> Sight:
        """Returns what was seen of the end of a step."""
        if end.stopped == CROWDED:
            self.output.write_line(f"{self.spec.processes:,} processes are allowed at a time; `processes` allows more")
        self.output.write_line(f"{STEP_ENDED}{name}' {end.describe()}")
        lines = [line for line in list(self.output.tail)[:-1] if line.strip() and not line.startswith("$ ")]
        return Sight(
            stage=STEPS, step=name, exit_code=end.exit_code, signal=end.signal, stopped=end.stopped,
            summary=lines[-1].strip() if lines else "",
        )  # fmt: skip

    def make_environment(self) -> dict[str, str]:
        """Returns all variables that a step gets."""
        grant = self.ctx.grant
        own = {"PATH": os.defpath, "HOME": self.place, "LANG": "C.UTF-8"} if self.settings.sandbox else {}
        return {
            "PATH": os.defpath, **self.settings.environment, **own, **self.spec.env, **self.secrets, "CI": "true",
            "INTERLOCK_JOB": self.order.name, "INTERLOCK_COMMIT": self.order.commit,
            "INTERLOCK_BRANCH": self.order.branch, "INTERLOCK_UNIT": format_id(grant.lifecycle, grant.unit),
            WORKSPACE: self.place,
        }  # fmt: skip

    def add_output(self, stream: str, data: bytes) -> None:
        """Adds what a step wrote to the log."""
        if stream != LOG or self.settings.sandbox:
            self.output.write(data)


def find_shell(path: str) -> list[str]:
    """Returns the shell that runs steps, which ends with the first command that fails."""
    bash = shutil.which("bash", path=path)
    return [bash, "-eo", "pipefail", "-c"] if bash else ["sh", "-e", "-c"]
