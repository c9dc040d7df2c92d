"""Waiting for work over the wire: a worker is told when a queue of its has got some, or that it is called."""

from typing import Annotated

from msgspec import Meta

from interlock.client.long_poll import PATH, Rung
from interlock.server.auth import moment
from interlock.server.errors import Refusal
from interlock.server.operations import Operation, Request
from interlock.server.request_schemas import Name, Strict

SLICE = 0.25  # seconds after which a wait asks whether the server ends
LONGEST = 30.0  # seconds


class WaitAsked(Strict, frozen=True, kw_only=True):
    """Who waits, under a name of its own choice (`ear`): for work in some queues, or for calls to a worker."""

    ear: Name
    queues: Annotated[tuple[Name, ...], Meta(max_length=1_000)] = ()
    worker: Name | None = None
    seconds: Annotated[float, Meta(ge=0, le=LONGEST)] = 0


async def wait(request: Request) -> Rung:
    """Whether something has happened since the last question, or did so while this one waited."""
    said: WaitAsked = request.body
    if (said.worker is None) == (not said.queues):
        raise Refusal(400, "wait for queues, or for calls to a worker: not both, nor none")
    caller, ears = request.caller, request.hall.ears
    ear = await ears.find((caller.key, said.ear), (caller.tenant, said.queues, said.worker))
    until = moment() + said.seconds
    while True:
        ears.tick(caller.tenant)
        left = until - moment()
        rung = await ear.wait(max(0.0, min(SLICE, left)))
        if rung or left <= 0 or request.hall.closing:
            return Rung(rung)


ROUTES = (
    Operation(
        method="POST", path=PATH, scope="worker", keyed=False, counted=False,
        summary="Wait until a queue has got work, or a worker is called", call=wait, body=WaitAsked, answer=Rung,
    ),
)  # fmt: skip
