"""Long polls of workers: answered when a queue has work, or when the worker is called."""

from typing import Annotated

import msgspec
from msgspec import Meta

from interlock.client.long_poll import PATH, LongPollResponse
from interlock.server.auth import read_loop_time
from interlock.server.errors import ApiError
from interlock.server.operations import Operation, Request
from interlock.server.request_schemas import Name, Strict

SLICE = 0.25  # seconds after which a wait asks whether the server ends
LONGEST = 30.0  # seconds


class WaitRequest(Strict, frozen=True, kw_only=True):
    """Who waits, under a name of its own choice (`ear`): for work in some queues, or for calls to a worker."""

    waiter: Name = msgspec.field(name="ear")
    queues: Annotated[tuple[Name, ...], Meta(max_length=1_000)] = ()
    worker: Name | None = None
    seconds: Annotated[float, Meta(ge=0, le=LONGEST)] = 0


async def wait(request: Request) -> LongPollResponse:
    """Whether something has happened since the last question, or did so while this one waited."""
    body: WaitRequest = request.body
    if (body.worker is None) == (not body.queues):
        raise ApiError(400, "give queues to wait for, or a worker whose calls to wait for: exactly one of them")
    caller, waiters = request.caller, request.server.waiters
    waiter = await waiters.find((caller.key, body.waiter), (caller.tenant, body.queues, body.worker))
    until = read_loop_time() + body.seconds
    while True:
        waiters.tick(caller.tenant)
        left = until - read_loop_time()
        woken = await waiter.wait(max(0.0, min(SLICE, left)))
        if woken or left <= 0 or request.server.closing:
            return LongPollResponse(woken)


ROUTES = (
    Operation(
        method="POST", path=PATH, scope="worker", keyed=False, counted=False,
        summary="Long poll: wait until a queue has work, or a worker is called", call=wait, body=WaitRequest,
        response=LongPollResponse,
    ),
)  # fmt: skip
