"""Commands that store definitions of tasks."""

from interlock.kernel.commands.base import Command, Planned, Route
from interlock.kernel.commands.submit import Work
from interlock.kernel.parameters import Parameter


class DefineTask(Command[Planned], frozen=True, kw_only=True):
    """Stores what a task takes and its rules, as its newest version; the same definition again changes nothing.

    The rules are what `work` says of its queue, its attempts, its lease and so on; its task is the name.
    """

    committer = Route.OTHER
    scope = "worker"
    public = True

    work: Work
    parameters: tuple[Parameter, ...] | None = None  # None: it takes anything

    @property
    def name(self) -> str:
        return self.work.task
