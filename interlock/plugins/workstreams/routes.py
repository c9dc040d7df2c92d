"""Workstreams over HTTP: submit one in pages of up to 1,000 tasks, add tasks, list them.

Tasks are retried, skipped and reassigned under `/v1/tasks/{id}`. Everything that a run has under `/v1/runs/{id}` (why,
events, cost, cancel, pause and so on) a workstream has there too.
"""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from interlock.client import responses
from interlock.client.json_views import make_job
from interlock.client.progress import ExecutionPlan, Progress, read_plan, read_progress
from interlock.client.workstream_files import TASKS_MAX, TaskSpec, WorkstreamSpec, make_options, make_task_part
from interlock.client.workstream_files import make_workstream as make_definition
from interlock.client.workstream_runs import make_added, refuse_same_names
from interlock.client.workstream_works import TASK, WORKSTREAM
from interlock.core.effective_policy import policy_of
from interlock.kernel.commands import ReassignTask, RetryTask, SkipTask, Work
from interlock.kernel.errors import InterlockError
from interlock.kernel.ids import format_id
from interlock.server.jobs import (
    make_action_response,
    make_again_reply,
    make_job_filter,
    read_job_detail,
    read_page,
    rerun_unit,
    submit_work,
)
from interlock.server.operations import Operation, Reply, Request, parse_unit_id
from interlock.server.request_schemas import Id, JobsQuery, Name, ReasonRequest, RerunRequest, Strict
from interlock.store.connection import Connection
from interlock.store.queries.large_values import read_large_values
from interlock.store.queries.lists import read_newest_units
from interlock.store.queries.views import Filter, View, listing, view


class WorkstreamRequest(WorkstreamSpec, frozen=True, kw_only=True):
    """A workstream and its tasks. With `expects` it is planned when that many are there: others come in further pages.

    `timeout` and the like are as in "20m", or a number of seconds. A check that is a word is the name of a task.
    """

    tasks: Annotated[tuple[TaskSpec, ...], Meta(max_length=TASKS_MAX)] = ()


class TasksRequest(Strict, frozen=True, kw_only=True):
    """Tasks that are added to a workstream; a name that is there already adds nothing."""

    tasks: Annotated[tuple[TaskSpec, ...], Meta(min_length=1, max_length=TASKS_MAX)]


class TasksQuery(Strict, frozen=True, kw_only=True):
    """A filter of tasks of a workstream, and a page of them."""

    state: tuple[Name, ...] = ()
    limit: Annotated[int, Meta(ge=1, le=TASKS_MAX)] = 200
    after: Id | None = None


class PlanQuery(Strict, frozen=True, kw_only=True):
    """Tasks of a plan, from a place on."""

    first: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    limit: Annotated[int, Meta(ge=1, le=TASKS_MAX)] = TASKS_MAX


class WorkstreamTaskResponse(responses.JobResponse, kw_only=True):
    """A task of a workstream: a job with its name there, and whether the workstream fails with it."""

    name: str
    critical: bool


class WorkstreamsResponse(msgspec.Struct):
    """A page of workstreams, the newest first; `next` is where the next page begins, null at the end."""

    workstreams: list[responses.JobResponse]
    next: str | None
    count: responses.CountResponse | None


class WorkstreamTasksResponse(msgspec.Struct):
    """A page of tasks, the newest first; `next` is where the next page begins, null at the end."""

    tasks: list[WorkstreamTaskResponse]
    next: str | None


# Making.


async def submit_workstream(request: Request) -> Reply:
    """Submits a workstream with its tasks, all of them or none."""
    body: WorkstreamRequest = request.body
    top, tasks = make_works(request, body)
    if body.key is not None and await is_planned(request, body):
        tasks = []  # a key adds nothing to what is there
    (made, *_), status = await submit_work(request, [top, *tasks])
    return Reply(made, status)


def make_works(request: Request, body: WorkstreamRequest) -> tuple[Work, list[Work]]:
    """Makes the works of a workstream and its tasks.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    return make_definition(request.app, body).make_works(body.arguments, make_options(body))


async def is_planned(request: Request, body: WorkstreamRequest) -> bool:
    """Whether there is a workstream under this key already, with all its tasks."""
    rows = await request.read(listing, Filter(task=body.name, key=body.key, lifecycle=WORKSTREAM), 1)
    return bool(rows) and not request.app.lifecycles[WORKSTREAM].allows(rows[0].unit.state, "plan")


async def add_workstream_tasks(request: Request) -> Reply:
    """Adds tasks to a workstream, all of them or none."""
    unit, body = await request.find_unit(WORKSTREAM), request.body
    refuse_same_names(format_id(WORKSTREAM, unit), [spec.name for spec in body.tasks])
    top = await request.read(read_whole, unit)
    arguments = msgspec.json.decode(top.body.input, type=dict[str, Any] | None) or {}
    parts = [make_task_part(request.app, spec) for spec in body.tasks]
    works = [make_added(request.app, unit, part, arguments, top.unit.priority) for part in parts]
    made, status = await submit_work(request, works)
    return Reply(responses.SubmitManyResponse(made), status)


def read_whole(connection: Connection, tenant: int, unit: int) -> View:
    """Reads a unit with values that are kept beside the database."""
    return read_large_values(connection, view(connection, tenant, unit))


# Looking.


async def list_workstreams(request: Request) -> dict[str, Any]:
    """Lists workstreams."""
    wanted = make_job_filter(request.app.lifecycles, request.query)
    if wanted.lifecycle not in (None, WORKSTREAM):
        raise InterlockError(f"lifecycle = '{wanted.lifecycle}' is not allowed here; allowed is {WORKSTREAM}")
    return await read_page(request, msgspec.structs.replace(wanted, lifecycle=WORKSTREAM), "workstreams")


async def show_workstream(request: Request) -> responses.JobDetailResponse:
    """Shows a workstream."""
    return await request.read(read_job_detail, await request.find_unit(WORKSTREAM))


async def list_workstream_tasks(request: Request) -> WorkstreamTasksResponse:
    """Lists the tasks of a workstream."""
    query: TasksQuery = request.query
    parent = await request.find_unit(WORKSTREAM)
    after = None if query.after is None else parse_unit_id(query.after)
    lifecycles = [request.app.lifecycles[TASK]]
    wanted = Filter(parent=parent, lifecycle=TASK, states=check_states(lifecycles[0].states, query.state))
    rows = await request.read(read_newest_units, lifecycles, wanted, query.limit, after)
    return WorkstreamTasksResponse([make_task(row) for row in rows.units], rows.next)


async def show_progress(request: Request) -> Progress:
    """Shows how far a workstream is."""
    return await request.read(read_progress, await request.find_unit(WORKSTREAM))


async def show_plan(request: Request) -> ExecutionPlan:
    """Shows the execution plan of a workstream."""
    query: PlanQuery = request.query
    return await request.read(read_plan, await request.find_unit(WORKSTREAM), query.first, query.limit)


# What operators do.


async def retry_task(request: Request) -> Reply:
    """Retries a task, as a new one."""
    command = RetryTask(unit=await request.find_unit(TASK), reason=request.body.reason)
    return await make_again_reply(request, await request.send(command))


async def skip_task(request: Request) -> responses.ActionResponse:
    """Completes a task without running it."""
    command = SkipTask(unit=await request.find_unit(TASK), reason=request.body.reason)
    return await make_action_response(request, await request.send(command))


async def reassign_task(request: Request) -> responses.ActionResponse:
    """Takes a task from its worker."""
    command = ReassignTask(unit=await request.find_unit(TASK), reason=request.body.reason)
    return await make_action_response(request, await request.send(command))


async def rerun_workstream(request: Request) -> Reply:
    """Does a workstream that has ended again, as a new one."""
    return await rerun_unit(request, await request.find_unit(WORKSTREAM))


def check_states(known: Any, states: Sequence[str]) -> tuple[str, ...]:
    """Returns states of a task.

    Raises:
        InterlockError: a word that is none.
    """
    for state in states:
        if state not in known:
            raise InterlockError(f"state = '{state}' is not allowed; allowed are {', '.join(known)}")
    return tuple(states)


def make_task(row: View) -> WorkstreamTaskResponse:
    """Makes the response of a task."""
    own = {name: getattr(job, name) for job in [make_job(row)] for name in job.__struct_fields__}
    return WorkstreamTaskResponse(
        **own, name=policy_of(row.body).step or row.body.task, critical=bool(row.unit.decides)
    )


PATH = "/v1/workstreams/{id}"
ROUTES = (
    Operation(
        method="POST", path="/v1/workstreams", scope="submit", summary="Submit a workstream and its tasks",
        call=submit_workstream, body=WorkstreamRequest, response=responses.SubmitResponse, status=201,
        other_statuses=(200,),
    ),
    Operation(
        method="GET", path="/v1/workstreams", scope="read", summary="List workstreams, the newest first",
        call=list_workstreams, query=JobsQuery, response=WorkstreamsResponse,
    ),
    Operation(
        method="GET", path=PATH, scope="read", summary="Show one workstream", call=show_workstream,
        response=responses.JobDetailResponse,
    ),
    Operation(
        method="GET", path=f"{PATH}/progress", scope="read", summary="Show how far a workstream is", call=show_progress,
        response=Progress,
    ),
    Operation(
        method="GET", path=f"{PATH}/plan", scope="read", summary="Show the execution plan of a workstream",
        call=show_plan, query=PlanQuery, response=ExecutionPlan,
    ),
    Operation(
        method="GET", path=f"{PATH}/tasks", scope="read", summary="List the tasks of a workstream",
        call=list_workstream_tasks, query=TasksQuery, response=WorkstreamTasksResponse,
    ),
    Operation(
        method="POST", path=f"{PATH}/tasks", scope="submit", summary="Add tasks to a workstream",
        call=add_workstream_tasks, body=TasksRequest, response=responses.SubmitManyResponse, status=201,
        other_statuses=(200,),
    ),
    Operation(
        method="POST", path=f"{PATH}/rerun", scope="operate",
        summary="Rerun a workstream that has ended, as a new one", call=rerun_workstream,
        body=RerunRequest, response=responses.SubmitResponse, status=201, other_statuses=(200,),
    ),
    Operation(
        method="POST", path="/v1/tasks/{id}/retry", scope="operate",
        summary="Retry a task that failed or was cancelled: a new one takes its place", call=retry_task,
        body=ReasonRequest, response=responses.SubmitResponse, status=201, other_statuses=(200,),
    ),
    Operation(
        method="POST", path="/v1/tasks/{id}/skip", scope="operate", summary="Complete a task without running it",
        call=skip_task, body=ReasonRequest, response=responses.ActionResponse,
    ),
    Operation(
        method="POST", path="/v1/tasks/{id}/reassign", scope="operate",
        summary="Take a task from its worker, and let another one run it", call=reassign_task, body=ReasonRequest,
        response=responses.ActionResponse,
    ),
)  # fmt: skip
