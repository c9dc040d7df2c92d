"""Commands that decide on a unit from outside."""

from collections.abc import Collection

from interlock.kernel.approvals import VERDICTS
from interlock.kernel.commands.base import Command, Route, Standing


class Decide(Command[Standing], frozen=True, kw_only=True):
    """Makes a decision from outside: approve, reject, valid, invalid, plan, report, resume."""

    committer = Route.OTHER
    scope = "approve"
    public = True
    other_scope = "operate"

    unit: int
    trigger: str
    data: str = "null"  # JSON: what belongs to the decision, where it takes any

    def needed_scope(self, own_workers: Collection[int] = ()) -> str:
        """Of all that is decided, only the verdicts of an approval are an approver's."""
        return self.scope if self.trigger in VERDICTS else self.other_scope


class Vote(Command[Standing], frozen=True, kw_only=True):
    """Casts one vote on a unit that waits for a person; with enough votes it is approved.

    In a run, the vote is for the approval that waits: the first one, or that of the step. If none waits, nothing
    changes.
    """

    committer = Route.OTHER
    scope = "approve"
    public = True

    unit: int
    voter: str
    approve: bool = True
    roles: tuple[str, ...] = ()  # that the voter has
    step: str | None = None
    arguments: str | None = None  # JSON: approved are these, instead of what was asked for
