"""Commands of agent runs."""

import msgspec

from interlock.kernel.commands.base import Command, Planned, Route
from interlock.kernel.commands.submit import Submitted


class Fork(Command[Submitted], frozen=True, kw_only=True):
    """Makes a new agent run that goes on from a recorded step of another one, with all that was recorded before it.

    The step itself is repeated, unless `replace` has a result for it.
    """

    committer = Route.OTHER
    scope = "operate"
    public = True

    unit: int
    at: str  # the name of a step
    replace: dict[str, str] = msgspec.field(default_factory=dict)  # by name: other results of steps up to it, JSON
    contract: str | None = None  # the digest of the new run's contract; by default the newest of its agent


class DefineContract(Command[Planned], frozen=True, kw_only=True):
    """Stores the contract that a program has of one of its agents, as the newest one."""

    committer = Route.OTHER
    scope = "worker"
    public = True

    text: str  # JSON

    @property
    def name(self) -> str:
        """What a log calls it."""
        return "a contract"
