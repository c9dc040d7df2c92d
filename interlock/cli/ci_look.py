"""`interlock ci list`, `show`, `tests`, `flaky` and `why`: look at the runs of a repository."""

from typing import Annotated

import typer

from interlock.cli.ci_local import find_run, open_local
from interlock.cli.ci_options import HERE, Folder, JobName, Limit, OfRun, RunId
from interlock.cli.ci_words import describe_last, describe_run, find_jobs
from interlock.cli.output import Json, format_count, print_json, print_line, print_table
from interlock.client.durations import format_rounded, format_time
from interlock.client.why import explain
from interlock.kernel.ids import format_id
from interlock.plugins.ci.junit import LOST
from interlock.plugins.ci.options import RUN
from interlock.plugins.ci.queries import (
    list_ci_jobs,
    list_ci_runs,
    list_ci_tests,
    list_flaky_tests,
    read_ci_plan,
    read_plan_failure,
    read_why_stopped,
)


def list_runs(limit: Limit = 20, folder: Folder = HERE, json: Json = False) -> None:
    """List the runs of this repository, the newest first."""
    with open_local(folder) as local:
        rows = local.app.read(list_ci_runs, limit)
        if json:
            print_json({"runs": [describe_run(local, row) for row in rows]})
            return
        print_table(
            ("RUN", "OUTCOME", "STATE", "BRANCH", "COMMIT", "BEGAN", "TOOK"),
            [
                (
                    format_id(RUN, row.unit), row.outcome or "-", row.state, row.labels.get("branch") or "-",
                    row.labels.get("commit", "")[:12], format_time(row.created_at),
                    format_rounded(max(0, row.changed_at - row.created_at)) if row.outcome else "-",
                )
                for row in rows
            ],
        )  # fmt: skip


def show_run(run: RunId = None, folder: Folder = HERE, json: Json = False) -> None:
    """Show a run: how it ended, its jobs, and why each of them is in it."""
    with open_local(folder) as local:
        row = find_run(local, run)
        if json:
            print_json(describe_run(local, row))
            return
        again = "" if row.retry_of is None else f", {format_id(RUN, row.retry_of)} done again"
        why = local.app.read(read_why_stopped, row.unit)
        words = f"{row.outcome or 'not ended'} ({row.state}){again}"
        print_line(f"{format_id(RUN, row.unit)}: {words}{': ' if why else ''}{why}")
        if (failed := local.app.read(read_plan_failure, row.unit)) is not None:
            print_line(failed)
            return
        plan, jobs = local.app.read(read_ci_plan, row.unit), local.app.read(list_ci_jobs, row.unit)
        reasons = {job.name: job.reason for job in plan.jobs} if plan else {}
        rows = [
            (job.name, job.outcome or "-", job.state, describe_last(local, job, jobs, plan), reasons.get(job.name, ""))
            for job in jobs
        ]
        rows += [(skip.name, "-", "left out", "", skip.reason) for skip in (plan.skipped if plan else ())]
        print_table(("JOB", "OUTCOME", "STATE", "HOW", "WHY"), rows)


def list_tests(
    run: RunId = None,
    every: Annotated[bool, typer.Option("--all", help="Also those that passed or were skipped.")] = False,
    folder: Folder = HERE,
    json: Json = False,
) -> None:
    """List the tests of a run that failed, from the JUnit reports of its jobs."""
    with open_local(folder) as local:
        row = find_run(local, run)
        tests = local.app.read(list_ci_tests, row.unit)
        wanted = [test for test in tests if every or test.outcome in LOST]
        if json:
            print_json({"run": format_id(RUN, row.unit), "total": len(tests), "tests": wanted})
            return
        print_table(
            ("JOB", "TEST", "OUTCOME", "TOOK", "MESSAGE"),
            [(test.job, test.name, test.outcome, f"{test.ms} ms", test.message) for test in wanted],
        )
        failed = sum(test.outcome in LOST for test in tests)
        print_line(f"{format_count(len(tests), 'test')}, {failed} of them failed")


def list_flaky(limit: Limit = 100, folder: Folder = HERE, json: Json = False) -> None:
    """List flaky tests: those that failed and passed for the same input."""
    with open_local(folder) as local:
        rows = local.app.read(list_flaky_tests, limit)
    if json:
        print_json({"tests": rows})
    else:
        print_table(("TEST", "LOST", "WON"), [(row.name, str(row.lost), str(row.won)) for row in rows])


def explain_job(job: JobName, run: OfRun = None, folder: Folder = HERE, json: Json = False) -> None:
    """Explain why a job is in a run, and why it is where it is."""
    with open_local(folder) as local:
        row = find_run(local, run)
        plan = local.app.read(read_ci_plan, row.unit)
        left = {skip.name: skip.reason for skip in plan.skipped} if plan else {}
        if job in left:
            print_json({"job": job, "reason": left[job]}) if json else print_line(f"left out: {left[job]}")
            return
        (named,) = find_jobs(local, row, job)
        reason = next((each.reason for each in plan.jobs if each.name == job), "") if plan else ""
        last = describe_last(local, named, local.app.read(list_ci_jobs, row.unit), plan)
        why = local.app.read(explain, local.app.lifecycles, named.unit)
        if json:
            print_json({"job": job, "reason": reason, "last": last, "why": why})
            return
        for head, text in (("reason", reason), ("last", last)):
            if text:
                print_line(f"{head:<9} {text}")
        print_line(why.text)
