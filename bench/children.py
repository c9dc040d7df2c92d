"""What one parent costs its children: the same for a thousand as for many, and for two processes as for one.

Prints the time a child takes from its claim to its end, by the number of its siblings; and how fast two processes
finish children of one parent, as a ratio to children that have a parent for every ten.
"""

import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from interlock.core.engine import Engine
from interlock.kernel.commands import Claim, Finish, LeaseRef, Outcome, Register, Submit, Work
from interlock.lifecycles import shipped
from interlock.plugins import STANDARD, make_engine
from interlock.store import migrate
from interlock.store.connection import Connection
from interlock.store.url import connect

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.postgres.server import postgres

QUICK = bool(os.environ.get("QUICK"))
SIZES = (1_000, 10_000) if QUICK else (1_000, 10_000, 100_000)
RACE, ROUNDS = (2_000, 1) if QUICK else (20_000, 3)
BATCH = 500
SERVER = "-c fsync=on -c synchronous_commit=on -c shared_buffers=1GB -c max_wal_size=4GB"


def family(engine: Engine, children: int, a_parent: int) -> None:
    """So many steps, and a run for every so many of them."""
    for _ in range(0, children, a_parent):
        run = engine.send(Submit(work=(Work(task="run", lifecycle="workflow_run"),)))[0].unit
        for start in range(0, a_parent, 1_000):
            step = Work(task="step", lifecycle="step", parent=run)
            engine.send(Submit(work=(step,) * min(1_000, a_parent - start)))


def work_off(engine: Engine, name: str) -> int:
    """Claims and finishes until nothing is left; answers how many."""
    worker, done = engine.send(Register(name=name, incarnation="1", capacity=BATCH)), 0
    while grants := engine.send(Claim(worker=worker, key=f"{name}{done}", nonce=f"{name:0>16}", limit=BATCH)):
        held = [LeaseRef(unit=grant.unit, fence=grant.fence, lease=grant.lease) for grant in grants]
        engine.send(Finish(outcomes=tuple(Outcome(held=held_lease) for held_lease in held)))
        done += len(grants)
    return done


def time_act(act: Callable[[], int]) -> tuple[int, float]:
    start = time.perf_counter()
    done = act()
    return done, time.perf_counter() - start


def flat(url: str, label: str) -> None:
    """The cost of a child by the number of its siblings."""
    for size in SIZES:
        connection = connect(url)
        engine = make_engine(connection, shipped())
        family(engine, size, size)
        done, seconds = time_act(lambda engine=engine, size=size: work_off(engine, f"w{size}"))
        assert done == size
        print(f"{label:>10}  {size:>7,} children of one parent: {seconds / size * 1e6:6.0f} µs per child")
        connection.close()


def racer(url: str, name: str, gate: "multiprocessing.synchronize.Barrier", out: "multiprocessing.Queue[int]") -> None:
    connection = connect(url)
    engine = make_engine(connection, shipped())
    gate.wait()
    out.put(work_off(engine, name))
    connection.close()


def race(url: str, a_parent: int, name: str) -> float:
    """Children a second that two processes finish."""
    connection = connect(url)
    family(make_engine(connection, shipped()), RACE, a_parent)
    spawn = multiprocessing.get_context("spawn")
    gate, out = spawn.Barrier(3), spawn.Queue()
    racers = [spawn.Process(target=racer, args=(url, f"{name}{number}", gate, out)) for number in range(2)]
    for process in racers:
        process.start()
    gate.wait()
    done, seconds = time_act(lambda: sum(out.get() for _ in racers))
    for process in racers:
        process.join()
    connection.close()
    assert done == RACE
    return done / seconds


def prepare_database(url: str) -> str:
    connection: Connection = connect(url)
    migrate.upgrade(connection, STANDARD.lifecycles(shipped()).values(), STANDARD.tables)
    connection.close()
    return url


def main() -> None:
    with postgres(SERVER) as url, tempfile.TemporaryDirectory() as folder:
        flat(prepare_database(f"sqlite:///{folder}/bench.db"), "SQLite")
        flat(prepare_database(url), "PostgreSQL")
        rates: dict[str, list[float]] = {"one": [], "many": []}
        for number in range(ROUNDS):
            rates["one"].append(race(url, RACE, f"one{number}"))
            rates["many"].append(race(url, 10, f"many{number}"))
        one_parent, many_parents = (statistics.median(rates[name]) for name in ("one", "many"))
        print(f"two processes: {one_parent:,.0f} children/s of one parent", end=", ")
        print(f"{many_parents:,.0f}/s of one parent per ten", end="; ")
        print(f"ratio {one_parent / many_parents:.2f} (at least 0.9 is wanted)")


if __name__ == "__main__":
    main()
