"""What exporting a log costs per line, and what pausing and unpausing a workstream of 10,000 ready tasks takes.

A workstream is worked off by raw commands and exported to a new folder; another one, all of whose tasks are ready, is
paused, claimed from (nothing is granted), and unpaused. Prints processor time of this process and the clock.

    python -m bench.operations [--tasks 10000]
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.graphs import layers, work_off
from bench.workstreams import submit_workstream
from interlock.core.engine import Engine
from interlock.kernel.commands import Claim, PauseWork, Register, UnpauseWork
from interlock.lifecycles import shipped
from interlock.plugins import STANDARD, make_engine
from interlock.plugins.state_files.exporter import Exporter
from interlock.plugins.state_files.folder import open_folder
from interlock.store import migrate
from interlock.store.url import connect

ROTATE_BYTES = 64 << 20


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--tasks", type=int, default=10_000)
    tasks = parser.parse_args().tasks
    with tempfile.TemporaryDirectory() as folder:
        measure_export(make(f"sqlite:///{folder}/export.db"), Path(folder) / "state", tasks)
        measure_pause(make(f"sqlite:///{folder}/pause.db"), tasks)
    return 0


def make(url: str) -> Engine:
    connection = connect(url)
    migrate.upgrade(connection, STANDARD.lifecycles(shipped()).values(), STANDARD.tables)
    return make_engine(connection, shipped())


def measure_time(call: Callable[[], Any]) -> tuple[float, float]:
    """Returns the seconds of processor time, and by the clock, that a call takes."""
    processor, clock = time.process_time(), time.perf_counter()
    call()
    return time.process_time() - processor, time.perf_counter() - clock


def measure_export(engine: Engine, path: Path, tasks: int) -> None:
    """Prints what a line of the log costs."""
    submit_workstream(engine, tasks, layers, "[]")
    work_off(engine)

    def export() -> None:
        with open_folder(path, ROTATE_BYTES) as folder:
            exporter = Exporter(folder, lambda query, *given: engine.see(query, 1, *given))
            while exporter.copy_page():
                pass

    processor, clock = measure_time(export)
    with open_folder(path, ROTATE_BYTES) as folder:
        lines = folder.lines
    print(
        f"export of {lines:,} lines: {processor / lines * 1e6:.0f} µs of processor time per line "
        f"({lines / processor:,.0f} lines/s), {lines / clock:,.0f} lines/s by the clock"
    )


def measure_pause(engine: Engine, tasks: int) -> None:
    """Prints what a pause of ready tasks costs, the claim that comes across it, and its end."""
    top = submit_workstream(engine, tasks, lambda number: (), "[]")
    worker = engine.send(Register(name="w", incarnation="1", capacity=1_000))
    claim = Claim(worker=worker, key="c", nonce=f"{'c':0>16}", limit=1_000)
    granted: list[Any] = []
    for name, call in (
        ("pause", lambda: engine.send(PauseWork(unit=top, reason="freeze"))),
        ("a claim meanwhile", lambda: granted.extend(engine.send(claim))),
        ("unpause", lambda: engine.send(UnpauseWork(unit=top))),
    ):
        processor, clock = measure_time(call)
        print(f"{name} with {tasks:,} ready tasks: {processor * 1e3:.0f} ms of processor time, {clock * 1e3:.0f} ms")
    assert granted == [], "nothing of what is paused is granted"


if __name__ == "__main__":
    sys.exit(main())
