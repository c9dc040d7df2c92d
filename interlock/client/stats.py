"""Statistics of a tenant's work in document 002's words: counts, p50 and p95 per type of work.

All of it is read from counts that the database keeps beside the events, so it costs the same however many units there
are. Times are kept in buckets: a percentile is estimated inside the bucket that holds it, and what took longer than the
last bound is told as that bound.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from interlock.kernel import metrics
from interlock.store.connection import Connection
from interlock.store.queries.metrics import Depth, read_gauges
from interlock.store.queries.metrics import read_counts as tallies_of

MILLION = 1_000_000
WORKER = "worker"  # workers are units too, but not work
OF_TYPE = (metrics.CLAIMS, metrics.EXPIRIES, metrics.RETRIES, metrics.FAILURES, metrics.DEAD)
Rows = Sequence[tuple[str, list[str], int]]


class Spread(msgspec.Struct, frozen=True):
    """How long something took, in seconds."""

    count: int
    p50: float
    p95: float


class TypeStats(msgspec.Struct, frozen=True, kw_only=True):
    """One type of work: what was counted, how long it waited for workers, and how long they held it at work."""

    type: str
    claims: int
    lease_expiries: int
    retries: int
    failures: int
    dead_lettered: int
    queue: Spread | None
    run: Spread | None


class StateCount(msgspec.Struct, frozen=True):
    """How many jobs are in a state, those that were archived there included."""

    lifecycle: str
    state: str
    units: int


class QueueStats(msgspec.Struct, frozen=True):
    """How many jobs of a queue may be claimed now, and for how long the oldest has waited, in seconds."""

    queue: str
    waiting: int
    oldest: float


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """How a tenant's work goes; `behind` says that not all that happened was counted yet."""

    claims: int
    claim_conflicts: int
    lease_renewals: int
    lease_expiries: int
    retries: int
    failures: int
    DLQ_count: int
    held: int
    workers: int
    types: list[TypeStats]
    states: list[StateCount]
    queues: list[QueueStats]
    behind: bool


def stats(connection: Connection, tenant: int, behind: bool) -> Stats:
    """What the counts of a tenant say."""
    rows, now = tallies_of(connection, tenant), read_gauges(connection, tenant)
    sums: Counter[str] = Counter()
    for name, _, value in rows:
        sums[name] += value
    return Stats(
        claims=sums[metrics.CLAIMS], claim_conflicts=sums[metrics.CONFLICTS],
        lease_renewals=sums[metrics.RENEWALS] + now.renewals, lease_expiries=sums[metrics.EXPIRIES],
        retries=sums[metrics.RETRIES], failures=sums[metrics.FAILURES], DLQ_count=now.dead, held=now.held,
        workers=now.workers, types=list_types(rows), states=list_states(rows),
        queues=[make_queue_stats(depth, now.now) for depth in now.depths], behind=behind,
    )  # fmt: skip


def list_types(rows: Rows) -> list[TypeStats]:
    """Every type of work that was counted, by name."""
    sums: Counter[tuple[str, str]] = Counter()
    times: dict[tuple[str, str], dict[int, int]] = {}
    for name, words, value in rows:
        if name == metrics.LATENCY:
            times.setdefault((words[0], words[1]), {})[int(words[2])] = value
        elif words:
            sums[name, words[0]] += value
    return [
        TypeStats(
            type=kind, claims=sums[metrics.CLAIMS, kind], lease_expiries=sums[metrics.EXPIRIES, kind],
            retries=sums[metrics.RETRIES, kind], failures=sums[metrics.FAILURES, kind],
            dead_lettered=sums[metrics.DEAD, kind], queue=spread(times.get((kind, metrics.QUEUE))),
            run=spread(times.get((kind, metrics.RUN))),
        )
        for kind in sorted({kind for name, kind in sums if name in OF_TYPE} | {kind for kind, _ in times})
    ]  # fmt: skip


def spread(counts: Mapping[int, int] | None) -> Spread | None:
    """Returns how many there are, with p50 and p95; None if there are none."""
    if not counts:
        return None
    return Spread(sum(counts.values()), find_quantile(counts, 0.5), find_quantile(counts, 0.95))


def find_quantile(counts: Mapping[int, int], share: float) -> float:
    """The time that so large a share took at most, in seconds, estimated inside its bucket; `counts` is not empty."""
    rank, before, place = share * sum(counts.values()), 0, 0
    for place in sorted(counts):
        if before + counts[place] >= rank:
            break
        before += counts[place]
    bounds = metrics.BOUNDS_US
    if place >= len(bounds):
        return bounds[-1] / MILLION
    low = bounds[place - 1] if place else 0
    return round((low + (bounds[place] - low) * (rank - before) / counts[place]) / MILLION, 6)


def list_states(rows: Rows) -> list[StateCount]:
    """Whoever came to a state and did not leave it is there."""
    units: Counter[tuple[str, str]] = Counter()
    for name, words, value in rows:
        if name == metrics.MOVES and words[0] != WORKER:
            lifecycle, source, target = words
            units[lifecycle, target] += value
            if source:
                units[lifecycle, source] -= value
    return [StateCount(lifecycle, state, number) for (lifecycle, state), number in sorted(units.items()) if number]


def make_queue_stats(depth: Depth, now: int) -> QueueStats:
    """Makes the figures of a queue: what waits, and how long the oldest has waited in seconds."""
    return QueueStats(depth.queue, depth.units, max(now - depth.oldest_at, 0) / MILLION)
