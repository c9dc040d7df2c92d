"""Jobs, runs and steps over HTTP: submit, list, show, cancel, rerun."""

from collections.abc import Container, Mapping, Sequence
from typing import Any

from interlock.client import json_views, responses
from interlock.client.durations import format_time
from interlock.client.selections import list_states, make_filter
from interlock.client.trees import TreeSnapshot, build_tree_snapshot, read_tree_rows
from interlock.client.why import explain
from interlock.kernel.commands import Cancel, Requeue, Rerun, RunNow, Standing, Submit, Submitted, Work
from interlock.kernel.errors import InterlockError, Refused, Unknown
from interlock.kernel.ids import format_id
from interlock.kernel.lifecycle import Category, Lifecycle
from interlock.kernel.lifecycle_options import RollUp
from interlock.server import sse
from interlock.server.operations import Operation, Reply, Request, parse_unit_id
from interlock.server.request_schemas import (
    CancelRequest,
    EventsQuery,
    JobBatchRequest,
    JobFilterRequest,
    JobRequest,
    JobsQuery,
    ReasonRequest,
    RerunRequest,
    make_work,
)
from interlock.store.connection import Connection
from interlock.store.queries.job_events import JOB as JOB_LIFECYCLE
from interlock.store.queries.job_events import Place, place_of, read_job_events
from interlock.store.queries.large_values import read_large_values
from interlock.store.queries.lists import amount, read_newest_units
from interlock.store.queries.views import (
    Filter,
    UnitSummary,
    View,
    events_of,
    find_cause,
    find_open_gates,
    needs_of,
    notes_of,
    read_summary,
    view,
    views_of,
)


async def submit(request: Request) -> Reply:
    """Submits one job."""
    job: JobRequest = request.body
    (made,), status = await submit_work(request, [make_work(job, job.lifecycle, resolve_parent(job))])
    return Reply(made, status)


def resolve_parent(job: JobRequest, refs: Container[str] = ()) -> int | str | None:
    """What a job belongs to: one of the same request by its ref, or a unit by its whole id.

    Raises:
        Unknown: there is none.
    """
    if job.parent is None or job.parent in refs:
        return job.parent
    if "_" not in job.parent:
        raise Unknown(f"nothing in this request has the ref '{job.parent}', and it is no id; one looks like job_4r1")
    return parse_unit_id(job.parent)


async def submit_batch(request: Request) -> Reply:
    """Submits many jobs, all of them or none."""
    jobs: JobBatchRequest = request.body
    refs = {job.ref for job in jobs.jobs if job.ref}
    work = [make_work(job, job.lifecycle, resolve_parent(job, refs)) for job in jobs.jobs]
    made, status = await submit_work(request, work)
    return Reply(responses.SubmitManyResponse(made), status)


async def submit_work(request: Request, work: Sequence[Work]) -> tuple[list[responses.SubmitResponse], int]:
    """What a submit made or found, and 201 if this request made anything, else 200."""
    made = await request.send(Submit(work=tuple(work)))
    item = made[0]
    if len(made) == 1 and request.app.lifecycles[item.lifecycle].options.roll_up is RollUp.NONE:
        # It has no family that could have moved it since.
        own = item.created and item.cause == request.request_id
        return [
            responses.SubmitResponse(format_id(item.lifecycle, item.unit), item.state, item.replaced)
        ], 201 if own else 200
    now_standing, own = await request.read(read_submitted, made, request.request_id)
    made_responses = [
        responses.SubmitResponse(format_id(item.lifecycle, item.unit), item.state, done.replaced)
        for item, done in zip(now_standing, made, strict=True)
    ]
    return made_responses, 201 if own else 200


def read_submitted(
    connection: Connection, tenant: int, made: Sequence[Submitted], request_id: str
) -> tuple[list[UnitSummary], bool]:
    """Where units stand, and whether this request made one of them; one that answers a key made none."""
    there = views_of(connection, tenant, [item.unit for item in made])
    now_standing = [
        summarize_view(there[item.unit]) if item.unit in there else describe_archived(item) for item in made
    ]
    created = next((item.unit for item in made if item.created), None)
    return now_standing, created is not None and find_cause(connection, tenant, created) == request_id


def describe_archived(item: Submitted) -> UnitSummary:
    """Of a unit that has left the database since: how the command that made it left it."""
    return UnitSummary(item.unit, item.lifecycle, item.state, "", None, None, None)


def summarize_view(item: View) -> UnitSummary:
    """Summarizes a unit that was read whole."""
    unit = item.unit
    return UnitSummary(unit.id, unit.lifecycle, unit.state, unit.category, unit.outcome, None, None)


def make_job_filter(lifecycles: Mapping[str, Lifecycle], wanted: JobFilterRequest) -> Filter:
    """The units that are meant. A wrong word is told what the right ones are."""
    parent = None if wanted.parent is None else parse_unit_id(wanted.parent)
    return make_filter(
        list_states(lifecycles), state=wanted.state, status=wanted.status, category=wanted.category,
        lifecycle=wanted.lifecycle, worker=wanted.worker, task=wanted.task, queue=wanted.queue, key=wanted.key,
        correlation=wanted.correlation, error=wanted.error, parent=parent, top=wanted.top,
    )  # fmt: skip


async def read_page(request: Request, wanted: Filter, name: str) -> dict[str, Any]:
    """A page of units, where the next one begins, and if it is asked for how many there are."""
    query: JobsQuery = request.query
    after = None if query.after is None else parse_unit_id(query.after)
    rows = await request.read(read_newest_units, request.app.lifecycles.values(), wanted, query.limit, after)
    count = await request.read(amount, wanted) if query.count else None
    until = None if rows.looked_until is None else format_time(rows.looked_until)
    jobs = [json_views.make_job(item) for item in rows.units]
    return {name: jobs, "next": rows.next, "count": count, "looked_until": until}


async def list_jobs(request: Request) -> dict[str, Any]:
    """Lists jobs."""
    return await read_page(request, make_job_filter(request.app.lifecycles, request.query), "jobs")


async def show(request: Request) -> responses.JobDetailResponse:
    """Shows a job."""
    return await request.read(read_job_detail, await request.find_unit())


def read_job_detail(connection: Connection, tenant: int, unit: int) -> responses.JobDetailResponse:
    """A unit, what it needs, the gates that it waits for and how its attempts failed, from one picture."""
    rows = read_large_values(connection, view(connection, tenant, unit))
    needs, gates = needs_of(connection, tenant, unit), find_open_gates(connection, tenant, unit)
    return json_views.make_job_detail(rows, needs, gates, notes_of(connection, tenant, unit))


async def events(request: Request) -> Any:
    """Returns a page of what happened to the unit that the path names, or all of it as it happens."""
    return await read_events_page(request, await request.find_unit())


async def read_events_page(request: Request, unit: int) -> Any:
    """A page of what happened, or all of it as it happens. Whoever has seen the end is told to ask no more (204)."""
    query: EventsQuery = request.query
    if query.shape is not None:
        return await read_job_events_page(request, unit)
    if query.cursor is not None:
        raise InterlockError("cursor is not allowed without shape=002; pages of plain events go on with `after`")
    if sse.wants_stream(request):
        after = sse.parse_last_event_id(request, query.after)
        rows, settled = await request.read(sse.read_next, unit, after)
        return Reply("", 204) if settled and not rows else sse.open_stream(request, unit, after)
    rows = await request.read(events_of, unit, query.after, query.limit + 1)
    page = rows[: query.limit]
    following = page[-1].version if len(rows) > len(page) else None
    return responses.EventsResponse([json_views.make_event(item) for item in page], following)


async def read_job_events_page(request: Request, unit: int) -> responses.JobEventsResponse:
    """A page of what happened to a job, in document 002's shape.

    Raises:
        InterlockError: what has no such pages.
    """
    query: EventsQuery = request.query
    lifecycle = (await request.read(read_summary, unit)).lifecycle
    if lifecycle != JOB_LIFECYCLE:
        raise InterlockError(f"document 002's shape is of jobs, and this is a {lifecycle}; ask without shape=002")
    if sse.wants_stream(request):
        raise InterlockError("events of shape=002 come in pages; request them without Accept: text/event-stream")
    if query.after:
        raise InterlockError("after is not allowed with shape=002; its pages go on with `cursor`")
    after = Place() if query.cursor is None else place_of(query.cursor)
    rows = await request.read(read_job_events, unit, after, query.limit + 1)
    page = rows[: query.limit]
    following = str(page[-1].place) if len(rows) > len(page) else None
    return responses.JobEventsResponse([json_views.make_job_event(item) for item in page], following)


async def list_steps(request: Request) -> responses.StepsResponse:
    """Lists the steps of a job."""
    return await read_steps(request, await request.find_unit())


async def read_steps(request: Request, unit: int) -> responses.StepsResponse:
    """Returns all below a unit, a parent before its children."""
    tree, units = await request.read(read_tree, request.app.lifecycles, unit)
    return responses.StepsResponse(
        [json_views.make_step(tree, node, units[node.unit]) for node in tree.nodes[1:]], tree.cut
    )


def read_tree(
    connection: Connection, tenant: int, lifecycles: Mapping[str, Lifecycle], unit: int
) -> tuple[TreeSnapshot, dict[int, View]]:
    """Returns a unit and all below it as a snapshot, and the rows that it was made from, by id."""
    rows = read_tree_rows(connection, tenant, unit, None)
    return build_tree_snapshot(rows, lifecycles), {
        row.unit.id: read_large_values(connection, row) for _, row in rows.tree.units
    }


async def why(request: Request) -> Any:
    """Explains why a job is where it is."""
    return await request.read(explain, request.app.lifecycles, await request.find_unit())


async def cancel(request: Request) -> responses.ActionResponse:
    """Stops a job, or asks its handler to stop."""
    unit = await request.find_unit()
    return await make_action_response(
        request, await request.send(Cancel(unit=unit, hard=request.body.hard, reason=request.body.reason))
    )


async def run_now(request: Request) -> responses.ActionResponse:
    """Ends the delay of a job that waits for its time."""
    unit = await request.find_unit()
    return await make_action_response(request, await request.send(RunNow(unit=unit, reason=request.body.reason)))


async def make_action_response(request: Request, standing: Standing) -> responses.ActionResponse:
    """Returns where a unit stands after a command, and whether the command changed anything."""
    now_standing = await request.read(read_summary, standing.unit)
    return responses.ActionResponse(
        format_id(now_standing.lifecycle, now_standing.unit), standing.state, standing.applied
    )


async def requeue(request: Request) -> Reply:
    """Requeues a dead letter, as a new job."""
    unit = await request.find_unit()
    now_standing = await request.read(read_summary, unit)
    if now_standing.category != Category.DEAD:
        lifecycle = request.app.lifecycles[now_standing.lifecycle]
        raise Refused(now_standing.lifecycle, now_standing.state, "requeue", lifecycle.triggers(now_standing.state))
    return await make_again_reply(request, await request.send(Requeue(unit=unit, reason=request.body.reason)))


async def rerun(request: Request) -> Reply:
    """Does the unit that the path names again, as a new one."""
    return await rerun_unit(request, await request.find_unit())


async def rerun_unit(request: Request, unit: int) -> Reply:
    """Does a unit that has ended again, as a new one."""
    body = request.body
    command = Rerun(unit=unit, step=body.step, from_task=body.from_task, failed=body.failed, reason=body.reason)
    return await make_again_reply(request, await request.send(command))


async def make_again_reply(request: Request, done: Submitted) -> Reply:
    """Returns the unit that does another one again: 201 if this request made it, else 200."""
    (now,), own = await request.read(read_submitted, [done], request.request_id)
    return Reply(responses.SubmitResponse(format_id(now.lifecycle, now.unit), now.state), 201 if own else 200)


JOB = "/v1/jobs/{id}"
ROUTES = (
    Operation(
        method="POST", path="/v1/jobs", scope="submit", summary="Submit a job", call=submit, body=JobRequest,
        response=responses.SubmitResponse, status=201, other_statuses=(200,),
    ),
    Operation(
        method="POST", path="/v1/jobs/batch", scope="submit", summary="Submit several jobs, all of them or none",
        call=submit_batch, body=JobBatchRequest, response=responses.SubmitManyResponse, status=201,
        other_statuses=(200,),
    ),
    Operation(
        method="GET", path="/v1/jobs", scope="read", summary="List jobs, the newest first", call=list_jobs,
        query=JobsQuery, response=responses.JobsResponse,
    ),
    Operation(method="GET", path=JOB, scope="read", summary="Show one job or run", call=show,
    response=responses.JobDetailResponse),
    Operation(
        method="GET", path=f"{JOB}/events", scope="read", summary="List the events of a job", call=events,
        query=EventsQuery, response=responses.EventsResponse, other_responses=(responses.JobEventsResponse,),
        other_statuses=(204,), streams=True,
    ),
    Operation(
        method="GET", path=f"{JOB}/why", scope="read", summary="Explain why a job is in its state", call=why,
        response=responses.WhyResponse,
    ),
    Operation(
        method="GET", path=f"{JOB}/steps", scope="read", summary="Show everything below a job or run", call=list_steps,
        response=responses.StepsResponse,
    ),
    Operation(
        method="POST", path=f"{JOB}/rerun", scope="operate",
        summary="Rerun a job or run that has ended, as a new one",
        call=rerun, body=RerunRequest, response=responses.SubmitResponse, status=201, other_statuses=(200,),
    ),
    Operation(
        method="POST", path=f"{JOB}/cancel", scope="operate", summary="Cancel a job or run", call=cancel,
        body=CancelRequest, response=responses.ActionResponse,
    ),
    Operation(
        method="POST", path=f"{JOB}/run-now", scope="operate",
        summary="Run a delayed job now", call=run_now, body=ReasonRequest,
        response=responses.ActionResponse,
    ),
    Operation(
        method="POST", path=f"{JOB}/requeue", scope="operate", summary="Requeue a dead letter as a new job",
        call=requeue, body=ReasonRequest, response=responses.SubmitResponse, status=201, other_statuses=(200,),
    ),
)  # fmt: skip
