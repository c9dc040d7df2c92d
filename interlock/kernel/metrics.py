"""Metrics by name and labels, counted from events in the database, so that all processes agree."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from interlock.kernel.commands import Count
from interlock.kernel.lifecycle import Category, Lifecycle

TYPE, MOVES, CLAIMS, CONFLICTS = "type", "transitions", "claims", "claim_conflicts"
RENEWALS, EXPIRIES, RETRIES, FAILURES = "lease_renewals", "lease_expiries", "retries", "failures"
DEAD, LATENCY, LATENCY_US = "dlq", "latency", "latency_us"
QUEUE, RUN = "queue", "run"  # the phases of a latency
LOST, TIMEOUT, NONE, OTHER = "lost", "timeout", "none", "other"
TYPES_MOST = 100  # types of work that are told apart; strangers choose their names
BOUNDS_US = tuple(
    round(seconds * 1_000_000)
    for seconds in (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1_800, 3_600)
)
STALE = ("UNKNOWN_LEASE", "LEASE_SUPERSEDED", "LEASE_REVOKED", "LEASE_ENDED", "LEASE_EXPIRED")


class ObservedEvent(msgspec.Struct, frozen=True):
    """What is looked at of an event."""

    lifecycle: str
    trigger: str
    source: str | None
    target: str
    lease_from: str | None
    lease_to: str | None
    at: int
    payload: str
    task: str | None
    waited_from: int | None  # of a grant: the event before it
    ran_from: int | None  # of the end of a lease: when it became active
    queue: str | None = None  # of a grant and of the end of a lease


class Sums(Counter[tuple[str, str]]):
    """What was counted, by metric and labels."""

    def __init__(self, types: Iterable[str]) -> None:
        super().__init__()
        self.types = set(types)

    def add(self, name: str, event: ObservedEvent, *words: str, value: int = 1) -> None:
        """So much more for a type of work. Of all types a hundred are told apart, and the rest is `other`."""
        task = event.task or NONE
        if task not in self.types:
            if len(self.types) < TYPES_MOST:
                self.types.add(task)
                self[TYPE, encode_labels(task)] += 1
            else:
                task = OTHER
        self[name, encode_labels(task, *words)] += value


def encode_labels(*words: str) -> str:
    """Labels of a metric, as its row keeps them."""
    return msgspec.json.encode(words).decode()


def sum_events(
    lifecycles: Mapping[str, Lifecycle], events: Iterable[ObservedEvent], types: Iterable[str]
) -> tuple[Count, ...]:
    """What these events add; `types` are the types of work that are told apart already."""
    sums = Sums(types)
    for event in events:
        if event.source != event.target:  # else its lease alone has moved
            sums[MOVES, encode_labels(event.lifecycle, event.source or "", event.target)] += 1
        count_lease(sums, lifecycles["lease"], event)
        count_end(sums, lifecycles.get(event.lifecycle), event)
    return tuple(Count(name, labels, value) for (name, labels), value in sorted(sums.items()))


def count_lease(sums: Sums, leases: Lifecycle, event: ObservedEvent) -> None:
    """Counts what an event says of a lease: a claim, an expiry, and for how long the unit waited or ran."""
    if event.lease_to is None:
        return
    if event.lease_from is None:
        sums.add(CLAIMS, event)
        if event.waited_from is not None:
            count_time(sums, event, QUEUE, event.at - event.waited_from)
    elif leases.category(event.lease_to) is Category.FAILURE:
        sums.add(EXPIRIES, event)
    if event.ran_from is not None:
        count_time(sums, event, RUN, event.at - event.ran_from)


def count_time(sums: Sums, event: ObservedEvent, phase: str, took_us: int) -> None:
    """Into the first bucket that it fits in; the last one has no bound."""
    place = bisect_left(BOUNDS_US, took_us)
    sums.add(LATENCY, event, phase, str(place))
    sums.add(LATENCY_US, event, phase, value=max(took_us, 0))


def count_end(sums: Sums, lifecycle: Lifecycle | None, event: ObservedEvent) -> None:
    """An attempt that failed, that is made again, or after which the unit is a dead letter."""
    payload: dict[str, Any] = msgspec.json.decode(event.payload)
    why = payload.get("error_class") or (TIMEOUT if payload.get("timeout") else None)
    if why:
        sums.add(FAILURES, event, why)
    if event.trigger == "retry":
        sums.add(RETRIES, event, why or NONE)
    elif event.trigger in ("lost", "reclaim"):
        sums.add(RETRIES, event, LOST)
    if lifecycle and event.target in lifecycle.states and lifecycle.category(event.target) is Category.DEAD:
        words = (str(payload.get(name) or NONE) for name in ("stage", "reason_code"))
        sums.add(DEAD, event, *words)
