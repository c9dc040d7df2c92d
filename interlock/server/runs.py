"""Runs over the wire: a unit with steps below it, as document 001 asks for them and under /v1."""

from collections.abc import Mapping
from typing import Any

import msgspec

from interlock.client import json_views, responses
from interlock.client.trees import Picture, picture, pictured, see
from interlock.client.why.explain import explain
from interlock.kernel.commands import Cancel, Decide, Vote, Work
from interlock.kernel.errors import InterlockError
from interlock.kernel.lifecycle import Lifecycle, RollUp
from interlock.server.jobs import chosen, events_page, made_by, page_of, stands, whole
from interlock.server.operations import Asked, Operation, Reply
from interlock.server.request_schemas import (
    CancelAsked,
    EventsMeant,
    ReasonAsked,
    RunAsked,
    UnitsMeant,
    VoteAsked,
    micro,
    packed,
    same,
    work_of,
)
from interlock.store.connection import Connection
from interlock.store.queries.views import View

TOP = "\0run"  # no step can have this ref
PARTS = {RollUp.ALL: "step", RollUp.CRITICAL: "task", RollUp.REQUIRED: "ci_job", RollUp.SINGLE: "agent_job"}


def kinds(asked: Asked) -> tuple[str, ...]:
    """The lifecycles of units that have others below them and mirror none."""
    return tuple(lifecycle.name for lifecycle in asked.app.lifecycles.values() if lifecycle.options.roll_up in PARTS)


async def submit(asked: Asked) -> Reply:
    run: RunAsked = asked.body
    if run.lifecycle not in kinds(asked):
        raise InterlockError(f"there is no run '{run.lifecycle}'; there are {', '.join(kinds(asked))}")
    refuse_half(run)
    (made, *_), status = await made_by(asked, work_for(run, asked.app.lifecycles[run.lifecycle].options.roll_up))
    return Reply(made, status)


def refuse_half(run: RunAsked) -> None:
    """A run is of a template, or has a name and steps of its own."""
    if (run.template_name is None) != (run.task is not None and len(run.steps) > 0):
        raise InterlockError("a run has a template_name, or a task and at least one of its steps: not both, nor none")
    if run.template_name is None and run.template_version is not None:
        raise InterlockError("template_version is not allowed without a template_name")
    if run.template_name is not None and (run.lifecycle != "workflow_run" or run.task or run.steps):
        raise InterlockError("a run of a template is a workflow_run, and its task and steps are the template's")


def work_for(run: RunAsked, rule: RollUp) -> list[Work]:
    """A run and its steps; where all must succeed, they come one after the other unless they say otherwise."""
    top = Work(
        task=run.template_name or run.task or "", template=run.template_name, template_version=run.template_version,
        lifecycle=run.lifecycle, input=packed(run.input), priority=run.priority,
        labels=packed(run.labels), correlation=same(run, "correlation", "correlation_id"),
        trace=same(run, "trace", "trace_id"), ref=TOP, timeout_us=micro(run.timeout_seconds),
        webhook_url=run.webhook_url, reclaim_after_us=micro(run.reclaim_after),
    )  # fmt: skip
    work, refs = [top], list[str]()
    for place, step in enumerate(run.steps):
        ref = step.ref or f"\0{place}"
        needs = step.needs if step.needs is not None else refs[-1:] if rule is RollUp.ALL else ()
        named = msgspec.structs.replace(step, ref=ref, needs=tuple(needs))
        work.append(work_of(named, step.lifecycle or PARTS[rule], TOP))
        refs.append(ref)
    return work


async def list_runs(asked: Asked) -> dict[str, Any]:
    wanted = chosen(asked.app.lifecycles, asked.query)
    if wanted.lifecycle is not None and wanted.lifecycle not in kinds(asked):
        raise InterlockError(f"there is no run '{wanted.lifecycle}'; there are {', '.join(kinds(asked))}")
    return await page_of(asked, msgspec.structs.replace(wanted, lifecycles=kinds(asked)), "runs")


async def show(asked: Asked) -> responses.UnitWhole:
    return await asked.read(whole, await asked.unit(*kinds(asked)))


async def steps(asked: Asked) -> responses.Steps:
    seen, units = await asked.read(look_below, asked.app.lifecycles, await asked.unit(*kinds(asked)))
    return responses.Steps([json_views.step(seen, one, units[one.unit]) for one in seen.nodes[1:]], seen.cut)


def look_below(
    connection: Connection, tenant: int, lifecycles: Mapping[str, Lifecycle], unit: int
) -> tuple[Picture, dict[int, View]]:
    """A unit and all below it as a picture, and as the rows that it was made from."""
    seen = see(connection, tenant, unit, None)
    return pictured(seen, lifecycles), {one.unit.id: one for _, one in seen.tree.units}


async def cost(asked: Asked) -> responses.Cost:
    seen = await asked.read(picture, asked.app.lifecycles, await asked.unit(*kinds(asked)))
    top, *below = seen.nodes
    return responses.Cost(top.id, top.cost, [responses.StepCost(one.id, one.task, one.cost) for one in below])


async def events(asked: Asked) -> Any:
    return await events_page(asked, await asked.unit(*kinds(asked)))


async def why(asked: Asked) -> Any:
    return await asked.read(explain, asked.app.lifecycles, await asked.unit(*kinds(asked)))


async def approve(asked: Asked) -> responses.StandingTold:
    return await vote(asked, await asked.unit(*kinds(asked)), approve=True)


async def reject(asked: Asked) -> responses.StandingTold:
    return await vote(asked, await asked.unit(*kinds(asked)), approve=False)


async def vote(asked: Asked, unit: int, *, approve: bool) -> responses.StandingTold:
    """A person's word is given to what waits there; if nothing does, nothing has changed."""
    said: VoteAsked = asked.body
    order = Vote(
        unit=unit, voter=said.by or asked.caller.name, roles=said.roles, approve=approve, step=said.step,
        reason=said.comment,
    )  # fmt: skip
    return await stands(asked, await asked.send(order))


async def cancel(asked: Asked) -> responses.StandingTold:
    order = Cancel(unit=await asked.unit(*kinds(asked)), hard=asked.body.hard, reason=asked.body.reason)
    return await stands(asked, await asked.send(order))


async def resume(asked: Asked) -> responses.StandingTold:
    order = Decide(unit=await asked.unit(*kinds(asked)), trigger="resume", reason=asked.body.reason)
    return await stands(asked, await asked.send(order))


RUN = "/v1/runs/{id}"
RUNS_V1 = (
    Operation(
        method="POST", path="/v1/runs", scope="submit", summary="Submit a run and its steps", call=submit,
        body=RunAsked, answer=responses.Made, status=201, also=(200,),
    ),
    Operation(
        method="GET", path="/v1/runs", scope="read", summary="List runs, the newest first", call=list_runs,
        query=UnitsMeant, answer=responses.Runs,
    ),
    Operation(method="GET", path=RUN, scope="read", summary="Show one run", call=show, answer=responses.UnitWhole),
    Operation(
        method="GET", path=f"{RUN}/steps", scope="read", summary="Show all below a run", call=steps,
        answer=responses.Steps,
    ),
    Operation(
        method="GET", path=f"{RUN}/events", scope="read", summary="Tell what happened to a run", call=events,
        query=EventsMeant, answer=responses.Events, also=(204,), streams=True,
    ),
    Operation(
        method="GET", path=f"{RUN}/cost", scope="read", summary="Say what a run has cost so far", call=cost,
        answer=responses.Cost,
    ),
    Operation(
        method="POST", path=f"{RUN}/approve", scope="approve", summary="Approve what waits in a run", call=approve,
        body=VoteAsked, answer=responses.StandingTold,
    ),
    Operation(
        method="POST", path=f"{RUN}/cancel", scope="operate", summary="Stop a run", call=cancel, body=CancelAsked,
        answer=responses.StandingTold,
    ),
    Operation(
        method="GET", path=f"{RUN}/why", scope="read", summary="Say why a run is where it is", call=why,
        answer=responses.WhyTold,
    ),
    Operation(
        method="POST", path=f"{RUN}/reject", scope="approve", summary="Reject what waits in a run", call=reject,
        body=VoteAsked, answer=responses.StandingTold,
    ),
    Operation(
        method="POST", path=f"{RUN}/resume", scope="operate", summary="Let a run go on", call=resume,
        body=ReasonAsked, answer=responses.StandingTold,
    ),
)  # fmt: skip
# Document 001's own paths answer too.
RUNS = (*RUNS_V1, *(msgspec.structs.replace(one, path=one.path.removeprefix("/v1")) for one in RUNS_V1))
