"""The worker's own leases: until when it may speak for a job, by its own clock.

Two clocks matter. The store's clock decides when a lease is over; every claim and every heartbeat is answered with how
long the lease lasts from then on. The worker's own clock must never allow more than that. So it counts the time of a
lease from *before* the request that granted or renewed it was sent, and it goes on while the process is stopped and
while the machine sleeps (`read_clock`). Nothing begins under a lease that is over by this clock.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from interlock.kernel.commands import LeaseGrant

if TYPE_CHECKING:
    from interlock.worker.execution import Execution


def read_clock() -> float:
    """Returns seconds since an arbitrary moment, which go on while the process is stopped and the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


@dataclass(slots=True, eq=False)
class LocalLease:
    """One lease of this worker. All times are seconds of the worker's own clock."""

    grant: LeaseGrant
    clock: Callable[[], float]
    renewed_at: float  # before the request that granted or renewed it was sent
    ends_at: float = field(init=False, default=0.0)  # never later than by the store's clock

    def __post_init__(self) -> None:
        self.extend(self.renewed_at, self.grant.lasts_us)

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

    def __iter__(self) -> "Iterator[Execution]":
        return iter(list(self.by_unit.values()))

    def __len__(self) -> int:
        return len(self.by_unit)

    def __contains__(self, execution: "Execution") -> bool:
        return self.by_unit.get(execution.grant.unit) is execution

    def add(self, execution: "Execution") -> None:
        self.by_unit[execution.grant.unit] = execution

    def remove(self, execution: "Execution") -> None:
        if execution in self:
            del self.by_unit[execution.grant.unit]

    def find(self, unit: int, fence: int | None = None) -> "Execution | None":
        """The execution of a unit, under that fence if one is named."""
        execution = self.by_unit.get(unit)
        return execution if execution and fence in (None, execution.grant.fence) else None

    def next_heartbeat_at(self) -> float | None:
        """When the next heartbeat is due, which renews all of them; None while nothing is held. From any thread."""
        return min((execution.lease.heartbeat_at for execution in self), default=None)
