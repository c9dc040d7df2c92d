"""Commands of workflow templates and signals."""

from interlock.kernel.commands.base import Command, Planned, Route, Standing
from interlock.kernel.commands.submit import Work


class DefineTemplate(Command[Planned], frozen=True, kw_only=True):
    """The newest version of a template has these steps; the same definition again changes nothing.

    Each step has its name as `ref`, and the names of those that it needs. A run keeps the version that it began with.
    """

    committer = Route.OTHER
    scope = "submit"
    public = True

    name: str
    steps: tuple[Work, ...]


class Signal(Command[Standing], frozen=True, kw_only=True):
    """Delivers a signal that a unit, or a step of a run, waits for or will wait for.

    Of several with one name the first counts.
    """

    committer = Route.OTHER
    scope = "operate"
    public = True

    unit: int
    name: str
    payload: str = "null"
