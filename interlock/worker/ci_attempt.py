"""One attempt of a CI job: from the acknowledgement of its lease to its end.

In order, it acknowledges its lease (STARTING), checks its files out, runs its steps (RUNNING), keeps its artifacts
(UPLOADING), and ends. How it ended is said as what was seen: the stage, the step, the exit code or signal and the last
line. What kind of failure that is, and whether the job is tried again, the engine decides.

What is ugly: the engine's clock decides that a job has timed out, and the runner has a clock too, so that its step
stops at the same time. So when its own time is over, the runner asks until the engine has said so.
"""

import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from interlock.client.exceptions import Cancelled, StepFailed
from interlock.git import GitError
from interlock.kernel.commands import Enter, Heartbeat, LeaseStatus, Start
from interlock.kernel.errors import InterlockError, Stale
from interlock.kernel.ids import format_id
from interlock.plugins.ci.failures import ARTIFACTS, CHECKOUT, UPLOAD, Sight
from interlock.plugins.ci.globs import GlobSet
from interlock.plugins.ci.junit import BYTES_MAX as JUNIT_MAX
from interlock.plugins.ci.junit import LOST as LOST_TESTS
from interlock.plugins.ci.junit import CiTest, choose_tests, parse_junit
from interlock.plugins.ci.orders import JobOrder, Reuse
from interlock.plugins.ci.results import SIGHT, TESTS
from interlock.worker.ci_artifacts import NoFiles, NotFit, keep_artifact, list_files, take_artifacts_over
from interlock.worker.ci_output import CiOutput
from interlock.worker.ci_steps import CiSteps
from interlock.worker.ci_worktrees import CiSettings, make_worktree, remove_worktree
from interlock.worker.context import JobContext, check_accepted

TESTS_AT_ONCE = 300  # in one record, which then is no large value
VERDICT_SECONDS, ASK_EVERY = 10.0, 0.1  # for how long the engine is asked whether a job has timed out, and how often


class CiAttempt:
    """One attempt of a job."""

    def __init__(
        self, settings: CiSettings, ctx: JobContext, order: JobOrder, output: CiOutput, has_no_grace: Callable[[], bool]
    ) -> None:
        self.settings, self.ctx, self.order, self.spec, self.output = settings, ctx, order, order.spec, output
        name = f"{settings.queue}-{format_id(ctx.grant.lifecycle, ctx.grant.unit)}"
        self.place = os.path.join(settings.folder, name)
        self.steps = CiSteps(settings, ctx, order, self.place, output, has_no_grace)

    def run(self) -> dict[str, Any]:
        """Runs it.

        Raises:
            StepFailed: what failed, Cancelled if it was stopped, Stale if its lease is over.
        """
        self.say(Start)
        if self.order.reuse is not None:
            return self.take_over(self.order.reuse)
        try:
            try:
                make_worktree(self.settings, self.place, self.order.commit, lambda: self.ctx.cancelled)
            except (GitError, OSError) as error:
                if self.ctx.cancelled:
                    raise Cancelled("it was asked to stop") from None
                self.output.write_line(f"the files could not be checked out: {error}")
                raise self.fail(Sight(stage=CHECKOUT, summary=str(error))) from None
            self.say(Enter, phase="run")
            sight = self.steps.run()
            self.steps.run_after()
            if sight is not None and self.steps.time_is_over:
                self.await_verdict()
            if self.ctx.cancelled:
                raise Cancelled("it was asked to stop")
            self.say(Enter, phase="upload")
            missing = self.keep_artifacts(failed=sight is not None)
        finally:
            remove_worktree(self.settings.checkout.repository.stopped_by(self.steps.has_no_grace), self.place)
        if sight or missing:
            raise self.fail(sight or missing or Sight())
        return {"commit": self.order.commit}

    def say(self, kind: type[Start] | type[Enter] | type[Heartbeat], **fields: Any) -> None:
        """Tells the engine how far it is.

        Raises:
            Stale: its lease is over.
            Cancelled: it is to stop.
        """
        answers: list[LeaseStatus] = self.ctx.sender.send(kind(tenant=self.ctx.tenant, held=(self.ctx.held,), **fields))
        if not answers[0].accepted and self.ctx.cancelled:
            raise Cancelled("it was asked to stop")
        check_accepted(answers)
        if answers[0].cancel:
            self.ctx.stopping.set()

    def fail(self, sight: Sight) -> StepFailed:
        """Says what was seen of the end, and returns the error that ends the attempt."""
        sight = msgspec.structs.replace(sight, summary=self.output.hide(sight.summary))
        with suppress(Stale):
            check_accepted(self.ctx.sender.send(self.ctx.record("step", sight, SIGHT)))
        return StepFailed(sight.summary or "it failed")

    def await_verdict(self) -> None:
        """Asks the engine until it has said that the time is over.

        Raises:
            Stale: the job is another worker's by now.
        """
        until = time.monotonic() + VERDICT_SECONDS
        while time.monotonic() < until and not self.ctx.cancelled:
            self.say(Heartbeat)
            time.sleep(ASK_EVERY)

    def take_over(self, reuse: Reuse) -> dict[str, Any]:
        """Takes over what an earlier attempt came to, its artifacts too."""
        self.say(Enter, phase="run")
        earlier = format_id("ci_job", reuse.job)
        self.output.write_line(f"reused from {earlier}: nothing has changed of what it depends on")
        return {"reused": earlier, "artifacts": take_artifacts_over(self.ctx, reuse.attempt)}

    # What is kept.

    def keep_artifacts(self, *, failed: bool) -> Sight | None:
        """Keeps the artifacts of a job; of one that failed, those that are there. Returns why one cannot be kept."""
        self.report_tests()
        for artifact in self.spec.artifacts:
            try:
                size = keep_artifact(self.ctx, self.place, artifact)
                self.output.write_line(f"the artifact '{artifact.name}' was kept: {size}")
            except NotFit as error:
                if not failed or not isinstance(error, NoFiles):
                    self.output.write_line(str(error))
                    return Sight(stage=ARTIFACTS, summary=str(error))
            except (OSError, InterlockError) as error:
                if isinstance(error, Stale):
                    raise
                self.output.write_line(str(error))
                return Sight(stage=UPLOAD, summary=f"the artifact '{artifact.name}': {error}")
        return None

    def report_tests(self) -> None:
        """Reports the tests that the job's JUnit files tell of; a file that is none is named in the log."""
        globs, tests = GlobSet(self.spec.reports.junit), list[CiTest]()
        for path in sorted(path for path in list_files(self.place) if globs.match(path)) if globs.globs else ():
            try:
                tests += parse_junit(read_report(os.path.join(self.place, path)), path, self.output.hide)
            except (OSError, InterlockError) as error:
                self.output.write_line(str(error))
        kept = choose_tests(tests)
        for number, start in enumerate(range(0, len(kept), TESTS_AT_ONCE), start=1):
            part = self.ctx.record("step", kept[start : start + TESTS_AT_ONCE], f"{TESTS}{number}")
            check_accepted(self.ctx.sender.send(part))
        if tests:
            lost = sum(test.outcome in LOST_TESTS for test in tests)
            self.output.write_line(f"tests in the reports: {len(tests)}, of which {lost} failed")


def read_report(path: str) -> bytes:
    """Returns a file that a step wrote, at most a little more than is allowed.

    Raises:
        InterlockError: it is no file; whoever opened a pipe that nobody writes to would wait for ever.
        OSError: it cannot be read.
    """
    if not stat.S_ISREG(os.lstat(path).st_mode):
        raise InterlockError(f"'{os.path.basename(path)}' is no file, and is not read")
    with open(path, "rb") as file:
        return file.read(JUNIT_MAX + 1)
