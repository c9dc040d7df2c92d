"""`interlock export`: the state of workstreams as files."""

import shutil
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from interlock.cli.archive import write_trees
from interlock.cli.options import DEFAULT, Tenant, Url, open_app, open_connection
from interlock.cli.output import Json, format_count, print_json, print_line
from interlock.client.app import App
from interlock.plugins.state_files.documents import can_be_archived
from interlock.plugins.state_files.exporter import Exporter
from interlock.plugins.state_files.folder import open_folder

ROTATE_MB, ROTATE_MB_MAX = 64, 1 << 20
app = typer.Typer()  # without a name: its commands stand beside those of the core


@app.command("export")
def export(
    state: Annotated[Path, typer.Option("--state", metavar="FOLDER", help="Folder to write to, such as .state.")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what happens next.")] = False,
    rotate_mb: Annotated[
        int, typer.Option("--rotate-mb", min=1, max=ROTATE_MB_MAX, help="Begin another log file after so many MiB.")
    ] = ROTATE_MB,
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Write every transition of tasks, workstreams and workers to a folder of files, and how all of them stand."""
    with open_app(db, tenant) as client, open_folder(state, rotate_mb << 20) as folder:
        before = folder.lines
        exporter = Exporter(folder, client.read, None if client.far else partial(write_archive, client))
        with suppress(KeyboardInterrupt):  # what was written is whole
            exporter.run(follow=follow)
        lines = folder.lines
    if json:
        print_json({"folder": str(state), "written": lines - before, "lines": lines})
    else:
        print_line(f"{format_count(lines - before, 'line')} written to {state}; {lines} in all")


def write_archive(client: App, unit: int, path: Path) -> bool:
    """Write a workstream and all below it to a new file, as `interlock archive` does; return whether that is over.

    It is not while something below the workstream has not ended. Nothing leaves the database.
    """
    whole = client.read(can_be_archived, unit)
    if whole:
        unfinished, blobs = path.with_suffix(".tmp"), path.with_name(f"{path.name}.blobs")
        unfinished.unlink(missing_ok=True)
        with open_connection(client.url) as connection:
            write_trees(connection, client, [unit], unfinished)
        if (copied := unfinished.with_name(f"{unfinished.name}.blobs")).exists():
            shutil.rmtree(blobs, ignore_errors=True)
            copied.rename(blobs)
        unfinished.rename(path)
    return whole is not False
