"""The rows of the database: one class per table, fields in the order of the columns."""

from functools import cache
from operator import methodcaller
from typing import Any, ClassVar

import msgspec

copied: Any = methodcaller("__copy__")  # a row like this one; several are made of each unit that moves


class Row(msgspec.Struct, gc=False):
    """Base of all rows. `table` and the fields are all that the store knows of a row."""

    table: ClassVar[str]
    apart: ClassVar[int] = 0  # how many of the last fields are not columns of the table


class Unit(Row):
    """A unit: the row that verbs read and write most."""

    table = "unit"
    apart = 4  # they are columns of its lease and of its last act, and the database's own word
    id: int
    tenant: int
    lane: int
    lifecycle: str
    state: str = ""  # empty: not yet born
    category: str = ""
    outcome: str | None = None
    version: int = 0
    act: int = 0  # that moved it last
    born: int = 0  # the act that made it
    changed_at: int = 0
    started_at: int | None = None
    priority: int = 0
    attempt: int = 1
    failures: int = 0
    losses: int = 0
    snoozes: int = 0
    available_at: int | None = None
    wake_at: int | None = None
    due_at: int | None = None
    deadline_at: int | None = None
    parked_on: str | None = None
    rests_in: str | None = None
    dead_at: int | None = None
    fence: int = 0
    lease: str | None = None  # the state of the last one
    lease_id: int | None = None  # of the one that is live
    holder: int | None = None
    lease_until: int | None = None  # while a lease is live, its end
    lease_hash: str | None = None  # of the secret of the live one
    asked_at: int | None = None  # when somebody asked to cancel it
    asked_by: int | None = None  # until when its holder has time to stop
    parent: int | None = None
    decides: int = 1
    unmet: int = 0
    total: int = 0
    succeeded: int = 0
    lost: int = 0
    decided: int = 0
    deciders: int = 0
    won: int = 0
    gates: int = 0
    blocked: int = 0
    begun: int = 0
    cost: int = 0
    plain: int = 0  # whether nothing follows from its grant and its success but its own events
    xid: str = ""  # the transaction that wrote the row, where several may write
    lease_ttl: int | None = None
    lease_beat: int | None = None
    head: str = ""  # the digest of the act, for whoever looks at it


class Body(Row):
    """The rest of a unit, written when it is made and when it ends."""

    table = "body"
    unit: int
    tenant: int
    task: str
    key: str | None = None
    created_at: int = 0
    input: str = "null"
    result: str | None = None
    error: str | None = None
    labels: str = "{}"
    policy: str = "{}"
    correlation: str = ""
    trace: str = ""
    mutex: str | None = None
    limit_key: str | None = None
    retry_of: int | None = None
    replaced_by: int | None = None
    rate_key: str | None = None


class Event(Row):
    """One transition of one unit as it happened, read from its act; (unit, version) is its identity."""

    table = "event"
    unit: int
    version: int
    tenant: int
    lifecycle: str
    trigger: str
    source: str | None
    target: str
    lease_from: str | None
    lease_to: str | None
    attempt: int
    fence: int
    name: str
    severity: str
    at: int
    actor: str
    reason: str
    cause: str | None
    correlation: str
    trace: str
    payload: str
    hash: str = ""  # the digest of its act


class Act(Row):
    """All units that one transaction takes along the same path from the same place. Inserting it moves them."""

    table = "act"
    apart = 1  # the store says it
    id: int
    tenant: int
    path: int
    path_digest: str
    version: int
    attempt: int
    fence: int
    at: int
    actor: str
    reason: str
    cause: str | None
    payload: str
    available: int
    worker: int | None
    ttl: int | None
    beat: int | None
    until: int | None
    units: list[int]
    before: list[int]
    leases: list[int | None] | None = None
    secrets: list[str] | None = None
    details: list[str | None] | None = None
    digest: str = ""


class ActGone(Row):
    """An act that has left the database with the last of its units."""

    table = "act_gone"
    id: int
    tenant: int
    digest: str


class ActDetail(Row):
    """What an act tells of one of its units alone."""

    table = "act_detail"
    act: int
    unit: int
    tenant: int
    payload: str


class Lease(Row):
    """A worker's right to speak for units; its id is that of the act that granted it."""

    table = "lease"
    id: int
    unit: int  # 0: the row of all units that have none of their own
    tenant: int
    worker: int
    secret: str  # the hash of it; '' in the row of many
    until: int
    ttl: int
    beat: int
    ended_at: int | None = None
    units: int = 1  # under the lease, in the row of many


class Seal(Row):
    """Acts of a tenant up to one of them, and a root over all of them."""

    table = "seal"
    tenant: int
    number: int
    first_act: int
    last_act: int
    acts: int
    root: str
    at: int


class Need(Row):
    """A unit waits for another one: for its success, or only for its end."""

    table = "need"
    unit: int
    needs: int
    tenant: int
    by_end: int = 0


class NamedPlace(Row):
    """The name of a child in its parent; the child itself may be yet to come."""

    table = "place"
    parent: int
    name: str
    unit: int
    tenant: int


class Note(Row):
    """A record that moves nothing: a heartbeat, progress, a vote, a step's result."""

    table = "note"
    id: int
    tenant: int
    unit: int
    kind: str
    name: str
    fence: int
    at: int
    expires: int | None
    payload: str


class WorkerRow(Row):
    """The row of a worker beside its unit: what it can do and what it holds."""

    table = "worker"
    unit: int
    tenant: int
    name: str
    incarnation: str
    capabilities: str
    capacity: int
    holding: int
    draining: int
    seen_at: int
    claim_key: str | None
    queues: str = "[]"  # those that it has claimed from
    summons: int = 0  # how often somebody else stopped or took what it holds
    renewals: int = 0  # how often a beat made a lease longer
    claim_nonce_hash: str | None = None  # of the last claim
    concurrency: int = 0  # how many handlers it runs at a time; 0: it did not say
    tasks: str | None = None  # those that it knows, a JSON list; None: it takes any
    completions: int = 0  # how many leases ended by its own word, whatever came of the unit


class Artifact(Row):
    """A file or a value that an attempt has left."""

    table = "artifact"
    unit: int
    attempt: int
    name: str
    tenant: int
    fence: int
    at: int
    digest: str
    data: str


class Tenant(Row):
    """Whose work it is, how much of it may be held and may wait, and how often it may ask; None: no limit."""

    table = "tenant"
    id: int
    name: str
    created_at: int
    max_running: int | None = None
    max_waiting: int | None = None
    changed_at: int = 0
    changed_by: str = ""
    max_requests: int | None = None
    keep_beats_us: int | None = None  # how long its beats are kept; None: as long as others'
    keep_verbose_us: int | None = None  # the same of progress and logs


class Key(Row):
    """A right to speak for a tenant across the network; of its secret only the digest is kept."""

    table = "key"
    id: int
    tenant: int
    name: str
    digest: str
    scopes: str  # sorted, joined by commas
    created_at: int
    created_by: str
    expires_at: int | None = None
    rotated_at: int | None = None
    revoked_at: int | None = None
    revoked_by: str | None = None
    roles: str = ""  # sorted, joined by commas


class Slot(Row):
    """A mutex, a limit or a rate: at most `capacity` times it is taken.
    A mutex or a limit has who is available or held; a rate who is available, and every token that is away.
    """

    table = "slot"
    tenant: int
    key: str
    capacity: int
    taken: int


class Token(Row):
    """A token of a rate that a grant has spent, and when it is back."""

    table = "token"
    unit: int
    fence: int
    tenant: int
    key: str
    back_at: int


class Schedule(Row):
    """A schedule: what makes a unit at each of its times."""

    table = "schedule"
    tenant: int
    name: str
    timing: str
    timezone: str
    overlap: str
    missed: str
    work: str
    digest: str
    defined_at: int
    next_at: int | None = None
    last_at: int | None = None
    last_unit: int | None = None
    paused_at: int | None = None
    paused_by: str | None = None
    pause_note: str | None = None
    removed_at: int | None = None
    removed_by: str | None = None
    remove_note: str | None = None


class Skipped(Row):
    """Instants of a schedule for which no unit was made, and why."""

    table = "skipped"
    id: int
    tenant: int
    schedule: str
    first_at: int
    last_at: int
    count: int
    reason: str
    at: int
    expires: int


class PauseRow(Row):
    """Of a queue, a task, a unit with all below it, or what depends on something that is away nothing is granted from
    `since` on, until it has ended.
    """

    table = "pause"
    id: int
    tenant: int
    kind: str  # queue, task, unit or outage
    name: str  # of the queue, the task or what is away; of a unit, its number
    unit: int | None
    since: int
    until: int | None  # of an outage: when time looks at it
    actor: str
    reason: str
    ended_at: int | None = None
    ended_by: str | None = None
    live: int = 1  # 0: it has ended, and no unit is parked on it any more
    detail: str = ""  # of an outage, JSON
    act: int = 0  # the last one before it, whatever the clocks said

    @property
    def key(self) -> str:
        """What units are parked on that a claim has come across."""
        return f"pause:{self.kind}:{self.name}"

    def holds(self, now: int) -> bool:
        """Whether it keeps units from being granted at that time (microseconds)."""
        return self.ended_at is None and (self.until is None or self.until > now or self.kind == "outage")


class Answer(Row):
    """What a command under an idempotency key was answered."""

    table = "answer"
    tenant: int
    scope: str
    key: str
    request: str
    answer: str
    unit: int | None
    expires: int


class Archived(Row):
    """A unit that has left the database, and the file that holds it."""

    table = "archived"
    unit: int
    tenant: int
    version: int
    born: int  # its first act
    head: str  # the digest of its last one
    file: str
    digest: str
    at: int


class ForcedMove(Row):
    """A move past the table that an operator may make: the guard takes the act only if this says the same."""

    table = "forced_move"
    unit: int
    version: int
    tenant: int
    target: str
    actor: str
    reason: str
    at: int


@cache
def columns(kind: type[Row]) -> tuple[str, ...]:
    """The columns of a row's table, in order."""
    fields = kind.__struct_fields__
    return fields[: len(fields) - kind.apart]


ROWS: tuple[type[Row], ...] = (
    Unit, Body, Act, ActGone, ActDetail, Lease, Seal, Need, NamedPlace, Note, WorkerRow, Artifact, Tenant, Key, Slot,
    Token, Schedule, Skipped, Answer, Archived, ForcedMove,
)  # fmt: skip
