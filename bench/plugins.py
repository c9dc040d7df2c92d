"""What the plugins cost a plain drain: jobs that are submitted and worked off by raw commands, with them and without.

Rounds are interleaved: without plugins, without workstreams, with all. Prints the processor time per job of the fastest
round of each, as ratios to an engine without plugins, and of all plugins to an engine without workstreams.

    python -m bench.plugins [--jobs 20000] [--rounds 5]
"""

import argparse
import gc
import time

from bench.graphs import submit_graph, work_off
from interlock.core.plugin import EMPTY, Registry
from interlock.lifecycles import shipped
from interlock.plugins import STANDARD, WORKSTREAMS, make_engine
from interlock.store import migrate
from interlock.store.url import connect

WITHOUT_WORKSTREAMS = Registry(tuple(plugin for plugin in STANDARD.plugins if plugin is not WORKSTREAMS))
REGISTRIES = {"no plugin": EMPTY, "without workstreams": WITHOUT_WORKSTREAMS, "all plugins": STANDARD}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    best = dict.fromkeys(REGISTRIES, float("inf"))
    for _ in range(given.rounds):
        for name, registry in REGISTRIES.items():
            best[name] = min(best[name], drain(registry, given.jobs))
    for name, cost in best.items():
        print(f"{name:>20}: {cost:5.1f} µs of processor time per job, {cost / best['no plugin']:.3f} ×")
    ratio = best["all plugins"] / best["without workstreams"]
    print(f"the plugin for workstreams: {ratio:.3f} ×")


def drain(registry: Registry, jobs: int) -> float:
    """Microseconds of processor time per job, from its submit to its end, in memory."""
    connection = connect("sqlite://:memory:")
    migrate.upgrade(connection, registry.lifecycles(shipped()).values(), registry.tables)
    engine = make_engine(connection, shipped(), registry=registry)
    gc.collect()
    began = time.process_time()
    submit_graph(engine, jobs, lambda number: ())
    assert work_off(engine) == jobs
    used = time.process_time() - began
    connection.close()
    return used / jobs * 1e6


if __name__ == "__main__":
    main()
