"""Everything that can be asked for, as frozen data. `Command[A]` is answered with an `A`."""

from typing import Generic, TypeVar

import msgspec

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
ERROR_CLASSES = {
    TRANSIENT: "exhausted_retries", PERMANENT: "policy_violation", VALIDATION: "validation_failed", CONFLICT: "",
}  # fmt: skip


class Command(msgspec.Struct, Generic[A], frozen=True, kw_only=True):
    """Base of all commands: who asks, for which tenant, and why."""

    tenant: int = 1
    actor: str = "local"
    reason: str = ""
    cause: str | None = None  # the event that led to it
    idempotency_key: str | None = None  # the same command under the same key is answered, and changes nothing
    scope: str = "local"  # whose keys these are


class Submitted(msgspec.Struct, frozen=True):
    """The unit that a submit made, or found under its key."""

    unit: int
    created: bool
    replaced: bool = False  # an unstarted unit made room for it


class Grant(msgspec.Struct, frozen=True):
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


class Held(msgspec.Struct, frozen=True):
    """How a worker names a lease: the unit, the fence, and the secret."""

    unit: int
    fence: int
    lease: str


class Heard(msgspec.Struct, frozen=True):
    """The answer to one message under a lease. One that is not accepted has changed nothing."""

    unit: int
    accepted: bool
    state: str = ""
    why: str = ""
    cancel: bool = False  # the holder is asked to stop
    until: int = 0


class Standing(msgspec.Struct, frozen=True):
    """Where a unit stands after a command, and whether the command changed anything."""

    unit: int
    state: str
    version: int
    applied: bool


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """One unit to be made."""

    task: str
    lifecycle: str = "job"
    input: str = "null"  # JSON; the engine never looks inside
    queue: str = "default"
    capabilities: tuple[str, ...] = ()
    key: str | None = None
    priority: int = 0
    delay_us: int = 0
    at_us: int | None = None  # not before that instant
    on_duplicate: str = "return"
    mutex: str | None = None  # one unit of that name at a time
    limit_key: str | None = None
    limit: int | None = None  # so many units of that limit key at a time
    rate_key: str | None = None
    rate: int | None = None  # so many units of that rate key begin in any stretch of time of that length
    rate_per_us: int | None = None
    labels: str = "{}"
    correlation: str = ""
    trace: str = ""
    parent: int | str | None = None  # a unit, or the ref of work before it in the same command
    needs: tuple[int | str, ...] = ()
    ref: str = ""  # what later work in the same command calls it
    decides: bool = True  # critical, or required, to its parent

    # What differs from the lifecycle's own rules, by the names of `Policy`.
    attempts: int | None = None
    exhausted: str | None = None
    timeout_us: int | None = None
    queue_timeout_us: int | None = None
    expires_us: int | None = None
    backoff_us: int | None = None
    backoff_cap_us: int | None = None
    ttl_us: int | None = None
    beat_us: int | None = None
    silent: bool = False
    sla_us: int | None = None
    quorum: int | None = None
    on_reject: str | None = None
    approvers: tuple[str, ...] = ()
    not_submitter: bool = False


class Policy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What differs from the lifecycle's own rules; stored with the unit."""

    attempts: int | None = None
    exhausted: str | None = None  # when none is left: "exhaust" (a dead letter) or "fail"
    timeout_us: int | None = None  # for how long it may run
    queue_timeout_us: int | None = None  # for how long it may wait to be claimed
    expires_us: int | None = None  # for how long it may wait for a verdict
    backoff_us: int | None = None
    backoff_cap_us: int | None = None
    ttl_us: int | None = None
    beat_us: int | None = None
    silent: bool = False  # its workers cannot beat: its lease lasts for its whole TTL
    sla_us: int | None = None  # the longest time without a sign of life
    quorum: int | None = None  # of an approval: how many votes it takes, one by default
    on_reject: str | None = None  # of an approval: "cancel" (the default) or "fail" its run
    approvers: tuple[str, ...] = ()  # of an approval: who may vote, by name or role; anybody by default
    not_submitter: bool = False  # of an approval: whoever submitted the run has no vote
    undoes: int | None = None  # the note whose compensation this is
    rate_per_us: int | None = None  # how long a token of its rate is away


class Submit(Command[list[Submitted]], frozen=True, kw_only=True):
    """Make units; under a key that is taken, answer the unit that has it."""

    work: tuple[Work, ...]


class Register(Command[int], frozen=True, kw_only=True):
    """A worker exists from now on; an older incarnation of its name ends. Answers its id."""

    name: str
    incarnation: str
    capabilities: tuple[str, ...] = ()
    capacity: int = 1


class Drain(Command[Standing], frozen=True, kw_only=True):
    """A worker takes no new work, and shuts down with its last unit."""

    worker: int


class Claim(Command[list[Grant]], frozen=True, kw_only=True):
    """Take up to `limit` units. The nonce is random and the worker's own; the same key gets the same leases."""

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


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a holder's work ended: `success`, `failure` or `cancelled`."""

    held: Held
    ended: str = "success"
    result: str = "null"
    error: str = ""
    error_class: str = TRANSIENT
    reason_code: str | None = None  # of a dead letter, if it becomes one
    stage: str = "exec"
    after_us: int | None = None  # when to try again, instead of the backoff


class Finish(Command[list[Heard]], frozen=True, kw_only=True):
    """The holder is done."""

    outcomes: tuple[Outcome, ...]


class Release(Command[list[Heard]], frozen=True, kw_only=True):
    """The holder gives units back; with a delay, it asks to be called again later. No attempt is spent."""

    held: tuple[Held, ...]
    snooze_us: int | None = None


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
    """A unit that has ended is done again, as a new one that names it."""

    unit: int


class Vote(Command[Standing], frozen=True, kw_only=True):
    """One voter's word about a unit that waits for a person; with enough of them it is approved.

    Of a run, the approval that waits is meant: the first one, or that of the step. If none waits, nothing changes.
    """

    unit: int
    voter: str
    approve: bool = True
    roles: tuple[str, ...] = ()  # that the voter has
    step: str | None = None


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
    """Where a schedule stands after a command, and whether the command changed anything."""

    name: str
    changed: bool
    paused: bool
    next_at: int | None  # None while it is paused
    removed: bool = False


class Define(Command[Planned], frozen=True, kw_only=True):
    """A schedule makes a unit at each of its instants from now on; the same definition again changes nothing.

    `timing` is a cron expression, or an interval as `every 5m`.
    """

    name: str
    timing: str
    work: Work
    timezone: str = "UTC"
    overlap: str = "skip"  # when the last unit has not ended
    missed: str = "one"  # when nobody ticked for a while


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


class Tenant(Command[Quota], frozen=True, kw_only=True):
    """The tenant that it is sent for has this name and these limits; None is no limit, what is not said stays."""

    name: str | msgspec.UnsetType = msgspec.UNSET
    max_running: int | msgspec.UnsetType | None = msgspec.UNSET  # units that workers hold at a time
    max_waiting: int | msgspec.UnsetType | None = msgspec.UNSET  # units in its queues; a submit over it is refused


class Tick(Command[int], frozen=True, kw_only=True):
    """Let time pass. Any process may send it; none must. Answers how many units were looked at or made."""

    limit: int = 500
