"""Schedules, which make units at their instants."""

from interlock.kernel.commands.base import Command, Planned
from interlock.kernel.commands.submit import Submitted, Work

OVERLAP = ("skip", "queue", "replace", "allow")
MISSED = ("none", "one", "all")


class Define(Command[Planned], frozen=True, kw_only=True):
    """A schedule makes a unit at each of its instants from now on; the same definition again changes nothing.

    `timing` is a cron expression, or an interval as `every 5m`. With `steps` it is a template of that name instead:
    each has its name as `ref`, and the names of those that it needs. A run keeps the version that it began with.
    """

    name: str
    timing: str = ""
    work: Work = Work(task="")
    timezone: str = "UTC"
    overlap: str = "skip"  # when the last unit has not ended
    missed: str = "one"  # when nobody ticked for a while
    steps: tuple[Work, ...] = ()


class Pause(Command[Planned], frozen=True, kw_only=True):
    """A schedule makes nothing until it is resumed."""

    name: str


class Resume(Command[Planned], frozen=True, kw_only=True):
    """A schedule that was paused goes on with its next instant."""

    name: str


class Remove(Command[Planned], frozen=True, kw_only=True):
    """A schedule makes nothing any more; what it made and skipped stays. Another definition brings it back."""

    name: str


class Trigger(Command[Submitted], frozen=True, kw_only=True):
    """A unit of a schedule is made now."""

    name: str
