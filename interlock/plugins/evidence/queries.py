"""The tables of blobs, artifacts and logs, and what is read of them and written to them."""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from interlock.blobs.store import NO_FOLDER
from interlock.core.validation import check_range
from interlock.kernel.blobs import PREFIX, BlobRef, parse_reference
from interlock.kernel.errors import NoBlobs, Unknown
from interlock.kernel.lifecycle import Category
from interlock.plugins.evidence.frames import Frame, decompress, find_frames
from interlock.store.connection import Connection
from interlock.store.retention import split_ids
from interlock.store.unit_of_work import UnitOfWork

TABLES = """
CREATE TABLE blob (
    tenant     INTEGER NOT NULL,
    digest     TEXT NOT NULL,             -- SHA-256 of the bytes, which are beside the database
    length     BIGINT NOT NULL,
    made_at    BIGINT NOT NULL,
    look_at    BIGINT NOT NULL,           -- when somebody looks next whether it is used
    unused_at  BIGINT,                    -- since when nothing uses it
    PRIMARY KEY (tenant, digest)
);
CREATE INDEX blob_look_at ON blob (tenant, look_at);
CREATE TABLE blob_use (
    tenant  INTEGER NOT NULL,
    digest  TEXT NOT NULL,
    unit    BIGINT NOT NULL,
    PRIMARY KEY (tenant, digest, unit)
);
CREATE INDEX blob_use_unit ON blob_use (unit);
CREATE TABLE artifact_blob (
    unit     BIGINT NOT NULL,
    attempt  INTEGER NOT NULL,
    name     TEXT NOT NULL,
    tenant   INTEGER NOT NULL,
    fence    INTEGER NOT NULL,
    at       BIGINT NOT NULL,
    late     INTEGER NOT NULL,            -- whether it came after the end of its lease
    media    TEXT NOT NULL,
    digest   TEXT NOT NULL,
    length   BIGINT NOT NULL,
    PRIMARY KEY (unit, attempt, name)
);
CREATE TABLE late_value (
    unit     BIGINT NOT NULL,
    fence    INTEGER NOT NULL,
    name     TEXT NOT NULL,               -- of an artifact; that of a step follows the word step
    tenant   INTEGER NOT NULL,
    attempt  INTEGER NOT NULL,
    at       BIGINT NOT NULL,
    value    TEXT NOT NULL,               -- which came after the end of its lease
    PRIMARY KEY (unit, fence, name)
);
CREATE TABLE unit_log (
    unit        BIGINT NOT NULL,
    attempt     INTEGER NOT NULL,
    tenant      INTEGER NOT NULL,
    length      BIGINT NOT NULL,          -- bytes that were ever added
    gap_start   BIGINT NOT NULL,          -- those that were dropped from its middle; both 0: none
    gap_end     BIGINT NOT NULL,
    late        TEXT NOT NULL,            -- stretches that came after the end of their lease: [[start, end], …]
    added_at    BIGINT NOT NULL,
    look_at     BIGINT,                   -- when somebody looks next whether it can be compressed; NULL: it is
    digest      TEXT,                     -- of the blob that holds it
    frames      TEXT NOT NULL,            -- where in that blob each stretch is: [[start, length, place, size], …]
    PRIMARY KEY (unit, attempt)
);
CREATE INDEX unit_log_look_at ON unit_log (tenant, look_at) WHERE look_at IS NOT NULL;
CREATE TABLE log_writer (
    unit    BIGINT NOT NULL,
    fence   INTEGER NOT NULL,
    tenant  INTEGER NOT NULL,
    sent    BIGINT NOT NULL,              -- bytes that the holder of this lease has added
    PRIMARY KEY (unit, fence)
);
CREATE TABLE log_chunk (
    unit        BIGINT NOT NULL,
    attempt     INTEGER NOT NULL,
    start       BIGINT NOT NULL,
    tenant      INTEGER NOT NULL,
    length      INTEGER NOT NULL,
    compressed  INTEGER NOT NULL,
    data        BYTEA NOT NULL,
    PRIMARY KEY (unit, attempt, start)
);
CREATE TABLE emitted (
    unit     BIGINT NOT NULL,
    attempt  INTEGER NOT NULL,
    start    BIGINT NOT NULL,             -- where in the log of that attempt it is
    tenant   INTEGER NOT NULL,
    length   INTEGER NOT NULL,
    fence    INTEGER NOT NULL,
    step     TEXT NOT NULL,               -- in which it was emitted; '': in none
    PRIMARY KEY (unit, attempt, start)
);
"""
EMITTED_COLUMNS = "unit, attempt, start, tenant, length, fence, step"
PART_MAX = 4 * 1024 * 1024  # bytes of a log that are read together
OFFSET_MAX = 2**62
# What an archive holds of units, in this order; the bytes of chunks are read apart.
ARCHIVED_ROWS = (
    ("blob_use", "tenant, digest, unit", "digest, unit"),
    ("artifact_blob", "unit, attempt, name, tenant, fence, at, late, media, digest, length", "unit, attempt, name"),
    ("late_value", "unit, fence, name, tenant, attempt, at, value", "unit, fence, name"),
    (
        "unit_log",
        "unit, attempt, tenant, length, gap_start, gap_end, late, added_at, look_at, digest, frames",
        "unit, attempt",
    ),
    ("emitted", EMITTED_COLUMNS, "unit, attempt, start"),
)
USED_BLOBS = """
SELECT DISTINCT blob.tenant, blob.digest, blob.length FROM blob JOIN blob_use
ON blob.tenant = blob_use.tenant AND blob.digest = blob_use.digest WHERE blob_use.unit {ids} ORDER BY blob.digest
"""
CHUNKED_LOGS = "SELECT DISTINCT unit, attempt FROM log_chunk WHERE unit {ids} ORDER BY unit, attempt"
CHUNK_COLUMNS = ("unit", "attempt", "start", "tenant", "length", "compressed", "data")
CHUNKS_PAGE = f"""
SELECT {", ".join(CHUNK_COLUMNS)} FROM log_chunk
WHERE unit = :unit AND attempt = :attempt AND start > :after ORDER BY start LIMIT 16
"""
RESTORED_COLUMNS = {
    **{table: tuple(columns.split(", ")) for table, columns, _ in ARCHIVED_ROWS}, "log_chunk": CHUNK_COLUMNS,
}  # fmt: skip
OF_UNITS = ("blob_use", "artifact_blob", "late_value", "unit_log", "log_writer", "log_chunk", "emitted")

# Blobs.

ADD_BLOB = """
INSERT INTO blob (tenant, digest, length, made_at, look_at) VALUES (:tenant, :digest, :length, :now, :look_at)
ON CONFLICT (tenant, digest) DO UPDATE SET unused_at = NULL, look_at = :look_at
"""
# The row is written, also if nothing changes: so whoever deletes it waits, and then finds it used.
USE_BLOB = """
UPDATE blob SET unused_at = NULL WHERE tenant = :tenant AND digest = :digest RETURNING length
"""
ADD_USE = """
INSERT INTO blob_use (tenant, digest, unit) VALUES (:tenant, :digest, :unit) ON CONFLICT DO NOTHING
"""
HAS_BLOB = "SELECT 1 FROM blob WHERE tenant = :tenant AND digest = :digest"
DUE_BLOBS = "SELECT digest FROM blob WHERE tenant = :tenant AND look_at <= :now ORDER BY look_at LIMIT :limit"
USED = "EXISTS (SELECT 1 FROM blob_use WHERE blob_use.tenant = blob.tenant AND blob_use.digest = blob.digest)"
MARK_BLOB = f"""
UPDATE blob SET look_at = :look_at, unused_at = CASE WHEN {USED} THEN NULL ELSE coalesce(unused_at, :now) END
WHERE tenant = :tenant AND digest = :digest
"""
DELETE_UNUSED = f"""
DELETE FROM blob WHERE tenant = :tenant AND digest = :digest AND unused_at <= :before AND NOT {USED} RETURNING digest
"""

# Artifacts.

FIND_ARTIFACT = "SELECT digest, fence FROM artifact_blob WHERE unit = :unit AND attempt = :attempt AND name = :name"
ADD_ARTIFACT = """
INSERT INTO artifact_blob (unit, attempt, name, tenant, fence, at, late, media, digest, length)
VALUES (:unit, :attempt, :name, :tenant, :fence, :at, :late, :media, :digest, :length)
"""
# Small values that are no bytes are in the table of the core.
ARTIFACTS = """
SELECT name, attempt, fence, at, late, media, digest, length FROM artifact_blob WHERE unit = :unit AND tenant = :tenant
"""
VALUES = "SELECT name, attempt, fence, at, digest, data FROM artifact WHERE unit = :unit AND tenant = :tenant"

LATE_VALUES = "SELECT name, attempt, fence, at, value FROM late_value WHERE unit = :unit AND tenant = :tenant"

# Leases that are over.

ADD_LATE_VALUE = """
INSERT INTO late_value (unit, fence, name, tenant, attempt, at, value)
VALUES (:unit, :fence, :name, :tenant, :attempt, :at, :value) ON CONFLICT DO NOTHING
"""

# Logs.

LOG_COLUMNS = "unit, attempt, length, gap_start, gap_end, late, added_at, look_at, digest, frames"
LOGS_OF = f"SELECT {LOG_COLUMNS} FROM unit_log WHERE unit {{ids}}"
ONE_LOG = f"SELECT {LOG_COLUMNS} FROM unit_log WHERE unit = :unit AND tenant = :tenant ORDER BY attempt"
WRITERS_OF = "SELECT unit, fence, sent FROM log_writer WHERE unit {ids}"
SAVE_LOG = """
INSERT INTO unit_log (unit, attempt, tenant, length, gap_start, gap_end, late, added_at, look_at, digest, frames)
VALUES (:unit, :attempt, :tenant, :length, :gap_start, :gap_end, :late, :added_at, :look_at, :digest, :frames)
ON CONFLICT (unit, attempt) DO UPDATE SET length = :length, gap_start = :gap_start, gap_end = :gap_end, late = :late,
added_at = :added_at, look_at = :look_at, digest = :digest, frames = :frames
"""
SAVE_WRITER = """
INSERT INTO log_writer (unit, fence, tenant, sent) VALUES (:unit, :fence, :tenant, :sent)
ON CONFLICT (unit, fence) DO UPDATE SET sent = :sent
"""
ADD_CHUNK = """
INSERT INTO log_chunk (unit, attempt, start, tenant, length, compressed, data)
VALUES (:unit, :attempt, :start, :tenant, :length, :compressed, :data)
"""
DROP_CHUNKS = """
DELETE FROM log_chunk WHERE unit = :unit AND attempt = :attempt AND start >= :start AND start + length <= :end
RETURNING start + length
"""
CHUNKS = """
SELECT start, length, compressed, data FROM log_chunk
WHERE unit = :unit AND attempt = :attempt AND start >= :start AND start < :end ORDER BY start
"""
CHUNK_BEFORE = """
SELECT max(start) FROM log_chunk WHERE unit = :unit AND attempt = :attempt AND start <= :start
"""
ADD_EMITTED = f"""
INSERT INTO emitted ({EMITTED_COLUMNS}) VALUES (:unit, :attempt, :start, :tenant, :length, :fence, :step)
"""
# Steps that were recorded under the same lease are not done again.
VOID = """
SELECT attempt, start, length FROM emitted
WHERE unit = :unit AND tenant = :tenant AND attempt <= :last AND NOT EXISTS (
    SELECT 1 FROM note
    WHERE note.unit = emitted.unit AND note.kind = 'step' AND note.name = emitted.step AND note.fence = emitted.fence
)
ORDER BY attempt, start
"""
HAS_EMITTED = "SELECT 1 FROM emitted WHERE unit = :unit AND tenant = :tenant LIMIT 1"
PLAIN_CHUNKS = """
SELECT start, length, data FROM log_chunk
WHERE unit = :unit AND attempt = :attempt AND compressed = 0 ORDER BY start LIMIT :limit
"""
DUE_LOGS = f"""
SELECT {LOG_COLUMNS} FROM unit_log WHERE tenant = :tenant AND look_at <= :now ORDER BY look_at LIMIT :limit
"""
# Whoever held a unit may add to its log for a while after it has moved.
IS_OVER = """
SELECT 1 FROM unit WHERE id = :unit AND (outcome IS NOT NULL OR attempt > :attempt) AND changed_at <= :before
"""
UNIT_NOW = "SELECT attempt, outcome, lifecycle FROM unit WHERE id = :unit AND tenant = :tenant"
# Agent runs are worked on by one job after another.
JOBS_OF_RUN = """
SELECT id, attempt, outcome FROM unit WHERE parent = :unit AND tenant = :tenant AND lifecycle = 'agent_job' ORDER BY id
"""

# What laws ask.

USES_WITHOUT_BLOB = """
SELECT blob_use.unit, blob_use.digest FROM blob_use LEFT JOIN blob
ON blob.tenant = blob_use.tenant AND blob.digest = blob_use.digest WHERE blob.digest IS NULL
"""
ALL_BLOBS = "SELECT tenant, digest, length FROM blob ORDER BY tenant, digest"
UNUSED_ROWS = """
SELECT unit, digest FROM artifact_blob
WHERE NOT EXISTS (
    SELECT 1 FROM blob_use WHERE blob_use.tenant = artifact_blob.tenant AND blob_use.unit = artifact_blob.unit
    AND blob_use.digest = artifact_blob.digest
)
"""
# A value that a holder recorded may be the name of a blob.
UNUSED_NOTES = f"""
SELECT unit, substr(payload, {len(PREFIX) + 1}, 64) FROM note
WHERE kind IN ('step', 'effect_result', 'checkpoint') AND payload LIKE :reference
AND NOT EXISTS (
    SELECT 1 FROM blob_use WHERE blob_use.tenant = note.tenant AND blob_use.unit = note.unit
    AND blob_use.digest = substr(note.payload, {len(PREFIX) + 1}, 64)
)
"""
MISPLACED = """
SELECT emitted.unit, emitted.attempt, emitted.start FROM emitted
LEFT JOIN unit_log ON unit_log.unit = emitted.unit AND unit_log.attempt = emitted.attempt
WHERE unit_log.unit IS NULL OR emitted.start + emitted.length > unit_log.length
"""
LEFT_BEHIND = """
SELECT DISTINCT unit FROM {table}
WHERE NOT EXISTS (SELECT 1 FROM unit WHERE unit.id = {table}.unit) ORDER BY unit LIMIT 100
"""
ALL_LOGS = f"SELECT {LOG_COLUMNS} FROM unit_log ORDER BY unit, attempt"
ALL_CHUNKS = "SELECT unit, attempt, start, length FROM log_chunk ORDER BY unit, attempt, start"


class ArtifactInfo(msgspec.Struct, frozen=True):
    """An artifact of a job: its name, the attempt that made it, and its bytes by digest and length."""

    name: str
    attempt: int
    fence: int
    at: int  # microseconds
    late: bool
    media: str
    digest: str
    length: int
    value: str | None = None  # of a small value that is kept as JSON in the database


class LogRow(msgspec.Struct):
    """The log of one attempt: how long it is, what was dropped, what came late, and where it is."""

    unit: int
    attempt: int
    length: int = 0
    gap_start: int = 0
    gap_end: int = 0
    late: str = "[]"
    added_at: int = 0
    look_at: int | None = None
    digest: str | None = None
    frames: str = "[]"


class LogInfo(msgspec.Struct, frozen=True):
    """What there is of the log of one attempt. Offsets are in bytes; those of the gap were dropped."""

    attempt: int
    length: int
    gap_start: int
    gap_end: int
    late: tuple[tuple[int, int], ...]
    is_over: bool  # nothing is added to it any more, but what comes late
    void: tuple[tuple[int, int], ...] = ()  # what was emitted in it and is done again


class LogPart(msgspec.Struct, frozen=True):
    """Some bytes of a log. `start` is where they begin, which is later than was asked for if they begin with a gap."""

    attempt: int
    start: int
    data: bytes
    length: int  # of the whole log
    is_over: bool
    void: tuple[tuple[int, int], ...] = ()  # a mark behind the log: these stretches of it do not count


class LogSource(NamedTuple):
    """Whose attempts a log is of: the job itself, or one of the jobs of an agent run, whose attempts are counted on."""

    unit: int
    attempt: int  # that it is at
    outcome: str | None
    before: int = 0  # attempts of the jobs before it


def list_artifacts(connection: Connection, tenant: int, unit: int) -> list[ArtifactInfo]:
    """The artifacts of a job, by attempt and name, and among them the results of steps that came late."""
    given = {"unit": unit, "tenant": tenant}
    rows = [
        ArtifactInfo(name, attempt, fence, at, bool(late), media, digest, length)
        for name, attempt, fence, at, late, media, digest, length in connection.rows(ARTIFACTS, given)
    ]
    rows += [
        ArtifactInfo(name, attempt, fence, at, False, "application/json", digest, len(data.encode()), data)
        for name, attempt, fence, at, digest, data in connection.rows(VALUES, given)
    ]
    for name, attempt, fence, at, value in connection.rows(LATE_VALUES, given):
        large, data = parse_reference(value), value.encode()
        digest, length = large or (sha256(data).hexdigest(), len(data))
        small = None if large else value
        rows.append(ArtifactInfo(name, attempt, fence, at, True, "application/json", digest, length, small))
    return sorted(rows, key=lambda row: (row.attempt, row.name))


def has_blob(connection: Connection, tenant: int, digest: str) -> bool:
    """Whether the database knows of a blob."""
    return bool(connection.rows(HAS_BLOB, {"tenant": tenant, "digest": digest}))


def list_logs(connection: Connection, tenant: int, unit: int) -> list[LogInfo]:
    """The logs of a job, or of the jobs of an agent run, by attempt.

    Raises:
        Unknown: there is no such job.
    """
    _, sources = read_sources(connection, tenant, unit)
    logs: list[LogInfo] = []
    for source in sources:
        rows = [LogRow(*row) for row in connection.rows(ONE_LOG, {"unit": source.unit, "tenant": tenant})]
        void = read_void(connection, tenant, source.unit, source.attempt, source.outcome) if rows else {}
        logs += [
            LogInfo(
                source.before + row.attempt, row.length, row.gap_start, row.gap_end,
                msgspec.json.decode(row.late, type=tuple[tuple[int, int], ...]),
                source.outcome is not None or source.attempt > row.attempt, void.get(row.attempt, ()),
            )
            for row in rows
        ]  # fmt: skip
    return logs


def has_emitted(connection: Connection, tenant: int, unit: int) -> bool:
    """Whether a job, or a job of an agent run, has emitted text."""
    _, sources = read_sources(connection, tenant, unit)
    return any(connection.rows(HAS_EMITTED, {"unit": source.unit, "tenant": tenant}) for source in sources)


def read_void(
    connection: Connection, tenant: int, unit: int, attempt: int, outcome: str | None
) -> dict[int, tuple[tuple[int, int], ...]]:
    """By attempt: what it emitted and is void, of a unit that is at an attempt, or has come to an outcome."""
    failed = outcome not in (None, Category.SUCCESS)
    last = attempt if failed else attempt - 1
    if not last:
        return {}
    rows = connection.rows(VOID, {"unit": unit, "tenant": tenant, "last": last})
    void: dict[int, list[tuple[int, int]]] = {}
    for number, start, length in rows:
        stretches = void.setdefault(number, [])
        if stretches and stretches[-1][1] == start:
            stretches[-1] = stretches[-1][0], start + length
        else:
            stretches.append((start, start + length))
    return {number: tuple(stretches) for number, stretches in void.items()}


def read_log_part(
    connection: Connection, tenant: int, unit: int, attempt: int | None, start: int, size: int
) -> LogPart:
    """At most `size` bytes of the log of an attempt, from `start` on; without an attempt, of the newest that has one.

    Raises:
        Unknown: there is no such job, or no such attempt.
        InterlockError: `start` or `size` is out of its bounds.
        NoBlobs: the log is a blob, and this process knows of no folder.
    """
    check_range("start", start, 0, OFFSET_MAX)
    check_range("size", size, 1, PART_MAX)
    _, sources = read_sources(connection, tenant, unit)
    last = sources[-1].before + sources[-1].attempt if sources else 0
    if attempt is None:
        attempt = max((log.attempt for log in list_logs(connection, tenant, unit)), default=max(last, 1))
    elif not 1 <= attempt <= last:
        raise Unknown(f"there is no attempt {attempt}; there are 1 to {last}")
    source = next((each for each in reversed(sources) if each.before < attempt), LogSource(unit, 0, None))
    number = attempt - source.before
    rows = {row[1]: LogRow(*row) for row in connection.rows(ONE_LOG, {"unit": source.unit, "tenant": tenant})}
    row = rows.get(number, LogRow(source.unit, number))
    if row.gap_start <= start < row.gap_end:
        start = row.gap_end
    end = min(start + size, row.length)
    if start < row.gap_start < end:
        end = row.gap_start
    data = b"".join(read_stretch(connection, tenant, row, start, end)) if start < end else b""
    return LogPart(attempt, start, data, row.length, source.outcome is not None or source.attempt > number)


def read_sources(connection: Connection, tenant: int, unit: int) -> tuple[str | None, list[LogSource]]:
    """The outcome of a job or run, and whose attempts its log is of.

    Raises:
        Unknown: there is none.
    """
    rows = connection.rows(UNIT_NOW, {"unit": unit, "tenant": tenant})
    if not rows:
        raise Unknown("there is no such job")
    attempt, outcome, lifecycle = rows[0]
    if lifecycle != "agent_run":
        return outcome, [LogSource(unit, attempt, outcome)]
    sources: list[LogSource] = []
    before = 0
    for job, attempts, ended in connection.rows(JOBS_OF_RUN, {"unit": unit, "tenant": tenant}):
        sources.append(LogSource(job, attempts, ended, before))
        before += attempts
    return outcome, sources


def read_stretch(connection: Connection, tenant: int, row: LogRow, start: int, end: int) -> Iterator[bytes]:
    """The bytes of a log between two offsets, neither of which is in its gap."""
    if row.digest is not None:
        if connection.blobs is None:
            raise NoBlobs(NO_FOLDER)
        for frame in find_frames(parse_frames(row.frames), start, end):
            size = connection.blobs.read(tenant, row.digest, frame.place, frame.place + frame.size)
            yield decompress(b"".join(size))[max(start - frame.start, 0) : end - frame.start]
        return
    place = {"unit": row.unit, "attempt": row.attempt}
    ((first,),) = connection.rows(CHUNK_BEFORE, {**place, "start": start})
    for begins, _, compressed, data in connection.rows(CHUNKS, {**place, "start": first or 0, "end": end}):
        plain = decompress(bytes(data)) if compressed else bytes(data)
        yield plain[max(start - begins, 0) : end - begins]


def parse_frames(text: str) -> list[Frame]:
    """The frames of a log, as its row has them."""
    return [Frame(*frame) for frame in msgspec.json.decode(text, type=list[tuple[int, int, int, int]])]


# Writing.


def add_blob_row(tx: UnitOfWork, blob: BlobRef, look_at: int) -> bool:
    """The database knows of a blob; returns whether it did not before."""
    name = {"tenant": tx.tenant, "digest": blob.digest}
    new = not tx.connection.rows(HAS_BLOB, name)
    tx.connection.rows(ADD_BLOB, {**name, "length": blob.length, "now": tx.now, "look_at": look_at})
    return new


def use_blob_row(tx: UnitOfWork, tenant: int, digest: str, unit: int) -> int | None:
    """A unit uses a blob from now on; returns how many bytes it has, None if the database does not know of it."""
    rows = tx.connection.rows(USE_BLOB, {"tenant": tenant, "digest": digest})
    if not rows:
        return None
    tx.connection.rows(ADD_USE, {"tenant": tenant, "digest": digest, "unit": unit})
    return int(rows[0][0])


def read_rows_to_archive(tx: UnitOfWork, units: Sequence[int]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What units have left, by table: the blobs that they use, their artifacts and their logs.

    The bytes of a log that is not compressed yet are in its rows, in base64.
    """
    for part in split_ids(units):
        given = {"ids": part}
        for tenant, digest, length in tx.connection.rows(USED_BLOBS, given):
            yield "blob", {"tenant": tenant, "digest": digest, "length": length}
        for table, columns, order in ARCHIVED_ROWS:
            sql = f"SELECT {columns} FROM {table} WHERE unit {{ids}} ORDER BY {order}"
            for row in tx.connection.rows(sql, given):
                yield table, dict(zip(columns.split(", "), row, strict=True))
        for unit, attempt in tx.connection.rows(CHUNKED_LOGS, given):
            after = -1
            while chunks := tx.connection.rows(CHUNKS_PAGE, {"unit": unit, "attempt": attempt, "after": after}):
                for row in chunks:
                    yield "log_chunk", dict(zip(CHUNK_COLUMNS, (*row[:-1], bytes(row[-1])), strict=True))
                after = chunks[-1][2]


def add_restored_rows(tx: UnitOfWork, table: str, rows: list[dict[str, Any]]) -> None:
    """What units had left is there again, as an archive has it."""
    columns = RESTORED_COLUMNS[table]
    names = ", ".join(f":{column}" for column in columns)
    tx.connection.many(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({names})", rows)


def forget_rows(tx: UnitOfWork, units: Sequence[int]) -> None:
    """What units have left is gone with them. Their blobs are deleted later, if nothing else uses them."""
    for table in OF_UNITS:
        for part in split_ids(units):
            tx.connection.rows(f"DELETE FROM {table} WHERE unit {{ids}}", {"ids": part})


def read_logs_of(tx: UnitOfWork, units: Iterable[int]) -> dict[tuple[int, int], LogRow]:
    """The logs of units, by unit and attempt."""
    rows = tx.connection.rows(LOGS_OF, {"ids": sorted(set(units))})
    return {(row[0], row[1]): LogRow(*row) for row in rows}


def read_writers_of(tx: UnitOfWork, units: Iterable[int]) -> dict[tuple[int, int], int]:
    """How many bytes each lease has added, by unit and fence."""
    return {(row[0], row[1]): row[2] for row in tx.connection.rows(WRITERS_OF, {"ids": sorted(set(units))})}


def save_log(tx: UnitOfWork, row: LogRow, tenant: int) -> dict[str, Any]:
    """The parameters that write the log of an attempt."""
    return {**msgspec.structs.asdict(row), "tenant": tenant}
