"""What the plugins cost a plain drain: jobs that are submitted and worked off by raw commands, with them and without.

Rounds are interleaved: without plugins, without workstreams, with all. Prints the processor time per job of the fastest
round of each, as ratios to an engine without plugins, and of all plugins to an engine without workstreams. More than
1.02 and 1.01 is too much, and is said by exit code 1. With `--refs` the jobs have names for others to need, so that
each is submitted by itself and asked of every plugin.

    python -m bench.plugins [--jobs 20000] [--rounds 5] [--refs]
"""

import argparse
import gc
import sys
import time

from bench.graphs import PAGE, submit_graph, work_off
from interlock.core.engine import Engine
from interlock.core.plugin import EMPTY, Registry
from interlock.kernel.commands import Submit, Work
from interlock.lifecycles import shipped
from interlock.plugins import STANDARD, WORKSTREAMS, make_engine
from interlock.store import migrate
from interlock.store.url import connect

WITHOUT_WORKSTREAMS = Registry(tuple(plugin for plugin in STANDARD.plugins if plugin is not WORKSTREAMS))
ALLOWED, ALLOWED_OF_WORKSTREAMS = 1.02, 1.01
REGISTRIES = {"no plugin": EMPTY, "without workstreams": WITHOUT_WORKSTREAMS, "all plugins": STANDARD}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--refs", action="store_true")
    given = parser.parse_args()
    best = dict.fromkeys(REGISTRIES, float("inf"))
    for _ in range(given.rounds):
        for name, registry in REGISTRIES.items():
            best[name] = min(best[name], drain(registry, given.jobs, refs=given.refs))
    for name, cost in best.items():
        print(f"{name:>20}: {cost:5.1f} µs of processor time per job, {cost / best['no plugin']:.3f} ×")
    ratio = best["all plugins"] / best["without workstreams"]
    print(f"the plugin for workstreams: {ratio:.3f} ×")
    return 0 if best["all plugins"] <= ALLOWED * best["no plugin"] and ratio <= ALLOWED_OF_WORKSTREAMS else 1


def submit_plain(engine: Engine, jobs: int) -> None:
    """Submits jobs that say nothing but their task."""
    for start in range(0, jobs, PAGE):
        engine.send(Submit(work=tuple(Work(task="node") for _ in range(start, min(start + PAGE, jobs)))))


def drain(registry: Registry, jobs: int, *, refs: bool) -> float:
    """Microseconds of processor time per job, from its submit to its end, in memory."""
    connection = connect("sqlite://:memory:")
    migrate.upgrade(connection, registry.lifecycles(shipped()).values(), registry.tables)
    engine = make_engine(connection, shipped(), registry=registry)
    gc.collect()
    gc.disable()  # it would run at other moments of other rounds
    began = time.process_time()
    if refs:
        submit_graph(engine, jobs, lambda number: ())
    else:
        submit_plain(engine, jobs)
    assert work_off(engine) == jobs
    used = time.process_time() - began
    gc.enable()
    connection.close()
    return used / jobs * 1e6


if __name__ == "__main__":
    sys.exit(main())
