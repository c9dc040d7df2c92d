"""What is around the work, over the wire: workers, schedules, lifecycles."""

from contextlib import suppress
from typing import Any

from interlock.audit.docs import export, render
from interlock.client import json_views, lifecycle_responses, responses
from interlock.client.schedules import why_paused
from interlock.kernel.commands import (
    Command,
    Drain,
    FireSchedule,
    PauseSchedule,
    Planned,
    RemoveSchedule,
    ResumeSchedule,
)
from interlock.kernel.errors import Unknown
from interlock.kernel.ids import format_id
from interlock.kernel.lifecycle import Lifecycle
from interlock.kernel.rows import Schedule
from interlock.server.jobs import look_at, stands
from interlock.server.operations import TEXT, Asked, Operation, Reply
from interlock.server.request_schemas import ReasonAsked, WorkersMeant
from interlock.store.connection import Connection
from interlock.store.queries.views import glimpse, schedules_of, workers_seen


async def workers(asked: Asked) -> responses.Workers:
    return responses.Workers([json_views.worker(*one) for one in await asked.read(workers_seen, asked.query.ended)])


async def drain(asked: Asked) -> responses.StandingTold:
    return await stands(
        asked, await asked.send(Drain(worker=await asked.unit(json_views.WORKER), reason=asked.body.reason))
    )


async def schedules(asked: Asked) -> responses.ScheduleList:
    return responses.ScheduleList(await asked.read(told))


def told(connection: Connection, tenant: int) -> list[responses.ScheduleTold]:
    return [schedule(connection, one) for one in schedules_of(connection, tenant)]


def schedule(connection: Connection, one: Schedule) -> responses.ScheduleTold:
    last = None
    if one.last_unit is not None:
        with suppress(Unknown):  # it was archived
            last = format_id(glimpse(connection, one.tenant, one.last_unit).lifecycle, one.last_unit)
    return responses.ScheduleTold(
        one.name, one.timing, one.timezone, one.overlap, one.missed, why_paused(one), json_views.instant(one.next_at),
        json_views.instant(one.last_at), last,
    )  # fmt: skip


async def order(asked: Asked, kind: type[Command[Planned]]) -> responses.PlannedTold:
    done = await asked.send(kind(name=asked.path["name"], reason=asked.body.reason))  # type: ignore[call-arg]
    return responses.PlannedTold(done.name, done.changed, done.paused, done.removed, json_views.instant(done.next_at))


async def pause(asked: Asked) -> responses.PlannedTold:
    return await order(asked, PauseSchedule)


async def resume(asked: Asked) -> responses.PlannedTold:
    return await order(asked, ResumeSchedule)


async def remove(asked: Asked) -> responses.PlannedTold:
    return await order(asked, RemoveSchedule)


async def trigger(asked: Asked) -> Reply:
    done = await asked.send(FireSchedule(name=asked.path["name"], reason=asked.body.reason))
    (seen,), _ = await asked.read(look_at, [done], asked.request)
    return Reply(responses.Made(format_id(seen.lifecycle, seen.unit), seen.state), 201)


async def list_lifecycles(asked: Asked) -> lifecycle_responses.LifecycleList:
    lifecycles = asked.app.lifecycles.values()
    return lifecycle_responses.LifecycleList(
        [
            lifecycle_responses.LifecycleLine(lifecycle.name, lifecycle.document, lifecycle.about)
            for lifecycle in lifecycles
        ]
    )


def lifecycle_of(asked: Asked) -> Lifecycle:
    found = asked.app.lifecycles.get(asked.path["name"])
    if found is None:
        raise Unknown(asked.path["name"])
    return found


async def show_lifecycle(asked: Asked) -> dict[str, Any]:
    return export.describe_lifecycle(lifecycle_of(asked))


async def diagram(asked: Asked) -> str:
    return render.mermaid(lifecycle_of(asked), whole=True) + "\n"


AROUND = (
    Operation(
        method="GET", path="/v1/workers", scope="read", summary="List workers", call=workers, query=WorkersMeant,
        answer=responses.Workers,
    ),
    Operation(
        method="POST", path="/v1/workers/{id}/drain", scope="operate", summary="Let a worker take no more work",
        call=drain, body=ReasonAsked, answer=responses.StandingTold,
    ),
    Operation(
        method="GET", path="/v1/schedules", scope="read", summary="List schedules", call=schedules,
        answer=responses.ScheduleList,
    ),
    Operation(
        method="POST", path="/v1/schedules/{name}/pause", scope="operate", summary="Let a schedule make nothing",
        call=pause, body=ReasonAsked, answer=responses.PlannedTold,
    ),
    Operation(
        method="POST", path="/v1/schedules/{name}/resume", scope="operate", summary="Let a schedule go on",
        call=resume, body=ReasonAsked, answer=responses.PlannedTold,
    ),
    Operation(
        method="POST", path="/v1/schedules/{name}/remove", scope="operate", summary="Take a schedule away",
        call=remove, body=ReasonAsked, answer=responses.PlannedTold,
    ),
    Operation(
        method="POST", path="/v1/schedules/{name}/trigger", scope="operate",
        summary="Make a unit of a schedule now", call=trigger, body=ReasonAsked, answer=responses.Made, status=201,
    ),
    Operation(
        method="GET", path="/v1/lifecycles", scope="read", summary="List lifecycles", call=list_lifecycles,
        answer=lifecycle_responses.LifecycleList,
    ),
    Operation(
        method="GET", path="/v1/lifecycles/{name}", scope="read", summary="Show a lifecycle as data",
        call=show_lifecycle,
        answer=lifecycle_responses.LifecycleTold,
    ),
    Operation(
        method="GET", path="/v1/lifecycles/{name}/mermaid", scope="read", summary="Draw a lifecycle as Mermaid text",
        call=diagram, answer=str, media=TEXT,
    ),
)  # fmt: skip
