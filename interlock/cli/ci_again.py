"""`interlock ci rerun`, `retry` and `cancel`."""

import os
from typing import Annotated

import msgspec
import typer

from interlock.cli.ci_local import LocalCi, find_run, open_local
from interlock.cli.ci_options import HERE, AtOnce, Folder, JobName, OfRun, RunId, Sandbox
from interlock.cli.ci_run import LocalOptions, run_locally
from interlock.cli.ci_words import OUTCOMES, find_jobs
from interlock.cli.options import get_actor
from interlock.cli.output import Json, print_json, print_line
from interlock.git import GitError
from interlock.kernel.commands import Cancel
from interlock.kernel.errors import InterlockError
from interlock.kernel.ids import format_id
from interlock.plugins.ci.config import CiTerms
from interlock.plugins.ci.options import JOB, RUN
from interlock.plugins.ci.orders import PlanOrder
from interlock.plugins.ci.queries import CiRunRow, read_ci_plan


def rerun(
    run: RunId = None,
    failed: Annotated[bool, typer.Option("--failed", help="Rerun only what did not succeed.")] = False,
    sandbox: Sandbox = False,
    at_once: AtOnce = None,
    folder: Folder = HERE,
    json: Json = False,
) -> None:
    """Rerun a run with the plan and the files that it had, as a new run."""
    with open_local(folder) as local:
        start_again(local, find_run(local, run), () if failed else None, sandbox, at_once, json)


def retry_job(
    job: JobName,
    run: OfRun = None,
    sandbox: Sandbox = False,
    at_once: AtOnce = None,
    folder: Folder = HERE,
    json: Json = False,
) -> None:
    """Retry a job, all that comes after it and what did not succeed, with the files that it had."""
    with open_local(folder) as local:
        row = find_run(local, run)
        find_jobs(local, row, job)
        start_again(local, row, (job,), sandbox, at_once, json)


def start_again(
    local: LocalCi, run: CiRunRow, from_jobs: tuple[str, ...] | None, sandbox: bool, at_once: int | None, json: bool
) -> None:
    """Do a run again.

    Raises:
        InterlockError: it has not ended, has no plan, or its commit is gone.
        typer.Exit: the new run is not green.
    """
    name = format_id(RUN, run.unit)
    if run.outcome is None:
        raise InterlockError(f"{name} has not ended; `interlock ci cancel {name}` stops it")
    plan = local.app.read(read_ci_plan, run.unit)
    if plan is None:
        raise InterlockError(f"{name} has no plan that could be rerun; `interlock ci run` makes a new one")
    commit, branch = run.labels["commit"], run.labels.get("branch") or None
    try:
        local.checkout.repository.resolve(commit)
    except GitError:
        raise InterlockError(
            f"the commit {commit[:12]} of {name} is gone; `interlock ci run` runs the files that there are"
        ) from None
    order = PlanOrder(run=0, commit=commit, branch=branch, again=run.unit, from_jobs=from_jobs, sandbox=sandbox)
    options = LocalOptions(
        order=order, at_once=at_once or os.cpu_count() or 1, sandbox=sandbox, labels=run.labels,
        terms=msgspec.convert(plan.run, CiTerms), retry_of=run.unit, json=json,
    )  # fmt: skip
    if code := run_locally(local, options):
        raise typer.Exit(code)


def cancel(
    run: RunId = None,
    job: Annotated[str | None, typer.Option("--job", metavar="JOB", help="Only this job.")] = None,
    reason: Annotated[str, typer.Option("--reason", help="Why; kept with the event.")] = "",
    folder: Folder = HERE,
    json: Json = False,
) -> None:
    """Cancel a run that another terminal runs, or one job of it."""
    with open_local(folder) as local:
        row = find_run(local, run)
        unit, name = row.unit, format_id(RUN, row.unit)
        if job is not None:
            (named,) = find_jobs(local, row, job)
            unit, name = named.unit, f"'{job}' of {name}"
        if row.outcome is not None:
            raise InterlockError(f"{format_id(RUN, row.unit)} has ended; it {OUTCOMES[row.outcome]}")
        standing = local.app.send(Cancel(unit=unit, actor=get_actor(None), reason=reason))
    if json:
        print_json({"id": format_id(JOB if job else RUN, unit), "state": standing.state, "applied": standing.applied})
    else:
        print_line(f"{name} was asked to stop; it is {standing.state}")
