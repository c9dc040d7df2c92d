"""What is true of blobs, artifacts and logs at every commit."""

from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256

from interlock.kernel.blobs import PREFIX
from interlock.kernel.errors import InterlockError
from interlock.plugins.evidence.queries import (
    ALL_BLOBS,
    ALL_CHUNKS,
    ALL_LOGS,
    LEFT_BEHIND,
    MISPLACED,
    OF_UNITS,
    UNUSED_NOTES,
    UNUSED_ROWS,
    USES_WITHOUT_BLOB,
    LogRow,
    parse_frames,
)
from interlock.store.connection import Connection


def find_missing_blobs(connection: Connection) -> Iterator[tuple[int, str]]:
    """Rows that name a blob which the database does not know of, or which is not kept for them."""
    for unit, digest in connection.rows(USES_WITHOUT_BLOB):
        yield unit, f"it uses blob sha256:{digest}, which is not there"
    for unit, digest in connection.rows(UNUSED_ROWS):
        yield unit, f"its artifact sha256:{digest} may be deleted: no row says that it is used"
    for unit, digest in connection.rows(UNUSED_NOTES, {"reference": f"{PREFIX}%"}):
        yield unit, f"what it recorded as sha256:{digest} may be deleted: no row says that it is used"


def find_damaged_blobs(connection: Connection) -> Iterator[tuple[int, str]]:
    """Blobs whose bytes are missing, or are others than were written. A process without the folder cannot tell."""
    if connection.blobs is None:
        return
    for tenant, digest, length in connection.rows(ALL_BLOBS):
        try:
            hashed, size = sha256(), 0
            with closing(connection.blobs.read(tenant, digest)) as pieces:  # type: ignore[type-var]
                for piece in pieces:
                    hashed.update(piece)
                    size += len(piece)
        except InterlockError as error:
            yield 0, f"blob sha256:{digest} of tenant {tenant}: {error}"
            continue
        if (hashed.hexdigest(), size) != (digest, length):
            yield 0, f"blob sha256:{digest} of tenant {tenant} is damaged: it has {size:,} bytes of {length:,}"


def find_gaps_in_logs(connection: Connection) -> Iterator[tuple[int, str]]:
    """Logs whose bytes do not follow each other from 0 to the end, but for the one gap that they tell of."""
    stretches: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for unit, attempt, start, length in connection.rows(ALL_CHUNKS):
        stretches.setdefault((unit, attempt), []).append((start, start + length))
    for row in connection.rows(ALL_LOGS):
        log = LogRow(*row)
        parts = stretches.pop((log.unit, log.attempt), [])
        parts += [(frame.start, frame.end) for frame in parse_frames(log.frames)]
        end = 0
        for start, next_end in parts:
            if start != end and (end, start) != (log.gap_start, log.gap_end):
                yield log.unit, f"the log of attempt {log.attempt} has no bytes from {end} to {start}"
            end = next_end
        if end != log.length:
            yield log.unit, f"the log of attempt {log.attempt} ends at {end} of {log.length}"
    for unit, attempt in stretches:
        yield unit, f"attempt {attempt} has bytes of a log, and no log"
    for unit, attempt, start in connection.rows(MISPLACED):
        yield unit, f"what attempt {attempt} emitted from {start} on is not in its log"


def find_rows_left_behind(connection: Connection) -> Iterator[tuple[int, str]]:
    """Rows of artifacts and logs whose job is not there any more: nobody would ever delete them."""
    for table in OF_UNITS:
        for (unit,) in connection.rows(LEFT_BEHIND.format(table=table)):
            yield unit, f"rows of {table} are left, and the job is gone"


LAWS = {
    "every row's blob is known and kept": find_missing_blobs,
    "every blob has the bytes of its digest": find_damaged_blobs,
    "the offsets of a log have no gap": find_gaps_in_logs,
    "artifacts and logs go with their job": find_rows_left_behind,
}
