"""The runner of CI on one machine: it plans runs, and runs their jobs, each attempt in its own worktree.

Both are tasks of the worker that a command such as `interlock ci run` starts. A job's handler is plain, and so runs in
a thread: a lost lease does not stop it in the middle. It asks whether it should stop, stops its step (TERM, a grace,
KILL), runs what runs afterwards in any case, and removes its worktree.
"""

from collections import deque
from threading import Event
from typing import TYPE_CHECKING, Any

from interlock.client.context import Context
from interlock.plugins.ci.orders import JOB_TASK, PLAN_TASK, JobOrder, PlanOrder
from interlock.worker.ci_attempt import CiAttempt
from interlock.worker.ci_output import CiOutput
from interlock.worker.ci_planning import plan_run
from interlock.worker.ci_worktrees import CiSettings
from interlock.worker.context import JobContext

if TYPE_CHECKING:
    from interlock.client.app import App


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

    def plan(self, ctx: Context, order: PlanOrder) -> dict[str, Any]:
        """Plans a run: its jobs are made, or it fails with the reason."""
        assert isinstance(ctx, JobContext)
        return plan_run(self.settings, ctx, order)

    def run_job(self, ctx: Context, order: JobOrder) -> dict[str, Any]:
        """Runs an attempt of a job, and returns what it kept."""
        assert isinstance(ctx, JobContext)
        output = CiOutput(ctx, [self.settings.secrets[name] for name in order.spec.secrets])
        self.tails[ctx.grant.parent or 0] = output.tail
        return CiAttempt(self.settings, ctx, order, output, self.no_grace.is_set).run()
