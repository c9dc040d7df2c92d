"""Commands of tests: run with what they write collected, and ways to see what is left of them."""

import time
from pathlib import Path
from typing import Any

from interlock.process import ProcessEnd, run

PATIENCE = 60.0  # seconds until a test gives up; none waits so long
PATHS = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


class Collected:
    """What a command wrote, by stream."""

    def __init__(self) -> None:
        self.streams: dict[str, bytes] = {"out": b"", "err": b"", "log": b""}

    def __call__(self, stream: str, data: bytes) -> None:
        self.streams[stream] += data

    @property
    def out(self) -> str:
        return self.streams["out"].decode()

    @property
    def err(self) -> str:
        return self.streams["err"].decode()

    @property
    def log(self) -> str:
        return self.streams["log"].decode()


def run_script(script: str, folder: Path, **options: Any) -> tuple[ProcessEnd, Collected]:
    """Runs a script of the shell in a folder."""
    collected = Collected()
    options = {"environment": PATHS, "on_output": collected, **options}
    return run(["sh", "-c", script], directory=folder, **options), collected


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def read_pids(folder: Path) -> list[int]:
    """The processes that a script noted in files that end in `.pid`."""
    return [int(text) for path in sorted(folder.glob("*.pid")) if (text := path.read_text().strip())]


def wait_for(condition: Any) -> None:
    """Waits until a condition is true."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it has not become true"
        time.sleep(0.01)
