"""The walk of one plain job: which files and functions of ours it passes, from `submit` to `wait`, in one process.

`python -m bench.walk [--names]`. A job is run first, so that what is done once is not counted. Whatever else happens
meanwhile in the process (heartbeats, ticks, the look at the file) is counted too. Comprehensions and lambdas are not.
"""

import asyncio
import logging
import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import interlock
from interlock.worker.loop import Worker

ROOT = str(Path(interlock.__file__).parent)


def trace(functions: set[tuple[str, str]]) -> Any:
    """A profile function that remembers which functions of ours are called, by file and name."""

    def profile(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(ROOT) and not code.co_name.startswith("<"):
            functions.add((code.co_filename[len(ROOT) + 1 :], code.co_qualname))

    return profile


def start_worker(app: interlock.App) -> Worker:
    """A worker on a thread of its own, as the program's own worker would be."""
    worker = Worker(app, {"default": 10})
    threading.Thread(target=lambda: asyncio.run(worker.run()), daemon=True).start()
    return worker


def walk() -> set[tuple[str, str]]:
    """The files and functions that one job passes."""
    functions: set[tuple[str, str]] = set()
    recording: list[Any] = [None]

    def profile(frame: FrameType, event: str, argument: object) -> None:
        if recording[0]:
            recording[0](frame, event, argument)

    threading.setprofile(profile)  # of every thread that begins from here on
    sys.setprofile(profile)
    with tempfile.TemporaryDirectory() as folder, interlock.App(f"sqlite:///{folder}/walk.db") as app:

        @app.task
        async def add(a: int, b: int) -> int:
            return a + b

        worker = start_worker(app)
        for _ in range(5):
            add.submit(1, 2).wait(timeout=20)
        recording[0] = trace(functions)
        add.submit(3, 4).wait(timeout=20)
        recording[0] = None
        worker.call_on_loop(worker.stop)
    sys.setprofile(None)
    threading.setprofile(None)  # type: ignore[arg-type]
    return functions


def main() -> None:
    logging.disable(logging.WARNING)
    functions = walk()
    files: dict[str, list[str]] = {}
    for file, name in sorted(functions):
        files.setdefault(file, []).append(name)
    for file, names in files.items():
        print(f"{file}: {', '.join(names) if '--names' in sys.argv else len(names)}")
    print(f"{len(files)} files, {len(functions)} functions")


if __name__ == "__main__":
    main()
