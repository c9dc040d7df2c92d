"""Response structs of the API and of `--json`, field by field; fields are added and never removed."""

from typing import Any

import msgspec

from interlock.client.bulk_responses import BulkCancelResponse as BulkCancelResponse
from interlock.client.bulk_responses import BulkRequeueResponse as BulkRequeueResponse
from interlock.kernel.parameters import Parameter


class JobResponse(msgspec.Struct, kw_only=True):
    """A job, as it is in lists."""

    id: str
    task: str
    lifecycle: str
    state: str
    category: str
    outcome: str | None
    queue: str
    capabilities: list[str]
    priority: int
    key: str | None
    attempt: int
    failures: int
    losses: int
    version: int
    worker: str | None
    parent: str | None
    correlation: str
    created_at: str
    changed_at: str
    error: str | None
    status: str  # the same as `state`
    attempts: int  # claims so far: 0 before the first one
    next_run_at: str | None  # when it may be claimed, if nothing else must happen first
    started_at: str | None  # of the current attempt
    cost: float  # with all below it
    total_cost: float
    correlation_id: str


class LeaseResponse(msgspec.Struct):
    """The last lease of a job, without its secret; `worker` is null once nobody holds it."""

    state: str
    worker: str | None
    fence: int
    until: str | None


class NeedResponse(msgspec.Struct):
    """A job that must succeed, or only end, before this one can start.

    One that is not there yet has the state "yet to come".
    """

    id: str
    state: str
    name: str | None  # in its parent
    met_by: str  # success or end


class TracebackResponse(msgspec.Struct):
    """The traceback of a failed attempt; of a long one, the head and the tail."""

    attempt: int
    at: str
    text: str


class JobDetailResponse(JobResponse, kw_only=True):
    """A job with all its fields."""

    available_at: str | None
    due_at: str | None
    deadline_at: str | None
    wake_at: str | None
    parked_on: str | None
    cancel_asked_at: str | None
    cancel_forced_at: str | None
    needs_unmet: int
    lease: LeaseResponse | None
    mutex: str | None
    limit: str | None
    trace: str
    labels: Any
    policy: Any
    input: Any
    result: Any
    trace_id: str
    output: Any  # the same as `result`
    webhook_url: str | None
    reclaim_after: float | None  # seconds
    retry_of: str | None
    replaced_by: str | None
    needs: list[NeedResponse]
    waiting_on: list[str]  # the open gates at it or below it
    tracebacks: list[TracebackResponse]


class DeadLetterResponse(JobResponse, kw_only=True):
    """A dead letter with the reason; `again` says that it was requeued.

    `traceback` is the head and the tail of that of the last attempt; the job itself has all of them.
    """

    reason_code: str | None
    error_class: str | None
    stage: str | None
    last_error: str | None
    attempts: int | None  # type: ignore[assignment]
    last_owner: str | None
    last_lease_expires_at: str | None
    dead_since: str
    again: bool
    traceback: str | None


class DeadLettersResponse(msgspec.Struct):
    """A page of dead letters, the newest first; `next` is where the next page begins, null at the end.

    A page may be short, or empty, and still have a `next`: a filter that matches few is answered in parts.
    """

    dead_letters: list[DeadLetterResponse] = msgspec.field(name="letters")
    next: str | None


class EventResponse(msgspec.Struct, kw_only=True, rename={"source": "from", "target": "to"}):
    """One transition of a job; `unit` and `version` identify it."""

    unit: str
    version: int
    at: str
    name: str
    trigger: str
    source: str | None
    target: str
    lease_from: str | None
    lease_to: str | None
    attempt: int
    fence: int
    severity: str
    actor: str
    reason: str
    cause: str | None
    correlation: str
    trace: str
    payload: Any
    hash: str


class TreeNodeResponse(msgspec.Struct, kw_only=True):
    """One unit of a tree, as it is or was."""

    id: str
    depth: int
    task: str
    lifecycle: str
    state: str
    status: str  # the same as `state`
    category: str
    outcome: str | None
    attempt: int
    version: int
    created_at: str
    began_at: str | None
    ended_at: str | None
    took_ms: int | None
    cost: float
    worker: str | None
    waits_for: str | None


class StepResponse(TreeNodeResponse, kw_only=True):
    """One job, run or step of a tree, with its outcome."""

    attempts: int
    next_run_at: str | None
    started_at: str | None
    output: Any
    error: str | None


class CountResponse(msgspec.Struct):
    """How many there are; `more` says that there are more than `count`, which is 10,000 then."""

    count: int
    more: bool


class JobsResponse(msgspec.Struct):
    """A page of jobs, the newest first; `next` is where the next page begins, null at the end.

    A page may be short, or empty, and still have a `next`: a filter that matches few is answered in parts.
    `looked_until` is the creation time of the last job that was looked at.
    """

    jobs: list[JobResponse]
    next: str | None
    count: CountResponse | None
    looked_until: str | None


class RunsResponse(msgspec.Struct):
    """A page of runs, the newest first; `next` is where the next page begins, null at the end."""

    runs: list[JobResponse]
    next: str | None
    count: CountResponse | None
    looked_until: str | None


class SubmitResponse(msgspec.Struct):
    """The job that a submit made, or found under its key."""

    id: str
    state: str
    replaced: bool = False  # an unstarted unit made room for it
    status: str = ""  # the same as `state`

    def __post_init__(self) -> None:
        self.status = self.state


class SubmitManyResponse(msgspec.Struct):
    """The result of each submit, in the same order."""

    jobs: list[SubmitResponse]


class EventsResponse(msgspec.Struct):
    """A page of events, the oldest first; `next` is the `after` of the next page, null on the last one."""

    events: list[EventResponse]
    next: int | None


class StepsResponse(msgspec.Struct):
    """Everything below a run, a parent before its children; `cut` says that there is more."""

    steps: list[StepResponse]
    cut: bool


class StepCostResponse(msgspec.Struct):
    """What a step and all below it have cost."""

    id: str
    task: str
    cost: float


class CostResponse(msgspec.Struct):
    """What a run has cost so far, and its steps."""

    id: str
    cost: float
    steps: list[StepCostResponse]
    total_cost: float = 0  # the same as `cost`

    def __post_init__(self) -> None:
        self.total_cost = self.cost


class ActionResponse(msgspec.Struct):
    """The state of a job after a request, and whether the request changed anything."""

    id: str
    state: str
    applied: bool
    status: str = ""  # the same as `state`

    def __post_init__(self) -> None:
        self.status = self.state


class ClockResponse(msgspec.Struct):
    """A time at which something happens to the job by itself."""

    at: str
    what: str


class NextMoveResponse(msgspec.Struct):
    """A transition that the lifecycle lists in this state."""

    trigger: str
    target: str
    by: str
    guard: str
    note: str
    now: str


class WhyResponse(msgspec.Struct):
    """Why a job is in its state, what it waits for, and what would move it on."""

    unit: str
    state: str
    category: str
    reason: str
    answer: str
    details: list[str]
    attempt: int
    attempts: int
    failures: int
    losses: int
    clocks: list[ClockResponse]
    tries: list[str]
    refused: list[str]
    moves: list[NextMoveResponse]
    text: str
    traceback: str | None


class VoteResponse(msgspec.Struct):
    """The vote of one person on an approval."""

    voter: str
    approve: bool
    roles: list[str]
    comment: str
    at: str
    vouched_by: str = ""  # the key that spoke for this voter


class InboxItemResponse(msgspec.Struct, kw_only=True):
    """Something that waits for a person."""

    id: str
    task: str
    lifecycle: str
    state: str
    run: str | None
    run_task: str | None
    words: list[str]
    approvers: list[str]
    quorum: int
    votes: list[VoteResponse]
    submitter: str
    not_submitter: bool
    since: str
    expires_at: str | None
    input: Any


class InboxResponse(msgspec.Struct):
    """A page of the inbox, the oldest first; `next` is the `after` of the next page, null on the last one."""

    items: list[InboxItemResponse]
    next: str | None


class NoteResponse(msgspec.Struct, kw_only=True):
    """What is remembered of a unit and moved nothing."""

    at: str
    kind: str
    name: str
    fence: int
    expires: str | None
    payload: Any


class ArtifactResponse(msgspec.Struct, kw_only=True):
    """What an attempt left behind; of bytes `data` is null."""

    name: str
    attempt: int
    fence: int
    at: str
    digest: str
    data: Any
    length: int  # bytes
    media: str
    late: bool  # it came after the end of its lease


class WorkerResponse(msgspec.Struct, kw_only=True):
    """A worker: what it can do, what it holds, and when its last heartbeat came."""

    id: str
    name: str
    incarnation: str
    state: str
    draining: bool
    holding: int
    capacity: int
    concurrency: int
    silent: bool
    queues: Any
    capabilities: list[str]
    tasks: list[str] | None  # those that it knows; null: it takes any
    seen_at: str


class WorkersResponse(msgspec.Struct):
    """A list of workers."""

    workers: list[WorkerResponse]


class TaskResponse(msgspec.Struct, kw_only=True):
    """A version of a task: what it takes, and its rules, by the names that programs give them."""

    name: str
    version: int
    parameters: list[Parameter] | None  # null: it takes anything
    rules: dict[str, Any]
    defined_at: str | None
    defined_by: str
    waiting: int | None = None  # jobs, if they were counted
    running: int | None = None


class TasksResponse(msgspec.Struct):
    """The newest version of each task."""

    tasks: list[TaskResponse]


class ScheduleResponse(msgspec.Struct):
    """A schedule; `next_at` is null while it is paused."""

    name: str
    timing: str
    timezone: str
    overlap: str
    missed: str
    paused: str
    next_at: str | None
    last_at: str | None
    last: str | None


class SchedulesResponse(msgspec.Struct):
    """A list of schedules."""

    schedules: list[ScheduleResponse]


class ScheduleActionResponse(msgspec.Struct):
    """The state of a schedule after a request, and whether the request changed anything."""

    name: str
    changed: bool
    paused: bool
    removed: bool
    next_at: str | None


class HealthResponse(msgspec.Struct):
    """That the server and its database answer."""

    status: str


# Lifecycles as data.


class LifecycleSummaryResponse(msgspec.Struct):
    """A lifecycle in a list."""

    name: str
    document: str
    about: str


class LifecyclesResponse(msgspec.Struct):
    """A list of lifecycles."""

    lifecycles: list[LifecycleSummaryResponse]


class StateResponse(msgspec.Struct):
    """A state of a lifecycle."""

    name: str
    category: str
    initial: bool
    settled: bool
    final: bool


class MoveResponse(msgspec.Struct, rename={"source": "from", "target": "to"}):
    """A transition that a lifecycle lists, with who may make it."""

    source: str | None
    target: str
    trigger: str
    owner: str
    event: str
    severity: str
    opens_attempt: bool
    extension: bool
    why: str
    guards: list[str]
    note: str


class LifecycleResponse(msgspec.Struct):
    """A lifecycle as data: its states, and every single transition between them."""

    name: str
    document: str
    states: list[StateResponse]
    moves: list[MoveResponse]


# Events in the shape of document 002.


class JobEventResponse(msgspec.Struct, kw_only=True):
    """One event of a job in document 002's shape.

    Heartbeats, renewals and compensations are no transitions: their version is 0.
    """

    id: str
    job_id: str
    type: str
    ts: str
    actor: str
    correlation_id: str
    cause: str | None
    payload: Any
    version: int


class JobEventsResponse(msgspec.Struct):
    """A page of events in document 002's shape, the oldest first; `next` is the `cursor` of the next page, or null."""

    events: list[JobEventResponse]
    next: str | None


# API keys and the tenant.


class KeyResponse(msgspec.Struct):
    """A key, without its secret; `state` is valid, expired or revoked."""

    id: str
    name: str
    scopes: list[str]
    roles: list[str]
    state: str
    created_at: str
    created_by: str
    expires_at: str | None
    rotated_at: str | None
    revoked_at: str | None


class KeysResponse(msgspec.Struct):
    """A list of API keys, without their secrets."""

    keys: list[KeyResponse]


class KeySecretResponse(msgspec.Struct):
    """A key with its secret, which is shown only now."""

    id: str
    name: str
    scopes: list[str]
    roles: list[str]
    expires_at: str | None
    key: str


class KeyRevokedResponse(msgspec.Struct):
    """A revoked key, and whether this request revoked it."""

    id: str
    revoked: bool
    changed: bool


class TenantResponse(msgspec.Struct):
    """A tenant: how many of its jobs are held and wait, and its limits; null is no limit."""

    tenant: int
    name: str
    held: int
    waiting: int
    max_running: int | None
    max_waiting: int | None
    max_requests: int | None
    keep_beats_seconds: float
    keep_verbose_seconds: float
