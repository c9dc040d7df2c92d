"""Messages of a worker under one lease over HTTP: under a lease that is over the answer is 409."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from interlock.client.durations import format_time
from interlock.kernel.commands import (
    ENDS,
    ERROR_CLASSES,
    REASONS,
    STAGES,
    TRANSIENT,
    Command,
    Finish,
    Heartbeat,
    LeaseRef,
    LeaseStatus,
    Outcome,
    Release,
    Start,
)
from interlock.kernel.ids import format_id
from interlock.server.command_api import is_stale_lease
from interlock.server.errors import STALE_LEASE, ApiError
from interlock.server.operations import UNIT_MAX, Operation, Request
from interlock.server.request_schemas import Name, Seconds, Strict, Text, encode_json, to_microseconds
from interlock.store.queries.views import read_summary

LEASE_MAX = 200  # characters


class LeaseRequest(Strict, frozen=True, kw_only=True):
    """The lease of the message, as the claim returned it."""

    fence: Annotated[int, Meta(ge=0, le=UNIT_MAX)]
    lease: Annotated[str, Meta(min_length=1, max_length=LEASE_MAX)]


class FinishRequest(LeaseRequest, frozen=True, kw_only=True):
    """How the job ended."""

    ended: Literal[ENDS] = "success"  # type: ignore[valid-type]
    result: Any = None
    error: Text = ""
    error_class: Literal[tuple(ERROR_CLASSES)] = TRANSIENT  # type: ignore[valid-type]
    reason_code: Literal[REASONS] | None = None  # type: ignore[valid-type]
    stage: Literal[STAGES] = "exec"  # type: ignore[valid-type]
    after_seconds: Seconds | None = None
    cost: Annotated[float, Meta(ge=0)] = 0


class ReleaseRequest(LeaseRequest, frozen=True, kw_only=True):
    """The job is given back: to run again now, after `snooze_seconds`, or when the `signal` has come.

    `signals` names several, of which any one is enough.
    """

    snooze_seconds: Seconds | None = None
    signal: Name | None = None
    signals: tuple[Name, ...] = ()
    cost: Annotated[float, Meta(ge=0)] = 0


class LeaseMessageResponse(msgspec.Struct):
    """The message was accepted.

    The state of the job, whether its handler is asked to stop, and when its lease expires.
    """

    id: str
    state: str
    cancel: bool
    lease_expires_at: str | None


async def start(request: Request) -> LeaseMessageResponse:
    """The holder begins to work."""
    return await send_message(request, Start(held=(await read_lease(request),)))


async def heartbeat(request: Request) -> LeaseMessageResponse:
    """The holder is alive: its lease is renewed."""
    return await send_message(request, Heartbeat(held=(await read_lease(request),)))


async def finish(request: Request) -> LeaseMessageResponse:
    """The holder reports how its attempt ended."""
    body: FinishRequest = request.body
    outcome = Outcome(
        held=await read_lease(request), ended=body.ended, result=encode_json(body.result), error=body.error,
        error_class=body.error_class, reason_code=body.reason_code, stage=body.stage,
        after_us=to_microseconds(body.after_seconds), cost=body.cost,
    )  # fmt: skip
    return await send_message(request, Finish(outcomes=(outcome,)))


async def release(request: Request) -> LeaseMessageResponse:
    """The holder gives a job back, for later or until a signal comes."""
    body: ReleaseRequest = request.body
    message = Release(
        held=(await read_lease(request),), snooze_us=to_microseconds(body.snooze_seconds), signal=body.signal,
        signals=body.signals, cost=body.cost,
    )  # fmt: skip
    return await send_message(request, message)


async def read_lease(request: Request) -> LeaseRef:
    """Returns the lease that the message names.

    Raises:
        Unknown: a unit that is not there.
    """
    body: LeaseRequest = request.body
    return LeaseRef(unit=await request.find_unit(), fence=body.fence, lease=body.lease)


async def send_message(request: Request, message: Command[list[LeaseStatus]]) -> LeaseMessageResponse:
    """Sends one message of a holder.

    Raises:
        ApiError: 409, because the message was not accepted. It has changed nothing.
    """
    (status,) = await request.send(message)
    if not status.accepted and is_stale_lease(status):
        text = f"nothing is accepted under this lease ({status.why}): stop this work, and claim again"
        raise ApiError(409, text, code=STALE_LEASE, why=status.why, state=status.state)
    if not status.accepted:
        raise ApiError(409, status.why, state=status.state)
    lifecycle = (await request.read(read_summary, status.unit)).lifecycle
    return LeaseMessageResponse(
        format_id(lifecycle, status.unit), status.state, status.cancel, format_time(status.until or None)
    )


JOB = "/v1/jobs/{id}"
ROUTES = tuple(
    Operation(
        method="POST", path=f"{JOB}/{call.__name__}", scope="worker", summary=summary, call=call, body=body,
        response=LeaseMessageResponse, keyed=False, counted=False,
    )
    for call, body, summary in (
        (start, LeaseRequest, "Start a job under its lease"),
        (heartbeat, LeaseRequest, "Send a heartbeat for a job"),
        (finish, FinishRequest, "Finish a job under its lease"),
        (release, ReleaseRequest, "Release a job under its lease, without a result"),
    )
)  # fmt: skip
