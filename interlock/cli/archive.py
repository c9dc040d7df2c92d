"""`interlock archive`: what has ended leaves the database, once a file holds it."""

import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import msgspec
import typer

from interlock.cli.options import (
    DEFAULT,
    KINDS,
    NO_WORDS,
    Actor,
    DryRun,
    Every,
    Tenant,
    Url,
    Why,
    Words,
    app_on,
    length,
    named,
    opened,
    select,
    with_filter,
)
from interlock.cli.output import FINDING, Json, counted, dump, say
from interlock.client.app import App
from interlock.core.archive import ACT, EVENT, TREE, Kept, act_lines, lines
from interlock.kernel.commands import Archive
from interlock.kernel.errors import InterlockError, StoreError
from interlock.kernel.ids import format_id
from interlock.kernel.rows import Act, Event
from interlock.store.acts import digest_act as act_digest
from interlock.store.connection import Connection
from interlock.store.ids import Ids
from interlock.store.private_files import create_private
from interlock.store.queries.views import find_matching, glimpse
from interlock.store.retention import load_tree
from interlock.store.unit_of_work import open_unit_of_work

Out = Annotated[Path | None, typer.Option("--out", help="The new file of JSON lines that is to hold them.")]


@with_filter(*KINDS)
def archive(
    older: Annotated[str, typer.Option(metavar="DURATION", help="Only what ended longer ago, as in 30d.")] = "0s",
    out: Out = None,
    words: Words = NO_WORDS,
    every: Every = False,
    dry_run: DryRun = False,
    actor: Actor = None,
    reason: Why = "",
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Move whole trees of ended units to a file; nothing is deleted before the file is read back and holds it."""
    with app_on(db, tenant) as app:
        wanted = select(app, words).filter
        older_us = length("older", older)
        if wanted.empty and not older_us and not every:
            raise InterlockError("which units? Give --older DURATION, a filter such as --task NAME, or --all")
        now = app.engine.read(lambda connection: connection.now(), tenant)
        wanted = msgspec.structs.replace(wanted, top=True, settled_before=now - older_us + (not older_us))
        roots = app.read(find_matching, wanted)
        order = Archive(unit=0, file="", digest="", tenant=tenant, actor=named(actor), reason=reason)
        move(app, roots, out, order, dry_run=dry_run, json=json)


def move(app: App, roots: list[int], out: Path | None, order: Archive, *, dry_run: bool, json: bool) -> None:
    """Trees are in the file and no longer in the database; those that could not leave are named."""
    if dry_run:
        names = [format_id(app.read(glimpse, root).lifecycle, root) for root in roots]
        tell({"trees": names, "units": None, "file": None, "left": [], "dry_run": True}, json)
        return
    if out is None:
        raise InterlockError("a file is needed that holds them: --out FILE")
    must_be_free(out)
    if not roots:
        tell({"trees": [], "units": 0, "file": None, "left": [], "dry_run": False}, json)
        return
    with opened(app.url) as connection:
        write(connection, app, roots, out)
    moved, units, left = [], 0, []
    for kept in read_back(out):
        command = msgspec.structs.replace(order, unit=kept.unit, file=str(out.absolute()), digest=kept.digest)
        try:
            units += app.send(command)
            moved.append(kept.id)
        except StoreError:
            raise
        except InterlockError as refused:
            left.append({"id": kept.id, "why": str(refused)})
    tell({"trees": moved, "units": units, "file": str(out), "left": left, "dry_run": False}, json)


def must_be_free(path: Path) -> None:
    if path.exists():
        raise InterlockError(f"'{path}' exists; an archive is not written over: name another file")
    if not path.absolute().parent.is_dir():
        raise InterlockError(f"the folder of '{path}' does not exist")


def write(connection: Connection, app: App, roots: list[int], out: Path) -> None:
    """The file holds every tree, a line a row, each closed by a line with its digest; it is on disk."""
    try:
        with open(create_private(out), "wb") as file:
            acts = set[int]()
            for root in roots:
                write_tree(connection, app, root, file, acts)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise InterlockError(f"'{out}' cannot be written: {error.strerror}") from None


def write_tree(connection: Connection, app: App, root: int, file: BinaryIO, acts: set[int]) -> None:
    """The file holds a tree, and before it those acts of its units that it does not hold yet."""
    tx = open_unit_of_work(connection, app.lifecycles, Ids(connection), [app.tenant])
    try:
        top, digest = tx.unit(root), sha256()
        units = load_tree(tx, top)
        file.writelines(act_lines(tx, units, acts))
        for line in lines(tx, units):
            file.write(line)
            digest.update(line)
    finally:
        connection.rollback()
    kept = Kept(id=format_id(top.lifecycle, root), unit=root, units=len(units), digest=digest.hexdigest())
    file.write(msgspec.json.encode(kept) + b"\n")


def read_back(path: Path) -> Iterator[Kept]:
    """The trees that a file holds, whole. Raises InterlockError where it holds something else than it says."""
    digest, acts = sha256(), set[str]()
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if line.startswith(ACT):
                acts.add(act_digest(msgspec.json.decode(line, type=Act)))
            elif line.startswith(TREE):
                kept = msgspec.json.decode(line, type=Kept)
                if digest.hexdigest() != kept.digest:
                    raise InterlockError(f"'{path}', line {number}: {kept.id} was not written as it was read")
                yield kept
                digest = sha256()
            else:
                digest.update(line)
                if line.startswith(EVENT) and msgspec.json.decode(line, type=Event).hash not in acts:
                    raise InterlockError(f"'{path}', line {number}: the act of this event was not written")


def tell(facts: dict[str, Any], json: bool) -> None:
    if json:
        dump(facts)
    else:
        for one in facts["trees"]:
            say(str(one))
        for one in facts["left"]:
            say(f"{one['id']} stays: {one['why']}")
        trees = counted(len(facts["trees"]), "tree")
        if facts["dry_run"]:
            say(f"{trees} would be archived")
        elif facts["file"]:
            say(f"{trees} of {counted(facts['units'], 'unit')} archived in {facts['file']}, {len(facts['left'])} stay")
        else:
            say("nothing to archive")
    if facts["left"]:
        raise typer.Exit(FINDING)
