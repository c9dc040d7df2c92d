"""One message of a holder about one unit: what is said under a lease that is over is a 409, never a success."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from interlock.client.json_views import instant
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
from interlock.server.command_api import STALE, is_stale
from interlock.server.errors import Refusal
from interlock.server.operations import UNIT_MAX, Operation, Request
from interlock.server.request_schemas import Name, Seconds, Strict, Text, micro, packed
from interlock.store.queries.views import glimpse

LEASE_MAX = 200  # characters


class HoldAsked(Strict, frozen=True, kw_only=True):
    """The lease under which a holder speaks, as the claim gave it."""

    fence: Annotated[int, Meta(ge=0, le=UNIT_MAX)]
    lease: Annotated[str, Meta(min_length=1, max_length=LEASE_MAX)]


class FinishAsked(HoldAsked, frozen=True, kw_only=True):
    """How the holder's work ended."""

    ended: Literal[ENDS] = "success"  # type: ignore[valid-type]
    result: Any = None
    error: Text = ""
    error_class: Literal[tuple(ERROR_CLASSES)] = TRANSIENT  # type: ignore[valid-type]
    reason_code: Literal[REASONS] | None = None  # type: ignore[valid-type]
    stage: Literal[STAGES] = "exec"  # type: ignore[valid-type]
    after_seconds: Seconds | None = None
    cost: Annotated[float, Meta(ge=0)] = 0


class ReleaseAsked(HoldAsked, frozen=True, kw_only=True):
    """The unit is given back; with `snooze_seconds` to be called later, with `signal` once that is there."""

    snooze_seconds: Seconds | None = None
    signal: Name | None = None
    cost: Annotated[float, Meta(ge=0)] = 0


class HeardTold(msgspec.Struct):
    """A message that was accepted: where the unit stands, whether its holder is asked to stop, and until when it is."""

    id: str
    state: str
    cancel: bool
    lease_expires_at: str | None


async def start(request: Request) -> HeardTold:
    return await say(request, Start(held=(await held(request),)))


async def heartbeat(request: Request) -> HeardTold:
    return await say(request, Heartbeat(held=(await held(request),)))


async def finish(request: Request) -> HeardTold:
    said: FinishAsked = request.body
    outcome = Outcome(
        held=await held(request), ended=said.ended, result=packed(said.result), error=said.error,
        error_class=said.error_class, reason_code=said.reason_code, stage=said.stage,
        after_us=micro(said.after_seconds), cost=said.cost,
    )  # fmt: skip
    return await say(request, Finish(outcomes=(outcome,)))


async def release(request: Request) -> HeardTold:
    said: ReleaseAsked = request.body
    order = Release(
        held=(await held(request),), snooze_us=micro(said.snooze_seconds), signal=said.signal, cost=said.cost
    )  # fmt: skip
    return await say(request, order)


async def held(request: Request) -> LeaseRef:
    """The lease that the message names. Raises Unknown for a unit that is not there."""
    said: HoldAsked = request.body
    return LeaseRef(unit=await request.unit(), fence=said.fence, lease=said.lease)


async def say(request: Request, message: Command[list[LeaseStatus]]) -> HeardTold:
    """Raises Refusal for a message that was not accepted; it has changed nothing."""
    (heard,) = await request.send(message)
    if not heard.accepted and is_stale(heard):
        text = f"nothing is accepted under this lease ({heard.why}): stop this work, and claim again"
        raise Refusal(409, text, code=STALE, why=heard.why, state=heard.state)
    if not heard.accepted:
        raise Refusal(409, heard.why, state=heard.state)
    lifecycle = (await request.read(glimpse, heard.unit)).lifecycle
    return HeardTold(format_id(lifecycle, heard.unit), heard.state, heard.cancel, instant(heard.until or None))


JOB = "/v1/jobs/{id}"
ROUTES = tuple(
    Operation(
        method="POST", path=f"{JOB}/{call.__name__}", scope="worker", summary=summary, call=call, body=body,
        answer=HeardTold, keyed=False, counted=False,
    )
    for call, body, summary in (
        (start, HoldAsked, "Begin a unit that the caller holds"),
        (heartbeat, HoldAsked, "Say that the holder of a unit is alive"),
        (finish, FinishAsked, "Say how a held unit ended"),
        (release, ReleaseAsked, "Give a held unit back"),
    )
)  # fmt: skip
