"""What a job of a graph costs, from its submit to its end: the same in a graph of 100,000 as in one of 10,000.

A chain (each job needs the one before it), layers (each job needs two of the layer before it) and a wide graph (all
need the first one) are submitted in pages of 1,000 and worked off by raw commands, without handlers. Prints the time
per job and the processor time, that of a PostgreSQL server included, and both as ratios to the graph before it. More
than 1.15 of processor time is too much, and is said by exit code 1; the clock also sees what else the machine does.

A chain has one job that can run at a time: two transactions for each, and on a disk two waits for it. `--memory` leaves
the disk out, and so does PostgreSQL here, whose server waits for no disk.

    python -m bench.graphs [--sizes 10000,100000] [--shapes chain,layers,wide] [--memory | --postgres]
"""

import argparse
import itertools
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.machine import measure_used_s
from bench.stage import parent_of
from interlock.core.engine import Engine
from interlock.kernel.commands import Claim, Command, Finish, LeaseRef, Outcome, Register, Start, Submit, Work
from interlock.lifecycles import shipped
from interlock.plugins import STANDARD, make_engine
from interlock.store import migrate
from interlock.store.connection import Connection
from interlock.store.url import connect

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.postgres.server import postgres
from tests.store.databases import swap

PAGE, LAYER = 1_000, 500
ALLOWED = 1.15  # how much more processor time a job may take in the largest graph than in the one before it


def chain(number: int) -> tuple[int, ...]:
    return (number - 1,) if number else ()


def layers(number: int) -> tuple[int, ...]:
    """Two of the layer before: the one above it, and its neighbour."""
    above = number - LAYER
    neighbour = above - 1 if above % LAYER else above + LAYER - 1
    return (above, neighbour) if above >= 0 else ()


def wide(number: int) -> tuple[int, ...]:
    return (0,) if number else ()


SHAPES: dict[str, Callable[[int], tuple[int, ...]]] = {"chain": chain, "layers": layers, "wide": wide}


def submit_graph(engine: Engine, size: int, needs: Callable[[int], tuple[int, ...]]) -> None:
    """Submits the jobs in their order; a need is named by its ref, or by its id if it came in an earlier page."""
    units: list[int] = []
    for start in range(0, size, PAGE):
        works = []
        for number in range(start, min(start + PAGE, size)):
            wanted = needs(number)
            works.append(
                Work(
                    task="node", ref=f"n{number}", needs=tuple(f"n{need}" for need in wanted if need >= start),
                    after=tuple(units[need] for need in wanted if need < start),
                )
            )  # fmt: skip
        units += [made.unit for made in engine.send(Submit(work=tuple(works)))]


def work_off(engine: Engine) -> int:
    """Claims and finishes until nothing is left; returns how many jobs and tasks there were."""
    worker = engine.send(Register(name="w", incarnation="1", capacity=PAGE))
    done = 0
    for number in itertools.count():
        grants = engine.send(Claim(worker=worker, key=f"c{number}", nonce=f"{number:0>16}", limit=PAGE))
        if not grants:
            return done
        held = [LeaseRef(unit=grant.unit, fence=grant.fence, lease=grant.lease) for grant in grants]
        finish = Finish(outcomes=tuple(Outcome(held=lease) for lease in held))
        if grants[0].lifecycle == "job":
            send_together(engine, Start(held=tuple(held)), finish)  # as a worker does with short jobs
        else:  # a task has started with its grant
            engine.send(finish)
        done += len(grants)
    return done


def send_together(engine: Engine, *commands: Command[Any]) -> None:
    """Sends commands of one committer in one transaction."""
    committer = engine.committer_for(commands[0])
    answers = [committer.put(command) for command in commands]
    committer.step()
    for answer in answers:
        answer.result()


class Cost(NamedTuple):
    """Microseconds per job."""

    submitting: float
    working: float
    processor: float  # of this process and the server, for both

    @property
    def whole(self) -> float:
        return self.submitting + self.working


def measure(url: str, size: int, needs: Callable[[int], tuple[int, ...]]) -> Cost:
    """What a job costs in a graph of that size."""
    connection = connect(url)
    migrate.upgrade(connection, STANDARD.lifecycles(shipped()).values(), STANDARD.tables)
    engine = make_engine(connection, shipped())
    servers = [find_server(connection)] if connection.many_writers else []
    processor, begin = time.process_time() + measure_used_s(servers), time.perf_counter()
    submit_graph(engine, size, needs)
    middle = time.perf_counter()
    done = work_off(engine)
    end, processor = time.perf_counter(), time.process_time() + measure_used_s(servers) - processor
    connection.close()
    assert done == size, f"{done:,} of {size:,} jobs were done"
    return Cost(*(seconds / size * 1e6 for seconds in (middle - begin, end - middle, processor)))


def find_server(connection: Connection) -> int:
    """The process of a PostgreSQL server on this machine; its backends are its children."""
    return parent_of(int(connection.rows("SELECT pg_backend_pid()")[0][0]))


def compare(fresh: Iterator[str], shapes: Sequence[str], sizes: Sequence[int]) -> bool:
    """Prints every graph; returns whether the largest ones are as fast as they must be."""
    well = True
    for shape in shapes:
        before: Cost | None = None
        for size in sizes:
            cost = measure(next(fresh), size, SHAPES[shape])
            ratios = (
                f", {cost.whole / before.whole:.2f} x and {cost.processor / before.processor:.2f} x" if before else ""
            )
            times = f"submit {cost.submitting:,.0f}, work off {cost.working:,.0f}, processor {cost.processor:,.0f}"
            print(f"{shape:>8} {size:>9,}: {times} µs per job{ratios}", flush=True)
            well = well and (not before or cost.processor <= ALLOWED * before.processor)
            before = cost
    return well


def make_files(folder: str) -> Iterator[str]:
    """The URLs of SQLite files that are not there yet."""
    return (f"sqlite:///{folder}/{number}.db" for number in itertools.count())


def make_memories() -> Iterator[str]:
    """The URLs of databases in memory, each of its own."""
    return itertools.repeat("sqlite://:memory:")


def make_databases(server: str) -> Iterator[str]:
    """The URLs of empty databases of a PostgreSQL server; each is dropped before the next one is made.

    Else the server would still clean up after one graph while the next one is measured.
    """
    admin = connect(server)
    for number in itertools.count():
        admin.script(f"CREATE DATABASE graphs{number}")
        yield swap(server, f"graphs{number}")
        admin.script(f"DROP DATABASE graphs{number}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", default="10000,100000")
    parser.add_argument("--shapes", default="chain,layers,wide")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--postgres", action="store_true")
    where.add_argument("--memory", action="store_true")
    options = parser.parse_args()
    shapes, sizes = options.shapes.split(","), [int(size) for size in options.sizes.split(",")]
    if options.postgres:
        with postgres() as server:
            return 0 if compare(make_databases(server), shapes, sizes) else 1
    if options.memory:
        return 0 if compare(make_memories(), shapes, sizes) else 1
    with tempfile.TemporaryDirectory() as folder:
        return 0 if compare(make_files(folder), shapes, sizes) else 1


if __name__ == "__main__":
    sys.exit(main())
