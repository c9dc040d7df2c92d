"""The state folder: the log of transitions, documents that are replaced whole, and one writer.

The last whole line of the log is the cursor: what the log holds and how far it was read cannot disagree. A writer that
was killed may leave a part of a line behind, which is cut when the next one starts; what it told is then read again.
"""

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from interlock.blobs.folder import sync_folder
from interlock.kernel.errors import InterlockError
from interlock.plugins.state_files.transitions import LoggedTransition, TransitionMetadata
from interlock.store.private_files import OWNER_ONLY

LOG = "transitions.jsonl"
OLDER = "transitions.{:06}.jsonl"  # a log that has become too large, by its number
OLDER_FILES = "transitions.[0-9][0-9][0-9][0-9][0-9][0-9].jsonl"
CURRENT = "current.json"
ARCHIVES = "archive"
LOCK = ".lock"
CHUNK = 1 << 16
READABLE = 0o644


class WrittenLine(msgspec.Struct):
    """A line as it is written, in the order of document 003's schema."""

    timestamp: str
    event_type: str
    severity: str
    entity_id: str
    from_state: str
    to_state: str
    trigger: str
    metadata: TransitionMetadata


class WrittenCounts(msgspec.Struct):
    """What is read again of `current.json`: how many there were of each kind in each state, and up to which cursor."""

    counts: dict[str, dict[str, int]]
    cursor: str


@contextmanager
def open_folder(path: Path, rotate_bytes: int) -> Iterator["StateFolder"]:
    """Opens a state folder for writing, and makes it if it is not there.

    Raises:
        InterlockError: it cannot be written, or somebody else writes it.
    """
    with say_os_errors(path):
        (path / ARCHIVES).mkdir(parents=True, exist_ok=True)
        lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, OWNER_ONLY)
    try:
        take_lock(lock, path)
        folder = StateFolder(path, rotate_bytes)
        try:
            yield folder
        finally:
            os.close(folder.log)
    finally:
        os.close(lock)  # and the lock with it; the file stays, for others may be waiting for it


def take_lock(lock: int, path: Path) -> None:
    """Raises InterlockError if another process holds the lock; it ends with the process that took it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(lock, 20, 0).decode(errors="replace").strip() or "?"
        raise InterlockError(f"process {holder} writes the state folder '{path}'; a folder has one writer") from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, str(os.getpid()).encode(), 0)


@contextmanager
def say_os_errors(path: Path) -> Iterator[None]:
    """Raises InterlockError in place of what the system says against writing."""
    try:
        yield
    except OSError as error:
        raise InterlockError(f"the state folder '{path}' cannot be written: {error.strerror}") from None


class StateFolder:
    """An open state folder, whose writer this process is."""

    def __init__(self, path: Path, rotate_bytes: int) -> None:
        """Opens the log and cuts the part of a line that a killed writer has left.

        Raises:
            InterlockError: the folder cannot be written, or another process writes it.
        """
        self.path, self.rotate_bytes = path, rotate_bytes
        with say_os_errors(path):
            self.log = os.open(path / LOG, os.O_RDWR | os.O_CREAT | os.O_APPEND, READABLE)
            self.size = cut_torn_line(self.log)
            self.older = sorted(path.glob(OLDER_FILES))
            last = read_last_line(self.log) or (read_last_line_of(self.older[-1]) if self.older else b"")
        self.last: WrittenLine | None = None
        if last:
            try:
                self.last = msgspec.json.decode(last, type=WrittenLine)
            except msgspec.MsgspecError:
                raise InterlockError(
                    f"the last line of '{path / LOG}' is none of `interlock export`; move the file away, or name "
                    "another folder"
                ) from None

    @property
    def cursor(self) -> str | None:
        """Where reading goes on; None: nothing was written yet."""
        return None if self.last is None else f"{self.last.metadata.epoch}.{self.last.metadata.position}"

    @property
    def lines(self) -> int:
        """How many lines the log has in all."""
        return 0 if self.last is None else self.last.metadata.seq

    def read_counts(self) -> tuple[dict[str, dict[str, int]], str | None]:
        """Returns the counts that were written last, and up to which cursor; none if they are not of this log."""
        try:
            written = msgspec.json.decode((self.path / CURRENT).read_bytes(), type=WrittenCounts)
        except (OSError, msgspec.MsgspecError):
            return {}, None  # there are none, or those of an earlier version
        of_log = self.last is not None and written.cursor.startswith(f"{self.last.metadata.epoch}.")
        return (written.counts, written.cursor) if of_log else ({}, None)

    def append(self, transitions: Sequence[LoggedTransition]) -> None:
        """Adds transitions to the log; when it returns they are on disk.

        Raises:
            InterlockError: the folder cannot be written.
        """
        buffer = bytearray()
        with say_os_errors(self.path):
            for transition in transitions:
                timestamp = max(format_instant(transition.at), self.last.timestamp if self.last else "")
                if self.is_full(len(buffer)) and self.last and timestamp != self.last.timestamp:
                    self.write(buffer)
                    self.rotate()
                    buffer.clear()
                transition.metadata.seq = self.lines + 1
                fields = {name: getattr(transition, name) for name in transition.__struct_fields__ if name != "at"}
                self.last = WrittenLine(timestamp=timestamp, **fields)
                buffer += msgspec.json.encode(self.last) + b"\n"
            self.write(buffer)

    def is_full(self, more: int) -> bool:
        return self.size + more >= self.rotate_bytes

    def write(self, text: bytes | bytearray) -> None:
        view = memoryview(text)
        while view:
            view = view[os.write(self.log, view) :]
        self.size += len(text)
        os.fsync(self.log)

    def rotate(self) -> None:
        """Gives the log a number and begins another one."""
        os.close(self.log)
        number = int(self.older[-1].name.split(".")[1]) + 1 if self.older else 1
        older = self.path / OLDER.format(number)
        os.rename(self.path / LOG, older)
        self.older.append(older)
        self.log = os.open(self.path / LOG, os.O_RDWR | os.O_CREAT | os.O_APPEND, READABLE)
        self.size = 0
        sync_folder(self.path)

    def replace(self, name: str, document: Any) -> None:
        """Writes a document whole: whoever reads it meanwhile has the old one or the new one.

        Raises:
            InterlockError: the folder cannot be written.
        """
        text = msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"
        with say_os_errors(self.path):
            unfinished = self.path / f".{name}.tmp"
            with unfinished.open("wb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, self.path / name)
            sync_folder(self.path)


def format_instant(at: int) -> str:
    """Formats microseconds as document 003 writes them: UTC, milliseconds, Z."""
    return datetime.fromtimestamp(at // 1_000 / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def cut_torn_line(file: int) -> int:
    """Ends a file behind its last whole line. Returns its size."""
    size = os.fstat(file).st_size
    whole = find_line_end(file, size)
    if whole < size:
        os.ftruncate(file, whole)
        os.fsync(file)
    return whole


def find_line_end(file: int, before: int) -> int:
    """Returns where the last line ends that ends before this place; 0 if none does."""
    while before > 0:
        start = max(0, before - CHUNK)
        found_at = os.pread(file, before - start, start).rfind(b"\n")
        if found_at >= 0:
            return start + found_at + 1
        before = start
    return 0


def read_last_line(file: int) -> bytes:
    """Returns the last line of a file that ends with one; nothing if it is empty."""
    end = os.fstat(file).st_size
    start = find_line_end(file, end - 1)
    return os.pread(file, end - start, start)


def read_last_line_of(path: Path) -> bytes:
    """Reads the last line of a file."""
    file = os.open(path, os.O_RDONLY)
    try:
        return read_last_line(file)
    finally:
        os.close(file)
