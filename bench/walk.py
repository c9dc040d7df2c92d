"""The walk of one plain job: which files and functions of ours it passes, from `submit` to `wait`, in one process.

`python -m bench.walk [--names]`. Some jobs are run first, so that what is done once is not counted. Then ten more are
followed: what every one of them passes is the walk. What only some of them pass is printed apart: heartbeats, ticks,
the look at the file, an idle claim. Comprehensions and lambdas are not counted, nor what `@dataclass` generates.

At last one job is followed together with a tick and an idle claim: the first count that was ever made of a walk, 52
files and 295 functions, had one of each in it, and so can be compared with that.
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
from interlock.kernel.commands import Tick
from interlock.store.queries.snapshots import read_queues
from interlock.worker.loop import Worker

WALKS = 10
ROOT = str(Path(interlock.__file__).parent)


def trace(functions: set[tuple[str, str]]) -> Any:
    """A profile function that remembers which functions of ours are called, by file and name."""

    def profile(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(ROOT) and not code.co_name.startswith("<"):
            functions.add((code.co_filename[len(ROOT) + 1 :], code.co_qualname))

    return profile


def start_worker(app: interlock.App) -> tuple[Worker, threading.Thread]:
    """A worker on a thread of its own, as the program's own worker would be."""
    worker = Worker(app, {"default": 10})
    thread = threading.Thread(target=lambda: asyncio.run(worker.run()), daemon=True)
    thread.start()
    return worker, thread


def walk() -> list[set[tuple[str, str]]]:
    """The files and functions that jobs pass, one after the other; the last one with a tick and an idle claim."""
    walks: list[set[tuple[str, str]]] = [set() for _ in range(WALKS + 1)]
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

        worker, thread = start_worker(app)
        for _ in range(5):
            add.submit(1, 2).wait(timeout=20)
        for functions in walks[:-1]:
            recording[0] = trace(functions)
            add.submit(3, 4).wait(timeout=20)
            recording[0] = None
        recording[0] = trace(walks[-1])
        add.submit(3, 4).wait(timeout=20)
        app.send(Tick(tenant=app.tenant))
        claims = worker.claims
        worker.call_on_loop(worker.wake_up)
        while worker.claims == claims:
            app.read(read_queues)
        app.send(Tick(tenant=app.tenant))  # behind the claim: there is one writer
        recording[0] = None
        worker.call_on_loop(worker.stop)
        thread.join()
    sys.setprofile(None)
    threading.setprofile(None)  # type: ignore[arg-type]
    return walks


def main() -> None:
    logging.disable(logging.WARNING)
    *walks, with_tick = walk()
    functions, ever = set.intersection(*walks), set.union(*walks)
    files: dict[str, list[str]] = {}
    for file, name in sorted(functions):
        files.setdefault(file, []).append(name)
    for file, names in files.items():
        print(f"{file}: {', '.join(names) if '--names' in sys.argv else len(names)}")
    print(f"{len(files)} files, {len(functions)} functions in each of {WALKS} walks")
    others = sorted(f"{file}:{name}" for file, name in ever - functions)
    print(f"{len({file for file, _ in with_tick})} files, {len(with_tick)} functions with a tick and an idle claim")
    print(f"{len(others)} functions more in some of them: {', '.join(others)}")


if __name__ == "__main__":
    main()
