"""Everything that can be asked for, as frozen data. `Command[A]` is answered with an `A`."""

from typing import Generic, TypeVar

import msgspec

from interlock.kernel.work import Policy as Policy
from interlock.kernel.work import Work as Work

A = TypeVar("A")

STAGES = ("fetch", "input", "exec", "output", "commit")
ENDS = ("success", "failure", "cancelled")
RECORDS = ("progress", "checkpoint", "step", "artifact", "log", "compensation")
ON_DUPLICATE = ("return", "reject", "replace")
OVERLAP = ("skip", "queue", "replace", "allow")
MISSED = ("none", "one", "all")
REASONS = (
    "parse_error", "validation_failed", "dependency_unavailable", "timeout", "exhausted_retries",
    "policy_violation", "infrastructure_failure", "compensation_failed",
)  # fmt: skip

# What a holder may say of a failure; for a dead letter, the reason code that it stands for unless another is given.
TRANSIENT, PERMANENT, VALIDATION, CONFLICT = (
    "TransientError", "PermanentError", "ValidationError", "LeaseConflictError",
)  # fmt: skip
TRACEBACK_MAX = 16 * 1024  # bytes that are kept of the traceback of one attempt
ERROR_CLASSES = {
    TRANSIENT: "exhausted_retries", PERMANENT: "policy_violation", VALIDATION: "validation_failed", CONFLICT: "",
}  # fmt: skip


LOCAL = "local"  # whoever sends it: the program beside the database, or the holder of a server's key


class Command(msgspec.Struct, Generic[A], frozen=True, kw_only=True):
    """Base of all commands: who asks, for which tenant, and why."""

    tenant: int = 1
    actor: str = LOCAL
    reason: str = ""
    cause: str | None = None  # the event that led to it
    idempotency_key: str | None = None  # the same command under the same key is answered, and changes nothing
    scope: str = "local"  # whose keys these are
    key_lasts: bool = False  # the key of what makes a unit stands for it for ever, not for a day
    vouched_by: str = ""  # the key that speaks for the actor, if it is another one's


class Submitted(msgspec.Struct, frozen=True, gc=False):
    """The unit that a submit made, or found under its key."""

    unit: int
    created: bool
    replaced: bool = False  # an unstarted unit made room for it
    lifecycle: str = ""
    state: str = ""  # as the command left it; what follows for its family is not in it
    cause: str | None = None  # of the command that was carried out: one that comes again is answered with the first's


class Grant(msgspec.Struct, frozen=True, gc=False):
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
    steps: tuple[tuple[str, str], ...] = ()  # and its steps' results, by name
    outputs: tuple[tuple[str, str], ...] | None = None  # of a step of a run: what the steps before it came to
    signals: tuple[tuple[str, str], ...] = ()  # those that came, by name
    waited: tuple[str, ...] = ()  # signals for which it has waited as long as it wanted to
    lifecycle: str = "job"  # with the unit, the id that users see
    lasts_us: int = 0  # how long the lease lasts from this answer on
    parent: int | None = None  # the run that it is a step of
    version: int = 0  # of the unit when this was handed over: with its id, the event that did it


class Held(msgspec.Struct, frozen=True, gc=False):
    """How a worker names a lease: the unit, the fence, and the secret."""

    unit: int
    fence: int
    lease: str


class Heard(msgspec.Struct, frozen=True, gc=False):
    """The answer to one message under a lease. One that is not accepted has changed nothing."""

    unit: int
    accepted: bool
    state: str = ""
    why: str = ""
    cancel: bool = False  # the holder is asked to stop
    until: int = 0
    lasts_us: int = 0  # how long the lease lasts from this answer on


class Standing(msgspec.Struct, frozen=True):
    """Where a unit stands after a command, and whether the command changed anything."""

    unit: int
    state: str
    version: int
    applied: bool


class Submit(Command[list[Submitted]], frozen=True, kw_only=True):
    """Make units; under a key that is taken, answer the unit that has it."""

    work: tuple[Work, ...]


class Register(Command[int], frozen=True, kw_only=True):
    """A worker exists from now on; an older incarnation of its name ends. Answers its id."""

    name: str
    incarnation: str
    capabilities: tuple[str, ...] = ()
    capacity: int = 1  # units that it may hold
    concurrency: int = 0  # handlers that it runs at a time; 0: not said


class Drain(Command[Standing], frozen=True, kw_only=True):
    """A worker takes no new work, and shuts down with its last unit."""

    worker: int


class Claim(Command[list[Grant]], frozen=True, kw_only=True):
    """Take up to `limit` units. The same key with the same nonce gets the same leases, and those of no other key.

    The nonce is the worker's own secret, of at least 16 random bytes: nobody who does not know it can make its leases.
    """

    worker: int
    nonce: str
    key: str
    limit: int = 1
    queues: tuple[str, ...] = ("default",)


class Start(Command[list[Heard]], frozen=True, kw_only=True):
    """The holder begins."""

    held: tuple[Held, ...]


class Heartbeat(Command[list[Heard]], frozen=True, kw_only=True):
    """The holder is alive. For a handler that runs, a first beat is its start where the lifecycle allows it."""

    held: tuple[Held, ...]
    running: bool = True


class Outcome(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How a holder's work ended: `success`, `failure` or `cancelled`."""

    held: Held
    ended: str = "success"
    result: str = "null"
    error: str = ""
    error_class: str = TRANSIENT
    reason_code: str | None = None  # of a dead letter, if it becomes one
    stage: str = "exec"
    after_us: int | None = None  # when to try again, instead of the backoff
    cost: float = 0  # of this attempt, kept to six decimals
    traceback: str = ""  # of a failure; of a long one, the head and the tail are kept


class Finish(Command[list[Heard]], frozen=True, kw_only=True):
    """The holder is done."""

    outcomes: tuple[Outcome, ...]


class Release(Command[list[Heard]], frozen=True, kw_only=True):
    """The holder gives units back; with a delay, it asks to be called again later. No attempt is spent.

    With a signal, it asks to be called again once the signal is there, at the latest after the delay.
    """

    held: tuple[Held, ...]
    snooze_us: int | None = None
    signal: str | None = None
    cost: float = 0  # of each


# Worker verbs need no idempotency key: (unit, fence, verb) decides, and a claim has a key of its own.
BY_LEASE = (Claim, Start, Heartbeat, Finish, Release)


class Cancel(Command[Standing], frozen=True, kw_only=True):
    """Stop a unit: softly, so that its holder may end well, or hard."""

    unit: int
    hard: bool = False


class Decide(Command[Standing], frozen=True, kw_only=True):
    """A verdict or an order from outside: approve, reject, valid, invalid, plan, report, resume."""

    unit: int
    trigger: str


class Enter(Command[list[Heard]], frozen=True, kw_only=True):
    """The holder enters a phase of its unit, or of the run that its unit works for."""

    held: tuple[Held, ...]
    phase: str


class Record(Command[list[Heard]], frozen=True, kw_only=True):
    """The holder remembers something that moves nothing: progress, checkpoint, step, artifact, log or compensation.

    A compensation is work that undoes what the holder has just done; it is started, the last first, if the unit ends
    without success. Its payload is a JSON object with `task`, and perhaps `input`.
    """

    held: tuple[Held, ...]
    kind: str
    name: str = ""
    payload: str = "null"


class Bury(Command[Standing], frozen=True, kw_only=True):
    """A unit becomes a dead letter; `reason` is one of the eight reason codes."""

    unit: int


class Revoke(Command[Standing], frozen=True, kw_only=True):
    """The lease of a unit is taken away; it is as if its holder were lost."""

    unit: int


class Replay(Command[Submitted], frozen=True, kw_only=True):
    """A unit that has ended is done again, as a new one that names it; of a run, the steps from one of them on."""

    unit: int
    step: str | None = None


class Vote(Command[Standing], frozen=True, kw_only=True):
    """One voter's word about a unit that waits for a person; with enough of them it is approved.

    Of a run, the approval that waits is meant: the first one, or that of the step. If none waits, nothing changes.
    """

    unit: int
    voter: str
    approve: bool = True
    roles: tuple[str, ...] = ()  # that the voter has
    step: str | None = None


class Signal(Command[Standing], frozen=True, kw_only=True):
    """Something has happened that a unit, or a step of a run, waits for or will wait for; the first one stays."""

    unit: int
    name: str
    payload: str = "null"


class Force(Command[Standing], frozen=True, kw_only=True):
    """The operator's one door past the table: a state, a reason, and an event that bears its mark."""

    unit: int
    state: str


class Archive(Command[int], frozen=True, kw_only=True):
    """A settled unit and all below it leave the database, once a file holds them. Answers how many units went."""

    unit: int
    file: str
    digest: str  # of what the file holds; other contents are refused


class Planned(msgspec.Struct, frozen=True):
    """Where a schedule or a template stands after a command, and whether the command changed anything."""

    name: str
    changed: bool
    paused: bool = False
    next_at: int | None = None  # None while it is paused
    version: int = 0  # of a template
    removed: bool = False


class Define(Command[Planned], frozen=True, kw_only=True):
    """A schedule makes a unit at each of its instants from now on; the same definition again changes nothing.

    `timing` is a cron expression, or an interval as `every 5m`. With `steps` it is a template of that name instead:
    each has its name as `ref`, and the names of those that it needs. A run keeps the version that it began with.
    """

    name: str
    timing: str = ""
    work: Work = Work(task="")
    timezone: str = "UTC"
    overlap: str = "skip"  # when the last unit has not ended
    missed: str = "one"  # when nobody ticked for a while
    steps: tuple[Work, ...] = ()


class Pause(Command[Planned], frozen=True, kw_only=True):
    """A schedule makes nothing until it is resumed."""

    name: str


class Resume(Command[Planned], frozen=True, kw_only=True):
    """A schedule that was paused goes on with its next instant."""

    name: str


class Remove(Command[Planned], frozen=True, kw_only=True):
    """A schedule makes nothing any more; what it made and skipped stays. Another definition brings it back."""

    name: str


class Trigger(Command[Submitted], frozen=True, kw_only=True):
    """A unit of a schedule is made now."""

    name: str


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


class Tenant(Command[Quota], frozen=True, kw_only=True):
    """The tenant that it is sent for has this name and these limits; None is no limit, what is not said stays."""

    name: str | msgspec.UnsetType = msgspec.UNSET
    max_running: int | msgspec.UnsetType | None = msgspec.UNSET  # units that workers hold at a time
    max_waiting: int | msgspec.UnsetType | None = msgspec.UNSET  # units in its queues; a submit over it is refused
    max_requests: int | msgspec.UnsetType | None = msgspec.UNSET  # of the server, a minute
    keep_beats_us: int | msgspec.UnsetType | None = msgspec.UNSET  # how long beats are kept; None: two days
    keep_verbose_us: int | msgspec.UnsetType | None = msgspec.UNSET  # and progress and logs; None: fourteen days


class Tick(Command[int], frozen=True, kw_only=True):
    """Let time pass. Any process may send it; none must. Answers how many units were looked at or made."""

    limit: int = 500
