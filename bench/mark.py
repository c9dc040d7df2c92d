"""What a handler of a measured worker leaves behind: when the first one ran, and how late each was that says so."""

import os
import time

FILE = os.environ.get("BENCH_MARKS")
OUT = os.open(FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666) if FILE else None
ran_before = False


def ran(sent: float = 0.0) -> None:
    """The handler has begun; `sent` is when its job was submitted, 0 where nobody asks how late it is."""
    global ran_before
    if OUT is not None and not (sent == 0.0 and ran_before):
        now = time.time()
        if not ran_before:
            os.write(OUT, f"first {now}\n".encode())
        if sent:
            os.write(OUT, f"late {now - sent}\n".encode())
        ran_before = True
