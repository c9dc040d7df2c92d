"""What is measured of each peer; every number says how many cores were busy with other things meanwhile."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from bench.machine import memory_mb
from bench.stage import Broken, Peer

STEPS, STEP_JOBS = 10, 100


@dataclass(frozen=True)
class Sizes:
    """How much is asked for."""

    backlog: int
    one_by_one: int
    by_32: int
    late: int
    rounds: int
    big: int  # jobs of the large tables: so many finished, and so many waiting
    window: float  # seconds for which a backlog of that size is worked on


FULL = Sizes(backlog=20_000, one_by_one=500, by_32=6_400, late=200, rounds=5, big=1_000_000, window=30.0)
QUICK = Sizes(backlog=5_000, one_by_one=200, by_32=1_600, late=60, rounds=3, big=10_000, window=0.5)


@dataclass(frozen=True)
class Measure:
    """One row of the table for each peer that can do it."""

    name: str
    unit: str
    needs: str
    more_is_better: bool = True


BULK = Measure("bulk submit", "jobs/s", "bulk")
SINGLE_1 = Measure("submit one by one, 1 caller", "jobs/s", "single")
SINGLE_32 = Measure("submit one by one, 32 callers", "jobs/s", "single")
DRAIN_1 = Measure("drain, 1 process", "jobs/s", "drain")
DRAIN_2 = Measure("drain, 2 processes", "jobs/s", "drain")
LATE_50 = Measure("idle latency, p50", "ms", "late", more_is_better=False)
LATE_99 = Measure("idle latency, p99", "ms", "late", more_is_better=False)
MEMORY = Measure("memory of an idle worker", "MB", "memory", more_is_better=False)
TEN_STEPS = Measure("100 jobs of ten durable steps", "jobs/s", "steps")
ALL = (BULK, SINGLE_1, SINGLE_32, DRAIN_1, DRAIN_2, LATE_50, LATE_99, MEMORY, TEN_STEPS)
Values = dict[Measure, float]


def bulk(peer: Peer, sizes: Sizes) -> Values:
    count = min(peer.jobs, sizes.backlog)
    return {BULK: count / peer.play("bulk", count)}


def drain(peer: Peer, workers: int) -> float:
    """Jobs a second, from the first handler's start until the database says that all are finished."""
    peer.tidy()
    waiting = peer.left()
    with peer.workers(workers):
        end = peer.wait_until_done()
        first = peer.marked("first")
        if not first:
            raise Broken(f"{peer.title}: nothing is left, and no handler has run")
        return waiting / (end - min(first))


def drain_1(peer: Peer, sizes: Sizes) -> Values:
    return {DRAIN_1: drain(peer, 1)}


def drain_2(peer: Peer, sizes: Sizes) -> Values:
    peer.play("bulk", min(peer.jobs, sizes.backlog))
    return {DRAIN_2: drain(peer, 2)}


def single(peer: Peer, sizes: Sizes) -> Values:
    few, many = min(peer.jobs, sizes.one_by_one), min(peer.jobs, sizes.by_32)
    return {SINGLE_1: few / peer.play("single", few, 1), SINGLE_32: many / peer.play("single", many, 32)}


def idle(peer: Peer, sizes: Sizes) -> Values:
    """An idle worker: what it weighs, and how soon it begins with what comes."""
    with peer.workers(1) as started:
        peer.wait_until_done()  # whatever was submitted before
        wait_for_first(peer)
        time.sleep(1.5)
        values = {MEMORY: memory_mb(started[0])}
        peer.play("trickle", sizes.late)
        peer.wait_until_done()
        late = sorted(peer.marked("late"))
    if len(late) < sizes.late:
        raise Broken(f"{peer.title}: {sizes.late} were sent one by one, and {len(late)} began")
    return values | {LATE_50: late[len(late) // 2] * 1_000, LATE_99: late[int(len(late) * 0.99)] * 1_000}


def wait_for_first(peer: Peer) -> None:
    """A worker that found nothing to do is sent one job, so that it is known to be up."""
    if not peer.marked("first"):
        peer.play("bulk", 1)
        peer.wait_until_done()


def ten_steps(peer: Peer, sizes: Sizes) -> Values:
    peer.play("bulk_steps", STEP_JOBS)
    return {TEN_STEPS: drain(peer, 1)}


def million(peer: Peer, sizes: Sizes) -> Values:
    """Jobs a second for a while, out of a backlog that hardly shrinks, beside as many that are finished."""
    fill(peer, sizes.big)
    with peer.workers(2):
        peer.wait_until_done(3_600)
    fill(peer, sizes.big)
    with peer.workers(1):
        while not peer.marked("first"):
            time.sleep(0.05)
        before, since = peer.left(), time.time()
        time.sleep(sizes.window)
        after, until = peer.left(), time.time()
    name = f"drain with {sizes.big:,} waiting and {sizes.big:,} finished"
    return {Measure(name, "jobs/s", "million"): (before - after) / (until - since)}


def fill(peer: Peer, count: int) -> None:
    for start in range(0, count, 50_000):
        peer.play("bulk", min(50_000, count - start))
    peer.tidy()


Act = Callable[[Peer, Sizes], Values]
# In this order: what one leaves behind is the backlog of the next.
ACTS: tuple[tuple[str, Act], ...] = (
    ("bulk", bulk), ("drain", drain_1), ("drain", drain_2), ("single", single), ("late", idle), ("steps", ten_steps),
)  # fmt: skip
