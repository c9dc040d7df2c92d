"""`interlock ci list`, `show`, `log`, `artifacts`, `why`, `rerun`, `retry` and `cancel`: the runs of a repository."""

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from interlock.cli.ci_local import LocalCi, find_run, open_local
from interlock.cli.ci_run import OUTCOMES, LocalOptions, describe_run, run_locally
from interlock.cli.options import get_actor
from interlock.cli.output import Json, format_count, print_json, print_line, print_table
from interlock.client.durations import format_rounded, format_time
from interlock.client.evidence import find_artifact, follow_log, read_artifact, read_log
from interlock.client.why import explain
from interlock.kernel.commands import Cancel
from interlock.kernel.errors import InterlockError, Unknown
from interlock.kernel.ids import format_id
from interlock.plugins.ci.config import CiRun
from interlock.plugins.ci.junit import LOST
from interlock.plugins.ci.options import JOB, RUN
from interlock.plugins.ci.orders import PlanOrder
from interlock.plugins.ci.planner import CiPlan
from interlock.plugins.ci.queries import (
    CiJobRow,
    CiRunRow,
    list_ci_attempts,
    list_ci_jobs,
    list_ci_runs,
    list_ci_tests,
    list_flaky_tests,
    read_ci_plan,
    read_plan_failure,
)
from interlock.plugins.evidence.queries import list_artifacts
from interlock.worker.ci_artifacts import unpack_artifact

HERE = Path(".")
Folder = Annotated[
    Path, typer.Option("--folder", "-C", metavar="FOLDER", help="A folder of the repository (default: this one).")
]
RunId = Annotated[str | None, typer.Argument(metavar="[RUN]", help="A run, as in ci_run_4r1 (default: the newest).")]
OfRun = Annotated[str | None, typer.Option("--run", metavar="RUN", help="Of this run (default: the newest).")]
JobName = Annotated[str, typer.Argument(metavar="JOB", help="A job by its name, as in test or test:3.12.")]
AtOnce = Annotated[int | None, typer.Option("--at-once", "-j", min=1, max=64, help="Jobs at a time.")]
Sandbox = Annotated[
    bool, typer.Option("--sandbox", help="In bubblewrap, without network unless a job asks for it.")
]  # fmt: skip
LIMIT_MAX = 10_000
LOOK_EVERY = 0.25  # seconds between two looks for the next attempt of a log that is followed


def list_runs(
    limit: Annotated[int, typer.Option(min=1, max=LIMIT_MAX, help="How many.")] = 20, folder: Folder = HERE,
    json: Json = False,
) -> None:  # fmt: skip
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
        print_line(f"{format_id(RUN, row.unit)}: {row.outcome or 'not ended'} ({row.state})")
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


def describe_last(local: LocalCi, job: CiJobRow, jobs: list[CiJobRow], plan: CiPlan | None) -> str:
    """Return how the last attempt of a job ended; of one that never began, which of its needs it had not."""
    attempts = local.app.read(list_ci_attempts, job.unit) if job.lifecycle == JOB else []
    if not attempts or attempts[-1].outcome is None:
        return ""
    last = attempts[-1]
    if last.kind is None:
        needs = {need.job for each in (plan.jobs if plan else ()) if each.name == job.name for need in each.needs}
        lost = [each for each in jobs if each.name in needs and each.outcome not in (None, "success")]
        return f"it needs '{lost[0].name}', which is {lost[0].state}" if lost else last.explanation
    tries = f" (attempt {len(attempts)})" if len(attempts) > 1 else ""
    return f"{last.kind}{': ' + last.explanation if last.outcome != 'success' else ''}{tries}"


def find_jobs(local: LocalCi, run: CiRunRow, name: str | None) -> list[CiJobRow]:
    """Return a job of a run by its name, or all of them. Raises Unknown."""
    jobs = [job for job in local.app.read(list_ci_jobs, run.unit) if job.lifecycle == JOB]
    if name is None:
        return jobs
    named = [job for job in jobs if job.name == name]
    if not named:
        there = ", ".join(job.name for job in jobs) or "none"
        raise Unknown(f"{format_id(RUN, run.unit)} has no job '{name}'; it has {there}")
    return named


def print_logs(
    job: Annotated[str | None, typer.Argument(metavar="[JOB]", help="Only of this job.")] = None,
    run: OfRun = None,
    attempt: Annotated[int | None, typer.Option(min=1, help="Which attempt (default: the newest).")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
    folder: Folder = HERE,
) -> None:
    """Print the log of a job, or those of all jobs of a run."""
    with open_local(folder) as local:
        jobs = find_jobs(local, find_run(local, run), job)
        if follow and job is None:
            raise InterlockError("--follow needs the name of a job")
        if attempt is not None and job is None:
            raise InterlockError("--attempt needs the name of a job")
        try:
            for row in jobs:
                if job is None:
                    print_line(f"== {row.name}: {row.state}")
                for part in follow_job(local, row) if follow else read_job_log(local, row, attempt):
                    write_bytes(part)
        except KeyboardInterrupt:
            return


def read_job_log(local: LocalCi, job: CiJobRow, attempt: int | None) -> Iterator[bytes]:
    """Yield the log of an attempt of a job, the last one by default. Raises Unknown."""
    attempts = local.app.read(list_ci_attempts, job.unit)
    if attempt is not None and attempt > len(attempts):
        raise Unknown(f"the job '{job.name}' has no attempt {attempt}; it has {len(attempts)}")
    if attempts:
        yield from read_log(local.app, attempts[(attempt or 0) - 1].unit)


def follow_job(local: LocalCi, job: CiJobRow) -> Iterator[bytes]:
    """Yield the log of the last attempt of a job, then those of later ones, until the job has ended."""
    done: set[int] = set()
    while True:
        ended = find_jobs_state(local, job.unit)
        for attempt in local.app.read(list_ci_attempts, job.unit)[len(done) or -1 :]:
            if attempt.unit not in done:
                done.add(attempt.unit)
                for part in follow_log(local.app, attempt.unit):
                    yield part.data
        if ended:
            return
        time.sleep(LOOK_EVERY)


def find_jobs_state(local: LocalCi, job: int) -> bool:
    """Whether a job has ended."""
    return local.app.job(job).look().outcome is not None


def write_bytes(data: bytes) -> None:
    """Write bytes to standard output as they are."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def show_artifacts(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Unpack this one.")] = None,
    run: OfRun = None,
    job: Annotated[str | None, typer.Option("--job", metavar="JOB", help="Only of this job.")] = None,
    to: Annotated[Path | None, typer.Option("--to", metavar="FOLDER", help="Where to unpack it.")] = None,
    folder: Folder = HERE,
    json: Json = False,
) -> None:
    """List the artifacts of a run, or unpack one of them into a new folder."""
    with open_local(folder) as local:
        rows = [
            (each, artifact)
            for each in find_jobs(local, find_run(local, run), job)
            if each.last_attempt is not None
            for artifact in local.app.read(list_artifacts, each.last_attempt)
            if artifact.value is None
        ]
        if name is None:
            if to is not None:
                raise InterlockError("--to needs the name of an artifact")
            if json:
                print_json(
                    {"artifacts": [{"job": each.name, **describe_artifact(artifact)} for each, artifact in rows]}
                )
                return
            print_table(
                ("NAME", "JOB", "BYTES", "SHA-256"),
                [(artifact.name, each.name, f"{artifact.length:,}", artifact.digest) for each, artifact in rows],
            )
            return
        named = [each for each, artifact in rows if artifact.name == name]
        if len(named) != 1:
            there = ", ".join(dict.fromkeys(artifact.name for _, artifact in rows)) or "none"
            words = f"{len(named)} jobs have an artifact '{name}'; name one with --job" if named else ""
            raise Unknown(words or f"there is no artifact '{name}'; there are {there}")
        place = to or Path(name)
        files = unpack(local, named[0], name, place)
        print_line(f"{place}: {format_count(len(files), 'file')}")


def describe_artifact(artifact: Any) -> dict[str, Any]:
    return {"name": artifact.name, "length": artifact.length, "digest": artifact.digest, "late": artifact.late}


def unpack(local: LocalCi, job: CiJobRow, name: str, place: Path) -> list[str]:
    """Unpack an artifact into a folder that is not there yet. Raises InterlockError."""
    if os.path.lexists(place):
        raise InterlockError(f"'{place}' is there already; name another folder with --to")
    assert job.last_attempt is not None
    row = find_artifact(local.app, job.last_attempt, name)
    with tempfile.NamedTemporaryFile(prefix="interlock-artifact-") as file:
        for piece in read_artifact(local.app, row):
            file.write(piece)
        file.flush()
        return unpack_artifact(Path(file.name), place)


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


def list_flaky(
    limit: Annotated[int, typer.Option(min=1, max=LIMIT_MAX, help="How many.")] = 100, folder: Folder = HERE,
    json: Json = False,
) -> None:  # fmt: skip
    """List the tests that have failed and passed for one and the same input."""
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


def rerun(
    run: RunId = None,
    failed: Annotated[bool, typer.Option("--failed", help="Keep what succeeded.")] = False,
    sandbox: Sandbox = False,
    at_once: AtOnce = None,
    folder: Folder = HERE,
    json: Json = False,
) -> None:
    """Do a run again, with the plan and the files that it had, as a new run that names it."""
    with open_local(folder) as local:
        again(local, find_run(local, run), () if failed else None, sandbox, at_once, json)


def retry_job(
    job: JobName,
    run: OfRun = None,
    sandbox: Sandbox = False,
    at_once: AtOnce = None,
    folder: Folder = HERE,
    json: Json = False,
) -> None:
    """Do a job again, and all that comes after it, with the files that it had; what else succeeded is kept."""
    with open_local(folder) as local:
        row = find_run(local, run)
        find_jobs(local, row, job)
        again(local, row, (job,), sandbox, at_once, json)


def again(
    local: LocalCi, run: CiRunRow, from_jobs: tuple[str, ...] | None, sandbox: bool, at_once: int | None, json: bool
) -> None:
    """Do a run again. Raises InterlockError if it has not ended, and typer.Exit unless it is green."""
    name = format_id(RUN, run.unit)
    if run.outcome is None:
        raise InterlockError(f"{name} has not ended; `interlock ci cancel {name}` stops it")
    plan = local.app.read(read_ci_plan, run.unit)
    if plan is None:
        raise InterlockError(f"{name} has no plan that could be done again; `interlock ci run` makes a new one")
    commit, branch = run.labels["commit"], run.labels.get("branch") or None
    order = PlanOrder(run=0, commit=commit, branch=branch, again=run.unit, from_jobs=from_jobs)
    options = LocalOptions(
        order=order, at_once=at_once or os.cpu_count() or 1, sandbox=sandbox, labels=run.labels,
        terms=msgspec.convert(plan.run, CiRun), retry_of=run.unit, json=json,
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
