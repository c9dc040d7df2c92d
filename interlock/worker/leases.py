"""The worker's own leases: until when it may speak for a job, by its own clock.

Two clocks matter. The store's clock decides when a lease is over; every claim and every heartbeat is answered with how
long the lease lasts from then on. The worker's own clock must never allow more than that. So it counts the time of a
lease from *before* the request that granted or renewed it was sent, and it goes on while the process is stopped and
while the machine sleeps (`clocks.read_clock`). Nothing begins under a lease that is over by this clock.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from interlock.kernel.commands import LeaseGrant


@dataclass(slots=True, eq=False)
class Lease:
    """One lease of this worker. All times are seconds of the worker's own clock."""

    grant: LeaseGrant
    clock: Callable[[], float]
    renewed_at: float  # before the request that granted or renewed it was sent
    ends_at: float = field(init=False, default=0.0)  # never later than by the store's clock

    def __post_init__(self) -> None:
        self.extend(self.renewed_at, self.grant.lasts_us)

    def extend(self, sent_at: float, lasts_us: int) -> None:
        """It lasts `lasts_us` from `sent_at` on; an older server does not say how long, then it is its whole time."""
        self.ends_at = max(self.ends_at, sent_at + (lasts_us or self.grant.ttl_us) / 1_000_000)

    def end(self) -> None:
        """The engine says that it is over."""
        self.ends_at = 0.0

    def is_over(self) -> bool:
        """Whether it may be over: then another worker may have the job."""
        return self.clock() >= self.ends_at

    @property
    def heartbeat_at(self) -> float:
        """When it must be renewed: after half a beat, or after half of its time if its lifecycle wants no beats."""
        return self.renewed_at + (self.grant.beat_us or self.grant.ttl_us) / 2_000_000
