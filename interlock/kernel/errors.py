"""All errors that Interlock raises on purpose."""


class InterlockError(Exception):
    """Base of all errors raised on purpose: its text is meant for the person who reads it."""


class Refused(InterlockError):
    """The lifecycle lists no such move from this state."""

    def __init__(self, lifecycle: str, state: str | None, trigger: str, legal: tuple[str, ...]) -> None:
        listed = ", ".join(legal) or "none: it is an end"
        super().__init__(f"{lifecycle}: no '{trigger}' from '{state or 'nothing'}'; listed there: {listed}")
        self.lifecycle, self.state, self.trigger, self.legal = lifecycle, state, trigger, legal


class NoVerdict(Refused):
    """The lifecycle lists this move, but it is not a verdict: somebody else fires it, or another command does."""

    def __init__(self, lifecycle: str, state: str, trigger: str, verdicts: tuple[str, ...], whose: str) -> None:
        super().__init__(lifecycle, state, trigger, verdicts)
        allowed = ", ".join(verdicts) or "none"
        self.args = (f"{lifecycle}: '{trigger}' from '{state}' is no verdict: {whose}; verdicts there: {allowed}",)


class NotWanted(InterlockError):
    """What the present state does not allow, such as a decision that nobody waits for; nothing was changed."""


class Unknown(InterlockError):
    """A name that does not exist; the text says which do."""


class UnknownLifecycle(Unknown):
    """A unit of a lifecycle that this program does not know; other programs may know it."""


class ValidationError(InterlockError):
    """What was given can never work: it is not tried again."""


class TransientError(InterlockError):
    """It failed this time, and may work the next."""


class PermanentError(InterlockError):
    """It failed, and would fail again."""


class LimitReached(InterlockError):
    """A tenant has as much work as it may have; nothing was changed, and the same may be asked again later."""


class NoBlobs(InterlockError):
    """There is nowhere to keep large bytes; the text says how to name a folder for them."""


class Denied(InterlockError):
    """A key that is not valid, or does not allow it; nothing was changed."""


class Stale(InterlockError):
    """A message under a lease that is over, or was never given. Document 002 calls it LeaseConflictError."""


LeaseConflictError = Stale


class Gone(InterlockError):
    """A worker that was silent for too long and counts as shut down; it may register again as a new incarnation."""


class Drained(InterlockError):
    """A worker that was told to take no more work and has shut down; it ends."""


class BadLifecycle(InterlockError):
    """A lifecycle file that cannot be used; `faults` holds every reason, each naming file, place and rule."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


class StoreError(InterlockError):
    """The database refused or failed: the open transaction is rolled back, with all its commands."""


class Corrupt(StoreError):
    """What was to be written, or what is there already, breaks a rule that the database enforces."""


class Contended(StoreError):
    """A conflict with other transactions; nothing was changed, and the same command may be sent again."""


class TooSlow(StoreError):
    """A query took longer than its limit and was stopped; the same query would take as long again."""


class Unavailable(StoreError):
    """The database cannot be reached, or did not answer."""
