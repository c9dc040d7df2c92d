"""`interlock archive`: move ended jobs from the database to a file."""

import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import msgspec
import typer

from interlock.blobs.folder import FolderBlobs
from interlock.blobs.store import NO_FOLDER, write_pieces
from interlock.cli.options import (
    DEFAULT,
    KINDS,
    NO_FILTERS,
    Actor,
    DryRun,
    Every,
    Filters,
    Tenant,
    Url,
    Why,
    add_filter_options,
    get_actor,
    open_app,
    open_connection,
    parse_length,
    select,
)
from interlock.cli.output import FINDING, Json, format_count, print_json, print_line
from interlock.client.app import App
from interlock.core.archive import ACT, BLOB, EVENT, TREE, ArchivedBlob, ArchivedTree, act_lines, lines
from interlock.kernel.commands import Archive
from interlock.kernel.errors import InterlockError, NoBlobs, StoreError
from interlock.kernel.ids import format_id
from interlock.kernel.rows import Act, Event
from interlock.store.acts import digest_act
from interlock.store.connection import Connection
from interlock.store.ids import Ids
from interlock.store.private_files import create_private
from interlock.store.queries.views import find_matching, read_summary
from interlock.store.retention import load_tree
from interlock.store.unit_of_work import open_unit_of_work


class BytesNotCopied(InterlockError):
    """Bytes of a tree could not be copied beside its archive: the tree stays."""

    def __init__(self, tree: str, text: str) -> None:
        super().__init__(text)
        self.tree = tree


Out = Annotated[Path | None, typer.Option("--out", help="New file of JSON lines to write them to.")]


@add_filter_options(*KINDS)
def archive(
    older: Annotated[
        str, typer.Option(metavar="DURATION", help="Only what ended longer ago than this, such as 30d.")
    ] = "0s",
    out: Out = None,
    filters: Filters = NO_FILTERS,
    every: Every = False,
    dry_run: DryRun = False,
    actor: Actor = None,
    reason: Why = "",
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Move ended jobs and runs, whole trees, to a file; nothing is deleted before it was read back.

    Large values, artifacts and compressed logs go to the folder FILE.blobs beside it.
    """
    with open_app(db, tenant) as app:
        selected = select(app, filters).filter
        older_us = parse_length("older", older)
        if selected.empty and not older_us and not every:
            raise InterlockError("which jobs? Give --older DURATION, a filter such as --task NAME, or --all")
        now = app.engine.read(lambda connection: connection.now(), tenant)
        selected = msgspec.structs.replace(selected, top=True, settled_before=now - older_us + (not older_us))
        roots = app.read(find_matching, selected)
        order = Archive(unit=0, file="", digest="", tenant=tenant, actor=get_actor(actor), reason=reason)
        move_trees(app, roots, out, order, dry_run=dry_run, json=json)


def move_trees(app: App, roots: list[int], out: Path | None, order: Archive, *, dry_run: bool, json: bool) -> None:
    """Write trees to a file, read it back, and delete them from the database; name those that could not be deleted."""
    if dry_run:
        names = [format_id(app.read(read_summary, root).lifecycle, root) for root in roots]
        print_summary({"trees": names, "units": None, "file": None, "left": [], "dry_run": True}, json)
        return
    if out is None:
        raise InterlockError("a file is needed that holds them: --out FILE")
    check_free(out)
    if not roots:
        print_summary({"trees": [], "units": 0, "file": None, "left": [], "dry_run": False}, json)
        return
    with open_connection(app.url) as connection:
        left = write_trees(connection, app, roots, out)
    moved, units = [], 0
    for kept in read_back(out):
        command = msgspec.structs.replace(order, unit=kept.unit, file=str(out.absolute()), digest=kept.digest)
        try:
            units += app.send(command)
            moved.append(kept.id)
        except StoreError:
            raise
        except InterlockError as refused:
            left.append({"id": kept.id, "why": str(refused)})
    print_summary({"trees": moved, "units": units, "file": str(out), "left": left, "dry_run": False}, json)


def check_free(path: Path) -> None:
    """Refuse a file that exists: an archive is not written over."""
    if path.exists():
        raise InterlockError(f"'{path}' exists; an archive is not written over: name another file")
    if find_blobs(path).folder.exists():
        raise InterlockError(f"'{path}.blobs' exists; an archive is not written over: name another file")
    if not path.absolute().parent.is_dir():
        raise InterlockError(f"the folder of '{path}' does not exist")


def write_trees(connection: Connection, app: App, roots: list[int], out: Path) -> list[dict[str, str]]:
    """Write trees to a new file, one line per row, each followed by a line with its digest, and sync it to disk.

    Bytes that they name are copied to the folder beside the file. Returns those whose bytes could not be, and why.
    """
    left = []
    try:
        with open(create_private(out), "wb") as file:
            acts = set[int]()
            for root in roots:
                start, known = file.tell(), set(acts)
                try:
                    write_tree(connection, app, root, file, acts, find_blobs(out))
                except BytesNotCopied as refused:
                    file.seek(start)
                    file.truncate()
                    acts &= known
                    left.append({"id": refused.tree, "why": str(refused)})
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise InterlockError(f"'{out}' cannot be written: {error.strerror}") from None
    return left


def write_tree(connection: Connection, app: App, root: int, file: BinaryIO, acts: set[int], blobs: FolderBlobs) -> None:
    """Write a tree, and before it acts of its units that are not in the file yet; copy the bytes that it names."""
    tx = open_unit_of_work(connection, app.lifecycles, Ids(connection), [app.tenant], app.registry.hooks)
    try:
        top, digest = tx.unit(root), sha256()
        name, units = format_id(top.lifecycle, root), load_tree(tx, top)
        file.writelines(act_lines(tx, units, acts))
        for line in lines(tx, units):
            if line.startswith(BLOB):
                copy_bytes(connection, name, msgspec.json.decode(line, type=ArchivedBlob), blobs)
            file.write(line)
            digest.update(line)
    finally:
        connection.rollback()
    kept = ArchivedTree(id=name, unit=root, units=len(units), digest=digest.hexdigest())
    file.write(msgspec.json.encode(kept) + b"\n")


def find_blobs(path: Path) -> FolderBlobs:
    """The folder beside an archive that holds the bytes which its lines name."""
    return FolderBlobs(f"{path}.blobs")


def copy_bytes(connection: Connection, tree: str, blob: ArchivedBlob, to: FolderBlobs) -> None:
    """Copy bytes to the folder beside the archive, where they are checked against their digest.

    Raises:
        BytesNotCopied: they are not there, or damaged, or this process does not know where they are.
    """
    try:
        if connection.blobs is None:
            raise NoBlobs(NO_FOLDER)
        if to.find_length(blob.tenant, blob.digest) is None:
            write_pieces(to, blob.tenant, connection.blobs.read(blob.tenant, blob.digest), blob.digest)
    except InterlockError as error:
        raise BytesNotCopied(tree, f"its bytes sha256:{blob.digest} cannot be copied: {error}") from None


def check_bytes(path: Path, blob: ArchivedBlob) -> None:
    """Read bytes back.

    Raises:
        InterlockError: they are not what was to be written.
    """
    digest = sha256()
    for piece in find_blobs(path).read(blob.tenant, blob.digest):
        digest.update(piece)
    if digest.hexdigest() != blob.digest:
        raise InterlockError(f"'{path}.blobs': blob sha256:{blob.digest} was not written as it was read")


def read_back(path: Path) -> Iterator[ArchivedTree]:
    """Yield the trees of a file, each compared with its digest.

    Raises:
        InterlockError: the file, or the folder beside it, does not hold what its digests say.
    """
    digest, acts, checked = sha256(), set[str](), set[ArchivedBlob]()
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if line.startswith(ACT):
                acts.add(digest_act(msgspec.json.decode(line, type=Act)))
            elif line.startswith(TREE):
                kept = msgspec.json.decode(line, type=ArchivedTree)
                if digest.hexdigest() != kept.digest:
                    raise InterlockError(f"'{path}', line {number}: {kept.id} was not written as it was read")
                yield kept
                digest = sha256()
            else:
                digest.update(line)
                if line.startswith(BLOB):
                    blob = msgspec.json.decode(line, type=ArchivedBlob)
                    if blob not in checked:
                        check_bytes(path, blob)
                    checked.add(blob)
                if line.startswith(EVENT) and msgspec.json.decode(line, type=Event).hash not in acts:
                    raise InterlockError(f"'{path}', line {number}: the change behind this event was not written")


def print_summary(facts: dict[str, Any], json: bool) -> None:
    """Print what was archived, and what was left and why."""
    if json:
        print_json(facts)
    else:
        for name in facts["trees"]:
            print_line(str(name))
        for tree_left in facts["left"]:
            print_line(f"{tree_left['id']} stays: {tree_left['why']}")
        trees = format_count(len(facts["trees"]), "tree")
        if facts["dry_run"]:
            print_line(f"{trees} would be archived")
        elif facts["file"]:
            stay = f"{len(facts['left'])} stay"
            print_line(f"{trees} archived in {facts['file']} ({facts['units']} in all), {stay}")
        else:
            print_line("nothing to archive")
    if facts["left"]:
        raise typer.Exit(FINDING)
