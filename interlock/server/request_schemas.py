"""Structs of request bodies and queries: every field with its bounds, and the command made from them."""

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from interlock.client.durations import instant_us
from interlock.kernel.api_keys import SCOPES
from interlock.kernel.commands import ERROR_CLASSES, REASONS, Resource, Work
from interlock.kernel.errors import InterlockError
from interlock.server.operations import parse_unit_id

NAME_MAX, TEXT_MAX, MANY, PAGE_MAX = 200, 2_000, 10_000, 200
YEAR = 366 * 24 * 3600
NO_NUL = r"^[^\u0000]*$"
TOKEN = r"^[0-9A-Za-z_.-]*$"
Name = Annotated[str, Meta(min_length=1, max_length=NAME_MAX, pattern=NO_NUL)]
Id = Annotated[str, Meta(pattern=r"^([a-z_]+_)?[0-9A-Za-z]{1,13}$")]
Role = Annotated[str, Meta(min_length=1, max_length=NAME_MAX, pattern=r"^[^\u0000,]*$")]
Short = Annotated[str, Meta(max_length=NAME_MAX, pattern=NO_NUL)]
Words = Annotated[tuple[Name, ...], Meta(max_length=50)]
Text = Annotated[str, Meta(max_length=TEXT_MAX, pattern=NO_NUL)]
Labels = dict[str, Text]
WebhookUrl = Annotated[str, Meta(min_length=1, max_length=TEXT_MAX, pattern=r"^https?://[^\s/?#@\\]+([/?#][!-~]*)?$")]
Seconds = Annotated[float, Meta(ge=0.001, le=10 * YEAR)]
Count = Annotated[int, Meta(ge=1, le=1_000_000)]
Priority = Annotated[int, Meta(ge=-(2**31) + 1, le=2**31 - 1)]
Page = Annotated[int, Meta(ge=1, le=PAGE_MAX)]
Refs = Annotated[tuple[Name, ...], Meta(max_length=MANY)]
# Which lifecycles a field may name; the OpenAPI text lists them.
LIFECYCLES = "x-lifecycles"
SUBMITTED = Meta(extra_json_schema={LIFECYCLES: "submitted"})
RUN = Meta(extra_json_schema={LIFECYCLES: "run"})
LENGTHS = (
    "timeout", "queue_timeout", "plan_timeout", "cancel_timeout", "expires", "backoff", "backoff_cap", "lease", "beat",
    "sla", "keep",
)  # fmt: skip
IN_DOCUMENTS = {"lease": "lease_ttl_sec", "backoff": "base_delay"}
SPELLED = {"lease": "ttl_us", "beat": "beat_us"}
OF_TASK = ("queue", "capabilities", "priority", "silent")  # fields whose value tells, whatever it is, that it was said


class Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Words that are not known are refused."""


class LimitRequest(Strict, frozen=True, kw_only=True):
    """At most `n` jobs that name `key` run at a time."""

    key: Name
    n: Count


class RateRequest(Strict, frozen=True, kw_only=True):
    """At most `n` jobs that name `key` start in any period of `per_seconds`."""

    key: Name
    n: Count
    per_seconds: Seconds


class ResourceRequest(Strict, frozen=True, kw_only=True):
    """A resource that the job needs while it runs.

    Alone (`exclusive`), `shared`, `n` of `of` (`counted`), or `n` starts per `per_seconds` (`rated`).
    """

    name: Name
    mode: Literal["exclusive", "shared", "counted", "rated"] = "exclusive"
    n: Count = 1
    of: Count | None = None
    per_seconds: Seconds | None = None


class WorkRequest(Strict, frozen=True, kw_only=True):
    """Work to submit.

    Fields that are left out are as the stored rules of its task say, or else as its lifecycle says.
    """

    task: Name
    input: Any = None
    queue: Name | None = None  # that of its task, or else "default"
    capabilities: Words | None = None
    key: Name | None = None
    on_duplicate: Literal["return", "reject", "replace"] = "return"
    priority: Priority | None = None  # that of its task, or else 0
    delay_seconds: Annotated[float, Meta(ge=0, le=10 * YEAR)] = 0
    at: Annotated[datetime, Meta(tz=True)] | None = None
    mutex: Name | None = None
    limit: LimitRequest | None = None
    rate: RateRequest | None = None
    resources: Annotated[tuple[ResourceRequest, ...], Meta(max_length=20)] = ()
    depends: Annotated[tuple[Name, ...], Meta(max_length=10)] = ()
    labels: Labels = {}
    correlation: Short = ""
    trace: Short = ""
    correlation_id: Short = ""  # document 002's name for `correlation`
    trace_id: Short = ""  # document 002's name for `trace`
    needs: Refs | None = None
    after: Refs = ()
    needs_end: Refs = ()  # like `needs` and `after`, but their end is enough
    after_end: Refs = ()
    ref: Short = ""
    step: Name | None = None  # its name in its parent
    decides: bool = True
    attempts: Count | None = None
    exhausted: Literal["exhaust", "fail"] | None = None
    timeout_seconds: Seconds | None = None
    queue_timeout_seconds: Seconds | None = None
    plan_timeout_seconds: Seconds | None = None
    cancel_timeout_seconds: Seconds | None = None
    losses: Count | None = None
    settle: Literal["first", "all"] | None = None
    retry_of: Id | None = None
    expires_seconds: Seconds | None = None
    backoff_seconds: Seconds | None = None
    backoff_cap_seconds: Seconds | None = None
    lease_seconds: Seconds | None = None
    lease_ttl_sec: Seconds | None = None  # document 002's name for `lease_seconds`
    base_delay: Seconds | None = None  # document 001's name for `backoff_seconds`
    beat_seconds: Seconds | None = None
    silent: bool | None = None
    sla_seconds: Seconds | None = None
    keep_seconds: Seconds | None = None
    quorum: Count | None = None
    on_reject: Literal["cancel", "fail"] | None = None
    approvers: Words = ()
    not_submitter: bool = False
    options: dict[str, Any] | None = None  # of plugins, by name


class JobRequest(WorkRequest, frozen=True, kw_only=True):
    """A job, or work of another lifecycle. `parent` and `after` are ids."""

    lifecycle: Annotated[Name, SUBMITTED] = "job"
    parent: Name | None = None


class JobBatchRequest(Strict, frozen=True, kw_only=True):
    """Several jobs, in any order: all of them are submitted, or none.

    `needs` are `ref`s of this request; if `parent` is an id, they are names of its children, also of children that are
    added later. `after` are ids of existing jobs; `parent` is a `ref` or an id.
    """

    jobs: Annotated[tuple[JobRequest, ...], Meta(min_length=1, max_length=MANY)]


class CancelRequest(Strict, frozen=True, kw_only=True):
    """By default the handler is asked to stop; with `hard` it is stopped immediately."""

    hard: bool = False
    reason: Text = ""


class ReasonRequest(Strict, frozen=True, kw_only=True):
    """A request that may give a reason, which is kept with the event."""

    reason: Text = ""


class RerunRequest(ReasonRequest, frozen=True, kw_only=True):
    """What to rerun: the whole run, from a step (of a workstream: a task) on, or only what has not succeeded."""

    step: Name | None = None
    from_task: Name | None = None  # the same as `step`
    failed: bool = False


class KeyExpiryRequest(Strict, frozen=True, kw_only=True):
    """For how long the key is valid from now on.

    Without it a new key never expires, and a rotated key keeps its time.
    """

    expires_seconds: Seconds | None = None


class KeyRequest(KeyExpiryRequest, frozen=True, kw_only=True):
    """A key to create: its name, its roles and its scopes, at most those of the key that asks."""

    name: Name
    roles: Annotated[tuple[Role, ...], Meta(max_length=50)] = ()
    scopes: Annotated[tuple[Literal[SCOPES], ...], Meta(min_length=1, max_length=len(SCOPES))]  # type: ignore[valid-type]


class JobFilterRequest(Strict, frozen=True, kw_only=True):
    """A filter of jobs: a job must match all fields that are given."""

    state: tuple[Name, ...] = ()
    status: tuple[Name, ...] = ()  # the same as `state`
    category: tuple[Name, ...] = ()
    lifecycle: Name | None = None
    task: Name | None = None
    queue: Name | None = None
    key: Name | None = None
    correlation: Name | None = None
    error: Name | None = None  # with which the last error begins
    worker: Name | None = None
    parent: Id | None = None
    top: bool = False  # only what is part of nothing else


class JobsQuery(JobFilterRequest, frozen=True, kw_only=True):
    """A filter of jobs, a page of them, and whether to count them."""

    count: bool = False
    limit: Page = 50
    after: Id | None = None


class BulkJobsRequest(Strict, frozen=True, kw_only=True):
    """Jobs to act on: by `ids`, by a `filter`, or all of them (`every`). Without `confirm` they are only counted.

    With `unchanged`, nothing is done if one of the counted jobs does not match any more.
    """

    filter: JobFilterRequest
    ids: Annotated[tuple[Id, ...], Meta(max_length=MANY)] = ()
    every: bool = False
    reason: Text = ""
    unchanged: bool = False
    confirm: Annotated[str, Meta(max_length=200_000, pattern=TOKEN)] | None = None


class BulkCancelRequest(BulkJobsRequest, frozen=True, kw_only=True):
    """Jobs to cancel; by default their handlers are asked to stop, with `hard` they are stopped immediately."""

    hard: bool = False


class DeadLetterFilter(Strict, frozen=True, kw_only=True):
    """A filter of dead letters; `since` is when they became dead letters at the earliest."""

    lifecycle: Name | None = None
    task: Name | None = None
    queue: Name | None = None
    error_class: Literal[tuple(ERROR_CLASSES)] | None = None  # type: ignore[valid-type]
    error: Name | None = None  # with which the last error begins
    reason_code: Literal[REASONS] | None = None  # type: ignore[valid-type]
    since: Annotated[datetime, Meta(tz=True)] | None = None


class DeadLettersQuery(DeadLetterFilter, frozen=True, kw_only=True):
    """A filter of dead letters, and a page of them."""

    limit: Page = 50
    after: Id | None = None


class BulkRequeueRequest(Strict, frozen=True, kw_only=True):
    """Dead letters to requeue, by a filter. Without `confirm` they are only counted."""

    filter: DeadLetterFilter
    confirm: Annotated[str, Meta(max_length=500, pattern=TOKEN)] | None = None
    reason: Text = ""


class EventsQuery(Strict, frozen=True, kw_only=True):
    """Events after the version `after`; for a job in document 002's `shape`, after the `cursor` of a page."""

    after: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0
    limit: Page = 50
    shape: Literal["002"] | None = None
    cursor: Annotated[str, Meta(pattern=r"^[0-9]{1,18}\.[01]\.[0-9]{1,18}$")] | None = None


class WorkersQuery(Strict, frozen=True, kw_only=True):
    """With `ended`, also workers that have shut down."""

    ended: bool = False


def encode_json(value: Any) -> str:
    """Returns a value as JSON text, as commands have it."""
    return msgspec.json.encode(value).decode()


def to_microseconds(seconds: float | None) -> int | None:
    """Returns seconds as microseconds, and None as None."""
    return None if seconds is None else round(seconds * 1_000_000)


def read_either(request: msgspec.Struct, name: str, other: str) -> Any:
    """What was said under one of two names for one thing.

    Raises:
        InterlockError: both were, and differ.
    """
    ours, documents = getattr(request, name, None), getattr(request, other, None)
    if ours and documents and ours != documents:
        raise InterlockError(f"{name} and {other} are two names for one thing, and say different things")
    return ours or documents


def check_instant(at: datetime) -> int:
    """An instant that can be told again in every time zone.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    if not 1970 < at.year < 9999:
        raise InterlockError("at is not allowed; allowed is a time between the years 1971 and 9998")
    return instant_us("at", at)


def make_work(request: WorkRequest, lifecycle: str, parent: int | str | None) -> Work:
    """The unit that is asked for.

    Raises:
        Unknown: it is no id.
    """
    lengths: dict[str, Any] = {
        SPELLED.get(name, f"{name}_us"): to_microseconds(
            read_either(request, f"{name}_seconds", IN_DOCUMENTS.get(name, ""))
        )
        for name in LENGTHS
    }
    limit, rate = request.limit, request.rate
    rules = {name: value for name in OF_TASK if (value := getattr(request, name)) is not None}
    return Work(
        task=request.task, lifecycle=lifecycle, input=encode_json(request.input), key=request.key,
        on_duplicate=request.on_duplicate, explicit=tuple(rules),
        delay_us=to_microseconds(request.delay_seconds) or 0,
        at_us=None if request.at is None else check_instant(request.at),
        mutex=request.mutex, limit_key=limit.key if limit else None, limit=limit.n if limit else None,
        rate_key=rate.key if rate else None, rate=rate.n if rate else None,
        rate_per_us=to_microseconds(rate.per_seconds) if rate else None, labels=encode_json(request.labels),
        correlation=read_either(request, "correlation", "correlation_id"),
        trace=read_either(request, "trace", "trace_id"),
        reclaim_after_us=to_microseconds(getattr(request, "reclaim_after", None)),
        parent=parent, ref=request.ref, decides=request.decides,
        needs=request.needs or (), after=tuple(map(parse_unit_id, request.after)), needs_end=request.needs_end,
        after_end=tuple(map(parse_unit_id, request.after_end)), step=request.step, attempts=request.attempts,
        losses=request.losses, settle=request.settle, depends=request.depends,
        resources=tuple(
            Resource(each.name, each.mode, each.n, each.of, to_microseconds(each.per_seconds))
            for each in request.resources
        ),
        retry_of=None if request.retry_of is None else parse_unit_id(request.retry_of),
        exhausted=request.exhausted, quorum=request.quorum, on_reject=request.on_reject,
        approvers=request.approvers, not_submitter=request.not_submitter,
        options=None if request.options is None else encode_json(request.options), **lengths, **rules,
    )  # fmt: skip
