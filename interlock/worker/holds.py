"""What a worker holds: leases, the queues that they came from, and when the next beat is due."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec

from interlock.client.outcomes import Snooze
from interlock.kernel.commands import TRANSIENT, Grant, Held, Outcome
from interlock.worker.context import JobContext

AHEAD_SECONDS, AHEAD_MAX = 0.2, 500  # of work that is held but not begun, so that fast handlers never wait for a claim
AT_ONCE = 500  # in one claim: while some are claimed, others run, and others again are reported


class GiveBack:
    """The end of work that its worker cannot finish: another worker may, and no attempt is spent."""


End = Outcome | Snooze | GiveBack | None  # None: nothing that this worker could say would be heard


@dataclass(slots=True, eq=False)
class Hold:
    """One lease, and what is done under it."""

    grant: Grant
    context: JobContext
    renewed: float  # before the request that granted or renewed it was sent, by the worker's own clock
    ends_at: float = field(init=False)  # by the same clock, and never later than by the store's
    held: Held = field(init=False)
    begun: float | None = None  # when user code began
    told: bool = False  # the engine knows that it did
    asked: bool = False  # something about it is being told, and the answer is not there yet
    leaving: bool = False  # its worker shuts down, and does not wait for it any more
    running: asyncio.Task[None] | None = None
    ended: bool = False
    end: End = None
    again: bool = False  # its end was refused once, and is told in other words

    def __post_init__(self) -> None:
        self.held = self.context.held
        self.ends_at = 0.0
        self.renew(self.renewed, self.grant.lasts_us)

    def renew(self, sent: float, lasts_us: int) -> None:
        """The lease lasts for so long, counted from when that was asked for; a server of old does not say how long."""
        self.ends_at = max(self.ends_at, sent + (lasts_us or self.grant.ttl_us) / 1_000_000)

    def is_over(self, clock: Callable[[], float]) -> bool:
        """Whether its lease may be over: then another worker may have the job."""
        return clock() >= self.ends_at

    @property
    def beat_at(self) -> float:
        """When its lease wants to be renewed: after half a beat, or half of its time if it need not beat."""
        return self.renewed + (self.grant.beat_us or self.grant.ttl_us) / 2_000_000


def meant(hold: Hold, end: End) -> End:
    """A handler that has stopped was asked to, or is given back because its worker leaves, or has failed."""
    if not isinstance(end, Outcome) or end.ended != "cancelled":
        return end
    if hold.leaving:
        return GiveBack()
    if hold.context.cancelled:
        return msgspec.structs.replace(end, traceback="")
    error = f"it stopped, though nobody had asked for it: {end.error}"
    return msgspec.structs.replace(end, ended="failure", error=error, error_class=TRANSIENT)


class Holds:
    """All that is held, by unit: of two leases on one unit, the later one counts."""

    def __init__(self) -> None:
        self.kept: dict[int, Hold] = {}

    def __iter__(self) -> Iterator[Hold]:
        return iter(list(self.kept.values()))

    def __len__(self) -> int:
        return len(self.kept)

    def __contains__(self, hold: Hold) -> bool:
        return self.kept.get(hold.grant.unit) is hold

    def add(self, hold: Hold) -> None:
        self.kept[hold.grant.unit] = hold

    def drop(self, hold: Hold) -> None:
        if hold in self:
            del self.kept[hold.grant.unit]

    def find(self, unit: int, fence: int | None = None) -> Hold | None:
        """What is held of a unit, under that fence if one is named."""
        hold = self.kept.get(unit)
        return hold if hold and fence in (None, hold.grant.fence) else None

    def beat_at(self) -> float | None:
        """When the next heartbeat is due, which speaks for all of them; None while nothing is held. From any thread."""
        return min((hold.beat_at for hold in self), default=None)


class Lane:
    """One queue of a worker: how much may run at a time, what waits, and how long a handler takes here."""

    def __init__(self, name: str, concurrency: int) -> None:
        self.name, self.concurrency = name, concurrency
        self.waiting: deque[Hold] = deque()
        self.running = self.stuck = 0  # places that are taken, and those of them whose handler cannot be stopped
        self.mean: float | None = None
        self.dry = -1  # the ring of the bell after which nothing was left here

    @property
    def room(self) -> int:
        """How much more may be claimed: what can run now, and what will have begun within a moment."""
        places = self.concurrency - self.stuck
        ahead = 0 if self.mean is None else min(AHEAD_MAX, int(places * AHEAD_SECONDS / max(self.mean, 1e-4)))
        return self.concurrency + ahead - self.running - len(self.waiting)

    def took(self, seconds: float) -> None:
        self.mean = seconds if self.mean is None else 0.9 * self.mean + 0.1 * seconds
