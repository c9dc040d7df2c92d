"""What is around the work, over the wire: workers, schedules, lifecycles."""

from contextlib import suppress
from typing import Any

from interlock.audit import export, render
from interlock.client import answers, lifecycle_answers, shape
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
from interlock.kernel.lifecycle import Lifecycle
from interlock.kernel.names import shown
from interlock.kernel.rows import Schedule
from interlock.server.bodies import ReasonAsked, WorkersMeant
from interlock.server.jobs import look_at, stands
from interlock.server.operations import TEXT, Asked, Operation, Reply
from interlock.store.connection import Connection
from interlock.store.views import glimpse, schedules_of, workers_seen


async def workers(asked: Asked) -> answers.Workers:
    return answers.Workers([shape.worker(*one) for one in await asked.read(workers_seen, asked.query.ended)])


async def drain(asked: Asked) -> answers.StandingTold:
    return await stands(asked, await asked.send(Drain(worker=await asked.unit(shape.WORKER), reason=asked.body.reason)))


async def schedules(asked: Asked) -> answers.ScheduleList:
    return answers.ScheduleList(await asked.read(told))


def told(session: Connection, tenant: int) -> list[answers.ScheduleTold]:
    return [schedule(session, one) for one in schedules_of(session, tenant)]


def schedule(session: Connection, one: Schedule) -> answers.ScheduleTold:
    last = None
    if one.last_unit is not None:
        with suppress(Unknown):  # it was archived
            last = shown(glimpse(session, one.tenant, one.last_unit).lifecycle, one.last_unit)
    return answers.ScheduleTold(
        one.name, one.timing, one.timezone, one.overlap, one.missed, why_paused(one), shape.instant(one.next_at),
        shape.instant(one.last_at), last,
    )  # fmt: skip


async def order(asked: Asked, kind: type[Command[Planned]]) -> answers.PlannedTold:
    done = await asked.send(kind(name=asked.path["name"], reason=asked.body.reason))  # type: ignore[call-arg]
    return answers.PlannedTold(done.name, done.changed, done.paused, done.removed, shape.instant(done.next_at))


async def pause(asked: Asked) -> answers.PlannedTold:
    return await order(asked, PauseSchedule)


async def resume(asked: Asked) -> answers.PlannedTold:
    return await order(asked, ResumeSchedule)


async def remove(asked: Asked) -> answers.PlannedTold:
    return await order(asked, RemoveSchedule)


async def trigger(asked: Asked) -> Reply:
    done = await asked.send(FireSchedule(name=asked.path["name"], reason=asked.body.reason))
    (seen,), _ = await asked.read(look_at, [done], asked.request)
    return Reply(answers.Made(shown(seen.lifecycle, seen.unit), seen.state), 201)


async def lifecycles(asked: Asked) -> lifecycle_answers.LifecycleList:
    lives = asked.app.lives.values()
    return lifecycle_answers.LifecycleList(
        [lifecycle_answers.LifecycleLine(life.name, life.document, life.about) for life in lives]
    )


def life_of(asked: Asked) -> Lifecycle:
    found = asked.app.lives.get(asked.path["name"])
    if found is None:
        raise Unknown(asked.path["name"])
    return found


async def lifecycle(asked: Asked) -> dict[str, Any]:
    return export.lifecycle(life_of(asked))


async def diagram(asked: Asked) -> str:
    return render.mermaid(life_of(asked), whole=True) + "\n"


AROUND = (
    Operation(
        method="GET", path="/v1/workers", scope="read", summary="List workers", call=workers, query=WorkersMeant,
        answer=answers.Workers,
    ),
    Operation(
        method="POST", path="/v1/workers/{id}/drain", scope="operate", summary="Let a worker take no more work",
        call=drain, body=ReasonAsked, answer=answers.StandingTold,
    ),
    Operation(
        method="GET", path="/v1/schedules", scope="read", summary="List schedules", call=schedules,
        answer=answers.ScheduleList,
    ),
    Operation(
        method="POST", path="/v1/schedules/{name}/pause", scope="operate", summary="Let a schedule make nothing",
        call=pause, body=ReasonAsked, answer=answers.PlannedTold,
    ),
    Operation(
        method="POST", path="/v1/schedules/{name}/resume", scope="operate", summary="Let a schedule go on",
        call=resume, body=ReasonAsked, answer=answers.PlannedTold,
    ),
    Operation(
        method="POST", path="/v1/schedules/{name}/remove", scope="operate", summary="Take a schedule away",
        call=remove, body=ReasonAsked, answer=answers.PlannedTold,
    ),
    Operation(
        method="POST", path="/v1/schedules/{name}/trigger", scope="operate",
        summary="Make a unit of a schedule now", call=trigger, body=ReasonAsked, answer=answers.Made, status=201,
    ),
    Operation(
        method="GET", path="/v1/lifecycles", scope="read", summary="List lifecycles", call=lifecycles,
        answer=lifecycle_answers.LifecycleList,
    ),
    Operation(
        method="GET", path="/v1/lifecycles/{name}", scope="read", summary="Show a lifecycle as data", call=lifecycle,
        answer=lifecycle_answers.LifecycleTold,
    ),
    Operation(
        method="GET", path="/v1/lifecycles/{name}/mermaid", scope="read", summary="Draw a lifecycle as Mermaid text",
        call=diagram, answer=str, media=TEXT,
    ),
)  # fmt: skip
