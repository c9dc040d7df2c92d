"""What a handler may raise to say how its work ended, where a return value says too little."""

from interlock.client.times import Length, length_us
from interlock.kernel.errors import InterlockError


class Retry(InterlockError):
    """Try again: after the backoff, or after the time that is given."""

    def __init__(self, why: str = "asked to be tried again", *, after: Length | None = None) -> None:
        super().__init__(why)
        self.after_us = None if after is None else length_us("after", after)


class Snooze(InterlockError):
    """Call again later. No attempt is spent."""

    def __init__(self, after: Length) -> None:
        super().__init__(f"called again after {after}")
        self.after_us = length_us("after", after)


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
