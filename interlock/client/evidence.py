"""Read the log and the artifacts of a job."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from interlock.kernel.errors import InterlockError, Unknown
from interlock.plugins.evidence.log_feed import make_void_part
from interlock.plugins.evidence.queries import ArtifactInfo, LogPart, list_artifacts, list_logs, read_log_part

if TYPE_CHECKING:
    from interlock.client.app import App

PART = 1024 * 1024  # bytes of a log that are read together
POLL_SECONDS = 0.25  # between two looks at a log that is being written
DROPPED = "\n[{} bytes were dropped here]\n"
VOID = "\n[void: what attempt {} emitted above, outside of recorded steps]\n"


class StreamChunk(NamedTuple):
    """A piece of a log as it was written, or the mark that voids stretches of what an attempt emitted."""

    attempt: int
    start: int  # bytes of that attempt before it
    text: str
    void: tuple[tuple[int, int], ...] = ()  # from, and up to which byte


class JobLogReader:
    """The log of a job: `job.log()` is its text so far, and `job.log.follow()` goes on until the job has ended."""

    def __init__(self, app: "App", unit: int) -> None:
        self.app, self.unit = app, unit

    def __call__(self, attempt: int | None = None) -> str:
        """Returns the log of an attempt, of the newest that has one by default.

        Raises:
            Unknown: there is no such attempt.
        """
        return b"".join(read_log(self.app, self.unit, attempt)).decode(errors="backslashreplace")

    async def aio(self, attempt: int | None = None) -> str:
        return await asyncio.to_thread(self, attempt)

    def follow(self, attempt: int | None = None) -> Iterator[str]:
        """Yields the log in pieces, and then what is added to it, until the job has ended. Later attempts follow."""
        for part in follow_log(self.app, self.unit, attempt):
            yield render_part(part).decode(errors="backslashreplace")

    def stream(self, attempt: int | None = None) -> Iterator[StreamChunk]:
        """The same, each piece with its place. Behind an attempt whose work is done again there is a mark.

        The mark has no text: its `void` says which stretches of that attempt do not count.
        """
        for part in follow_log(self.app, self.unit, attempt):
            yield StreamChunk(part.attempt, part.start, part.data.decode(errors="backslashreplace"), part.void)


def render_part(part: LogPart) -> bytes:
    """A part of a log as people read it: a line stands for the mark that voids something."""
    return VOID.format(part.attempt).encode() if part.void else part.data


def read_log(app: "App", unit: int, attempt: int | None = None) -> Iterator[bytes]:
    """Yields the log of an attempt, as long as it is now. A line stands for what was dropped from its middle."""
    part = app.read(read_log_part, unit, attempt, 0, PART)
    position, length = 0, part.length
    while position < length and part.data:
        if part.start > position:
            yield DROPPED.format(part.start - position).encode()
        yield part.data
        position = part.start + len(part.data)
        if position < length:
            part = app.read(read_log_part, unit, part.attempt, position, PART)


class LogCursor:
    """How far the logs of a job were read, attempt after attempt."""

    def __init__(self, app: "App", unit: int, attempt: int | None = None) -> None:
        self.app, self.unit, self.attempt, self.offset = app, unit, attempt or 1, 0

    def read(self) -> LogPart | None:
        """Returns the next part; None if there is nothing new now."""
        logs = {log.attempt: log for log in self.app.read(list_logs, self.unit)}
        while True:
            log = logs.get(self.attempt)
            if log and self.offset < log.length:
                part = self.app.read(read_log_part, self.unit, self.attempt, self.offset, PART)
                self.offset = part.start + len(part.data)
                return part
            if log and log.void:
                self.attempt, self.offset = self.attempt + 1, 0
                return make_void_part(log)
            later = [attempt for attempt in logs if attempt > self.attempt]
            if not later:
                return None
            self.attempt, self.offset = min(later), 0


def follow_log(app: "App", unit: int, attempt: int | None = None) -> Iterator[LogPart]:
    """Yields parts of a job's log as they are added, from an attempt on, until the job has ended."""
    cursor = LogCursor(app, unit, attempt)
    while True:
        ended = app.job(unit).look().outcome is not None  # asked first: what was added before the end is read yet
        if part := cursor.read():
            yield part
        elif ended:
            return
        else:
            time.sleep(POLL_SECONDS)


class ArtifactReader:
    """`job.read_artifact("report.txt")` returns the bytes of an artifact; `await job.read_artifact.aio(…)` likewise."""

    def __init__(self, app: "App", unit: int) -> None:
        self.app, self.unit = app, unit

    def __call__(self, name: str, attempt: int | None = None) -> bytes:
        """Returns an artifact, of the newest attempt that has one of that name by default.

        Raises:
            Unknown: there is none; the text says which there are.
        """
        return b"".join(read_artifact(self.app, find_artifact(self.app, self.unit, name, attempt)))

    async def aio(self, name: str, attempt: int | None = None) -> bytes:
        return await asyncio.to_thread(self, name, attempt)


def find_artifact(app: "App", unit: int, name: str, attempt: int | None = None) -> ArtifactInfo:
    """Returns an artifact by its name.

    Raises:
        Unknown: there is none.
    """
    rows = app.read(list_artifacts, unit)
    named = [row for row in rows if row.name == name and attempt in (None, row.attempt)]
    if not named:
        there = ", ".join(dict.fromkeys(row.name for row in rows)) or "none"
        raise Unknown(f"there is no artifact '{name}'{f' of attempt {attempt}' if attempt else ''}; there are {there}")
    return named[-1]


def read_artifact(app: "App", row: ArtifactInfo) -> Iterator[bytes]:
    """Yields the bytes of an artifact."""
    if row.value is not None:
        yield row.value.encode()
        return
    with closing(app.engine.find_blobs().read(app.tenant, row.digest)) as pieces:  # type: ignore[type-var]
        yield from pieces


def save_artifact(app: "App", row: ArtifactInfo, path: Path) -> int:
    """Writes an artifact to a new file, and returns how many bytes that were.

    Raises:
        InterlockError: there is such a file already, or it cannot be written.
    """
    try:
        with path.open("xb") as file:
            return sum(file.write(piece) for piece in read_artifact(app, row))
    except FileExistsError:
        raise InterlockError(f"'{path}' is there already; name another file") from None
    except OSError as error:
        raise InterlockError(f"'{path}' cannot be written: {error.strerror}") from None
