"""The lanes that there are, remembered between transactions, because a lane never changes once it is committed."""

from collections.abc import Iterable
from typing import NamedTuple

NUMBERS = 1 << 32  # the lanes that a tenant may have
LANES_MAX = 100_000  # remembered by a connection
SERVED_MAX = 256  # different wishes of workers, remembered by a tenant's lanes


class Lane(NamedTuple):
    """A queue of one tenant together with what it asks of a worker."""

    id: int
    queue: str
    capabilities: str  # sorted, joined by commas


class Served(NamedTuple):
    """The lanes that a worker can serve: the queue of each, and the stretches of ids that hold no other lane."""

    queues: dict[int, str]
    runs: list[tuple[int, int]]


class LaneOrLimits(NamedTuple):
    """A row of the one question for a tenant's lanes and its limits; those have the id 0."""

    id: int
    queue: str
    capabilities: str
    max_running: int | None
    max_waiting: int | None


class Lanes:
    """The lanes of one tenant in the order of their ids.

    Ids begin with the tenant, so that nobody else's lane lies between two of them: a search from lane to lane
    never comes across rows that it may not see.
    """

    def __init__(self, tenant: int, lanes: Iterable[Lane] = ()) -> None:
        self.tenant, self.last = tenant, tenant * NUMBERS
        self.end = self.last + NUMBERS - 1
        self.lanes: list[Lane] = []
        self.ids: dict[tuple[str, str], int] = {}
        self.served_before: dict[tuple[tuple[str, ...], str], Served] = {}
        self.extend(lanes)

    def extend(self, lanes: Iterable[Lane]) -> None:
        """Lanes with higher ids than all before are known too."""
        for lane in lanes:
            self.lanes.append(lane)
            self.ids[lane.queue, lane.capabilities] = self.last = lane.id
            self.served_before.clear()

    def served(self, queues: tuple[str, ...], capabilities: str) -> Served:
        """What a worker with these capabilities can serve of these queues."""
        if (queues, capabilities) not in self.served_before:
            if len(self.served_before) >= SERVED_MAX:
                self.served_before.clear()
            self.served_before[queues, capabilities] = self.search(set(queues), set(capabilities.split(",")) | {""})
        return self.served_before[queues, capabilities]

    def search(self, wanted: set[str], able: set[str]) -> Served:
        lanes, runs, inside = dict[int, str](), list[tuple[int, int]](), False
        for lane, queue, demands in self.lanes:
            fits = queue in wanted and able.issuperset(demands.split(","))
            if fits:
                lanes[lane] = queue
                runs.append((runs.pop()[0] if inside else lane, lane))
            inside = fits
        return Served(lanes, runs)


def remember_lanes(memory: dict[int, Lanes], tenant: int, lanes: Lanes) -> None:
    """A connection knows these lanes from now on; when it knows too many, it begins again."""
    if sum(len(known.lanes) for known in memory.values()) > LANES_MAX:
        memory.clear()
    memory[tenant] = lanes
