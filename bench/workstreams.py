"""What a task of a workstream costs, from its submit to the workstream's completion: the same in 100,000 as in 10,000.

A layered graph (each task needs two of the layer before it) and a chain are submitted in pages of 1,000 and worked
off by raw commands, without handlers; with `--checks`, each task has one check as a job of its own. Prints the
processor time per task, that of a PostgreSQL server included, the time per task, and the ratio to the graph before
it; more than 1.15 is too much, and so are more than 400 µs of processor time per task on SQLite without checks.
Beside it, what GNU make takes for the same graph with `true` as every recipe, its children included. It also prints
how long plan and progress take to read.

    python -m bench.workstreams [--sizes 10000,100000] [--shapes layers,chain] [--checks] [--make] [--postgres]
"""

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from interlock.client.progress import read_plan, read_progress
from interlock.core.engine import Engine
from interlock.kernel.commands import Submit, Work
from interlock.lifecycles import shipped
from interlock.plugins import STANDARD, make_engine
from interlock.store import migrate
from interlock.store.url import connect

sys.path.insert(0, str(Path(__file__).parent.parent))
from bench.graphs import PAGE, chain, find_server, layers, make_databases, make_files, work_off
from bench.machine import measure_used_s
from tests.postgres.server import postgres
from tests.store.databases import declare

ALLOWED = 1.15  # how much more a task may cost in the largest graph than in the one before it
PROCESSOR_MAX = 400  # µs per task, on SQLite without checks
SHAPES: dict[str, Callable[[int], tuple[int, ...]]] = {"layers": layers, "chain": chain}


def submit_workstream(engine: Engine, size: int, needs: Callable[[int], tuple[int, ...]], checks: str) -> int:
    """Submits a workstream that expects so many tasks, and its tasks in pages; the last one plans it."""
    own = f'{{"workstreams": {{"expects": {size}}}, "checks": {{"jobs": []}}}}'
    top = engine.send(Submit(work=(Work(task="site", lifecycle="workstream", options=own),)))[0].unit
    options = f'{{"checks": {{"jobs": {checks}}}}}'
    for start in range(0, size, PAGE):
        works = tuple(
            Work(
                task="node", lifecycle="task", parent=top, step=f"n{number}", options=options,
                needs=tuple(f"n{need}" for need in needs(number)),
            )
            for number in range(start, min(start + PAGE, size))
        )  # fmt: skip
        engine.send(Submit(work=works))
    return top


class Cost(NamedTuple):
    """Microseconds per task; of reading plan and progress, seconds in all."""

    wall: float
    processor: float
    reading: float


def measure(url: str, size: int, needs: Callable[[int], tuple[int, ...]], *, checks: bool) -> Cost:
    """What a task costs in a workstream of that size."""
    connection = connect(url)
    migrate.upgrade(connection, STANDARD.lifecycles(shipped()).values(), STANDARD.tables)
    engine = make_engine(connection, shipped())
    servers = [find_server(connection)] if connection.many_writers else []
    processor, begin = time.process_time() + measure_used_s(servers), time.perf_counter()
    top = submit_workstream(engine, size, needs, '["lint"]' if checks else "[]")
    done = work_off(engine)
    wall, processor = time.perf_counter() - begin, time.process_time() + measure_used_s(servers) - processor
    assert done == size * (2 if checks else 1), f"{done:,} of {size:,} tasks were done"
    declare(connection, 1)
    begin = time.perf_counter()
    progress = read_progress(connection, 1, top)
    read_plan(connection, 1, top)
    reading = time.perf_counter() - begin
    assert (progress.done, progress.eta) == (size, None), progress
    connection.close()
    return Cost(wall / size * 1e6, processor / size * 1e6, reading)


def measure_make(size: int, needs: Callable[[int], tuple[int, ...]]) -> float:
    """What GNU make with `true` takes a task, in µs of processor time, its children included."""
    with tempfile.TemporaryDirectory() as folder:
        rules = [
            f"n{number}: {' '.join(f'n{need}' for need in needs(number))}\n\t@/bin/true\n" for number in range(size)
        ]
        names = " ".join(f"n{number}" for number in range(size))
        (Path(folder) / "Makefile").write_text(f"all: {names}\n.PHONY: all {names}\n{''.join(rules)}")
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(["make", "-j2", "-s"], cwd=folder, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime) / size * 1e6


def compare(fresh: Iterator[str], options: argparse.Namespace, sizes: Sequence[int]) -> bool:
    """Prints every graph; returns whether tasks cost as little as they must."""
    well = True
    for shape in options.shapes.split(","):
        before: Cost | None = None
        for size in sizes:
            cost = measure(next(fresh), size, SHAPES[shape], checks=options.checks)
            ratio = f", {cost.processor / before.processor:.2f} x" if before else ""
            sys.stdout.write(
                f"{shape} of {size:,}{' with a check each' if options.checks else ''}: {cost.processor:.0f} µs of "
                f"processor time per task{ratio}, {cost.wall:.0f} µs in all; plan, progress in {cost.reading:.2f} s\n"
            )
            if before and cost.processor > ALLOWED * before.processor:
                well = False
            if shape == "layers" and not options.checks and not options.postgres and cost.processor > PROCESSOR_MAX:
                well = False
            before = cost
        if options.make and shutil.which("make"):
            size = min(sizes)
            sys.stdout.write(f"make -j2 with true, {shape} of {size:,}: {measure_make(size, SHAPES[shape]):.0f} µs\n")
    return well


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="10000,100000")
    parser.add_argument("--shapes", default="layers")
    parser.add_argument("--checks", action="store_true")
    parser.add_argument("--make", action="store_true")
    parser.add_argument("--postgres", action="store_true")
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    if options.postgres:
        with postgres() as server:
            return 0 if compare(make_databases(server), options, sizes) else 1
    with tempfile.TemporaryDirectory() as folder:
        return 0 if compare(make_files(folder), options, sizes) else 1


if __name__ == "__main__":
    raise SystemExit(main())
