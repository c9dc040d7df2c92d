"""`interlock log` and `interlock artifacts`: what a job wrote, and what it left."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from interlock.cli.options import DEFAULT, Id, Tenant, Url, find_unit, open_app
from interlock.cli.output import Json, print_json, print_line, print_table
from interlock.client.app import App
from interlock.client.durations import format_time
from interlock.client.evidence import (
    find_artifact,
    follow_log,
    read_artifact,
    read_log,
    render_part,
    save_artifact,
)
from interlock.client.tree_logs import read_tree_logs
from interlock.client.trees import read_tree_snapshot
from interlock.kernel.errors import InterlockError
from interlock.plugins.evidence.queries import list_artifacts, list_logs

app = typer.Typer()  # without a name: its commands stand beside those of the core
HEADS = ("NAME", "ATTEMPT", "BYTES", "TYPE", "AT", "SHA-256", "")
STDOUT = "-"
Attempt = Annotated[int | None, typer.Option(min=1, help="Which attempt (default: the newest).")]


@app.command("log")
def print_log(
    unit: Id,
    attempt: Attempt = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow the log until the job has ended.")] = False,
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Print the log of a job: what its handler wrote with ctx.log, and its process' output. For a run, print all.

    With --json, print which logs there are: their lengths, what was dropped, and what came late.
    """
    if json and follow:
        raise InterlockError("give --follow or --json, not both")
    with open_app(db, tenant) as client:
        number = find_unit(client, unit)
        if json:
            print_json({"logs": client.read(list_logs, number)})
            return
        try:
            if attempt is None and len(client.read(read_tree_snapshot, client.lifecycles, number).nodes) > 1:
                print_tree_logs(client, number, follow)
                return
            followed = (render_part(part) for part in follow_log(client, number, attempt))
            for data in followed if follow else read_log(client, number, attempt):
                write_bytes(data)
        except KeyboardInterrupt:
            return


def print_tree_logs(client: App, number: int, follow: bool) -> None:
    """Print the logs of a run and of all below it, each behind a line that says whose it is."""
    last = None
    for node, part in read_tree_logs(client, number, follow=follow):
        if (node.unit, part.attempt) != last:
            last = node.unit, part.attempt
            print_line(f"== {node.task} {node.id}, attempt {part.attempt}")
        write_bytes(render_part(part))


@app.command("artifacts")
def show_artifacts(
    unit: Id,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Download this one.")] = None,
    attempt: Attempt = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="FILE", help="Where to write it (default: its name; -: print it).")
    ] = None,
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """List the artifacts of a job, or download one of them."""
    with open_app(db, tenant) as client:
        number = find_unit(client, unit)
        if name is None:
            if to is not None:
                raise InterlockError("--to needs the name of an artifact")
            rows = [row for row in client.read(list_artifacts, number) if attempt in (None, row.attempt)]
            if json:
                print_json({"artifacts": rows})
                return
            print_table(
                HEADS,
                [
                    (
                        row.name, str(row.attempt), f"{row.length:,}", row.media, format_time(row.at), row.digest,
                        "late" if row.late else "",
                    )
                    for row in rows
                ],
            )  # fmt: skip
            return
        row = find_artifact(client, number, name, attempt)
        if to == STDOUT:
            for piece in read_artifact(client, row):
                write_bytes(piece)
            return
        path = Path(to or name)
        size = save_artifact(client, row, path)
        print_line(f"{path}: {size:,} bytes, SHA-256 {row.digest}")


def write_bytes(data: bytes) -> None:
    """Write bytes to standard output as they are."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
