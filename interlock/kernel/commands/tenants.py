"""Commands of tenants: names, limits, rates."""

import msgspec

from interlock.kernel.commands.base import Command, Route


class Quota(msgspec.Struct, frozen=True):
    """A tenant after a command: how much of its work may be held and may wait, and whether that is new."""

    tenant: int
    name: str
    max_running: int | None
    max_waiting: int | None
    changed: bool
    max_requests: int | None = None
    keep_beats_us: int | None = None
    keep_verbose_us: int | None = None


class SetTenant(Command[Quota], frozen=True, kw_only=True):
    """The tenant that it is sent for has this name and these limits; None is no limit, what is not said stays."""

    committer = Route.OTHER
    scope = "admin"
    public = False

    name: str | msgspec.UnsetType = msgspec.UNSET
    max_running: int | msgspec.UnsetType | None = msgspec.UNSET  # units that workers hold at a time
    max_waiting: int | msgspec.UnsetType | None = msgspec.UNSET  # units in its queues; a submit over it is refused
    max_requests: int | msgspec.UnsetType | None = msgspec.UNSET  # of the server, a minute
    keep_beats_us: int | msgspec.UnsetType | None = msgspec.UNSET  # how long beats are kept; None: two days
    keep_verbose_us: int | msgspec.UnsetType | None = msgspec.UNSET  # and progress and logs; None: fourteen days


class Admission(msgspec.Struct, frozen=True):
    """Whether a tenant may ask once more in this minute, and how often it may in all."""

    allowed: bool
    limit: int
    left: int
    until_us: int  # so long from now, the next minute begins


class Admit(Command[Admission | None], frozen=True, kw_only=True):
    """The tenant asks the server once more; None: it may ask as often as it likes, and nobody counts."""

    committer = Route.OTHER
    scope = "admin"
    public = False
