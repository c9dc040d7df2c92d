"""A word from outside about a unit that waits for it."""

from interlock.kernel.commands.base import Command, Standing


class Decide(Command[Standing], frozen=True, kw_only=True):
    """A verdict or an order from outside: approve, reject, valid, invalid, plan, report, resume."""

    unit: int
    trigger: str


class Vote(Command[Standing], frozen=True, kw_only=True):
    """One voter's word about a unit that waits for a person; with enough of them it is approved.

    Of a run, the approval that waits is meant: the first one, or that of the step. If none waits, nothing changes.
    """

    unit: int
    voter: str
    approve: bool = True
    roles: tuple[str, ...] = ()  # that the voter has
    step: str | None = None
