"""Logs: the bytes that a handler writes, by attempt and offset.

An attempt has one log. Its holder adds bytes at the end, and says how many it has added before, so that what is sent
twice is kept once. Up to 64 MiB are kept: of a longer log the head and the tail, each a half of that; the offsets of
what was dropped stay free. While the attempt runs, the bytes are rows of the database. When it is over, and nothing can
come late any more, they are compressed, some at each tick, and become one blob.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from interlock.blobs.store import write_pieces
from interlock.core.late_leases import LATE_US
from interlock.core.validation import check_range
from interlock.kernel.commands import AppendLog, EvidenceStatus, LogEntry
from interlock.kernel.errors import InterlockError
from interlock.plugins.evidence.blobs import LOOK_EVERY_US, use_blob
from interlock.plugins.evidence.emitted import check_emits, make_rows, place_emits
from interlock.plugins.evidence.frames import FRAME, Frame, compress
from interlock.plugins.evidence.late import Accepted, judge_evidence
from interlock.plugins.evidence.queries import (
    ADD_CHUNK,
    ADD_EMITTED,
    CHUNKS,
    DROP_CHUNKS,
    DUE_LOGS,
    IS_OVER,
    PLAIN_CHUNKS,
    SAVE_LOG,
    SAVE_WRITER,
    LogRow,
    add_blob_row,
    read_logs_of,
    read_writers_of,
    save_log,
)
from interlock.store.queries.old_leases import read_ended_leases
from interlock.store.unit_of_work import UnitOfWork

HEAD = TAIL = 32 * 1024 * 1024  # bytes that are kept of the beginning and of the end of a log
ENTRY_MAX = 1024 * 1024  # bytes that come together
SETTLED_US = LATE_US + 60_000_000  # after the last bytes of an attempt that is over, when its log is compressed
FRAMES_AT_ONCE = 4
CHUNKS_AT_ONCE = 5_000
START_MAX = 2**62


class LogChanges:
    """What a command adds to logs: their rows as they become, the bytes, and how far each lease has come."""

    def __init__(self, tx: UnitOfWork, units: Sequence[int]) -> None:
        self.tx = tx
        self.logs, self.sent = read_logs_of(tx, units), read_writers_of(tx, units)
        self.changed: dict[tuple[int, int], LogRow] = {}
        self.writers: dict[tuple[int, int], dict[str, Any]] = {}
        self.chunks: list[dict[str, Any]] = []
        self.emitted: list[dict[str, Any]] = []

    def add(self, accepted: Accepted, entry: LogEntry) -> EvidenceStatus:
        """Adds what is new of an entry to the log of its attempt."""
        unit, attempt, fence, late = accepted
        sent = self.sent.get((unit.id, fence), 0)
        if entry.start > sent:
            why = f"start = {entry.start} is not allowed; {sent} bytes of this lease are here: go on there"
            return EvidenceStatus(unit.id, accepted=False, late=late, why=why, attempt=attempt, length=sent)
        data = entry.data[sent - entry.start :]
        if data:
            log = self.logs.setdefault((unit.id, attempt), LogRow(unit.id, attempt))
            if log.digest is not None:
                return EvidenceStatus(unit.id, accepted=False, why="LOG_CLOSED", attempt=attempt, length=sent)
            place = {"unit": unit.id, "attempt": attempt, "tenant": unit.tenant, "fence": fence}
            self.emitted += make_rows(place, list(place_emits(entry.emits, sent, log.length)))
            self.append(log, unit.tenant, data, late)
            sent += len(data)
            self.sent[unit.id, fence] = sent
            self.writers[unit.id, fence] = {"unit": unit.id, "fence": fence, "tenant": unit.tenant, "sent": sent}
        return EvidenceStatus(unit.id, accepted=True, late=late, attempt=attempt, length=sent)

    def append(self, log: LogRow, tenant: int, data: bytes, late: bool) -> None:
        """Adds bytes at the end of a log. No chunk of it lies on both sides of the end of its head."""
        start, cut = log.length, max(HEAD - log.length, 0)
        for place, part in ((start, data[:cut]), (start + len(data[:cut]), data[cut:])):
            if part:
                self.chunks.append({
                    "unit": log.unit, "attempt": log.attempt, "start": place, "tenant": tenant, "length": len(part),
                    "compressed": 0, "data": part,
                })  # fmt: skip
        log.length += len(data)
        if late:
            log.late = add_stretch(log.late, start, log.length)
        log.added_at, log.look_at = self.tx.now, self.tx.now + SETTLED_US
        self.changed[log.unit, log.attempt] = log

    def write(self) -> None:
        """Writes everything, a statement per table, and drops the middle of logs that have become too long."""
        if not self.changed:
            return
        connection = self.tx.connection
        self.tx.changes.count += 1  # a refusal after this one undoes it
        connection.many(ADD_CHUNK, self.chunks)
        for log in self.changed.values():
            if log.length > HEAD + TAIL:
                drop_middle(self.tx, log)
        tenants = {(chunk["unit"], chunk["attempt"]): chunk["tenant"] for chunk in self.chunks}
        connection.many(SAVE_LOG, [save_log(self.tx, log, tenants[place]) for place, log in self.changed.items()])
        connection.many(SAVE_WRITER, list(self.writers.values()))
        if self.emitted:
            connection.many(ADD_EMITTED, self.emitted)


def append_log(tx: UnitOfWork, command: AppendLog) -> list[EvidenceStatus]:
    """Holders add bytes to the logs of their units. Every entry is answered by itself."""
    for entry in command.entries:
        check_range("start", entry.start, 0, START_MAX)
        if len(entry.data) > ENTRY_MAX:
            raise InterlockError(
                f"{len(entry.data):,} bytes of a log are too many at once; at most {ENTRY_MAX:,} are allowed"
            )
        check_emits(entry)
    units = [entry.held.unit for entry in command.entries]
    tx.load_units(units)
    read_ended_leases(tx, dict.fromkeys(units))
    changes, answers = LogChanges(tx, units), list[EvidenceStatus]()
    for entry in command.entries:
        accepted = judge_evidence(tx, entry.held)
        answers.append(accepted if isinstance(accepted, EvidenceStatus) else changes.add(accepted, entry))
    changes.write()
    return answers


def add_stretch(text: str, start: int, end: int) -> str:
    """Returns stretches of a log, as they are kept, with one more at its end."""
    stretches: list[list[int]] = msgspec.json.decode(text)
    if stretches and stretches[-1][1] == start:
        stretches[-1][1] = end
    else:
        stretches.append([start, end])
    return msgspec.json.encode(stretches).decode()


def drop_middle(tx: UnitOfWork, log: LogRow) -> None:
    """Drops what is neither of the head nor of the tail of a log, as far as whole chunks go."""
    place = {"unit": log.unit, "attempt": log.attempt}
    ends = tx.connection.rows(DROP_CHUNKS, {**place, "start": HEAD, "end": log.length - TAIL})
    if ends:
        log.gap_start, log.gap_end = HEAD, max(end for (end,) in ends)


# After the end.


def compress_logs(tx: UnitOfWork, limit: int) -> int:
    """Compresses logs of attempts that are over, some of each; one that is compressed whole becomes a blob."""
    due = {"tenant": tx.tenant, "now": tx.now, "limit": 1}
    logs = [LogRow(*row) for row in tx.connection.rows(DUE_LOGS, due)]
    for log in logs:
        given = {"unit": log.unit, "attempt": log.attempt, "before": tx.now - SETTLED_US}
        if not tx.connection.rows(IS_OVER, given):
            log.look_at = tx.now + SETTLED_US
        elif not compress_some(tx, log):
            log.look_at = None
            if tx.connection.blobs is not None:
                make_blob(tx, log)
        tx.connection.rows(SAVE_LOG, save_log(tx, log, tx.tenant))
    return len(logs)


def compress_some(tx: UnitOfWork, log: LogRow) -> bool:
    """Makes frames of the next chunks of a log that are not compressed; returns whether there were any."""
    place = {"unit": log.unit, "attempt": log.attempt}
    rows = tx.connection.rows(PLAIN_CHUNKS, {**place, "limit": CHUNKS_AT_ONCE})
    for chunks in group_chunks([(start, bytes(data)) for start, _, data in rows])[:FRAMES_AT_ONCE]:
        start, plain = chunks[0][0], b"".join(data for _, data in chunks)
        tx.connection.rows(DROP_CHUNKS, {**place, "start": start, "end": start + len(plain)})
        row = {"start": start, "tenant": tx.tenant, "length": len(plain), "compressed": 1, "data": compress(plain)}
        tx.connection.rows(ADD_CHUNK, {**place, **row})
    return bool(rows)


def group_chunks(chunks: Sequence[tuple[int, bytes]]) -> list[list[tuple[int, bytes]]]:
    """Chunks that follow each other, as many together as a frame holds."""
    groups: list[list[tuple[int, bytes]]] = []
    size = end = 0
    for start, data in chunks:
        if not groups or start != end or size + len(data) > FRAME:
            groups.append([])
            size = 0
        groups[-1].append((start, data))
        size, end = size + len(data), start + len(data)
    return groups


def make_blob(tx: UnitOfWork, log: LogRow) -> None:
    """The frames of a log become one blob, and its rows are deleted."""
    assert tx.connection.blobs is not None
    place = {"unit": log.unit, "attempt": log.attempt}
    rows = tx.connection.rows(CHUNKS, {**place, "start": 0, "end": log.length})
    frames, at = list[Frame](), 0
    for start, length, _, data in rows:
        frames.append(Frame(start, length, at, len(data)))
        at += len(data)
    blob = write_pieces(tx.connection.blobs, tx.tenant, (bytes(data) for _, _, _, data in rows))
    add_blob_row(tx, blob, tx.now + LOOK_EVERY_US)
    use_blob(tx, tx.tenant, blob.digest, log.unit)
    log.digest, log.frames = blob.digest, msgspec.json.encode(frames).decode()
    tx.connection.rows(DROP_CHUNKS, {**place, "start": 0, "end": log.length})
