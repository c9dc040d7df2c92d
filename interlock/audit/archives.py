"""Archive files as evidence: what left the database is read back, and must be what was there.

A row of `archived` alone proves nothing, since whoever may write it may invent it. Its file does: there the unit's
events are chained up to the head that the row names, and the one that an anchor names is among them.
"""

from collections.abc import Container, Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgspec

from interlock.engine.advance import chained
from interlock.engine.archive import TREE, Kept
from interlock.kernel.rows import Event

History = dict[int, list[Event]]  # by unit
EVENT = b'{"table":"event",'  # how the line of an event begins


class Claimed(NamedTuple):
    """What is said of a unit that was archived: where it was anchored, and how far its history went."""

    unit: int
    anchored: int  # a version
    anchored_head: str
    version: int
    head: str
    file: str
    digest: str  # of its tree, in the file


def unproven(claims: Iterable[Claimed], folder: Path | None) -> Iterator[tuple[int, str]]:
    """Those of the units that their files do not prove, each with the reason. Every file is read once.

    `folder` is where files are looked for that are no longer where they were written.
    """
    by_file: dict[str, list[Claimed]] = {}
    for claim in claims:
        by_file.setdefault(claim.file, []).append(claim)
    for file, some in by_file.items():
        yield from unproven_by(file, find_file(file, folder), some)


def unproven_by(file: str, path: Path, claims: list[Claimed]) -> Iterator[tuple[int, str]]:
    """Those of the units that one file does not prove; a tree is judged when it was read, and not kept."""
    pending: dict[str, list[Claimed]] = {}
    for claim in claims:
        pending.setdefault(claim.digest, []).append(claim)
    trouble = f"the archive '{file}' does not hold it as it was archived"
    try:
        for digest, histories in trees_in(path, pending):
            for claim in pending.pop(digest):
                if text := doubt(claim, histories.get(claim.unit, [])):
                    yield claim.unit, text
    except OSError as error:
        trouble = (
            f"it was archived in '{file}', which cannot be read ({error.strerror}); --archives says where it is now"
        )
    except (msgspec.MsgspecError, UnicodeError):
        trouble = f"the archive '{file}' is damaged, and does not hold it as it was archived"
    for claim in (claim for some in pending.values() for claim in some):
        yield claim.unit, trouble


def find_file(file: str, folder: Path | None) -> Path:
    """Where an archive is now: in the folder, if it was moved there."""
    moved = folder / Path(file).name if folder else None
    return moved if moved and moved.exists() else Path(file)


def trees_in(path: Path, wanted: Container[str]) -> Iterator[tuple[str, History]]:
    """By their digests, the trees of a file that are wanted and whole: of each of their units, the events.

    Raises OSError, or msgspec.MsgspecError for what is no archive.
    """
    whole = sha256()
    histories: History = {}
    with path.open("rb") as file:
        for line in file:
            if line.startswith(TREE):
                kept = msgspec.json.decode(line, type=Kept)
                if whole.hexdigest() == kept.digest and kept.digest in wanted:
                    yield kept.digest, histories
                whole, histories = sha256(), {}
                continue
            whole.update(line)
            if line.startswith(EVENT):
                event = msgspec.json.decode(line, type=Event)
                histories.setdefault(event.unit, []).append(event)


def doubt(claim: Claimed, events: list[Event]) -> str:
    """Why these events do not prove what is said of their unit; nothing if they do."""
    head = ""
    for version, event in enumerate(events, 1):
        if event.version != version or event.hash != chained(head, event):
            return f"the archive '{claim.file}' holds a history that is not whole (version {version})"
        head = event.hash
    if (len(events), head) != (claim.version, claim.head):
        return f"the archive '{claim.file}' holds another history than was archived"
    if events[claim.anchored - 1].hash != claim.anchored_head:
        return f"the archive '{claim.file}' holds another history up to version {claim.anchored} than was anchored"
    return ""
