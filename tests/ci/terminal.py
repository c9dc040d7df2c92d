"""A terminal of its own for a command: what it shows there, and keys that somebody presses."""

import os
import pty
import select
import signal
import subprocess
import time
from pathlib import Path

from tests.conftest import COMMAND

SECONDS = 120.0


class Terminal:
    """`interlock ci …` on a terminal, in a session of its own, so that Ctrl-C reaches it."""

    def __init__(self, *words: str, folder: Path, **environment: str) -> None:
        ours, theirs = pty.openpty()
        self.terminal, self.shown, self.read_so_far = ours, b"", 0
        self.process = subprocess.Popen(
            [str(COMMAND), "ci", *words], stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, process_group=None,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40", **environment},
            start_new_session=True, preexec_fn=lambda: take_control(theirs),
        )  # fmt: skip
        os.close(theirs)

    def wait_for(self, text: str) -> None:
        """Waits until something is shown, behind what was waited for before. Raises AssertionError if it never is."""
        until = time.monotonic() + SECONDS
        while (place := self.shown.find(text.encode(), self.read_so_far)) < 0:
            assert self.read(until), f"{text!r} is not in {self.shown[self.read_so_far :].decode(errors='replace')!r}"
        self.read_so_far = place + len(text.encode())

    def press(self, keys: str) -> None:
        """Presses keys; Ctrl-C is \\x03."""
        os.write(self.terminal, keys.encode())

    def read(self, until: float) -> bool:
        """Reads what is shown next. Returns whether there was something."""
        if not select.select([self.terminal], [], [], max(0.0, until - time.monotonic()))[0]:
            return False
        try:
            data = os.read(self.terminal, 65_536)
        except OSError:  # nobody has it open any more
            return False
        self.shown += data
        return bool(data)

    def end(self) -> int:
        """Waits for the end. Returns the exit code."""
        until = time.monotonic() + SECONDS
        while self.read(until):
            pass
        return self.process.wait(max(1.0, until - time.monotonic()))

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        os.close(self.terminal)

    @property
    def text(self) -> str:
        return self.shown.decode(errors="replace").replace("\r\n", "\n")


def take_control(terminal: int) -> None:
    """In the child: makes a terminal its own, so that Ctrl-C is a signal for it.

    Whoever opens a terminal has its signals as they are by default. A shell without job control has what it puts into
    the background ignore Ctrl-C, and a program that was started so would hand that on.
    """
    import fcntl  # noqa: PLC0415
    import termios  # noqa: PLC0415

    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
