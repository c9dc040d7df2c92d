"""Buffer of a job's log at its worker: bytes that are written and not sent yet.

A handler writes from any thread, and waits for nothing. The reporter takes what has gathered, of all jobs together, and
sends it a few times per second, and before the end of the job. If the database is away for long, what does not fit any
more is dropped, and a line says so.
"""

from collections.abc import Iterator
from threading import Lock

from interlock.kernel.commands import Emit, LeaseRef, LogEntry

WAITING_MAX = 8 * 1024 * 1024  # bytes of one job that wait to be sent
DROPPED = b"\n[%d bytes were dropped here: they came faster than they could be sent]\n"


class JobLog:
    """The log of one attempt, written under one lease."""

    def __init__(self, held: LeaseRef) -> None:
        self.held = held
        self.waiting, self.sent, self.dropped = bytearray(), 0, 0
        self.emits: list[Emit] = []  # stretches of what waits
        self.lock, self.closed = Lock(), False

    def add(self, data: bytes, step: str | None = None) -> None:
        """Adds bytes, from any thread. After the log was refused they go nowhere.

        Those that a handler emits have the step in which it does; '' is none.
        """
        with self.lock:
            if self.closed:
                return
            if len(self.waiting) + len(data) > WAITING_MAX:
                self.dropped += len(data)
                return
            if self.dropped:
                self.waiting += DROPPED % self.dropped
                self.dropped = 0
            if step is not None and data:
                self.mark(step, len(data))
            self.waiting += data

    def mark(self, step: str, size: int) -> None:
        """The bytes that come next are emitted."""
        start = self.sent + len(self.waiting)
        if self.emits and (self.emits[-1].end, self.emits[-1].step) == (start, step):
            start = self.emits.pop().start
        self.emits.append(Emit(start, self.sent + len(self.waiting) + size, step))

    def take(self, size: int) -> LogEntry | None:
        """Takes at most so many bytes to send; None if there are none."""
        with self.lock:
            if self.dropped and not self.waiting:
                self.waiting += DROPPED % self.dropped
                self.dropped = 0
            data = bytes(self.waiting[:size])
            if not data:
                return None
            del self.waiting[:size]
            start, self.sent = self.sent, self.sent + len(data)
            emits = tuple(Emit(each.start, min(each.end, self.sent), each.step) for each in self.emits)
            self.emits = [Emit(max(each.start, self.sent), each.end, each.step) for each in self.emits]
            self.emits = [each for each in self.emits if each.start < each.end]
            return LogEntry(self.held, start, data, tuple(each for each in emits if each.start < each.end))

    def close(self) -> None:
        """Forgets what waits, and takes no more: nobody would accept it."""
        with self.lock:
            self.closed = True
            self.waiting.clear()
            self.emits.clear()


def split_entry(entry: LogEntry) -> Iterator[tuple[bytes, str | None]]:
    """The bytes of an entry in order, each with the step in which they were emitted; None for those that were not."""
    place = entry.start
    for emit in entry.emits:
        if place < emit.start:
            yield entry.data[place - entry.start : emit.start - entry.start], None
        yield entry.data[emit.start - entry.start : emit.end - entry.start], emit.step
        place = emit.end
    if rest := entry.data[place - entry.start :]:
        yield rest, None
