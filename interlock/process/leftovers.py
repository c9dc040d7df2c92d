"""Processes that nobody holds any more: their supervisor was killed, and a variable of theirs tells whose they were."""

import os
import signal
import time
from contextlib import suppress

KILL_EVERY, GIVE_UP_AFTER = 0.02, 10.0  # seconds between two looks, and for how long there are looks


def kill_leftovers(variable: str, prefix: str) -> int:
    """Kills the processes in whose environment a variable begins so, until there is none. Returns how many there were.

    Only those of the same user are seen, unless that is root.
    """
    mark = f"{variable}={prefix}".encode(errors="surrogateescape")
    killed: set[int] = set()
    until = time.monotonic() + GIVE_UP_AFTER
    while (left := find_marked(mark)) and time.monotonic() < until:
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed.update(left)
        time.sleep(KILL_EVERY)
    return len(killed)


def find_marked(mark: bytes) -> list[int]:
    """Lists the processes, this one left out, of which a variable begins so."""
    marked = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            with suppress(OSError), open(f"/proc/{entry}/environ", "rb") as file:
                data = file.read()
                if data.startswith(mark) or b"\0" + mark in data:
                    marked.append(int(entry))
    return marked
