"""Commands that store definitions of tasks."""

from interlock.kernel.commands.base import Command, Planned, Route
from interlock.kernel.commands.submit import Work
from interlock.kernel.parameters import Parameter


class DefineTask(Command[Planned], frozen=True, kw_only=True):
    """The newest version of a task takes these parameters and has these rules; the same again changes nothing.

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
