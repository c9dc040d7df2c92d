"""Commands that count events for metrics."""

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


class MinuteCount(msgspec.Struct, frozen=True):
    """So much more of one metric in one minute or one hour.

    Parameters:
        span: how long it is, in microseconds: a minute or an hour.
        at: when it began.
        bucket: of a time, the place of its bucket; else 0.
    """

    span: int
    metric: str
    at: int
    label: str
    bucket: int
    value: int


class CountEvents(Command[bool], frozen=True, kw_only=True):
    """Events behind one position and up to another are counted; false: somebody was faster, and nothing changed."""

    committer = Route.OTHER
    scope = "admin"
    public = False

    after: Position
    upto: Position
    counts: tuple[Count, ...]
    minutes: tuple[MinuteCount, ...] = ()
