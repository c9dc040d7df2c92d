"""Commands that pause and unpause a queue, a task, or a unit with all below it."""

import msgspec

from interlock.kernel.commands.base import Command, Route


class PauseStatus(msgspec.Struct, frozen=True):
    """How it stands with the pause of a queue, a task or a unit, and whether the command changed anything."""

    kind: str  # queue, task, unit or outage
    name: str  # of the queue, the task or what is away; of a unit, its number
    paused: bool
    changed: bool
    by: str = ""  # who paused it
    reason: str = ""
    since: int | None = None
    until: int | None = None  # None: until it is unpaused


class PauseWork(Command[PauseStatus], frozen=True, kw_only=True):
    """Pauses a queue, a task, or a unit with all below it: nothing of it starts after the answer; what runs goes on."""

    committer = Route.OTHER
    scope = "operate"
    public = True

    queue: str | None = None
    task: str | None = None
    unit: int | None = None
    until: int | None = None  # an instant in microseconds UTC
    for_us: int | None = None  # a length of time, instead of an instant


class UnpauseWork(Command[PauseStatus], frozen=True, kw_only=True):
    """Ends the pause of a queue, a task or a unit, or an outage on which work depends."""

    committer = Route.OTHER
    scope = "operate"
    public = True

    queue: str | None = None
    task: str | None = None
    unit: int | None = None
    outage: str | None = None  # what was away
