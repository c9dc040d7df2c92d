"""Format CI runs and their jobs as text for people and as JSON."""

from typing import Any

from interlock.cli.ci_local import LocalCi
from interlock.kernel.errors import Unknown
from interlock.kernel.ids import format_id
from interlock.plugins.ci.options import JOB, RUN
from interlock.plugins.ci.orders import APPROVAL
from interlock.plugins.ci.planner import CiPlan
from interlock.plugins.ci.queries import (
    CiAttemptRow,
    CiJobRow,
    CiRunRow,
    list_ci_attempts,
    list_ci_jobs,
    read_ci_plan,
    read_plan_failure,
    read_why_stopped,
)

OUTCOMES = {"success": "succeeded", "failure": "has failed", "cancelled": "was cancelled"}


def find_jobs(local: LocalCi, run: CiRunRow, name: str | None) -> list[CiJobRow]:
    """Return a job of a run by its name, or all of them.

    Raises:
        Unknown: the run has no job of that name.
    """
    jobs = [job for job in local.app.read(list_ci_jobs, run.unit) if job.lifecycle == JOB]
    if name is None:
        return jobs
    named = [job for job in jobs if job.name == name]
    if not named:
        there = ", ".join(job.name for job in jobs) or "none"
        raise Unknown(f"{format_id(RUN, run.unit)} has no job '{name}'; it has {there}")
    return named


def list_attempts(local: LocalCi, job: CiJobRow) -> list[CiAttemptRow]:
    """Return the attempts of a job; an approval has none."""
    return local.app.read(list_ci_attempts, job.unit) if job.lifecycle == JOB else []


def describe_last(local: LocalCi, job: CiJobRow, jobs: list[CiJobRow], plan: CiPlan | None) -> str:
    """Return how the last attempt of a job ended; of one that never began, which of its needs it had not."""
    attempts = list_attempts(local, job)
    if not attempts or attempts[-1].outcome is None:
        return ""
    last = attempts[-1]
    if last.outcome == "cancelled":
        return find_lost_need(job, jobs, plan) or last.explanation
    tries = f" (attempt {len(attempts)})" if len(attempts) > 1 else ""
    return f"{last.kind}{': ' + last.explanation if last.outcome != 'success' else ''}{tries}"


def find_lost_need(job: CiJobRow, jobs: list[CiJobRow], plan: CiPlan | None) -> str:
    """Return which need of a job ended without success, as a sentence; empty if none did."""
    needs = {need.job for each in (plan.jobs if plan else ()) if each.name == job.name for need in each.needs}
    lost = [each for each in jobs if each.name in needs and each.outcome not in (None, "success")]
    return f"it needs '{lost[0].name}', which is {lost[0].state}" if lost else ""


def count_jobs(jobs: list[CiJobRow]) -> str:
    """Return how many jobs ended how."""
    counts: dict[str, int] = {}
    for job in jobs:
        if job.lifecycle == JOB:
            counts[job.state] = counts.get(job.state, 0) + 1
    return ", ".join(f"{number} {state}" for state, number in counts.items()) or "no jobs"


def describe_run(local: LocalCi, row: CiRunRow) -> dict[str, Any]:
    """Return a run and its jobs as JSON has them."""
    plan = local.app.read(read_ci_plan, row.unit)
    return {
        "id": format_id(RUN, row.unit), "state": row.state, "outcome": row.outcome,
        "plan_failed": local.app.read(read_plan_failure, row.unit),
        "stopped": local.app.read(read_why_stopped, row.unit) or None, "plan_hash": None if plan is None else plan.hash,
        "commit": row.labels.get("commit"), "branch": row.labels.get("branch"),
        "jobs": [describe_job(local, job) for job in local.app.read(list_ci_jobs, row.unit)],
        "retry_of": None if row.retry_of is None else format_id(RUN, row.retry_of),
    }  # fmt: skip


def describe_job(local: LocalCi, job: CiJobRow) -> dict[str, Any]:
    """Return a job, or an approval that one waits for, as JSON has it."""
    attempts = [
        {
            "id": format_id("ci_attempt", each.unit), "state": each.state, "outcome": each.outcome, "class": each.kind,
            "fault": each.fault or None, "confidence": each.confidence, "step": each.step or None,
            "explanation": each.explanation,
        }
        for each in list_attempts(local, job)
    ]  # fmt: skip
    return {
        "name": job.name, "id": format_id(job.lifecycle, job.unit), "state": job.state, "outcome": job.outcome,
        "required": job.required, "attempts": attempts,
    }  # fmt: skip


def name_gate(job: CiJobRow) -> str:
    """Return the name of the job that a gate belongs to."""
    assert job.lifecycle == APPROVAL
    return job.name.removesuffix(":gate")
