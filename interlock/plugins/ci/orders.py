"""What the two tasks of CI are told: how a run is planned, and what a job runs; and the work that a plan becomes."""

from collections.abc import Iterator, Mapping

import msgspec

from interlock.kernel.commands import Work
from interlock.kernel.durations import microseconds
from interlock.plugins.ci.config import CiJob, CiTerms
from interlock.plugins.ci.options import JOB, NOBODY, RUN, CiOptions, encode_options
from interlock.plugins.ci.planner import PlannedCiJob

PLAN_TASK, JOB_TASK, RUN_TASK = "ci.plan", "ci.job", "ci.run"
APPROVAL = "approval"


class PlanOrder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the task `ci.plan` is told."""

    run: int
    commit: str
    base: str | None = None
    event: str = "manual"
    branch: str | None = None
    tag: str | None = None
    only: tuple[str, ...] = ()
    sandbox: bool = False  # whether its jobs run in a sandbox
    reuse: bool = True  # whether earlier results count
    again: int | None = None  # the run that is done again, with the plan that it had
    from_jobs: tuple[str, ...] | None = None  # of that run: what is done again, with all that comes after it


class Reuse(msgspec.Struct, frozen=True):
    """The attempt whose result is taken over."""

    attempt: int
    job: int
    at: int  # when it ended, in microseconds


class JobOrder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the task `ci.job` is told."""

    name: str
    reason: str
    commit: str
    spec: CiJob = CiJob()
    branch: str = ""
    reuse: Reuse | None = None


def make_run(queue: str, terms: CiTerms, labels: Mapping[str, str], retry_of: int | None = None) -> Work:
    """Returns the work of a run that no forge is told of."""
    return Work(
        task=RUN_TASK, lifecycle=RUN, queue=queue, labels=msgspec.json.encode(labels).decode(), retry_of=retry_of,
        timeout_us=microseconds(terms.timeout), queue_timeout_us=microseconds(terms.queue_timeout),
        plan_timeout_us=microseconds(terms.plan_timeout), settle="first" if terms.fail_fast else "all",
        options=encode_options(CiOptions(report_to=NOBODY)),
    )  # fmt: skip


def make_plan_job(queue: str, order: PlanOrder, terms: CiTerms) -> Work:
    """Returns the work of planning a run."""
    return Work(
        task=PLAN_TASK, queue=queue, input=encode_input("order", order), attempts=2,
        timeout_us=microseconds(terms.plan_timeout),
    )  # fmt: skip


def make_jobs(
    order: PlanOrder, queue: str, planned: tuple[PlannedCiJob, ...], reused: Mapping[str, Reuse]
) -> Iterator[Work]:
    """Yields the work of a plan: its jobs, and before those that have a gate the approval that opens it.

    Parameters:
        order: how the run was planned.
        queue: where its jobs wait.
        planned: the jobs of the plan.
        reused: by name, what is taken over from an earlier run.
    """
    for job in planned:
        spec = msgspec.convert(job.spec, CiJob)
        needs = tuple(need.job for need in job.needs if need.on == "success")
        ends = tuple(need.job for need in job.needs if need.on != "success")
        if spec.gate is not None and job.name not in reused:
            gate = f"{job.name}:gate"
            yield Work(
                task=gate, lifecycle=APPROVAL, queue=queue, ref=gate, step=gate, needs=needs, needs_end=ends,
                decides=job.required,  # on one machine there is one person, whoever the approvers are
                expires_us=microseconds(spec.gate.expires), on_reject="cancel" if job.required else "fail",
            )  # fmt: skip
            needs, ends = (gate,), ()
        yield make_job(order, queue, job, spec, reused.get(job.name), needs, ends)


def make_job(
    order: PlanOrder, queue: str, job: PlannedCiJob, spec: CiJob, reuse: Reuse | None, needs: tuple[str, ...],
    ends: tuple[str, ...],
) -> Work:  # fmt: skip
    """Returns the work of a job."""
    own = JobOrder(
        name=job.name, reason=job.reason, commit=order.commit, branch=order.branch or "", spec=spec, reuse=reuse
    )  # fmt: skip
    retries = list_retries(spec)
    options = CiOptions(
        job=job.name.partition(":")[0], fingerprint=job.fingerprint, retries=retries,
        reuses=None if reuse is None else reuse.attempt,
    )  # fmt: skip
    return Work(
        task=JOB_TASK, lifecycle=JOB, queue=queue, ref=job.name, step=job.name, needs=needs, needs_end=ends,
        decides=job.required, input=encode_input("order", own), options=encode_options(options),
        timeout_us=microseconds(spec.timeout), cancel_timeout_us=microseconds(spec.cancel_within),
        attempts=1 + sum(retries.values()), losses=1 + spec.retries.runner,
    )  # fmt: skip


def list_retries(spec: CiJob) -> dict[str, int]:
    """Returns how often a job is tried again, by the rule."""
    own = spec.retries
    rules = {"runner": own.runner, "flaky": own.flaky, "timeout": own.timeout}
    return {rule: number for rule, number in rules.items() if number} | {
        f"exit {code}": number for code, number in own.exit.items()
    }


def encode_input(name: str, value: msgspec.Struct) -> str:
    """Returns the input of a task with one parameter."""
    return msgspec.json.encode({name: value}).decode()
