"""What a worker holds: its executions by unit, and for each of its queues what waits, what runs, and how much fits."""

from collections import deque
from collections.abc import Iterator

from interlock.worker.execution import Execution

AHEAD_SECONDS, AHEAD_MAX = 0.2, 500  # of work that is held and not started, so that fast handlers wait for no claim
CLAIM_MAX = 500  # jobs per claim: while some are claimed, others run, and others again are reported


class Executions:
    """All executions whose lease this worker holds, by unit: of two leases on one unit, the later one counts."""

    def __init__(self) -> None:
        self.by_unit: dict[int, Execution] = {}

    def __iter__(self) -> Iterator[Execution]:
        return iter(list(self.by_unit.values()))

    def __len__(self) -> int:
        return len(self.by_unit)

    def __contains__(self, execution: Execution) -> bool:
        return self.by_unit.get(execution.grant.unit) is execution

    def add(self, execution: Execution) -> None:
        self.by_unit[execution.grant.unit] = execution

    def remove(self, execution: Execution) -> None:
        if execution in self:
            del self.by_unit[execution.grant.unit]

    def find(self, unit: int, fence: int | None = None) -> Execution | None:
        """The execution of a unit, under that fence if one is named."""
        execution = self.by_unit.get(unit)
        return execution if execution and fence in (None, execution.grant.fence) else None

    def next_heartbeat_at(self) -> float | None:
        """When the next heartbeat is due, which renews all of them; None while nothing is held. From any thread."""
        return min((execution.lease.heartbeat_at for execution in self), default=None)


class WorkerQueue:
    """One queue of a worker: how many of its jobs may run at a time, which wait, and how long a handler takes."""

    def __init__(self, name: str, concurrency: int) -> None:
        self.name, self.concurrency = name, concurrency
        self.waiting: deque[Execution] = deque()
        self.running = self.stuck = 0  # slots that are taken, and those of them whose thread cannot be stopped
        self.mean_seconds: float | None = None  # that a handler takes
        self.empty_since = -1  # the number of the wake-up after which a claim found nothing more

    @property
    def room(self) -> int:
        """How many more jobs may be claimed: what can run now, and what will have started within AHEAD_SECONDS."""
        slots = self.concurrency - self.stuck
        mean = self.mean_seconds
        ahead = 0 if mean is None else min(AHEAD_MAX, int(slots * AHEAD_SECONDS / max(mean, 1e-4)))
        return self.concurrency + ahead - self.running - len(self.waiting)

    def add_duration(self, seconds: float) -> None:
        self.mean_seconds = seconds if self.mean_seconds is None else 0.9 * self.mean_seconds + 0.1 * seconds
