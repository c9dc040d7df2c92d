"""Capture the output of a handler's process, and of programs that it starts, into the log of its job.

While a handler runs, the two output descriptors of its process are the ends of pipes. A thread copies what comes out of
them to where the process wrote before, and to the log of the job. What the handler prints itself is copied at once, so
that it stands in the log between the lines that the handler logs. A program that outlives its handler goes on writing
to the old pipes: that is copied, and is in no job's log.
"""

import io
import os
import selectors
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from threading import Lock, Thread
from typing import Any, TextIO, cast

from interlock.worker.context import JobContext

STDOUT, STDERR = 1, 2
PIECE = 65_536  # bytes that are read at a time


class CapturedOutput:
    """The outputs of one process, which are captured for one handler after another."""

    def __init__(self) -> None:
        self.originals: dict[int, int] = {}  # by descriptor: another one for where it leads without a handler
        for descriptor in (STDOUT, STDERR):
            with suppress(OSError):  # it is closed
                self.originals[descriptor] = os.dup(descriptor)

    @contextmanager
    def capture(self, context: JobContext) -> Iterator[None]:
        """What is written meanwhile, by this process or by one that it starts, is in the log of the job."""
        pipes = OutputPipes(self.originals, context)
        context.read_captured = pipes.drain
        try:
            with (
                redirect_stdout(self.copy(STDOUT, sys.stdout, context)),
                redirect_stderr(self.copy(STDERR, sys.stderr, context)),
            ):
                yield
        finally:
            for stream in (sys.stdout, sys.stderr):
                with suppress(AttributeError, OSError, ValueError):  # there is none, or it was closed
                    stream.flush()
            pipes.end()

    def copy(self, descriptor: int, stream: TextIO, context: JobContext) -> TextIO:
        """Returns a stream for the time of one handler."""
        original = self.originals.get(descriptor)
        return stream if original is None else cast("TextIO", OutputCopy(descriptor, original, context))


class OutputCopy(io.TextIOBase):
    """What a handler prints goes to the log of its job, and to where its process writes."""

    encoding = "utf-8"

    def __init__(self, descriptor: int, original: int, context: JobContext) -> None:
        self.descriptor, self.original, self.context = descriptor, original, context

    def write(self, text: str) -> int:
        data = text.encode(errors="backslashreplace")
        self.context.write_log(data)
        write_all(self.original, data)
        return len(text)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        """The descriptor that programs inherit."""
        return self.descriptor

    def isatty(self) -> bool:
        return os.isatty(self.original)

    @property
    def buffer(self) -> Any:
        """Takes bytes, which go through the pipe."""
        return io.FileIO(self.descriptor, "w", closefd=False)


class OutputPipes:
    """The pipes of one handler. They are read until nobody can write to them any more."""

    def __init__(self, originals: dict[int, int], context: JobContext) -> None:
        self.originals, self.lock = originals, Lock()
        self.context: JobContext | None = context
        self.open: dict[int, int] = {}  # by the end that is read: where it is copied to
        for descriptor, original in originals.items():
            end, other = os.pipe()
            os.set_blocking(end, False)
            os.dup2(other, descriptor)
            os.close(other)
            self.open[end] = original
        Thread(target=self.read_all, name="interlock output", daemon=True).start()

    def read_all(self) -> None:
        """In a thread of its own: copies what comes."""
        with selectors.DefaultSelector() as selector:
            for end in self.open:
                selector.register(end, selectors.EVENT_READ)
            while self.open:
                for key, _ in selector.select():
                    with self.lock:
                        if self.copy_what_is_there(key.fd):
                            selector.unregister(key.fd)
                            os.close(key.fd)
                            del self.open[key.fd]

    def drain(self) -> None:
        """What was written before this call is in the log when it returns."""
        with self.lock:
            for end in self.open:
                self.copy_what_is_there(end)

    def copy_what_is_there(self, end: int) -> bool:
        """Whether nobody can write to this pipe any more. The lock is held."""
        while True:
            try:
                data = os.read(end, PIECE)
            except BlockingIOError:
                return False
            if not data:
                return True
            if self.context:
                self.context.add_to_log(data)
            write_all(self.open[end], data)

    def end(self) -> None:
        """The descriptors lead where they led before. What comes from now on is in no job's log."""
        for descriptor, original in self.originals.items():
            os.dup2(original, descriptor)
        self.drain()
        with self.lock:
            self.context = None


def write_all(descriptor: int, data: bytes) -> None:
    """Writes bytes; where nobody reads them they are lost."""
    with suppress(OSError):
        while data:
            data = data[os.write(descriptor, data) :]
