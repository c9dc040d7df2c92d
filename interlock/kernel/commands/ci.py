"""Commands of CI runs."""

from interlock.kernel.commands.base import Command, Route, Standing
from interlock.kernel.commands.submit import Work


class Plan(Command[Standing], frozen=True, kw_only=True):
    """Gives a run that waits for its plan its jobs and the plan.

    Or ends it, with the reason why there can be no plan.
    """

    committer = Route.SUBMIT
    scope = "operate"
    public = True

    unit: int
    work: tuple[Work, ...] = ()  # the jobs, which become children of the run; none is a failure
    plan: str = "null"  # JSON, kept with the run
    failed: str = ""  # why there can be no plan

    def count_rows(self) -> int:
        """Returns how many jobs are made."""
        return len(self.work) + 1
