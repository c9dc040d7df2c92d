"""What is counted of events."""

import msgspec

from interlock.kernel.commands.base import Command, Route


class Position(msgspec.Struct, frozen=True):
    """Behind which event somebody has counted, in which store."""

    epoch: str
    act: int = 0
    place: int = 0


class Count(msgspec.Struct, frozen=True):
    """So much more of one metric with these labels, a JSON list."""

    name: str
    labels: str
    value: int


class CountEvents(Command[bool], frozen=True, kw_only=True):
    """Events behind one position and up to another are counted; false: somebody was faster, and nothing changed."""

    committer = Route.OTHER
    scope = "admin"
    public = False

    after: Position
    upto: Position
    counts: tuple[Count, ...]
