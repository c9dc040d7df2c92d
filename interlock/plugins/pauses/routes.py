"""Pauses over HTTP: of a queue, a task, a job or a run."""

from datetime import UTC
from typing import Any

import msgspec

from interlock.client.durations import format_time
from interlock.client.pauses import parse_until
from interlock.kernel.commands import PauseStatus, PauseWork, UnpauseWork
from interlock.kernel.ids import format_id
from interlock.kernel.rows import PauseRow
from interlock.plugins.pauses.queries import UNIT, pauses_of
from interlock.server.operations import Operation, Request
from interlock.server.request_schemas import Name, Page, ReasonRequest, Short, Strict, Text
from interlock.store.connection import Connection
from interlock.store.queries.snapshots import read_lifecycle_names


class PauseResponse(msgspec.Struct):
    """What is paused: `kind` is queue, task or id; `until` is null if it is paused until somebody unpauses it."""

    kind: str
    name: str
    by: str
    reason: str
    since: str
    until: str | None
    ended_at: str | None
    ended_by: str | None


class PausesResponse(msgspec.Struct):
    """A list of pauses."""

    pauses: list[PauseResponse]


class PauseActionResponse(msgspec.Struct):
    """The state of a pause after a request, and whether the request changed anything."""

    kind: str
    name: str
    paused: bool
    changed: bool
    by: str
    reason: str
    since: str | None
    until: str | None


class PauseRequest(Strict, frozen=True, kw_only=True):
    """`until` is a length of time (2h), a time (2026-11-16T18:00Z) or the next such time of day, all in UTC."""

    reason: Text = ""
    until: Short | None = None


class PauseTargetRequest(PauseRequest, frozen=True, kw_only=True):
    """The queue or the task to pause: one of them."""

    queue: Name | None = None
    task: Name | None = None


class UnpauseTargetRequest(ReasonRequest, frozen=True, kw_only=True):
    """The queue or the task to unpause, or the outage that is over (`outage`): one of them."""

    queue: Name | None = None
    task: Name | None = None
    outage: Name | None = None


class PausesQuery(Strict, frozen=True, kw_only=True):
    """With `ended`, also pauses that are over."""

    ended: bool = False
    limit: Page = 100


async def list_pauses(request: Request) -> PausesResponse:
    """Lists what is paused."""
    query: PausesQuery = request.query
    return PausesResponse(await request.read(read_pauses, query.ended, query.limit))


def read_pauses(connection: Connection, tenant: int, ended: bool, limit: int) -> list[PauseResponse]:
    """Reads pauses as responses."""
    pauses = pauses_of(connection, tenant, ended=ended, limit=limit)
    lifecycles = read_lifecycle_names(connection, [pause.unit for pause in pauses if pause.unit is not None])
    return [make_response(pause, lifecycles.get(pause.unit or 0, UNIT)) for pause in pauses]


def make_response(pause: PauseRow, lifecycle: str) -> PauseResponse:
    """Makes the response of a pause."""
    name = pause.name if pause.unit is None else format_id(lifecycle, pause.unit)
    return PauseResponse(
        "id" if pause.unit is not None else pause.kind, name, pause.actor, pause.reason, format_time(pause.since),
        format_time(pause.until), format_time(pause.ended_at), pause.ended_by,
    )  # fmt: skip


async def pause_job(request: Request) -> PauseActionResponse:
    """Pauses a job and all below it."""
    return await pause(request, unit=await request.find_unit())


async def unpause_job(request: Request) -> PauseActionResponse:
    """Ends the pause of a job."""
    return await unpause(request, unit=await request.find_unit())


async def pause_run(request: Request) -> PauseActionResponse:
    """Pauses a run and all below it."""
    return await pause(request, unit=await request.find_run())


async def unpause_run(request: Request) -> PauseActionResponse:
    """Ends the pause of a run."""
    return await unpause(request, unit=await request.find_run())


async def pause_target(request: Request) -> PauseActionResponse:
    """Pauses a queue or a task."""
    return await pause(request, queue=request.body.queue, task=request.body.task)


async def unpause_target(request: Request) -> PauseActionResponse:
    """Ends the pause of a queue or a task, or an outage."""
    body: UnpauseTargetRequest = request.body
    return await unpause(request, queue=body.queue, task=body.task, outage=body.outage)


async def pause(request: Request, **target: Any) -> PauseActionResponse:
    """Sends the command that pauses something."""
    body: PauseRequest = request.body
    command = PauseWork(**target, reason=body.reason, **parse_until(body.until, UTC))
    return make_action_response(request, await request.send(command))


async def unpause(request: Request, **target: Any) -> PauseActionResponse:
    """Sends the command that ends a pause."""
    return make_action_response(request, await request.send(UnpauseWork(**target, reason=request.body.reason)))


def make_action_response(request: Request, status: PauseStatus) -> PauseActionResponse:
    """Makes the response to a command about a pause."""
    return PauseActionResponse(
        "id" if status.kind == UNIT else status.kind, request.path.get("id", status.name), status.paused,
        status.changed, status.by, status.reason, format_time(status.since), format_time(status.until),
    )  # fmt: skip


JOB, RUN = "/v1/jobs/{id}", "/v1/runs/{id}"
ACTION = PauseActionResponse
ROUTES = (
    Operation(
        method="GET", path="/v1/pauses", scope="read", summary="List what is paused, the latest first",
        call=list_pauses, query=PausesQuery, response=PausesResponse,
    ),
    Operation(
        method="POST", path="/v1/pause", scope="operate", summary="Pause a queue or a task",
        call=pause_target, body=PauseTargetRequest, response=ACTION,
    ),
    Operation(
        method="POST", path="/v1/unpause", scope="operate", summary="Unpause a queue or a task",
        call=unpause_target, body=UnpauseTargetRequest, response=ACTION,
    ),
    Operation(
        method="POST", path=f"{JOB}/pause", scope="operate", summary="Pause a job or run",
        call=pause_job, body=PauseRequest, response=ACTION,
    ),
    Operation(
        method="POST", path=f"{JOB}/unpause", scope="operate", summary="Unpause a job or run", call=unpause_job,
        body=ReasonRequest, response=ACTION,
    ),
    Operation(
        method="POST", path=f"{RUN}/pause", scope="operate", summary="Pause a run",
        call=pause_run, body=PauseRequest, response=ACTION,
    ),
    Operation(
        method="POST", path=f"{RUN}/unpause", scope="operate", summary="Unpause a run", call=unpause_run,
        body=ReasonRequest, response=ACTION,
    ),
)  # fmt: skip
