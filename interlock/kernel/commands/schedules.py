"""Commands of schedules."""

from interlock.kernel.commands.base import Command, Planned, Route
from interlock.kernel.commands.submit import Submitted, Work

OVERLAP = ("skip", "queue", "replace", "allow")
MISSED = ("none", "one", "all")


class DefineSchedule(Command[Planned], frozen=True, kw_only=True):
    """Stores a schedule, which makes a unit at each of its times from now on.

    The same definition again changes nothing.
    """

    committer = Route.OTHER
    scope = "operate"
    public = True

    name: str
    timing: str  # a cron expression, or an interval as `every 5m`
    work: Work
    timezone: str = "UTC"
    overlap: str = "skip"  # when the last unit has not ended
    missed: str = "one"  # when nobody ticked for a while


class PauseSchedule(Command[Planned], frozen=True, kw_only=True):
    """Stops a schedule until it is resumed."""

    committer = Route.OTHER
    scope = "operate"
    public = True

    name: str


class ResumeSchedule(Command[Planned], frozen=True, kw_only=True):
    """Lets a paused schedule go on with its next time."""

    committer = Route.OTHER
    scope = "operate"
    public = True

    name: str


class RemoveSchedule(Command[Planned], frozen=True, kw_only=True):
    """Removes a schedule; what it made and skipped stays. Another definition brings it back."""

    committer = Route.OTHER
    scope = "operate"
    public = True

    name: str


class FireSchedule(Command[Submitted], frozen=True, kw_only=True):
    """Makes a unit of a schedule now."""

    committer = Route.OTHER
    scope = "operate"
    public = True

    name: str
