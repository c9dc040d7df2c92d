"""Commands about tasks of a workstream."""

from collections.abc import Sequence

from interlock.kernel.commands.base import Command, Route, Standing
from interlock.kernel.commands.leases import LeaseRef
from interlock.kernel.commands.submit import Submitted, Work


class AddTasks(Command[list[Submitted]], frozen=True, kw_only=True):
    """Adds tasks to the workstream of a task, each under a name of its own; adding them again adds none."""

    counted = "work"
    committer = Route.HOLDER
    scope = "worker"
    public = True
    takes_key = False

    lease: LeaseRef  # of the task that adds them
    work: tuple[Work, ...]

    def held_units(self) -> Sequence[int]:
        return [self.lease.unit]


class RetryTask(Command[Submitted], frozen=True, kw_only=True):
    """Makes a new task in the place of one that failed or was cancelled, while its workstream goes on."""

    committer = Route.OTHER
    scope = "operate"
    public = True

    unit: int


class SkipTask(Command[Standing], frozen=True, kw_only=True):
    """Completes a task without running it, if it has not started and its needs are met."""

    committer = Route.OTHER
    scope = "operate"
    public = True

    unit: int


class ReassignTask(Command[Standing], frozen=True, kw_only=True):
    """Revokes the lease of a running task, so that another worker takes it; no attempt is used up."""

    committer = Route.OTHER
    scope = "operate"
    public = True

    unit: int
