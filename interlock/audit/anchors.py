"""Anchors: a file with the root of every tenant's acts, to prove later that none was rewritten."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from interlock.audit.archives import Files
from interlock.audit.laws import Broken
from interlock.kernel.errors import InterlockError
from interlock.store import seals
from interlock.store.connection import Connection
from interlock.store.private_files import create_private
from interlock.store.queries.evidence import count_ever
from interlock.store.queries.snapshots import read_archived, read_cursor, read_epoch, read_gone_acts, read_tenant_ids
from interlock.store.restore import find_ended_epoch
from interlock.store.seals import NOTHING

T = TypeVar("T", bound=msgspec.Struct)
FORMAT = 2
LINE_MAX = 1_000  # bytes; no line of an anchor comes near it
KEPT = "what was anchored is still there"
Id = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]


class Header(msgspec.Struct, frozen=True):
    """The first line: of which store, when, and up to which position of its events."""

    anchor: int  # the number of this format
    epoch: str
    at: int
    cursor: tuple[int, ...]


class Root(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A line for each tenant: its last act, how many there were up to it, and the root over all of them."""

    tenant: Id
    act: Id
    acts: Id
    root: str


class End(msgspec.Struct, frozen=True):
    """The last line. The digest is the SHA-256 of all bytes before it."""

    units: int
    events: int  # all that these units ever had, archived ones too
    digest: str


def refuse_existing(path: Path) -> None:
    """Refuses a file that exists: an anchor is evidence, and is never written over.

    Raises:
        InterlockError: the file exists, or its folder does not.
    """
    if path.exists():
        raise InterlockError(f"'{path}' exists; an anchor is not written over: name another file")
    if not path.absolute().parent.is_dir():
        raise InterlockError(f"the folder of '{path}' does not exist")


def write(connection: Connection, path: Path) -> End:
    """The file holds an anchor of what the session sees, and is on disk."""
    refuse_existing(path)
    header = Header(FORMAT, get_epoch(connection), connection.now(), read_cursor(connection))
    units, events = count_ever(connection)
    digest = sha256()
    with open(create_private(path), "wb") as file:
        try:
            for line in chain[Header | Root]((header,), roots(connection)):
                text = msgspec.json.encode(line) + b"\n"
                digest.update(text)
                file.write(text)
            end = End(units, events, digest.hexdigest())
            file.write(msgspec.json.encode(end) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            path.unlink()  # half an anchor is none
            raise
    return end


def get_epoch(connection: Connection) -> str:
    """Returns the store's epoch.

    Raises:
        InterlockError: it has none yet.
    """
    epoch = read_epoch(connection)
    if epoch is None:
        raise InterlockError("this database has no epoch yet, so no anchor can name it; run `interlock db upgrade`")
    return epoch


def describe_foreign(connection: Connection, epoch: str) -> str:
    """Says which database an anchor is of whose epoch is not that of this one."""
    if before := find_ended_epoch(connection, epoch):
        at = datetime.fromtimestamp(before.ended_at / 1_000_000, UTC).isoformat(timespec="seconds")
        return (
            f"this database before it was restored: its epoch, {epoch}, ended at {at}. What came after the backup is "
            "gone, so it proves nothing; make another anchor"
        )
    return f"another database: its epoch is {epoch}, this one's is {get_epoch(connection)}"


def since(connection: Connection, path: Path, archives: Path | None = None) -> Iterator[Broken]:
    """What an anchor has seen and the session does not see any more: histories that were cut, removed or rewritten.

    A root stands for all acts up to its last one: none of them was changed, added, removed or reordered since. What was
    archived is read back from its file, which may have moved to the folder `archives`.

    Raises:
        InterlockError: the anchor is damaged, or of another store.
    """
    header = read_header(path)
    if header.epoch != get_epoch(connection):
        raise InterlockError(f"'{path}' is an anchor of {describe_foreign(connection, header.epoch)}")
    roots = [line for line in read(path) if isinstance(line, Root)]
    for root in roots:
        yield from judge(connection, root)
    files, count = Files(connection, archives), 0
    for root in roots:
        for unit, text in files.find_unproven(read_archived(connection, root.tenant, root.act)):
            count += 1
            yield Broken(KEPT, unit, text)
    if not count:
        for root in roots:
            yield from judge_gone(connection, root, files)


def judge_gone(connection: Connection, kept: Root, files: Files) -> Iterator[Broken]:
    """Whether every act that has left the database is in an archive."""
    for act, digest in read_gone_acts(connection, kept.tenant, kept.act).items():
        if digest not in files.acts:
            yield Broken(KEPT, 0, f"act {act} has left the database, and no archive of its units holds it")


def judge(connection: Connection, kept: Root) -> Iterator[Broken]:
    """Whether the acts of a tenant up to one of them are those that were anchored."""
    at = NOTHING
    for at in seals.walk_chain(connection, kept.tenant, end=kept.act + 1):  # noqa: B007
        pass
    if at != (kept.act, kept.acts, kept.root):
        yield Broken(
            KEPT, 0, f"the {kept.acts} acts of tenant {kept.tenant} up to {kept.act} are not those that were anchored "
            f"({at.acts} are there): one of them was changed, added, removed or reordered",
        )  # fmt: skip


def roots(connection: Connection) -> Iterator[Root]:
    """How far the chain of each tenant has come."""
    for tenant in read_tenant_ids(connection):
        at = NOTHING
        for at in seals.walk_chain(connection, tenant):  # noqa: B007
            pass
        if at.acts:
            yield Root(tenant, *at)


def read_header(path: Path) -> Header:
    """The header of a file that is a whole anchor; raises if it is not."""
    lines = read(path)
    header = next(lines)
    assert isinstance(header, Header), "the first line is read as one"
    for _ in lines:
        pass
    return header


def read(path: Path) -> Iterator[Header | Root]:
    """The lines of an anchor but for its end, which is held against them; raises InterlockError at the first fault."""
    digest = sha256()
    number = 2
    try:
        with path.open("rb") as file:
            text = file.readline(LINE_MAX)
            header = decode_entry(path, 1, text, Header)
            if header.anchor != FORMAT:
                raise make_damage_error(path, 1, f"format {header.anchor} is not known; {FORMAT} is")
            yield header
            digest.update(text)
            while (text := file.readline(LINE_MAX)).startswith(b"["):
                yield decode_entry(path, number, text, Root)
                digest.update(text)
                number += 1
            end = decode_entry(path, number, text, End)
            if end.digest != digest.hexdigest() or file.read(1):
                raise make_damage_error(path, number, "its digest is not that of the lines before it")
    except OSError as error:
        raise InterlockError(f"the anchor '{path}' cannot be read: {error.strerror}") from None


def decode_entry(path: Path, number: int, text: bytes, kind: type[T]) -> T:
    """Decodes a line of an anchor."""
    if not text.endswith(b"\n"):
        raise make_damage_error(path, number, "it is cut off")
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise make_damage_error(path, number, str(error)) from None


def make_damage_error(path: Path, number: int, why: str) -> InterlockError:
    """Makes the error of an anchor that is damaged at a line."""
    return InterlockError(f"'{path}' is no anchor, or is damaged (line {number}): {why}")
