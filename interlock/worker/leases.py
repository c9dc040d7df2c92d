"""Leases as the worker knows them: until when it may speak for a job, by its own clock.

Two clocks matter. The store's clock decides when a lease is over; every claim and every heartbeat is answered with how
long the lease lasts from then on. The worker's own clock must never allow more than that. So it counts the time of a
lease from *before* the request that granted or renewed it was sent, and it goes on while the process is stopped and
while the machine sleeps (`read_clock`). Nothing begins under a lease that is over by this clock.

What one claim grants on equal terms lasts equally long: its executions share one `LocalLease`, until the answer to a
heartbeat says of each how long it goes on.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from math import inf
from threading import Lock
from typing import TYPE_CHECKING

from interlock.kernel.commands import LeaseGrant

if TYPE_CHECKING:
    from interlock.worker.execution import Execution


# Returns seconds since an arbitrary moment, which go on while the process is stopped and the machine sleeps.
read_clock: Callable[[], float] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
)


@dataclass(slots=True, eq=False)
class LocalLease:
    """The lease of one or more executions. All times are seconds of the worker's own clock."""

    grant: LeaseGrant
    clock: Callable[[], float]
    renewed_at: float  # before the request that granted or renewed it was sent
    ends_at: float = field(init=False, default=0.0)  # never later than by the store's clock

    def __post_init__(self) -> None:
        self.ends_at = self.renewed_at + (self.grant.lasts_us or self.grant.ttl_us) / 1_000_000

    def extend(self, sent_at: float, lasts_us: int) -> None:
        """Makes it last `lasts_us` from `sent_at` on; 0, from an older server, stands for its whole time."""
        self.ends_at = max(self.ends_at, sent_at + (lasts_us or self.grant.ttl_us) / 1_000_000)

    def end(self) -> None:
        """Ends it: the engine says that it is over."""
        self.ends_at = 0.0

    def is_over(self) -> bool:
        """Whether it may be over: then another worker may have the job."""
        return self.clock() >= self.ends_at

    @property
    def heartbeat_at(self) -> float:
        """When it must be renewed: after half a beat, or after half of its time if its lifecycle wants no beats."""
        return self.renewed_at + (self.grant.beat_us or self.grant.ttl_us) / 2_000_000


class Executions:
    """All executions whose lease this worker holds, by unit: of two leases on one unit, the later one counts."""

    def __init__(self) -> None:
        self.by_unit: dict[int, Execution] = {}
        self.heartbeat_at, self.lock = inf, Lock()  # no lease must be renewed before this
        self.latest: LocalLease | None = None  # of the execution that was added last

    def __iter__(self) -> "Iterator[Execution]":
        return iter(list(self.by_unit.values()))

    def __len__(self) -> int:
        return len(self.by_unit)

    def __contains__(self, execution: "Execution") -> bool:
        return self.by_unit.get(execution.grant.unit) is execution

    def add(self, execution: "Execution") -> None:
        self.by_unit[execution.grant.unit] = execution
        if execution.lease is not self.latest:
            self.latest = execution.lease
            with self.lock:
                self.heartbeat_at = min(self.heartbeat_at, self.latest.heartbeat_at)

    def remove(self, execution: "Execution") -> None:
        unit = execution.grant.unit
        if self.by_unit.get(unit) is execution:
            del self.by_unit[unit]

    def find(self, unit: int, fence: int | None = None) -> "Execution | None":
        """The execution of a unit, under that fence if one is named."""
        execution = self.by_unit.get(unit)
        return execution if execution and fence in (None, execution.grant.fence) else None

    def next_heartbeat_at(self, now: float = -inf) -> float | None:
        """When the next heartbeat is due, which renews all of them; None while nothing is held. From any thread.

        It may be later, because what was due first has ended: that is looked up once `now` is there.
        """
        if self.heartbeat_at <= now:
            with self.lock:
                self.heartbeat_at = min((execution.lease.heartbeat_at for execution in self), default=inf)
        return self.heartbeat_at if self.by_unit else None
