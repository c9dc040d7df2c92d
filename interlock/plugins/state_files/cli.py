"""`interlock export`: the state of workstreams as files; `interlock restore`: archived trees come back."""

import shutil
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from interlock.blobs.store import write_pieces
from interlock.cli.archive import find_blobs, read_back, write_trees
from interlock.cli.options import DEFAULT, Actor, DryRun, Tenant, Url, Why, get_actor, open_app, open_connection
from interlock.cli.output import FINDING, Json, format_count, print_json, print_line
from interlock.client.app import App
from interlock.client.progress import PAGE, ExecutionPlan, read_plan
from interlock.core.archive import ACT, TREE, ArchivedTree
from interlock.kernel.blobs import check_digest
from interlock.kernel.commands import ArchivedLane, RestoreTree
from interlock.kernel.errors import InterlockError, StoreError
from interlock.kernel.rows import Act, Row, Unit
from interlock.plugins.state_files.documents import can_be_archived
from interlock.plugins.state_files.exporter import Exporter
from interlock.plugins.state_files.folder import open_folder
from interlock.store.retention import KEPT

LANE = b'{"table":"lane",'
BLOB_TABLE = "blob"  # of lines that name bytes
KINDS = {kind.table: kind for kind, _, _ in KEPT}
TASKS_MAX = 1_000_000  # of a plan that is read beside the database
ROTATE_MB, ROTATE_MB_MAX = 64, 1 << 20
app = typer.Typer()  # without a name: its commands stand beside those of the core


@app.command("export")
def export(
    state: Annotated[Path, typer.Option("--state", metavar="FOLDER", help="Folder to write to, such as .state.")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep running, and print what is new.")] = False,
    rotate_mb: Annotated[
        int, typer.Option("--rotate-mb", min=1, max=ROTATE_MB_MAX, help="Begin another log file after so many MiB.")
    ] = ROTATE_MB,
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Export the state of tasks, workstreams and workers, and every transition, to a folder of files."""
    with open_app(db, tenant) as client, open_folder(state, rotate_mb << 20) as folder:
        before = folder.lines
        exporter = Exporter(
            folder, client.read, partial(read_whole_plan, client),
            None if client.far else partial(write_archive, client),
        )  # fmt: skip
        with suppress(KeyboardInterrupt):  # what was written is whole
            exporter.run(follow=follow)
        lines = folder.lines
    if json:
        print_json({"folder": str(state), "written": lines - before, "lines": lines})
    else:
        print_line(f"{format_count(lines - before, 'line')} written to {state}; {lines} in all")


def read_whole_plan(client: App, unit: int) -> ExecutionPlan:
    """Return the execution plan of a workstream with all its tasks; over HTTP they come in pages."""
    together = PAGE if client.far else TASKS_MAX
    plan = client.read(read_plan, unit, 0, together)
    while plan.next is not None:
        page = client.read(read_plan, unit, plan.next, together)
        plan = msgspec.structs.replace(plan, tasks=(*plan.tasks, *page.tasks), next=page.next)
    return plan


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


@app.command("restore")
def restore(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Files of `interlock archive`, or of `export`.")],
    dry_run: DryRun = False,
    actor: Actor = None,
    reason: Why = "",
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Restore archived jobs and runs, whole trees, under their own ids, into a database that does not have them."""
    trees = [tree for file in files for tree in read_trees(file, tenant)]
    restored, left = list[str](), list[dict[str, str]]()
    if dry_run:
        restored = [name for name, _ in trees]
    else:
        with open_app(db, tenant, make=True) as client:
            for name, command in trees:
                try:
                    bring_bytes(client, command)
                    client.send(msgspec.structs.replace(command, actor=get_actor(actor), reason=reason))
                    restored.append(name)
                except StoreError:
                    raise
                except InterlockError as refused:
                    left.append({"id": name, "why": str(refused)})
    print_restored(restored, left, dry_run, json)


def bring_bytes(client: App, command: RestoreTree) -> None:
    """Copy the bytes that a tree names from the folder beside its file to where the database keeps such bytes.

    Raises:
        InterlockError: the database keeps none, or the folder has not got them.
    """
    for row in command.others:
        if row["table"] == BLOB_TABLE and (to := client.engine.find_blobs()):
            digest = check_digest(row["digest"])
            write_pieces(to, command.tenant, find_blobs(Path(command.file)).read(command.tenant, digest), digest)


def print_restored(restored: list[str], left: list[dict[str, str]], dry_run: bool, json: bool) -> None:
    """Print which trees came back, and which did not; end with a finding if there is such a one."""
    if json:
        print_json({"trees": restored, "left": left, "dry_run": dry_run})
    else:
        for name in restored:
            print_line(f"{name} {'would come' if dry_run else 'came'} back")
        for tree in left:
            print_line(f"{tree['id']} did not come back: {tree['why']}")
    if left:
        raise typer.Exit(FINDING)


def read_trees(path: Path, tenant: int) -> Iterator[tuple[str, RestoreTree]]:
    """Yield the trees of an archive, each with its name, when the whole file was found to be what was written.

    Raises:
        InterlockError: the file cannot be read, or is no archive, or is damaged.
    """
    try:
        list(read_back(path))
        acts: dict[int, dict[int, Act]] = {}  # by unit and id: one may tell of several trees
        rows, lanes, others = list[Row](), list[ArchivedLane](), list[dict[str, Any]]()
        text = path.read_bytes().splitlines()
        for line in text:
            if line.startswith(ACT):
                act = msgspec.json.decode(line, type=Act)
                for unit in act.units:
                    acts.setdefault(unit, {})[act.id] = act
            elif line.startswith(TREE):
                tree = msgspec.json.decode(line, type=ArchivedTree)
                own: dict[int, Act] = {}
                for unit in (row.id for row in rows if isinstance(row, Unit)):
                    own |= acts.pop(unit, {})
                yield (
                    tree.id,
                    RestoreTree(
                        tenant=tenant, unit=tree.unit, file=str(path.absolute()), acts=tuple(own.values()),
                        rows=tuple(rows), lanes=tuple(lanes), others=tuple(others),
                    ),
                )  # fmt: skip
                rows, lanes, others = [], [], []
            elif line.startswith(LANE):
                lanes.append(msgspec.json.decode(line, type=ArchivedLane))
            elif (kind := KINDS.get((row := msgspec.json.decode(line, type=dict[str, Any]))["table"])) is not None:
                rows.append(msgspec.json.decode(line, type=kind))
            else:
                others.append(row)
        if not text or not text[-1].startswith(TREE):
            raise InterlockError(f"'{path}' is not whole: its last line is not the end of a tree")
    except OSError as error:
        raise InterlockError(f"'{path}' cannot be read: {error.strerror}") from None
    except (msgspec.MsgspecError, UnicodeError, KeyError):
        raise InterlockError(f"'{path}' is no archive of `interlock archive`") from None
