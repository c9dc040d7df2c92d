"""The command that lets time pass."""

from interlock.kernel.commands.base import Command, Route


class Tick(Command[int], frozen=True, kw_only=True):
    """Let time pass. Any process may send it; none must. Answers how many units were looked at or made."""

    counted = "limit"
    committer = Route.TICK
    scope = "admin"
    public = False
    makes_rows = False

    limit: int = 500
