"""Queries that commands declare ahead: sent with BEGIN, so that they cost one round trip.

A query that is declared and not run costs the server some work; one that is run and not declared, a round trip. The
transaction finds what was prefetched by the query object and its parameters.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from interlock.store.cache import WRITERS, EngineCache, Lanes, WorkerHint
from interlock.store.queries.claims import BODIES_OF_FREE, FREE
from interlock.store.queries.for_verbs import (
    EXPIRED,
    OVERDUE,
    TOKENS_BACK,
    UNITS_WITH_NOTE,
    bind_new_lanes,
)
from interlock.store.queries.plain import LANES_MAX, WORKER_LOCKED, WORKER_UNLOCKED, bind_claimable
from interlock.store.query import BoundQuery
from interlock.store.unit_of_work import LIVE_LEASES, UNITS_LOCKED

Queries = Iterator[BoundQuery[Any]]


def declare_lanes(cache: EngineCache, tenant: int) -> Queries:
    """A tenant's new lanes, and its limits."""
    yield bind_new_lanes(cache.lanes.get(tenant) or Lanes(tenant))


def declare_due(cache: EngineCache, tenant: int, limit: int) -> Queries:
    """What time must look at."""
    yield TOKENS_BACK.bind(tenant=tenant, limit=limit)
    for due in (OVERDUE, EXPIRED):
        yield due.bind(limit=limit + len(cache.passed_over), tenant=tenant)


def declare_free(cache: EngineCache, tenant: int, worker: int, queues: Sequence[str], limit: int) -> Queries:
    """What waits for a worker: as the fast path reads it, or as verbs do if one lane is all that it serves."""
    known = cache.lanes.get(tenant)
    if not known or worker not in cache.workers:
        return
    capabilities, tasks, busy = cache.workers[worker]
    lanes = known.served(tuple(queues), capabilities, tasks).queues
    if len(queues) == 1 and 0 < len(lanes) <= LANES_MAX and cache.slow_lanes.isdisjoint(lanes):
        yield bind_claimable(sorted(lanes), limit, many_writers=True)
    elif len(lanes) == 1:
        (lane,) = lanes
        yield FREE.bind(limit=limit, lane=lane)
        if not busy:  # it waits for little, so that another round trip would be felt
            yield BODIES_OF_FREE.bind(lane=lane, limit=limit)


def declare_claim(
    cache: EngineCache, tenant: int, worker: int, queues: Sequence[str], limit: int, least: int
) -> Queries:
    """What a claim reads: its worker, what time must look at (at least so many), and what waits."""
    yield from declare_lanes(cache, tenant)
    busy = cache.workers.get(worker, WorkerHint()).busy
    yield (WORKER_UNLOCKED if busy else WORKER_LOCKED).bind(unit=worker)
    yield from declare_due(cache, tenant, max(limit, least))
    yield from declare_free(cache, tenant, worker, queues, limit)


def declare_held(cache: EngineCache, ids: Sequence[int]) -> Queries:
    """Units that somebody holds, locked: as the cache of held units asks for them, if it knows one of them."""
    if cache.held is not None and any(unit in cache.held.units for unit in ids):
        yield WRITERS.bind(ids=list(ids))
    else:
        yield UNITS_LOCKED.bind(ids=list(ids))
        yield LIVE_LEASES.bind(ids=list(ids))


def declare_notes(kind: str, name: str, ids: Sequence[int]) -> Queries:
    """Which of these units have a note of that name."""
    yield UNITS_WITH_NOTE.bind(ids=list(ids), kind=kind, name=name)
