"""Cache of lanes: a lane never changes once it is committed."""

from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

NUMBERS = 1 << 32  # the lanes that a tenant may have
LANES_MAX = 100_000  # remembered by a connection
SERVED_MAX = 256  # different wishes of workers, remembered by a tenant's lanes


class Lane(NamedTuple):
    """A queue of one tenant together with what it asks of a worker."""

    id: int
    queue: str
    capabilities: str  # sorted, joined by commas
    task: str = ""  # that the worker must know


class Served(NamedTuple):
    """The lanes that a worker can serve: the queue of each, and the stretches of ids that hold no other lane."""

    queues: dict[int, str]
    runs: list[tuple[int, int]]


class LaneOrLimits(NamedTuple):
    """A row of the one question for a tenant's lanes and its limits; those have the id 0."""

    id: int
    queue: str
    capabilities: str
    task: str
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
        self.ids: dict[tuple[str, str, str], int] = {}
        self.served_before: dict[tuple[tuple[str, ...], str, str | None], Served] = {}
        self.extend(lanes)

    def extend(self, lanes: Iterable[Lane]) -> None:
        """Lanes with higher ids than all before are known too."""
        for lane in lanes:
            self.lanes.append(lane)
            self.ids[lane[1:]] = self.last = lane.id
            self.served_before.clear()

    def find(self, lane: int) -> Lane | None:
        """A lane by its id."""
        place = bisect_left(self.lanes, lane, key=lambda known: known.id)
        return self.lanes[place] if place < len(self.lanes) and self.lanes[place].id == lane else None

    def served(self, queues: tuple[str, ...], capabilities: str, tasks: str | None = None) -> Served:
        """What a worker with these capabilities, that knows these tasks (a JSON list, or any), can serve of queues."""
        name = (queues, capabilities, tasks)
        if name not in self.served_before:
            if len(self.served_before) >= SERVED_MAX:
                self.served_before.clear()
            known = None if tasks is None else {"", *msgspec.json.decode(tasks, type=list[str])}
            self.served_before[name] = self.search(set(queues), set(capabilities.split(",")) | {""}, known)
        return self.served_before[name]

    def search(self, wanted: set[str], able: set[str], known: set[str] | None) -> Served:
        lanes, runs, inside = dict[int, str](), list[tuple[int, int]](), False
        for lane, queue, demands, task in self.lanes:
            fits = queue in wanted and (known is None or task in known) and able.issuperset(demands.split(","))
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
