"""Schedules over HTTP: list, pause, unpause, remove, trigger."""

from contextlib import suppress

from interlock.client import responses
from interlock.client.durations import format_time
from interlock.client.schedules import explain_pause
from interlock.kernel.commands import Command, FireSchedule, PauseSchedule, Planned, RemoveSchedule, ResumeSchedule
from interlock.kernel.errors import Unknown
from interlock.kernel.ids import format_id
from interlock.kernel.rows import Schedule
from interlock.server.jobs import read_submitted
from interlock.server.operations import Operation, Reply, Request
from interlock.server.request_schemas import ReasonRequest
from interlock.store.connection import Connection
from interlock.store.queries.views import read_summary, schedules_of


async def list_schedules(request: Request) -> responses.SchedulesResponse:
    """Lists schedules."""
    return responses.SchedulesResponse(await request.read(read_schedules))


def read_schedules(connection: Connection, tenant: int) -> list[responses.ScheduleResponse]:
    """Reads schedules as responses."""
    return [make_response(connection, schedule) for schedule in schedules_of(connection, tenant)]


def make_response(connection: Connection, schedule: Schedule) -> responses.ScheduleResponse:
    """Makes the response of a schedule."""
    last = None
    if schedule.last_unit is not None:
        with suppress(Unknown):  # it was archived
            lifecycle = read_summary(connection, schedule.tenant, schedule.last_unit).lifecycle
            last = format_id(lifecycle, schedule.last_unit)
    return responses.ScheduleResponse(
        schedule.name, schedule.timing, schedule.timezone, schedule.overlap, schedule.missed, explain_pause(schedule),
        format_time(schedule.next_at), format_time(schedule.last_at), last,
    )  # fmt: skip


async def change(request: Request, kind: type[Command[Planned]]) -> responses.ScheduleActionResponse:
    """Sends a command about the schedule that the path names."""
    done = await request.send(kind(name=request.path["name"], reason=request.body.reason))  # type: ignore[call-arg]
    return responses.ScheduleActionResponse(
        done.name, done.changed, done.paused, done.removed, format_time(done.next_at)
    )


async def pause(request: Request) -> responses.ScheduleActionResponse:
    """Pauses a schedule."""
    return await change(request, PauseSchedule)


async def unpause(request: Request) -> responses.ScheduleActionResponse:
    """Unpauses a schedule."""
    return await change(request, ResumeSchedule)


async def remove(request: Request) -> responses.ScheduleActionResponse:
    """Removes a schedule."""
    return await change(request, RemoveSchedule)


async def trigger(request: Request) -> Reply:
    """Submits the job of a schedule now."""
    done = await request.send(FireSchedule(name=request.path["name"], reason=request.body.reason))
    (unit,), _ = await request.read(read_submitted, [done], request.request_id)
    return Reply(responses.SubmitResponse(format_id(unit.lifecycle, unit.unit), unit.state), 201)


ROUTES = (
    Operation(
        method="GET", path="/v1/schedules", scope="read", summary="List schedules", call=list_schedules,
        response=responses.SchedulesResponse,
    ),
    Operation(
        method="POST", path="/v1/schedules/{name}/pause", scope="operate", summary="Pause a schedule",
        call=pause, body=ReasonRequest, response=responses.ScheduleActionResponse,
    ),
    Operation(
        method="POST", path="/v1/schedules/{name}/unpause", scope="operate", summary="Unpause a schedule",
        call=unpause, body=ReasonRequest, response=responses.ScheduleActionResponse,
    ),
    Operation(
        method="POST", path="/v1/schedules/{name}/resume", scope="operate", summary="The same as unpause",
        call=unpause, body=ReasonRequest, response=responses.ScheduleActionResponse,
    ),
    Operation(
        method="POST", path="/v1/schedules/{name}/remove", scope="operate", summary="Remove a schedule",
        call=remove, body=ReasonRequest, response=responses.ScheduleActionResponse,
    ),
    Operation(
        method="POST", path="/v1/schedules/{name}/trigger", scope="operate",
        summary="Submit the job of a schedule now", call=trigger, body=ReasonRequest, response=responses.SubmitResponse,
        status=201,
    ),
)  # fmt: skip
