"""Copy what handlers print on the loop and in threads into the logs of their jobs.

They share the outputs of the process, and whose line one is, is known by a context variable: the worker sets it before
it calls a handler, and it goes with coroutines, tasks and `asyncio.to_thread`. While a worker runs, `sys.stdout` and
`sys.stderr` are streams that ask for it. What comes past them, as from a program or through `sys.stdout.buffer`, is in
no log; a handler with `process=True` has outputs of its own (`captured_output.py`).
"""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, TextIO, cast

from interlock.client.context import TAKES_PRINTED

NAMES = ("stdout", "stderr")


class PrintedOutput:
    """An output of the process: what a handler prints goes to the log of its job as well."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        written = self.stream.write(text)
        take = TAKES_PRINTED.get()
        if take is not None:
            take(text.encode(errors="backslashreplace"))
        return written

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class SharedOutputs:
    """The outputs of this process, which are read for as long as a worker runs in it."""

    def __init__(self) -> None:
        self.lock, self.workers = Lock(), 0

    @contextmanager
    def read(self) -> Iterator[None]:
        """What handlers print meanwhile is in the logs of their jobs."""
        with self.lock:
            self.workers += 1
            for name in NAMES:
                stream = getattr(sys, name)
                if stream is not None and not isinstance(stream, PrintedOutput):
                    setattr(sys, name, cast("TextIO", PrintedOutput(stream)))
        try:
            yield
        finally:
            with self.lock:
                self.workers -= 1
                for name in NAMES if not self.workers else ():
                    stream = getattr(sys, name)
                    if isinstance(stream, PrintedOutput):  # else somebody has put another one there
                        setattr(sys, name, stream.stream)


OUTPUTS = SharedOutputs()
