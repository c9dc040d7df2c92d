"""Plan a CI run: read the commit here, and make the plan in a process with limits."""

import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import astuple, replace

from interlock.git import GitError
from interlock.kernel.commands import Plan, Work
from interlock.kernel.errors import InterlockError
from interlock.kernel.ids import format_id
from interlock.plugins.ci.checkout import describe_platform, read_request, read_tree
from interlock.plugins.ci.orders import PlanOrder, Reuse, make_jobs
from interlock.plugins.ci.plan_process import PlanAnswer
from interlock.plugins.ci.planner import CiPlan, PlannedCiJob
from interlock.plugins.ci.queries import find_successes, list_ci_jobs, read_ci_plan
from interlock.plugins.ci.requests import PlanRequest
from interlock.plugins.evidence.queries import list_artifacts
from interlock.process import ProcessLimits, run
from interlock.process.masking import SECRET_MIN
from interlock.process.run import LOG
from interlock.worker.ci_artifacts import find_kept_until
from interlock.worker.ci_worktrees import CiSettings
from interlock.worker.context import JobContext

if TYPE_CHECKING:
    from interlock.client.app import App

PLANNER = "interlock.plugins.ci.plan_process"
PLAN_LIMITS = {"memory_bytes": 2 << 30, "cpu_seconds": 60, "file_bytes": 1 << 20}
REUSED_FOR_US = 7 * 86_400_000_000  # results that are older do not count


def plan_run(settings: CiSettings, ctx: JobContext, order: PlanOrder) -> dict[str, Any]:
    """Plans a run: its jobs are made, or it fails with the reason."""
    assert ctx.app
    try:
        answer = find_plan(settings, ctx, order)
    except GitError as error:
        answer = PlanAnswer(failed=str(error))
    plan, failed = answer.plan, answer.failed
    if plan is not None:
        failed = find_missing_secret(settings.secrets, plan)
    work: tuple[Work, ...] = ()
    if plan is not None and not failed:
        reused = find_reused(ctx.app, order, plan)
        work = tuple(make_jobs(order, settings.queue, list_jobs_here(order, plan), reused))
    text = "null" if plan is None else msgspec.json.encode(plan).decode()
    actor = format_id(ctx.grant.lifecycle, ctx.grant.unit)
    command = Plan(tenant=ctx.tenant, actor=actor, unit=order.run, work=work, plan=text, failed=failed)
    standing = ctx.app.send(command)
    return {"state": standing.state, "jobs": len(work)}


def find_plan(settings: CiSettings, ctx: JobContext, order: PlanOrder) -> PlanAnswer:
    """Returns the plan of a run that is done again, or a new one.

    Raises:
        GitError: git refused; the text is what git says.
    """
    assert ctx.app
    if order.again is not None:
        plan = ctx.app.read(read_ci_plan, order.again)
        return PlanAnswer(plan, "" if plan else f"the run {order.again} has no plan that could be rerun")
    checkout = settings.checkout.stopped_by(lambda: ctx.cancelled)
    try:
        request = read_request(
            checkout, read_tree(checkout, order.commit), base=order.base, event=order.event, branch=order.branch,
            tag=order.tag, only=order.only, sandbox=order.sandbox,
        )  # fmt: skip
    except InterlockError as error:
        return PlanAnswer(failed=str(error))
    return ask_planner(request, lambda: ctx.cancelled)


def ask_planner(request: PlanRequest, stop: Callable[[], bool]) -> PlanAnswer:
    """Returns what the process of the planner says of a request."""
    outputs: dict[str, list[bytes]] = {"out": [], "err": [], LOG: []}
    end = run(
        [sys.executable, "-m", PLANNER], directory="/", stdin=msgspec.json.encode(request),
        environment={"PATH": os.defpath, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        on_output=lambda stream, data: outputs[stream].append(data), stop=stop,
        limits=ProcessLimits(grace_seconds=1.0, **PLAN_LIMITS),
    )  # fmt: skip
    if not end.succeeded:
        last = b"".join(outputs["err"]).decode(errors="replace").strip().splitlines()[-1:]
        return PlanAnswer(failed=": ".join((f"the planner {end.describe()}", *last)))
    return msgspec.json.decode(b"".join(outputs["out"]), type=PlanAnswer)


def list_jobs_here(order: PlanOrder, plan: CiPlan) -> tuple[PlannedCiJob, ...]:
    """Returns the jobs of a plan. If it was made for another platform, their results count for none: neither in a
    sandbox what succeeds without one, nor the other way round.
    """
    if plan.platform == describe_platform(sandbox=order.sandbox):
        return plan.jobs
    return tuple(replace(job, fingerprint="") for job in plan.jobs)


def find_missing_secret(secrets: Mapping[str, str], plan: CiPlan) -> str:
    """Returns why a plan cannot be run for want of a secret; empty if it can."""
    for job in plan.jobs:
        for name in job.spec.get("secrets", ()):
            value = secrets.get(name, "")
            if len(value.encode().strip()) < SECRET_MIN:
                problem = "is too short to be masked" if value else "is not set"
                return (
                    f"the job '{job.name}' has the secret {name}, and the variable of that name {problem}; set it "
                    f"to at least {SECRET_MIN} characters"
                )
    return ""


def find_reused(app: "App", order: PlanOrder, plan: CiPlan) -> dict[str, Reuse]:
    """Returns what is taken over from earlier runs, by job."""
    if order.again is not None:
        return find_kept(app, order.again, plan, order.from_jobs)
    if not order.reuse:
        return {}
    prints = [job.fingerprint for job in plan.jobs if job.fingerprint and not job.not_reused]
    since = time.time_ns() // 1_000 - REUSED_FOR_US
    earlier_results = app.read(find_successes, prints, since)
    return {
        job.name: Reuse(*astuple(earlier_results[job.fingerprint]))
        for job in plan.jobs
        if not job.not_reused and job.fingerprint in earlier_results
        and has_artifacts(app, earlier_results[job.fingerprint].attempt, job.spec)
    }  # fmt: skip


def find_kept(app: "App", run: int, plan: CiPlan, from_jobs: tuple[str, ...] | None) -> dict[str, Reuse]:
    """Returns what a run that is done again keeps: its successes, but those jobs, and all that come after."""
    if from_jobs is None:
        return {}
    kept = {
        row.name: Reuse(row.last_attempt, row.unit, row.changed_at)
        for row in app.read(list_ci_jobs, run)
        if row.outcome == "success" and row.last_attempt is not None
    }
    again = set(from_jobs)
    for job in plan.jobs:  # in an order in which needs come first
        earlier = kept.get(job.name)
        if any(need.job in again for need in job.needs) or (
            earlier is not None and not has_artifacts(app, earlier.attempt, job.spec)
        ):
            again.add(job.name)
    return {name: reuse for name, reuse in kept.items() if name not in again}


def has_artifacts(app: "App", attempt: int, spec: Mapping[str, Any]) -> bool:
    """Whether all artifacts of an earlier attempt are still there."""
    wanted = {artifact["name"] for artifact in spec.get("artifacts", ())}
    if not wanted:
        return True
    blobs, now = app.engine.find_blobs(), time.time_ns() // 1_000
    there = {
        row.name
        for row in app.read(list_artifacts, attempt)
        if blobs.find_length(app.tenant, row.digest) and find_kept_until(spec, row.name, row.at) > now
    }
    return wanted <= there
