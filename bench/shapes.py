"""What jobs of other shapes cost beside plain ones: many tasks, options, failures, cancels, limits, lengths.

`python -m bench.shapes`, on PostgreSQL: every shape in turn, in rounds. Workers drain jobs of one shape, and their
processor time and that of the server are counted from the first handler on. A share is the rate of a shape divided by
that of plain jobs in the same round. `ROUNDS=1` and `JOBS=5000` are for a look.
"""

import os
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from msgspec.structs import replace

import interlock
from bench.compare import SERVER
from bench.machine import measure_used_s
from bench.peers.shapes import MANY, be_cancelled, do_with_options, last_a_while, noop
from bench.stage import PATIENCE, Broken, Peer, Stage
from interlock.client.tasks import Task
from interlock.kernel.commands import Submit, Work
from tests.postgres.server import postgres

JOBS, ROUNDS = int(os.environ.get("JOBS") or 20_000), int(os.environ.get("ROUNDS") or 3)
PAGE = 1_000
LOOK = 0.1  # seconds; whoever asks more often is measured too


class Shape(NamedTuple):
    """Jobs of one kind: the work of the one with a number, and how many processes drain them."""

    title: str
    make: Callable[[int], Work]
    processes: int = 1


def make_work(task: Task[Any, Any], number: int, **fields: Any) -> Work:
    """The work of a task with a number as its argument; `fields` are those of `Work`."""
    return replace(task.plain_work, input=f'{{"number":{number}}}', **fields)


def make_plain(number: int) -> Work:
    return replace(noop.plain_work, input='{"sent":0.0}')


SHAPES = (
    Shape("plain", make_plain),
    Shape("a queue of 20 tasks", lambda number: make_work(MANY[number % 20], number)),
    Shape(
        "timeout, key, 200-byte result, 1 % fail once",
        lambda number: make_work(do_with_options, number, key=str(number)),
    ),
    Shape("1 % cancelled while running", lambda number: make_work(be_cancelled, number)),
    Shape(
        "20 limit keys, 50 at a time of each",
        lambda number: make_work(MANY[0], number, limit_key=f"key {number % 20}", limit=50),
    ),
    Shape("0 to 200 ms, mixed", lambda number: make_work(last_a_while, number)),
    Shape("plain, 2 processes", make_plain, 2),
    Shape("plain, 4 processes", make_plain, 4),
)
Cost = tuple[float, float, float]  # jobs per second, and µs per job of the workers and of the server


def measure(stage: Stage, peer: Peer, shape: Shape) -> Cost:
    """Jobs of this shape are submitted, and then drained."""
    with interlock.open(peer.url) as client:
        for start in range(0, JOBS, PAGE):
            client.send(Submit(work=tuple(map(shape.make, range(start, min(JOBS, start + PAGE))))))
    peer.tidy()
    with peer.workers(shape.processes) as started, peer.asking() as ask:
        wait_until_begun(peer)
        left, began = int(ask(peer.about["left"])), time.monotonic()
        worker, server = measure_used_s(started), measure_used_s([stage.postmaster])
        while ask(peer.about["left"]):
            if time.monotonic() - began > PATIENCE:
                raise Broken(f"{shape.title}: not done after {PATIENCE:.0f} s")
            time.sleep(LOOK)
        passed = time.monotonic() - began
        worker, server = measure_used_s(started) - worker, measure_used_s([stage.postmaster]) - server
    return left / passed, worker / left * 1e6, server / left * 1e6


def wait_until_begun(peer: Peer) -> None:
    """The first handler has begun. Raises Broken, with what its worker said last."""
    end = time.monotonic() + PATIENCE
    while not peer.marked("first"):
        if time.monotonic() > end:
            log = peer.marks.with_suffix(".log").read_text().strip().splitlines()
            raise Broken(f"no handler has begun: {log[-1] if log else 'its worker said nothing'}")
        time.sleep(0.01)


def main() -> None:
    peer = Peer("Interlock", "shapes")
    peer.about = peer.play("describe")
    costs: dict[str, list[Cost]] = {shape.title: [] for shape in SHAPES}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stage = Stage(stack.enter_context(postgres(SERVER)), folder, {})
        for number in range(ROUNDS):
            for shape in SHAPES:
                try:
                    stage.set_up(peer, number)
                    costs[shape.title].append(measure(stage, peer, shape))
                except Broken as broken:
                    print(broken)
                stage.take_down(peer)
    print("| jobs | per second | share of plain | worker, µs per job | PostgreSQL, µs per job |")
    print("| --- | ---: | ---: | ---: | ---: |")
    plain = [rate for rate, _, _ in costs["plain"]]
    for title, rounds in costs.items():
        if rounds:
            rate, worker, server = (median(column) for column in zip(*rounds, strict=True))
            share = median(cost[0] / base for cost, base in zip(rounds, plain, strict=False))
            print(f"| {title} | {rate:,.0f} | {share:.2f} | {worker:.0f} | {server:.0f} |")


if __name__ == "__main__":
    main()
