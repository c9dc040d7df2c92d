"""The log of a job at its worker: bytes that were written and not sent yet.

A handler writes from any thread, and waits for nothing. The reporter takes what has gathered, of all jobs together, and
sends it a few times a second, and before the end of the job. If the database is away for long, what does not fit any
more is dropped, and a line says so.
"""

from threading import Lock

from interlock.kernel.commands import LeaseRef, LogEntry

WAITING_MAX = 8 * 1024 * 1024  # bytes of one job that wait to be sent
DROPPED = b"\n[%d bytes were dropped here: they came faster than they could be sent]\n"


class JobLog:
    """The log of one attempt, written under one lease."""

    def __init__(self, held: LeaseRef) -> None:
        self.held = held
        self.waiting, self.sent, self.dropped = bytearray(), 0, 0
        self.lock, self.closed = Lock(), False

    def add(self, data: bytes) -> None:
        """Adds bytes, from any thread. After the log was refused they go nowhere."""
        with self.lock:
            if self.closed:
                return
            if len(self.waiting) + len(data) > WAITING_MAX:
                self.dropped += len(data)
                return
            if self.dropped:
                self.waiting += DROPPED % self.dropped
                self.dropped = 0
            self.waiting += data

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
            return LogEntry(self.held, start, data)

    def close(self) -> None:
        """Forgets what waits, and takes no more: nobody would accept it."""
        with self.lock:
            self.closed = True
            self.waiting.clear()
