"""Check archive files: read them back and compare them with the digests that the database kept.

A row of `archived` alone proves nothing, since whoever may write it may invent it. Its file does: it holds the acts
that moved its units, each is what its digest says, the database keeps that digest below its seals, and the events of
the unit are what these acts tell of it.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from interlock.core.archive import ACT, EVENT, TREE, ArchivedTree
from interlock.kernel.rows import Act, Archived, Event
from interlock.store.acts import NOTHING, digest_act
from interlock.store.connection import Connection
from interlock.store.queries.snapshots import read_digests, read_path_texts

Histories = dict[int, list[Event]]  # by unit


class Files:
    """Archive files, each read once. The acts that they hold are kept, by their digests."""

    def __init__(self, connection: Connection, folder: Path | None) -> None:
        """`folder` is where files are looked for that are no longer where they were written."""
        self.connection, self.folder, self.paths = connection, folder, read_path_texts(connection)
        self.acts: dict[str, Act] = {}

    def find_unproven(self, claims: Iterable[Archived]) -> Iterator[tuple[int, str]]:
        """Those of the units that their files do not prove, each with the reason."""
        by_file: dict[str, list[Archived]] = {}
        for claim in claims:
            by_file.setdefault(claim.file, []).append(claim)
        for file, some in by_file.items():
            yield from self.find_unproven_in(file, some)

    def find_unproven_in(self, file: str, claims: list[Archived]) -> Iterator[tuple[int, str]]:
        """Those of the units that one file does not prove; a tree is judged when it was read, and not kept."""
        pending: dict[str, list[Archived]] = {}
        for claim in claims:
            pending.setdefault(claim.digest, []).append(claim)
        trouble = f"the archive '{file}' does not hold it as it was archived"
        try:
            for digest, histories in self.trees_in(self.find(file), pending):
                known = read_digests(self.connection, self.acts_of(histories))
                for claim in pending.pop(digest):
                    if text := self.explain_doubt(claim, histories.get(claim.unit, []), known):
                        yield claim.unit, text
        except OSError as error:
            trouble = (
                f"it was archived in '{file}', which cannot be read ({error.strerror}); --archives says where it is now"
            )
        except (msgspec.MsgspecError, UnicodeError):
            trouble = f"the archive '{file}' is damaged, and does not hold it as it was archived"
        for claim in (claim for some in pending.values() for claim in some):
            yield claim.unit, trouble

    def find(self, file: str) -> Path:
        """Where an archive is now: in the folder, if it was moved there."""
        moved = self.folder / Path(file).name if self.folder else None
        return moved if moved and moved.exists() else Path(file)

    def trees_in(self, path: Path, wanted: Container[str]) -> Iterator[tuple[str, Histories]]:
        """By their digests, the trees of a file that are wanted and whole: of each of their units, the events.

        Raises:
            OSError: the file cannot be read.
            msgspec.MsgspecError: it is no archive.
        """
        whole = sha256()
        histories: Histories = {}
        with path.open("rb") as file:
            for line in file:
                if line.startswith(TREE):
                    kept = msgspec.json.decode(line, type=ArchivedTree)
                    if whole.hexdigest() == kept.digest and kept.digest in wanted:
                        yield kept.digest, histories
                    whole, histories = sha256(), {}
                elif line.startswith(ACT):
                    act = msgspec.json.decode(line, type=Act)
                    self.acts[digest_act(act)] = act
                else:
                    whole.update(line)
                    if line.startswith(EVENT):
                        event = msgspec.json.decode(line, type=Event)
                        histories.setdefault(event.unit, []).append(event)

    def acts_of(self, histories: Histories) -> set[int]:
        """The acts that these events name, as far as the file holds them."""
        hashes = {event.hash for events in histories.values() for event in events}
        return {self.acts[digest].id for digest in hashes if digest in self.acts}

    def explain_doubt(self, claim: Archived, events: list[Event], known: Mapping[int, str]) -> str:
        """Why these events do not prove what is said of their unit; nothing if they do.

        `known` has the digests by which the database still knows acts.
        """
        for version, event in enumerate(events, 1):
            act = self.acts.get(event.hash)
            if act is None or event.version != version or not matches_event(act, event, self.paths):
                return f"the archive '{claim.file}' holds a history that is not whole (version {version})"
            if known.get(act.id) != event.hash:
                return f"the archive '{claim.file}' holds another history up to version {version} than the database had"
        if len(events) != claim.version or events[-1].hash != claim.head:
            return f"the archive '{claim.file}' holds another history than was archived"
        return ""


def matches_event(act: Act, event: Event, paths: Mapping[str, str]) -> bool:
    """Whether an act tells exactly this of the event's unit."""
    if event.unit not in act.units or act.path_digest not in paths:
        return False
    lifecycle, *_, hops = msgspec.json.decode(paths[act.path_digest])
    place = event.version - act.version
    if not 1 <= place <= len(hops):
        return False
    trigger, source, target, name, severity, _, _, lease_from, lease_to = hops[place - 1]
    attempt, fence = (
        count + sum(hop[column] for hop in hops[:place]) for column, count in ((5, act.attempt), (6, act.fence))
    )
    stated: tuple[Any, ...] = (
        act.tenant, lifecycle, trigger, source or None, target, lease_from, lease_to, attempt, fence, name, severity,
        act.at, act.actor, act.reason or trigger, act.cause,
    )  # fmt: skip
    of_event = (
        event.tenant, event.lifecycle, event.trigger, event.source, event.target, event.lease_from, event.lease_to,
        event.attempt, event.fence, event.name, event.severity, event.at, event.actor, event.reason, event.cause,
    )  # fmt: skip
    return stated == of_event and matches_payload(act, event)


def matches_payload(act: Act, event: Event) -> bool:
    """A payload is the act's own, or its digest is what the act has of this unit; other hops of a path have none."""
    digest = (act.details or [None] * len(act.units))[act.units.index(event.unit)]
    return event.payload in (NOTHING, act.payload) or sha256(event.payload.encode()).hexdigest() == digest
