"""Commands of workers: claims, and messages under a lease."""

from collections.abc import Sequence

import msgspec

from interlock.kernel.commands.base import Command, Route

STAGES = ("fetch", "input", "exec", "output", "commit")
ENDS = ("success", "failure", "cancelled")
RECORDS = (
    "progress", "checkpoint", "step", "artifact", "log", "compensation", "child", "effect", "effect_result", "phase",
    "usage", "validate", "child_run",
)  # fmt: skip
RECORDED_VALUES = ("step", "effect_result", "checkpoint", "validate")  # which are kept as blobs if they are large
RECORDED_ONCE = ("step", "compensation", "child", "effect_result")  # of one name, the first is kept
# What a holder may say of a failure; for a dead letter, the reason code that it stands for unless another is given.
TRANSIENT, PERMANENT, VALIDATION, CONFLICT = (
    "TransientError", "PermanentError", "ValidationError", "LeaseConflictError",
)  # fmt: skip
TRACEBACK_MAX = 16 * 1024  # bytes that are kept of the traceback of one attempt
ERROR_CLASSES = {
    TRANSIENT: "exhausted_retries", PERMANENT: "policy_violation", VALIDATION: "validation_failed", CONFLICT: "",
}  # fmt: skip


class ChildStatus(msgspec.Struct, frozen=True, gc=False):
    """A child that a holder made below its unit, and what came of it."""

    name: str
    unit: int
    lifecycle: str
    state: str
    outcome: str | None  # None while it is open
    result: str | None = None
    error: str | None = None
    trigger: str = ""  # what ended it, by whom and why
    by: str = ""
    reason: str = ""


class EffectStatus(msgspec.Struct, frozen=True, gc=False):
    """What is known of a call to the outside: how often it was begun and was not done after all, and its result."""

    name: str
    begun: int
    undone: int
    result: str | None = None
    of: str = ""  # the digest of what was asked for, if its handler said what

    @property
    def is_open(self) -> bool:
        """Whether it was begun, and nobody has said what came of it."""
        return self.result is None and self.begun > self.undone


class MeterStatus(msgspec.Struct, frozen=True, gc=False):
    """What an agent run and all below it have used of something, and may use.

    Money is in millionths, time in microseconds. At `soft` somebody is asked, and `hard` ends the run; None: no limit.
    """

    name: str
    used: int
    soft: int | None = None
    hard: int | None = None


class LeaseGrant(msgspec.Struct, frozen=True, gc=False):
    """What a claim hands over: the work, and the right to speak for it."""

    unit: int
    task: str
    input: str
    attempt: int
    fence: int
    lease: str  # secret
    until: int
    ttl_us: int
    beat_us: int
    correlation: str
    trace: str
    timeout_us: int | None = None
    checkpoint: str | None = None  # the last one that an attempt before this one recorded
    # The results of its steps by name, in their order: as many as fit into a page, and how many there are besides.
    steps: tuple[tuple[str, str], ...] = ()
    steps_left: int = 0
    requests: tuple[tuple[str, str], ...] = ()  # by step whose handler said it: the digest of what it asked for
    outputs: tuple[tuple[str, str], ...] | None = None  # of a step of a run: what the steps before it came to
    needed: tuple[tuple[str, str], ...] = ()  # of another unit: the results of what it needs, as far as they fit
    signals: tuple[tuple[str, str], ...] = ()  # those that came, by name
    waited: tuple[str, ...] = ()  # signals for which it has waited as long as it wanted to
    children: tuple[ChildStatus, ...] = ()  # that earlier attempts made, by name
    effects: tuple[EffectStatus, ...] = ()  # that earlier attempts began, by name
    lifecycle: str = "job"  # with the unit, the id that users see
    lasts_us: int = 0  # how long the lease lasts from this answer on
    parent: int | None = None  # the run that it is a step of
    version: int = 0  # of the unit when this was handed over: with its id, the event that did it
    options: str | None = None  # of further plugins, if one of them hands them over
    meters: tuple[MeterStatus, ...] = ()  # of the run that it works for, what was used and may be
    validations: tuple[tuple[str, str], ...] = ()  # of its work so far: what was found, as a JSON list, by number
    contract: str = ""  # of the run that it works for: the digest of the contract that its worker has
    fence_base: int = 0  # what the earlier jobs of its run came to: outside systems are shown the sum with `fence`


class LeaseRef(msgspec.Struct, frozen=True, gc=False):
    """How a worker names a lease: by the unit, the fence and the secret."""

    unit: int
    fence: int
    lease: str


class LeaseStatus(msgspec.Struct, frozen=True, gc=False):
    """The answer to one message under a lease. One that is not accepted has changed nothing."""

    unit: int
    accepted: bool
    state: str = ""
    why: str = ""
    cancel: bool = False  # the holder is asked to stop
    until: int = 0
    lasts_us: int = 0  # how long the lease lasts from this answer on


class Claim(Command[list[LeaseGrant]], frozen=True, kw_only=True):
    """Take up to `limit` units. The same key with the same nonce gets the same leases, and those of no other key.

    The nonce is the worker's own secret, of at least 16 random bytes: nobody who does not know it can make its leases.
    """

    counted = "limit"
    committer = Route.CLAIM
    scope = "worker"
    public = True
    takes_key = False
    makes_rows = False

    worker: int
    nonce: str
    key: str
    limit: int = 1
    queues: tuple[str, ...] = ("default",)


class LeaseCommand(Command[list[LeaseStatus]], frozen=True, kw_only=True):
    """Base of what a holder says of the units that it holds: it is answered for each of them."""

    counted = "held"
    committer = Route.HOLDER
    scope = "worker"
    public = True

    held: tuple[LeaseRef, ...]

    def held_units(self) -> Sequence[int]:
        return [lease.unit for lease in self.held]


class Start(LeaseCommand, frozen=True, kw_only=True):
    """Reports that units run."""

    takes_key = False


class Heartbeat(LeaseCommand, frozen=True, kw_only=True):
    """Renews leases. For a handler that runs, the first heartbeat is its start where the lifecycle allows it."""

    takes_key = False

    running: bool = True


class Outcome(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How the work under a lease ended: `success`, `failure` or `cancelled`."""

    held: LeaseRef
    ended: str = "success"
    result: str = "null"
    error: str = ""
    error_class: str = TRANSIENT
    reason_code: str | None = None  # of a dead letter, if it becomes one
    stage: str = "exec"
    after_us: int | None = None  # when to try again, instead of the backoff
    cost: float = 0  # of this attempt, kept to six decimals
    traceback: str = ""  # of a failure; of a long one, the head and the tail are kept


class Finish(Command[list[LeaseStatus]], frozen=True, kw_only=True):
    """Reports how units ended."""

    counted = "outcomes"
    committer = Route.HOLDER
    scope = "worker"
    public = True
    takes_key = False

    outcomes: tuple[Outcome, ...]

    def held_units(self) -> Sequence[int]:
        return [outcome.held.unit for outcome in self.outcomes]


class Release(LeaseCommand, frozen=True, kw_only=True):
    """Gives units back; with a delay, they are granted again later. No attempt is used up.

    With signals, they are granted again once one of them is there, at the latest after the delay.
    """

    takes_key = False

    snooze_us: int | None = None
    signal: str | None = None
    cost: float = 0  # of each
    outage: str | None = None  # what is away that the work depends on; the delay is when to try again
    signals: tuple[str, ...] = ()  # any of these, instead of one

    def names(self) -> tuple[str, ...]:
        """The signals that it waits for."""
        return self.signals if self.signal is None else (self.signal, *self.signals)


class Enter(LeaseCommand, frozen=True, kw_only=True):
    """Enters a phase of a unit, or of the run that the unit works for."""

    phase: str


class EvidenceStatus(msgspec.Struct, frozen=True, gc=False):
    """The answer to evidence under one lease. What is late was taken although the lease is over; it moves nothing."""

    unit: int
    accepted: bool
    late: bool = False
    why: str = ""
    attempt: int = 0  # that it is kept with
    length: int = 0  # of a log: how many bytes of this lease are kept, so where its holder goes on


class Emit(msgspec.Struct, frozen=True, gc=False):
    """A stretch of a log that a handler emitted, counted in the bytes of its lease, and the step in which it did."""

    start: int
    end: int
    step: str = ""  # '': in none


class LogEntry(msgspec.Struct, frozen=True, gc=False):
    """Bytes that the holder of a lease adds to the log of its unit."""

    held: LeaseRef
    start: int  # how many bytes came before them under this lease: what is sent twice is kept once
    data: bytes
    emits: tuple[Emit, ...] = ()  # which of them are void if the work is done again


class AppendLog(Command[list[EvidenceStatus]], frozen=True, kw_only=True):
    """Adds bytes to the logs of units, many at once; each is answered.

    What comes within five minutes after a lease was revoked or has expired is taken too, and marked as late.
    """

    counted = "entries"
    committer = Route.HOLDER
    scope = "worker"
    public = True
    takes_key = False
    makes_rows = False

    entries: tuple[LogEntry, ...]

    def held_units(self) -> Sequence[int]:
        return [entry.held.unit for entry in self.entries]


class AddArtifact(Command[EvidenceStatus], frozen=True, kw_only=True):
    """Keeps a blob as an artifact of the attempt, once under each name. Like a log, it may come late."""

    committer = Route.HOLDER
    scope = "worker"
    public = True
    takes_key = False
    makes_rows = False

    held: LeaseRef
    name: str
    digest: str  # SHA-256 of bytes that were written before
    media: str = "application/octet-stream"

    def held_units(self) -> Sequence[int]:
        return [self.held.unit]


class AskedFor(msgspec.Struct, frozen=True, gc=False):
    """What a step or an effect asks for: the digest of it as key-sorted JSON, and its text, as far as that is kept."""

    digest: str
    text: str


class Record(LeaseCommand, frozen=True, kw_only=True):
    """The holder remembers something: progress, a checkpoint, a step, an artifact, a log, a compensation, a child, an
    effect or its result, a phase.

    A compensation is work that undoes what the holder has just done; it is started, the last first, if the unit ends
    without success. Its payload is a JSON object with `task`, and perhaps `input`. A child is work that is made below
    the unit, once under its name; its payload is a JSON object with fields of `Work`; a child run is the run of an
    agent with its job (`run` and `job`). A phase is entered by the run of the unit, once under its name, which is a
    number and the phase, as in `1 correct`. A step or an effect may say what it asks for (`of`): later attempts ask for
    the same under its name. A step of an agent run says what it has used (`usage`), as in
    `{"usd": 0.02, "tokens": 900}`; a usage is what a try used that came to nothing. With `validate` the run of the unit
    enters its gate with that result, once under the number of the validation. With `expects` a step is only recorded if
    so many are recorded before it.
    """

    kind: str
    name: str = ""
    payload: str = "null"
    of: AskedFor | None = None
    usage: dict[str, float] | None = None
    expects: int | None = None


class KeptStep(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A step that earlier attempts have recorded, with the digest of what it asked for, if they said it."""

    name: str
    result: str
    of: str | None = None


class StepsPage(msgspec.Struct, frozen=True, gc=False):
    """Recorded steps in their order, as many as fit into a page, and what the first of them asked for."""

    steps: tuple[KeptStep, ...]
    request: str | None = None


class ReadSteps(Command[StepsPage], frozen=True, kw_only=True):
    """Returns the recorded steps of a unit, from the one of this name on.

    With `effect`, what the effect of this name asked for.
    """

    committer = Route.HOLDER
    scope = "worker"
    public = True
    takes_key = False

    held: LeaseRef
    name: str
    effect: bool = False

    def held_units(self) -> Sequence[int]:
        return [self.held.unit]


class ReadOutput(Command[str], frozen=True, kw_only=True):
    """Returns the result of something that a unit needs, by name, as JSON text."""

    committer = Route.HOLDER
    scope = "worker"
    public = True
    takes_key = False

    held: LeaseRef
    name: str

    def held_units(self) -> Sequence[int]:
        return [self.held.unit]
