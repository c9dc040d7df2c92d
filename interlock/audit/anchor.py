"""Anchors: a file that says how far every history had come, kept elsewhere to prove later that none was rewritten."""

import os
from collections.abc import Iterator
from hashlib import sha256
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from interlock.audit.archives import Claimed, unproven
from interlock.audit.laws import Broken
from interlock.kernel.errors import InterlockError
from interlock.store.files import create_private
from interlock.store.reads import LAST_VERSION, PAGE, archived, cursor, epoch, hashes, heads
from interlock.store.session import Session

T = TypeVar("T", bound=msgspec.Struct)
FORMAT = 1
LINE_MAX = 1_000  # bytes; no line of an anchor comes near it
KEPT = "what was anchored is still there"
Id = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
Version = Annotated[int, msgspec.Meta(ge=1, le=LAST_VERSION)]


class Header(msgspec.Struct, frozen=True):
    """The first line: of which store, when, and up to which position of its events."""

    anchor: int  # the number of this format
    epoch: str
    at: int
    cursor: tuple[int, ...]


class Mark(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A line for each unit, in the order of their ids: the version and the hash of its last event."""

    unit: Id
    version: Version
    head: str


class End(msgspec.Struct, frozen=True):
    """The last line. The digest is the SHA-256 of all bytes before it."""

    units: int
    events: int  # all that these units ever had, archived ones too
    digest: str


def must_be_free(path: Path) -> None:
    """Raises if the file exists: an anchor is evidence, and is never written over."""
    if path.exists():
        raise InterlockError(f"'{path}' exists; an anchor is not written over: name another file")
    if not path.absolute().parent.is_dir():
        raise InterlockError(f"the folder of '{path}' does not exist")


def write(session: Session, path: Path) -> End:
    """The file holds an anchor of what the session sees, and is on disk."""
    must_be_free(path)
    header = Header(FORMAT, identity(session), session.now(), cursor(session))
    marks = (Mark(*row) for row in heads(session))
    units = events = 0
    digest = sha256()
    with open(create_private(path), "wb") as file:
        try:
            for line in chain[Header | Mark]((header,), marks):
                text = msgspec.json.encode(line) + b"\n"
                digest.update(text)
                file.write(text)
                if isinstance(line, Mark):
                    units, events = units + 1, events + line.version
            end = End(units, events, digest.hexdigest())
            file.write(msgspec.json.encode(end) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            path.unlink()  # half an anchor is none
            raise
    return end


def identity(session: Session) -> str:
    """The store's epoch; raises if it has none yet."""
    found = epoch(session)
    if found is None:
        raise InterlockError("this database has no epoch yet, so no anchor can name it; run `interlock db upgrade`")
    return found


def since(session: Session, path: Path, archives: Path | None = None) -> Iterator[Broken]:
    """What an anchor has seen and the session does not see any more: histories that were cut, removed or rewritten.

    The hash of one event stands for all before it, as long as the chain holds, which is a law of every audit. What was
    archived is read back from its file, which may have moved to the folder `archives`.
    Raises if the anchor is damaged, or of another store.
    """
    header = checked(path)
    if header.epoch != identity(session):
        raise InterlockError(
            f"'{path}' is an anchor of another database: its epoch is {header.epoch}, this one's is {identity(session)}"
        )
    marks = (line for line in read(path) if isinstance(line, Mark))
    claims: list[Claimed] = []
    while page := list(islice(marks, PAGE)):
        yield from lost(session, page, claims)
    for unit, text in unproven(claims, archives):
        yield Broken(KEPT, unit, text)


def lost(session: Session, marks: list[Mark], claims: list[Claimed]) -> Iterator[Broken]:
    """Those of the marks for which there is neither the event nor a note that its unit was archived.

    What such a note claims is added to `claims`.
    """
    present = hashes(session, [(mark.unit, mark.version) for mark in marks])
    gone = archived(session, [mark.unit for mark in marks if mark.unit not in present])
    for mark in marks:
        text = ""
        if mark.unit in present:
            if present[mark.unit] != mark.head:
                text = f"its history up to version {mark.version} is not the one that was anchored: it was rewritten"
        elif mark.unit not in gone:
            text = f"its history up to version {mark.version} was anchored, and version {mark.version} is gone"
        elif gone[mark.unit][0] < mark.version:
            text = f"version {mark.version} was anchored, but it was archived at version {gone[mark.unit][0]}"
        elif gone[mark.unit][0] == mark.version and gone[mark.unit][1] != mark.head:
            text = f"it was archived at version {mark.version} with another head than the anchored one"
        else:
            claims.append(Claimed(mark.unit, mark.version, mark.head, *gone[mark.unit]))
        if text:
            yield Broken(KEPT, mark.unit, text)


def checked(path: Path) -> Header:
    """The header of a file that is a whole anchor; raises if it is not."""
    lines = read(path)
    header = next(lines)
    assert isinstance(header, Header), "the first line is read as one"
    for _ in lines:
        pass
    return header


def read(path: Path) -> Iterator[Header | Mark]:
    """The lines of an anchor but for its end, which is held against them; raises InterlockError at the first fault."""
    digest = sha256()
    units = events = last = 0
    try:
        with path.open("rb") as file:
            text = file.readline(LINE_MAX)
            header = decoded(path, 1, text, Header)
            if header.anchor != FORMAT:
                raise damaged(path, 1, f"format {header.anchor} is not known; {FORMAT} is")
            yield header
            digest.update(text)
            while (text := file.readline(LINE_MAX)).startswith(b"["):
                mark = decoded(path, units + 2, text, Mark)
                if mark.unit <= last:
                    raise damaged(path, units + 2, f"unit {mark.unit} comes after unit {last}")
                yield mark
                digest.update(text)
                units, events, last = units + 1, events + mark.version, mark.unit
            end = decoded(path, units + 2, text, End)
            if end != End(units, events, digest.hexdigest()) or file.read(1):
                raise damaged(path, units + 2, "its sums are not those of the lines before it")
    except OSError as error:
        raise InterlockError(f"the anchor '{path}' cannot be read: {error.strerror}") from None


def decoded(path: Path, number: int, text: bytes, kind: type[T]) -> T:
    if not text.endswith(b"\n"):
        raise damaged(path, number, "it is cut off")
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise damaged(path, number, str(error)) from None


def damaged(path: Path, number: int, why: str) -> InterlockError:
    return InterlockError(f"'{path}' is no anchor, or is damaged (line {number}): {why}")
