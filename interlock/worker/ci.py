"""The runner of CI on one machine: it plans runs, and runs their jobs, each attempt in a worktree of its own.

Both are tasks of the worker that a command such as `interlock ci run` starts. A job's handler is plain, and so runs in
a thread: a lost lease does not stop it in the middle. It asks whether it should stop, stops its step (TERM, a grace,
KILL), runs what runs afterwards in any case, and removes its worktree.

In order, an attempt acknowledges its lease (STARTING), checks its files out, runs its steps (RUNNING), keeps its
artifacts (UPLOADING), and ends. How it ended is said as what was seen: the stage, the step, the exit code or signal and
the last line. What kind of failure that is, and whether the job is tried again, the engine decides.

What is ugly: the engine's clock decides that a job has timed out, and the runner has a clock too, so that its step
stops at the same time. So when its own time is over, the runner asks until the engine has said so.
"""

import os
import shutil
import sys
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import astuple

from interlock.client.context import Context
from interlock.client.exceptions import Cancelled, StepFailed
from interlock.git import GitError, Repository
from interlock.kernel.commands import Enter, Heartbeat, LeaseStatus, Plan, Start, Work
from interlock.kernel.durations import microseconds
from interlock.kernel.errors import InterlockError, PermanentError, Stale
from interlock.kernel.ids import format_id
from interlock.plugins.ci.checkout import Checkout, read_request, read_tree
from interlock.plugins.ci.config import CiStep
from interlock.plugins.ci.failures import ARTIFACTS, CHECKOUT, START, STEPS, UPLOAD, Sight
from interlock.plugins.ci.globs import GlobSet
from interlock.plugins.ci.junit import BYTES_MAX as JUNIT_MAX
from interlock.plugins.ci.junit import LOST as LOST_TESTS
from interlock.plugins.ci.junit import CiTest, choose_tests, parse_junit
from interlock.plugins.ci.orders import JOB_TASK, PLAN_TASK, JobOrder, PlanOrder, Reuse, make_jobs
from interlock.plugins.ci.plan_process import PlanAnswer
from interlock.plugins.ci.planner import CiPlan
from interlock.plugins.ci.queries import find_successes, list_ci_jobs, read_ci_plan
from interlock.plugins.ci.results import SIGHT, TESTS
from interlock.plugins.evidence.queries import list_artifacts
from interlock.process import ProcessEnd, ProcessLimits, choose_sandbox, run
from interlock.process.masking import SECRET_MIN
from interlock.process.run import LOG
from interlock.process.sandbox import NOBODY
from interlock.worker.ci_artifacts import NoFiles, keep_artifact, list_files, take_artifacts_over
from interlock.worker.context import JobContext, check_accepted

if TYPE_CHECKING:
    from interlock.client.app import App

PLANNER = "interlock.plugins.ci.plan_process"
PLAN_LIMITS = {"memory_bytes": 2 << 30, "cpu_seconds": 60, "file_bytes": 1 << 20}
TESTS_AT_ONCE = 300  # in one record, which then is no large value
REUSED_FOR_US = 7 * 86_400_000_000  # results that are older do not count
TAIL_LINES = 40
LINE_MAX = 400  # characters of a line that is shown
STOP_RESERVE = 2.0  # seconds of the time to stop in that are left for the answer
VERDICT_SECONDS, ASK_EVERY = 10.0, 0.1  # for how long the engine is asked whether a job has timed out, and how often


@dataclass(frozen=True, kw_only=True)
class CiSettings:
    """How jobs are run.

    Parameters:
        checkout: the repository that they check.
        folder: where their worktrees are made.
        queue: where they wait; it is a part of the names of the worktrees.
        environment: variables that every step gets.
        secrets: where the values of secrets are found by their names.
        sandbox: whether steps run in bubblewrap, without the network unless their job asks for it.
    """

    checkout: Checkout
    folder: str
    queue: str
    environment: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    sandbox: bool = False


class CiRunner:
    """The two tasks of CI, and what is shown of them while they run."""

    def __init__(self, settings: CiSettings) -> None:
        self.settings = settings
        self.tails: dict[int, deque[str]] = {}  # by job: the last lines of its newest attempt
        self.no_grace = Event()  # whoever stops has no more time: somebody has asked twice

    def offer(self, app: "App") -> None:
        """Lets an app plan and run jobs."""
        app.define(self.plan, PLAN_TASK, {})
        app.define(self.run_job, JOB_TASK, {})

    # Planning.

    def plan(self, ctx: Context, order: PlanOrder) -> dict[str, Any]:
        """Plans a run: its jobs are made, or it fails with the reason."""
        assert isinstance(ctx, JobContext)
        assert ctx.app
        try:
            answer = self.find_plan(ctx, order)
        except GitError as error:
            answer = PlanAnswer(failed=str(error))
        plan, failed = answer.plan, answer.failed
        if plan is not None:
            failed = self.find_missing_secret(plan)
        work: tuple[Work, ...] = ()
        if plan is not None and not failed:
            work = tuple(make_jobs(order, self.settings.queue, plan.jobs, self.find_reused(ctx, order, plan)))
        text = "null" if plan is None else msgspec.json.encode(plan).decode()
        actor = format_id(ctx.grant.lifecycle, ctx.grant.unit)
        command = Plan(tenant=ctx.tenant, actor=actor, unit=order.run, work=work, plan=text, failed=failed)
        standing = ctx.app.send(command)
        return {"state": standing.state, "jobs": len(work)}

    def find_plan(self, ctx: JobContext, order: PlanOrder) -> PlanAnswer:
        """Returns the plan of a run that is done again, or a new one. Raises GitError."""
        assert ctx.app
        if order.again is not None:
            plan = ctx.app.read(read_ci_plan, order.again)
            return PlanAnswer(plan, "" if plan else f"the run {order.again} has no plan that could be done again")
        checkout = self.settings.checkout
        try:
            request = read_request(
                checkout, read_tree(checkout, order.commit), base=order.base, event=order.event, branch=order.branch,
                tag=order.tag, only=order.only,
            )  # fmt: skip
        except InterlockError as error:
            return PlanAnswer(failed=str(error))
        outputs: dict[str, list[bytes]] = {"out": [], "err": [], LOG: []}
        end = run(
            [sys.executable, "-m", PLANNER], directory="/", stdin=msgspec.json.encode(request),
            environment={"PATH": os.defpath, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            on_output=lambda stream, data: outputs[stream].append(data), stop=lambda: ctx.cancelled,
            limits=ProcessLimits(grace_seconds=1.0, **PLAN_LIMITS),
        )  # fmt: skip
        if not end.succeeded:
            last = b"".join(outputs["err"]).decode(errors="replace").strip().splitlines()[-1:]
            return PlanAnswer(failed=": ".join((f"the planner {end.describe()}", *last)))
        return msgspec.json.decode(b"".join(outputs["out"]), type=PlanAnswer)

    def find_missing_secret(self, plan: CiPlan) -> str:
        """Returns why a plan cannot be run for want of a secret; empty if it can."""
        for job in plan.jobs:
            for name in job.spec.get("secrets", ()):
                value = self.settings.secrets.get(name, "")
                if len(value.encode().strip()) < SECRET_MIN:
                    problem = "is too short to be masked" if value else "is not set"
                    return (
                        f"the job '{job.name}' has the secret {name}, and the variable of that name {problem}; set it "
                        f"to at least {SECRET_MIN} characters"
                    )
        return ""

    def find_reused(self, ctx: JobContext, order: PlanOrder, plan: CiPlan) -> dict[str, Reuse]:
        """Returns what is taken over from earlier runs, by job."""
        assert ctx.app
        if order.again is not None:
            return find_kept(ctx.app, order.again, plan, order.from_jobs)
        if not order.reuse:
            return {}
        prints = [job.fingerprint for job in plan.jobs if job.fingerprint and not job.not_reused]
        since = time.time_ns() // 1_000 - REUSED_FOR_US
        earlier_results = ctx.app.read(find_successes, prints, since)
        return {
            job.name: Reuse(*astuple(earlier_results[job.fingerprint]))
            for job in plan.jobs
            if not job.not_reused and job.fingerprint in earlier_results
            and has_artifacts(ctx.app, earlier_results[job.fingerprint].attempt, job.spec)
        }  # fmt: skip

    # Running.

    def run_job(self, ctx: Context, order: JobOrder) -> dict[str, Any]:
        """Runs an attempt of a job, and returns what it kept."""
        assert isinstance(ctx, JobContext)
        return CiAttempt(self, ctx, order).run()


def find_kept(app: "App", run: int, plan: CiPlan, from_jobs: tuple[str, ...] | None) -> dict[str, Reuse]:
    """Returns what a run that is done again keeps: its successes, but those jobs and all that come after them."""
    if from_jobs is None:
        return {}
    again = set(from_jobs)
    for job in plan.jobs:  # in an order in which needs come first
        if any(need.job in again for need in job.needs):
            again.add(job.name)
    return {
        row.name: Reuse(row.last_attempt, row.unit, row.changed_at)
        for row in app.read(list_ci_jobs, run)
        if row.outcome == "success" and row.last_attempt is not None and row.name not in again
    }


def has_artifacts(app: "App", attempt: int, spec: Mapping[str, Any]) -> bool:
    """Whether all artifacts of an earlier attempt are still there."""
    wanted = {artifact["name"] for artifact in spec.get("artifacts", ())}
    if not wanted:
        return True
    blobs = app.engine.find_blobs()
    there = {row.name for row in app.read(list_artifacts, attempt) if blobs.find_length(app.tenant, row.digest)}
    return wanted <= there


class CiAttempt:
    """One attempt of a job, from the acknowledgement of its lease to its end."""

    def __init__(self, runner: CiRunner, ctx: JobContext, order: JobOrder) -> None:
        self.runner, self.ctx, self.order = runner, ctx, order
        self.settings, self.spec = runner.settings, order.spec
        self.name = f"{self.settings.queue}-{format_id(ctx.grant.lifecycle, ctx.grant.unit)}"
        self.place = os.path.join(self.settings.folder, self.name)
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        runner.tails[ctx.grant.parent or 0] = self.tail
        self.partial = b""  # the beginning of a line
        self.ends_at = float("inf")  # when its time is over, by a clock that only grows
        self.stop_by = float("inf")  # by when it has stopped, once it was asked to
        self.secrets = {name: self.settings.secrets[name] for name in self.spec.secrets}

    def run(self) -> dict[str, Any]:
        """Runs it. Raises StepFailed for what failed, Cancelled if it was stopped, Stale if its lease is over."""
        self.say(Start)
        if self.order.reuse is not None:
            return self.take_over(self.order.reuse)
        try:
            self.check_out()
        except (GitError, OSError) as error:
            self.remove()
            raise self.fail(Sight(stage=CHECKOUT, summary=str(error))) from None
        try:
            self.say(Enter, phase="run")
            self.ends_at = time.monotonic() + microseconds(self.spec.timeout) / 1_000_000
            sight = self.run_steps()
            self.run_after()
            if sight is not None and time.monotonic() >= self.ends_at:
                self.await_verdict()
            if self.ctx.cancelled:
                raise Cancelled("it was asked to stop")
            self.say(Enter, phase="upload")
            missing = self.keep_artifacts(failed=sight is not None)
        finally:
            self.remove()
        if sight or missing:
            raise self.fail(sight or missing or Sight())
        return {"commit": self.order.commit}

    def say(self, kind: type[Start] | type[Enter] | type[Heartbeat], **fields: Any) -> None:
        """Tells the engine how far it is. Raises Stale if its lease is over, and Cancelled if it is to stop."""
        answers: list[LeaseStatus] = self.ctx.sender.send(kind(tenant=self.ctx.tenant, held=(self.ctx.held,), **fields))
        if not answers[0].accepted and self.ctx.cancelled:
            raise Cancelled("it was asked to stop")
        check_accepted(answers)
        if answers[0].cancel:
            self.ctx.stopping.set()

    def fail(self, sight: Sight) -> StepFailed:
        """Says what was seen of the end, and returns the error that ends the attempt."""
        with suppress(Stale):
            check_accepted(self.ctx.sender.send(self.ctx.record("step", sight, SIGHT)))
        return StepFailed(sight.summary or "it failed")

    def await_verdict(self) -> None:
        """Asks the engine until it has said that the time is over. Raises Stale."""
        until = time.monotonic() + VERDICT_SECONDS
        while time.monotonic() < until and not self.ctx.cancelled:
            self.say(Heartbeat)
            time.sleep(ASK_EVERY)

    # What was done before.

    def take_over(self, reuse: Reuse) -> dict[str, Any]:
        """Takes over what an earlier attempt came to, its artifacts too."""
        assert self.ctx.app
        self.say(Enter, phase="run")
        earlier = format_id("ci_job", reuse.job)
        self.write(f"reused from {earlier}: nothing has changed of what it depends on\n".encode())
        taken = take_artifacts_over(self.ctx, reuse.attempt)
        return {"reused": earlier, "artifacts": taken}

    # Files.

    def check_out(self) -> None:
        """Makes the worktree of this attempt. Raises GitError."""
        repository = self.settings.checkout.repository
        repository.add_worktree(self.place, self.order.commit)
        if self.settings.sandbox and os.geteuid() == 0:  # in the sandbox it becomes a user who owns nothing else
            give_away(self.place)

    def remove(self) -> None:
        """Removes the worktree, whatever is in it."""
        remove_worktree(self.settings.checkout.repository, self.place)

    # Steps.

    def run_steps(self) -> Sight | None:
        """Runs the steps until one fails. Returns what was seen of that."""
        if not self.spec.steps:
            self.write(f"nothing to run: {self.order.reason}\n".encode())
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
            if self.runner.no_grace.is_set() or (limits.seconds or 0) <= 0.1:
                self.write(b"there is no time left for what runs afterwards\n")
                return
            sight = self.run_step(step, step.name or f"after {number}", limits, after=True)
            if sight is not None:
                self.write(f"this does not fail the job: {sight.summary or sight.exit_code}\n".encode())

    def find_limits(self, step: CiStep, *, after: bool = False) -> ProcessLimits:
        """Returns how long a step may take, and how long to stop."""
        now, stop_within = time.monotonic(), microseconds(self.spec.cancel_within) / 1_000_000
        own = microseconds(step.timeout) / 1_000_000 if step.timeout else float("inf")
        reserve = min(STOP_RESERVE, stop_within / 4)
        grace = (stop_within - reserve) / (2 if self.spec.after else 1)
        if not after:
            return ProcessLimits(seconds=positive(min(own, self.ends_at - now)), grace_seconds=grace, output_bytes=None)
        is_over = self.ctx.cancelled or now >= self.ends_at
        if is_over and self.stop_by == float("inf"):
            self.stop_by = now + grace
        left = self.stop_by - now if is_over else max(self.ends_at - now, grace)
        return ProcessLimits(seconds=max(0.1, min(own, left)), grace_seconds=reserve / 2, output_bytes=None)

    def run_step(self, step: CiStep, name: str, limits: ProcessLimits, *, after: bool = False) -> Sight | None:
        """Runs a step. Returns what was seen of its end, unless it succeeded or was asked to stop."""
        first, *more = step.run.strip().splitlines()
        self.write(f"$ {first}{' …' if more else ''}\n".encode())
        environment = self.make_environment()
        try:
            end = run(
                [*find_shell(environment["PATH"]), step.run], directory=self.place, environment=environment,
                on_output=self.add_output, limits=limits, secrets=list(self.secrets.values()),
                stop=(lambda: False) if after else (lambda: self.ctx.cancelled), kill=self.runner.no_grace.is_set,
                sandbox=choose_sandbox(
                    "bubblewrap" if self.settings.sandbox else "none", self.place, network=self.spec.network
                ),
            )  # fmt: skip
        except (PermanentError, InterlockError) as error:
            self.end_line()
            return Sight(stage=START, step=name, summary=str(error))
        self.end_line()
        if end.killed or end.left:
            self.write(f"{end.killed + end.left} processes were left behind and killed\n".encode())
        if end.succeeded or (end.stopped == "request" and not after):
            return None
        return self.describe_end(name, end)

    def describe_end(self, name: str, end: ProcessEnd) -> Sight:
        """Returns what was seen of the end of a step."""
        self.write(f"the step '{name}' {end.describe()}\n".encode())
        lines = [line for line in list(self.tail)[:-1] if line.strip() and not line.startswith("$ ")]
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
        }  # fmt: skip

    # Output.

    def add_output(self, stream: str, data: bytes) -> None:
        """Adds what a step wrote to the log."""
        if stream == LOG and not self.settings.sandbox:
            return
        self.write(data)

    def write(self, data: bytes) -> None:
        """Adds bytes to the log, and to the last lines that are shown."""
        self.ctx.write_log(data)
        *lines, self.partial = (self.partial + data).split(b"\n")
        self.partial = self.partial[:LINE_MAX]
        self.tail.extend(decode_line(line) for line in lines[-TAIL_LINES:])

    def end_line(self) -> None:
        """Ends a line that a step began."""
        if self.partial:
            self.write(b"\n")

    # What is kept.

    def keep_artifacts(self, *, failed: bool) -> Sight | None:
        """Keeps the artifacts of a job; of one that failed, those that are there. Returns why one cannot be kept."""
        self.report_tests()
        for artifact in self.spec.artifacts:
            try:
                size = keep_artifact(self.ctx, self.place, artifact)
                self.write(f"the artifact '{artifact.name}' was kept: {size}\n".encode())
            except NoFiles as error:
                if not failed:
                    self.write(f"{error}\n".encode())
                    return Sight(stage=ARTIFACTS, summary=str(error))
            except (OSError, InterlockError) as error:
                if isinstance(error, Stale):
                    raise
                self.write(f"{error}\n".encode(errors="backslashreplace"))
                return Sight(stage=UPLOAD, summary=f"the artifact '{artifact.name}': {error}")
        return None

    def report_tests(self) -> None:
        """Reports the tests that the job's JUnit files tell of; a file that is none is named in the log."""
        globs, tests = GlobSet(self.spec.reports.junit), list[CiTest]()
        for path in sorted(path for path in list_files(self.place) if globs.match(path)) if globs.globs else ():
            try:
                with open(os.path.join(self.place, path), "rb") as file:
                    tests += parse_junit(file.read(JUNIT_MAX + 1), path)
            except (OSError, InterlockError) as error:
                self.write(f"{error}\n".encode(errors="backslashreplace"))
        kept = choose_tests(tests)
        for number, start in enumerate(range(0, len(kept), TESTS_AT_ONCE), start=1):
            part = self.ctx.record("step", kept[start : start + TESTS_AT_ONCE], f"{TESTS}{number}")
            check_accepted(self.ctx.sender.send(part))
        if tests:
            lost = sum(test.outcome in LOST_TESTS for test in tests)
            self.write(f"{len(tests)} tests were reported, of which {lost} failed\n".encode())


def positive(seconds: float) -> float | None:
    """Returns a time limit; None for no limit."""
    return None if seconds == float("inf") else max(0.1, seconds)


def decode_line(line: bytes) -> str:
    """Returns a line of output as it can be shown."""
    text = line.rpartition(b"\r")[2] if not line.endswith(b"\r") else line[:-1].rpartition(b"\r")[2]
    return "".join(c if c.isprintable() or c == "\t" else "\N{REPLACEMENT CHARACTER}" for c in
                   text[: 4 * LINE_MAX].decode(errors="replace"))[:LINE_MAX]  # fmt: skip


def find_shell(path: str) -> list[str]:
    """Returns the shell that runs steps, which ends with the first command that fails."""
    bash = shutil.which("bash", path=path)
    return [bash, "-eo", "pipefail", "-c"] if bash else ["sh", "-e", "-c"]


def give_away(folder: str) -> None:
    """Gives all files of a folder to the user that a sandbox becomes."""
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            os.lchown(os.path.join(root, name), NOBODY, NOBODY)
    os.chown(folder, NOBODY, NOBODY)


def remove_worktree(repository: Repository, place: str) -> None:
    """Removes a worktree and all files in it, also one that git does not know any more."""
    with suppress(InterlockError):
        repository.remove_worktree(place, force=True)
    if os.path.lexists(place):
        for root, folders, _ in os.walk(place):
            for name in folders:  # a step may have made a folder that nobody may write to
                path = os.path.join(root, name)
                if not os.path.islink(path):
                    with suppress(OSError):
                        os.chmod(path, 0o700)
        shutil.rmtree(place, ignore_errors=True)
    repository.forget_worktree(place)
