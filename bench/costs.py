"""What a drained job costs in processor time, in the worker and in PostgreSQL, beside the peers."""

import os
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from bench.compare import SERVER, present, select_peers
from bench.machine import measure_used_s
from bench.stage import Broken, Peer, Stage
from tests.postgres.server import postgres

WHO = "interlock,floor,pgqueuer,graphile,pgboss"
JOBS, ROUNDS = 40_000, 3
LOOK = 0.1  # seconds; whoever asks more often is measured too
Cost = tuple[float, float, float]  # jobs per second, and µs per job of the worker and of the server


def cost(stage: Stage, peer: Peer) -> Cost:
    """From the first handler's start on, so that what a worker needs to begin at all is not counted."""
    peer.play("bulk", JOBS)
    peer.tidy()
    with peer.workers(1) as started, peer.asking() as ask:
        while not peer.marked("first"):
            time.sleep(0.01)
        left, began = int(ask(peer.about["left"])), time.monotonic()
        worker, server = measure_used_s(started), measure_used_s([stage.postmaster])
        while ask(peer.about["left"]):
            time.sleep(LOOK)
        passed = time.monotonic() - began
        worker, server = measure_used_s(started) - worker, measure_used_s([stage.postmaster]) - server
    if left < JOBS / 2:
        raise Broken(f"{peer.title}: {JOBS - left} of {JOBS} jobs were gone before anything could be measured")
    return left / passed, worker / left * 1e6, server / left * 1e6


def main() -> None:
    peers = [peer for peer in present(select_peers(False, os.environ.get("PEERS", WHO))) if peer.store == "postgres"]
    costs_by_peer: dict[str, list[Cost]] = {peer.title: [] for peer in peers}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stage = Stage(stack.enter_context(postgres(SERVER)), folder, {})
        for number in range(ROUNDS):
            for peer in peers:
                try:
                    stage.set_up(peer, number)
                    costs_by_peer[peer.title].append(cost(stage, peer))
                except Broken as broken:
                    print(broken)
                stage.take_down(peer)
    print("| who | jobs/s | worker, µs per job | PostgreSQL, µs per job | both |\n| --- | ---: | ---: | ---: | ---: |")
    for title, costs in costs_by_peer.items():
        if costs:
            rate, worker, server = (median(column) for column in zip(*costs, strict=True))
            print(f"| {title} | {rate:,.0f} | {worker:.0f} | {server:.0f} | {worker + server:.0f} |")


if __name__ == "__main__":
    main()
