"""`interlock ci log` and `artifacts`: print logs, list and unpack artifacts."""

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from interlock.cli.ci_local import LocalCi, find_run, open_local
from interlock.cli.ci_options import HERE, Folder, OfRun
from interlock.cli.ci_words import find_jobs
from interlock.cli.output import Json, format_count, print_json, print_line, print_table
from interlock.client.evidence import find_artifact, follow_log, read_artifact, read_log
from interlock.kernel.errors import InterlockError, Unknown
from interlock.plugins.ci.queries import CiJobRow, CiRunRow, list_ci_attempts, read_ci_plan
from interlock.plugins.evidence.queries import ArtifactInfo, list_artifacts
from interlock.worker.ci_artifacts import find_kept_until, unpack_artifact

LOOK_EVERY = 0.25  # seconds between two looks for the next attempt of a log that is followed


def print_logs(
    job: Annotated[str | None, typer.Argument(metavar="[JOB]", help="Only of this job.")] = None,
    run: OfRun = None,
    attempt: Annotated[int | None, typer.Option(min=1, help="Which attempt (default: the newest).")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow the log until the job has ended.")] = False,
    folder: Folder = HERE,
) -> None:
    """Print the log of a job, or those of all jobs of a run."""
    for option, given in (("--follow", follow), ("--attempt", attempt is not None)):
        if given and job is None:
            raise InterlockError(f"{option} needs the name of a job")
    if follow and attempt is not None:
        raise InterlockError("--follow goes on with the newest attempt; leave --attempt out")
    with open_local(folder) as local:
        try:
            for row in find_jobs(local, find_run(local, run), job):
                if job is None:
                    print_line(f"== {row.name}: {row.state}")
                for part in follow_job(local, row) if follow else read_job_log(local, row, attempt):
                    write_bytes(part)
        except KeyboardInterrupt:
            return


def read_job_log(local: LocalCi, job: CiJobRow, attempt: int | None) -> Iterator[bytes]:
    """Yield the log of an attempt of a job, the last one by default.

    Raises:
        Unknown: there is none.
    """
    attempts = local.app.read(list_ci_attempts, job.unit)
    if attempt is not None and attempt > len(attempts):
        raise Unknown(f"the job '{job.name}' has no attempt {attempt}; it has {len(attempts)}")
    if attempts:
        yield from read_log(local.app, attempts[(attempt or 0) - 1].unit)


def follow_job(local: LocalCi, job: CiJobRow) -> Iterator[bytes]:
    """Yield the log of the last attempt of a job, then those of later ones, until the job has ended."""
    last = max((attempt.unit for attempt in local.app.read(list_ci_attempts, job.unit)), default=1) - 1
    while True:
        ended = local.app.job(job.unit).look().outcome is not None  # asked first: what was added before is read yet
        for attempt in local.app.read(list_ci_attempts, job.unit):
            if attempt.unit > last:
                last = attempt.unit
                for part in follow_log(local.app, attempt.unit):
                    yield part.data
        if ended:
            return
        time.sleep(LOOK_EVERY)


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
    if name is None and to is not None:
        raise InterlockError("--to needs the name of an artifact")
    with open_local(folder) as local:
        rows = list_kept(local, find_run(local, run), job)
        if name is not None:
            place = to or Path(name)
            print_line(f"{place}: {format_count(len(unpack(local, choose_job(rows, name), name, place)), 'file')}")
        elif json:
            print_json({"artifacts": [{"job": each.name, **describe_artifact(artifact)} for each, artifact in rows]})
        else:
            print_table(
                ("NAME", "JOB", "BYTES", "SHA-256"),
                [(artifact.name, each.name, f"{artifact.length:,}", artifact.digest) for each, artifact in rows],
            )


def list_kept(local: LocalCi, run: CiRunRow, job: str | None) -> list[tuple[CiJobRow, ArtifactInfo]]:
    """Return the artifacts of a run whose time is not over, each with its job."""
    plan, now = local.app.read(read_ci_plan, run.unit), time.time_ns() // 1_000
    specs = {each.name: each.spec for each in plan.jobs} if plan else {}
    return [
        (each, artifact)
        for each in find_jobs(local, run, job)
        if each.last_attempt is not None
        for artifact in local.app.read(list_artifacts, each.last_attempt)
        if artifact.value is None and find_kept_until(specs.get(each.name, {}), artifact.name, artifact.at) > now
    ]


def choose_job(rows: list[tuple[CiJobRow, ArtifactInfo]], name: str) -> CiJobRow:
    """Return the job that has an artifact.

    Raises:
        Unknown: none has, or several have.
    """
    named = [job for job, artifact in rows if artifact.name == name]
    if len(named) > 1:
        raise Unknown(f"{len(named)} jobs have an artifact '{name}'; name one with --job")
    if not named:
        there = ", ".join(dict.fromkeys(artifact.name for _, artifact in rows)) or "none"
        raise Unknown(f"there is no artifact '{name}'; there are {there}")
    return named[0]


def describe_artifact(artifact: ArtifactInfo) -> dict[str, Any]:
    """Return an artifact as `--json` prints it."""
    return {"name": artifact.name, "length": artifact.length, "digest": artifact.digest, "late": artifact.late}


def unpack(local: LocalCi, job: CiJobRow, name: str, place: Path) -> list[str]:
    """Unpack an artifact into a folder that is not there yet.

    Raises:
        InterlockError: the folder exists, or the artifact cannot be unpacked into it.
    """
    if os.path.lexists(place):
        raise InterlockError(f"'{place}' is there already; name another folder with --to")
    assert job.last_attempt is not None
    row = find_artifact(local.app, job.last_attempt, name)
    with tempfile.NamedTemporaryFile(prefix="interlock-artifact-") as file:
        for piece in read_artifact(local.app, row):
            file.write(piece)
        file.flush()
        return unpack_artifact(Path(file.name), place)
