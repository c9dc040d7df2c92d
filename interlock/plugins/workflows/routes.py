"""Workflows over HTTP: runs and their steps, templates, signals.

Runs answer under `/v1/runs` and under the paths of document 001, which lack the `/v1`.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from interlock.client import responses
from interlock.client.durations import format_time
from interlock.client.trees import read_tree_snapshot
from interlock.client.why import explain
from interlock.kernel.commands import Cancel, DefineTemplate, Signal, Work
from interlock.kernel.errors import InterlockError, Unknown
from interlock.kernel.lifecycle_options import RollUp
from interlock.kernel.workflow_graph import Template
from interlock.server.errors import ApiError
from interlock.server.jobs import (
    make_action_response,
    make_job_filter,
    read_events_page,
    read_job_detail,
    read_page,
    read_steps,
    rerun_unit,
    submit_work,
)
from interlock.server.operations import Operation, Reply, Request, parse_unit_id, with_short_paths
from interlock.server.request_schemas import (
    MANY,
    RUN,
    SUBMITTED,
    CancelRequest,
    Count,
    EventsQuery,
    Id,
    JobsQuery,
    Labels,
    Name,
    Priority,
    RerunRequest,
    Seconds,
    Short,
    Strict,
    WebhookUrl,
    WorkRequest,
    encode_json,
    make_work,
    read_either,
    to_microseconds,
)
from interlock.store.queries.views import child_named, read_template, read_templates

TOP = "\0run"  # no step can have this ref
STEP = "step"
# The lifecycle of a step that names none, by the rule by which the run's steps decide its state.
STEP_LIFECYCLES = {
    RollUp.ALL: STEP, RollUp.CRITICAL: "task", RollUp.REQUIRED: "ci_job", RollUp.SINGLE: "agent_job",
}  # fmt: skip


# Requests and responses.


class StepRequest(WorkRequest, frozen=True, kw_only=True):
    """A step of a run; `needs` are `ref`s of its steps, in any order, and `after` ids of jobs that are there.

    `reclaim_after` is how old it must be, in seconds, before another worker takes it over from one that was lost.
    """

    lifecycle: Annotated[Name, SUBMITTED] | None = None
    reclaim_after: Seconds | None = None


class RunRequest(Strict, frozen=True, kw_only=True):
    """A run of a template, or a run with its name (`task`) and its steps.

    In a workflow run a step that says no `needs` needs the one before it. `reclaim_after` (seconds) holds for every
    step that says none itself. With `settle` all the run fails when all its steps have ended, not with the first that
    is lost. `retry_of` is an ended run that it does again. `webhook_url` is kept with the run and shown; nothing is
    sent to it yet.
    """

    template_name: Name | None = None
    template_version: Count | None = None  # the newest one by default
    task: Name | None = None
    lifecycle: Annotated[Name, RUN] = "workflow_run"
    input: Any = None
    priority: Priority = 0
    labels: Labels = msgspec.field(default_factory=dict)
    correlation: Short = ""
    trace: Short = ""
    correlation_id: Short = ""  # document 002's name for `correlation`
    trace_id: Short = ""  # document 002's name for `trace`
    timeout_seconds: Seconds | None = None
    queue_timeout_seconds: Seconds | None = None
    plan_timeout_seconds: Seconds | None = None
    cancel_timeout_seconds: Seconds | None = None
    settle: Literal["first", "all"] | None = None
    retry_of: Id | None = None
    reclaim_after: Seconds | None = None
    webhook_url: WebhookUrl | None = None
    steps: Annotated[tuple[StepRequest, ...], Meta(max_length=MANY)] = ()


class SignalRequest(Strict, frozen=True, kw_only=True):
    """A signal for a job, or for a run and its steps: its name and its data."""

    name: Name
    payload: Any = None


class TemplateRequest(Strict, frozen=True, kw_only=True):
    """The steps of a template; each has its name as `ref`, and without `needs` it needs the one before it."""

    name: Name
    steps: Annotated[tuple[StepRequest, ...], Meta(min_length=1, max_length=MANY)]


class TemplateQuery(Strict, frozen=True, kw_only=True):
    """The newest version, unless one is named."""

    version: Count | None = None


class TemplateStepResponse(msgspec.Struct):
    """A step; those that are templates themselves name the version."""

    name: str
    task: str
    lifecycle: str
    queue: str
    needs: list[str]
    when: str | None
    template: str | None
    template_version: int | None


class TemplateResponse(msgspec.Struct):
    """One version of a template."""

    name: str
    version: int
    defined_at: str | None
    steps: list[TemplateStepResponse]


class TemplatesResponse(msgspec.Struct):
    """The newest version of each template."""

    templates: list[TemplateResponse]


class TemplateDefinedResponse(msgspec.Struct):
    """The version that has these steps, and whether it is new."""

    name: str
    version: int
    changed: bool


# Runs.


async def submit(request: Request) -> Reply:
    """Submits a run."""
    run: RunRequest = request.body
    check_is_run(request, run.lifecycle)
    check_run(run)
    (made, *_), status = await submit_work(
        request, make_run_work(run, request.app.lifecycles[run.lifecycle].options.roll_up)
    )
    return Reply(made, status)


def check_is_run(request: Request, lifecycle: str) -> None:
    """Raises InterlockError for a lifecycle whose units are no runs."""
    if lifecycle not in request.run_lifecycles:
        raise InterlockError(f"there is no run '{lifecycle}'; there are {', '.join(request.run_lifecycles)}")


def check_run(run: RunRequest) -> None:
    """Raises InterlockError unless a run is of a template, or has a name and steps of its own."""
    if (run.template_name is None) != (run.task is not None and len(run.steps) > 0):
        raise InterlockError("a run has a template_name, or a task and at least one of its steps: not both, nor none")
    if run.template_name is None and run.template_version is not None:
        raise InterlockError("template_version is not allowed without a template_name")
    if run.template_name is not None and (run.lifecycle != "workflow_run" or run.task or run.steps):
        raise InterlockError("a run of a template is a workflow_run, and its task and steps are the template's")


def make_run_work(run: RunRequest, rule: RollUp) -> list[Work]:
    """Returns a run and its steps. Where all steps must succeed, each needs the one before it unless it says its needs.

    Parameters:
        rule: how the steps decide the state of the run.
    """
    top = Work(
        task=run.template_name or run.task or "", template=run.template_name, template_version=run.template_version,
        lifecycle=run.lifecycle, input=encode_json(run.input), priority=run.priority,
        labels=encode_json(run.labels), correlation=read_either(run, "correlation", "correlation_id"),
        trace=read_either(run, "trace", "trace_id"), ref=TOP, timeout_us=to_microseconds(run.timeout_seconds),
        webhook_url=run.webhook_url, reclaim_after_us=to_microseconds(run.reclaim_after), settle=run.settle,
        queue_timeout_us=to_microseconds(run.queue_timeout_seconds),
        plan_timeout_us=to_microseconds(run.plan_timeout_seconds),
        cancel_timeout_us=to_microseconds(run.cancel_timeout_seconds),
        retry_of=None if run.retry_of is None else parse_unit_id(run.retry_of),
    )  # fmt: skip
    work, refs = [top], list[str]()
    for index, step in enumerate(run.steps):
        ref = step.ref or f"\0{index}"
        first = refs[-1:] if rule is RollUp.ALL and not step.needs_end else ()
        needs = step.needs if step.needs is not None else first
        named = msgspec.structs.replace(step, ref=ref, needs=tuple(needs))
        work.append(make_work(named, step.lifecycle or STEP_LIFECYCLES[rule], TOP))
        refs.append(ref)
    return work


async def list_runs(request: Request) -> dict[str, Any]:
    """Lists runs."""
    wanted = make_job_filter(request.app.lifecycles, request.query)
    if wanted.lifecycle is not None:
        check_is_run(request, wanted.lifecycle)
    return await read_page(request, msgspec.structs.replace(wanted, lifecycles=request.run_lifecycles), "runs")


async def show_run(request: Request) -> responses.JobDetailResponse:
    """Shows a run."""
    return await request.read(read_job_detail, await request.find_run())


async def list_steps(request: Request) -> responses.StepsResponse:
    """Lists the steps of a run."""
    return await read_steps(request, await request.find_run())


async def show_step(request: Request) -> responses.JobDetailResponse:
    """Shows a step of a run, by its name."""
    run = await request.find_run()
    try:
        step = await request.read(child_named, run, request.path["name"])
    except Unknown as missing:
        raise ApiError(404, str(missing)) from None  # whoever may see the run may know the names of its steps
    return await request.read(read_job_detail, step.unit)


async def show_cost(request: Request) -> responses.CostResponse:
    """Shows what a run and its steps have cost."""
    tree = await request.read(read_tree_snapshot, request.app.lifecycles, await request.find_run())
    top, *below = tree.nodes
    return responses.CostResponse(
        top.id, top.cost, [responses.StepCostResponse(node.id, node.task, node.cost) for node in below]
    )


async def list_events(request: Request) -> Any:
    """Lists the events of a run, or streams them."""
    return await read_events_page(request, await request.find_run())


async def explain_run(request: Request) -> Any:
    """Explains why a run is in its state."""
    return await request.read(explain, request.app.lifecycles, await request.find_run())


async def cancel(request: Request) -> responses.ActionResponse:
    """Cancels a run."""
    command = Cancel(unit=await request.find_run(), hard=request.body.hard, reason=request.body.reason)
    return await make_action_response(request, await request.send(command))


async def rerun(request: Request) -> Reply:
    """Reruns a run, as a new one."""
    return await rerun_unit(request, await request.find_run())


# Templates.


def make_template_response(template: Template) -> TemplateResponse:
    """Makes the response of a template."""
    steps = [
        TemplateStepResponse(
            step.ref, step.task, step.lifecycle, step.queue, [str(need) for need in step.needs], step.when,
            step.template, step.template_version,
        )
        for step in msgspec.json.decode(template.steps, type=list[Work])
    ]  # fmt: skip
    return TemplateResponse(template.name, template.version, format_time(template.defined_at), steps)


async def list_templates(request: Request) -> TemplatesResponse:
    """Lists templates."""
    return TemplatesResponse([make_template_response(template) for template in await request.read(read_templates)])


async def show_template(request: Request) -> TemplateResponse:
    """Shows a template, in its newest version or in the one that is named."""
    template = await request.read(read_template, request.path["name"], request.query.version)
    if template is None:
        raise Unknown(request.path["name"])
    return make_template_response(template)


async def define_template(request: Request) -> TemplateDefinedResponse:
    """Gives the template a new version with these steps, unless its newest version has them already."""
    body: TemplateRequest = request.body
    done = await request.send(DefineTemplate(name=body.name, steps=tuple(make_template_work(body))))
    return TemplateDefinedResponse(done.name, done.version or 1, done.changed)


def make_template_work(body: TemplateRequest) -> list[Work]:
    """Makes the steps of a template; one without needs needs the one before it."""
    work, refs = list[Work](), list[str]()
    for step in body.steps:
        ref = step.ref or step.task
        needs: Any = step.needs if step.needs is not None else () if step.needs_end else tuple(refs[-1:])
        named = msgspec.structs.replace(step, ref=ref, needs=needs)
        work.append(make_work(named, step.lifecycle or STEP, None))
        refs.append(ref)
    return work


# Signals.


async def signal(request: Request) -> responses.ActionResponse:
    """Sends a signal."""
    command = Signal(unit=await request.find_unit(), name=request.body.name, payload=encode_json(request.body.payload))
    return await make_action_response(request, await request.send(command))


PATH = "/v1/runs/{id}"
RUN_ROUTES = (
    Operation(
        method="POST", path="/v1/runs", scope="submit", summary="Submit a run and its steps", call=submit,
        body=RunRequest, response=responses.SubmitResponse, status=201, other_statuses=(200,),
    ),
    Operation(
        method="GET", path="/v1/runs", scope="read", summary="List runs, the newest first", call=list_runs,
        query=JobsQuery, response=responses.RunsResponse,
    ),
    Operation(
        method="GET", path=PATH, scope="read", summary="Show one run", call=show_run,
        response=responses.JobDetailResponse,
    ),
    Operation(
        method="GET", path=f"{PATH}/steps", scope="read", summary="Show everything below a run", call=list_steps,
        response=responses.StepsResponse,
    ),
    Operation(
        method="GET", path=f"{PATH}/steps/{{name}}", scope="read", summary="Show the step of a run that has this name",
        call=show_step, response=responses.JobDetailResponse,
    ),
    Operation(
        method="GET", path=f"{PATH}/events", scope="read", summary="List the events of a run", call=list_events,
        query=EventsQuery, response=responses.EventsResponse, other_statuses=(204,), streams=True,
    ),
    Operation(
        method="GET", path=f"{PATH}/cost", scope="read", summary="Show the cost of a run so far", call=show_cost,
        response=responses.CostResponse,
    ),
    Operation(
        method="POST", path=f"{PATH}/cancel", scope="operate", summary="Cancel a run", call=cancel, body=CancelRequest,
        response=responses.ActionResponse,
    ),
    Operation(
        method="GET", path=f"{PATH}/why", scope="read", summary="Explain why a run is in its state", call=explain_run,
        response=responses.WhyResponse,
    ),
    Operation(
        method="POST", path=f"{PATH}/rerun", scope="operate", summary="Rerun a run, also from a step on, as a new run",
        call=rerun, body=RerunRequest, response=responses.SubmitResponse, status=201, other_statuses=(200,),
    ),
)  # fmt: skip
ROUTES = (
    *with_short_paths(RUN_ROUTES),
    Operation(
        method="GET", path="/v1/templates", scope="read", summary="List templates", call=list_templates,
        response=TemplatesResponse,
    ),
    Operation(
        method="GET", path="/v1/templates/{name}", scope="read", summary="Show a version of a template",
        call=show_template, query=TemplateQuery, response=TemplateResponse,
    ),
    Operation(
        method="POST", path="/v1/templates", scope="operate", summary="Store a new version of a template",
        call=define_template, body=TemplateRequest, response=TemplateDefinedResponse,
    ),
    Operation(
        method="POST", path="/v1/jobs/{id}/signal", scope="operate",
        summary="Send a signal to a job", call=signal, body=SignalRequest,
        response=responses.ActionResponse,
    ),
)  # fmt: skip
