"""Exceptions that a handler raises to choose how its attempt ends: Retry, Snooze, Reject and others."""

from typing import Any

from interlock.client.durations import Length, length_us
from interlock.kernel.errors import InterlockError, PermanentError, TransientError

COST_MAX = 1_000_000_000_000


class Retry(InterlockError):
    """Try again: after the backoff, or after the time that is given."""

    def __init__(self, why: str = "asked to be tried again", *, after: Length | None = None) -> None:
        super().__init__(why)
        self.after_us = None if after is None else length_us("after", after)


class Snooze(InterlockError):
    """Call again later. No attempt is spent."""

    def __init__(self, after: Length) -> None:
        super().__init__(f"called again after {after}")
        self.after_us: int | None = length_us("after", after)
        self.cost = 0.0


class Await(Snooze):
    """Call again once one of these signals is there, at the latest after a while. No attempt is spent."""

    def __init__(self, *signals: str, timeout: Length | None = None) -> None:
        InterlockError.__init__(self, f"waits for the signal {' or '.join(map(repr, signals))}")
        self.signals, self.cost = signals, 0.0
        self.after_us = None if timeout is None else length_us("timeout", timeout)


class Outage(Snooze):
    """Something that the work depends on is away: whatever declares `depends` of that name waits. No attempt is spent.

    After `retry_after` one job is let through to try; if it is still away, the next one later.
    """

    def __init__(self, dependency: str, why: str = "", *, retry_after: Length = "30s") -> None:
        InterlockError.__init__(self, f"{dependency} is away{f': {why}' if why else ''}")
        self.dependency, self.cost = dependency, 0.0
        self.after_us = length_us("retry_after", retry_after)


class NoSignal(PermanentError):
    """A signal that was waited for has not come in time."""


class Drift(PermanentError):
    """A step is recorded under this name, and it asked for something else than this one; the text shows the difference.

    Nothing was run.
    """


class Rejected(PermanentError):
    """What a handler asked for was rejected; `by` and `comment` say by whom, and why."""

    def __init__(self, name: str, by: str, comment: str = "") -> None:
        super().__init__(f"'{name}' was rejected by {by}{f': {comment}' if comment else ''}")
        self.by, self.comment = by, comment


class NoAnswer(PermanentError):
    """What a handler asked for was neither approved nor rejected in time, or was cancelled."""


class NotDone(TransientError):
    """Raised in a call of `ctx.effect`: the call surely had no effect, so it may be made again."""


class StepFailed(TransientError):
    """A command failed: its log says why, and a traceback of the handler that ran it would say nothing."""


class Result:
    """What a handler returns that also says what its work has cost, in whatever unit you count."""

    def __init__(self, value: Any = None, *, cost: float = 0) -> None:
        self.value, self.cost = value, check_cost(cost)


def check_cost(cost: float) -> float:
    """Raises InterlockError for what is no cost."""
    if isinstance(cost, bool) or not isinstance(cost, int | float) or not 0 <= cost < COST_MAX:
        raise InterlockError(f"cost = {cost!r} is not allowed; allowed is a number from 0 to {COST_MAX}")
    return cost


class Reject(InterlockError):
    """This will never work: it fails for good, for the reason that is given."""


class Cancelled(InterlockError):
    """The handler has stopped, because it was asked to."""


class Failed(InterlockError):
    """A job that was waited for did not succeed; `state` and the text say what came of it."""

    def __init__(self, job: str, state: str, error: str) -> None:
        super().__init__(f"{job} is {state}: {error}" if error else f"{job} is {state}")
        self.job, self.state, self.error = job, state, error


class StillWaiting(InterlockError):
    """A job that was waited for has not ended yet; the text says why."""
