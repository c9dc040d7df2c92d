"""Transition paths: every way in which one act can take a unit through its lifecycle.

A path is a list of hops that are made at once. A hop is an edge of the unit, an edge of its lease, or both: a claim
makes the unit `assigned` and grants its lease; a retry ends the attempt and completes the lease, or revokes it, and
these are two paths. A hop of the lease that goes with no hop of the unit is made in place.

The database has a row for each path and takes no act that follows another one. A path is known by what it says: its id
is cut from the digest of its hops, so that a path with another word in it is another path, and old acts keep the words
of their day.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from hashlib import sha256
from typing import NamedTuple

import msgspec

from interlock.kernel.lifecycle import Category, Lifecycle

SELF = "self"  # the trigger of a hop that only the lease makes
FORCE = "force"
START = "start"
TAKES = ("claim", "reclaim")  # by these a worker takes a unit
UNDER_LEASE = frozenset({Category.HELD, Category.ACTIVE, Category.CLOSING})  # while a unit is so, a lease may be live
GRANT, ACTIVATE, REVOKE = "grant", "activate", "revoke"
BY_WORKER = ("complete", "acknowledge", REVOKE)  # how a lease ends by its holder's word
LIVE = frozenset({Category.HELD, Category.ACTIVE})  # of a lease
BORN = ""  # the source of a birth
# Of these categories the database has an index by state (`rests_in`): few units are there, or people ask for them.
LISTED = frozenset(
    {Category.GATE, Category.WAITING, Category.CLOSING, Category.FAILURE, Category.CANCELLED, Category.DEAD}
)
# What a path does to the time at which the present attempt has begun.
KEEP, SET, CLEAR, SET_ANEW = 0, 1, 2, 3
# What it does to the outcome.
NO_OUTCOME, OUTCOME, SAME_OUTCOME = 0, 1, 2
LEASE_GOES_ON, LEASE_TAKEN, LEASE_FINISHED = 0, 1, 2  # what becomes of a lease


class PathHop(NamedTuple):
    """One transition of a unit, of its lease, or of both. `attempt` and `fence` are what it adds."""

    trigger: str
    source: str  # '': birth
    target: str
    name: str  # of the event
    severity: str
    attempt: int
    fence: int
    lease_from: str | None = None
    lease_to: str | None = None


class Step(NamedTuple):
    """What a verb asks for: a trigger of the unit's lifecycle, and triggers of its lease's that go with it."""

    trigger: str
    lease: tuple[str, ...] = ()


class Path(msgspec.Struct, frozen=True, dict=True):
    """Hops that one act makes, and what they make of the unit's row."""

    lifecycle: str
    hops: tuple[PathHop, ...]
    category: str | None  # of the last state; None: as it was
    outcome: int
    started: int
    forced: bool = False
    lease_ends: int = LEASE_GOES_ON  # what becomes of the lease

    @cached_property
    def digest(self) -> str:
        return sha256(self.text.encode()).hexdigest()

    @cached_property
    def text(self) -> str:
        """All that tells this path from every other."""
        parts = [self.lifecycle, self.category, self.outcome, self.started, int(self.forced), self.hops]
        return msgspec.json.encode(parts).decode()

    @cached_property
    def id(self) -> int:
        return path_id(self.digest)

    @property
    def source(self) -> str:
        return self.hops[0].source

    @property
    def target(self) -> str:
        return self.hops[-1].target

    @cached_property
    def payload_hop(self) -> int:
        """The place of the last hop of the unit itself: it has the payload."""
        return max((place for place, hop in enumerate(self.hops, 1) if hop.trigger != SELF), default=len(self.hops))

    @cached_property
    def opens(self) -> int:
        return sum(hop.attempt for hop in self.hops)

    @cached_property
    def grants(self) -> int:
        return sum(hop.fence for hop in self.hops)

    @cached_property
    def lease_from(self) -> str | None:
        """The state in which the lease must be; None: in any, or there is none."""
        return next((hop.lease_from for hop in self.hops if hop.lease_to is not None), None)

    @cached_property
    def lease_to(self) -> str | None:
        """The state in which it leaves the lease; None: as it was."""
        return next((hop.lease_to for hop in reversed(self.hops) if hop.lease_to is not None), None)


def path_id(digest: str) -> int:
    """The id of the path that has this digest."""
    return int(digest[:16], 16) >> 1


Key = tuple[str, str, str | None, tuple[Step, ...]]


class Paths:
    """The paths of lifecycles, found by what a verb asks for."""

    def __init__(self, lifecycles: Mapping[str, Lifecycle]) -> None:
        self.lifecycles, self.leases = lifecycles, lifecycles["lease"]
        self.followed = {lifecycle.options.follows for lifecycle in lifecycles.values()}  # whose moves others repeat
        self.known: dict[Key, Path] = {}
        self.keys: dict[int, Key] = {}  # of each that was asked for
        self.both: dict[tuple[int, int], Path | None] = {}

    def join_paths(self, first: Path, second: Path) -> Path | None:
        """The listed path that makes both, one after the other; None if there is none."""
        pair = first.id, second.id
        if pair not in self.both:
            self.both[pair] = self.join(first, second)
        return self.both[pair]

    def join(self, first: Path, second: Path) -> Path | None:
        lifecycle, source, lease, steps = self.keys[first.id]
        if lifecycle != second.lifecycle or second.forced or first.forced:
            return None
        both = *steps, *self.keys[second.id][3]
        if not any(both == listed for listed in pair_steps(self.lifecycles[lifecycle], self.leases, source, lease)):
            return None
        return self.find(lifecycle, source, lease, both)

    def find(self, lifecycle: str, source: str, lease: str | None, steps: tuple[Step, ...]) -> Path:
        """The path of a unit that is in `source`, under a lease in that state.

        Raises:
            Refused: it is not listed.
        """
        key = lifecycle, source, lease, steps
        path = self.known.get(key)
        if path is None:
            path = self.known[key] = compose(self.lifecycles[lifecycle], self.leases, source, lease, steps)
            self.keys[path.id] = key
        return path

    def force(self, lifecycle: str, source: str, lease: str | None, target: str) -> Path:
        """The path on which an operator puts a unit into a state; a lease that is live is revoked."""
        key = lifecycle, source, lease, (Step(FORCE, (target,)),)
        path = self.known.get(key)
        if path is None:
            path = self.known[key] = make_forced_path(self.lifecycles[lifecycle], self.leases, source, lease, target)
            self.keys[path.id] = key
        return path


def compose(lifecycle: Lifecycle, leases: Lifecycle, source: str, lease: str | None, steps: tuple[Step, ...]) -> Path:
    """The hops of these steps, one after the other."""
    hops: list[PathHop] = []
    state, started, category = source, KEEP, None
    for step in steps:
        lease_hops = list(lease_path(leases, lease, step.lease))
        if lease_hops:
            lease = lease_hops[-1][1]
        if step.trigger != SELF:
            move = lifecycle.move(state or None, step.trigger)
            # A grant goes with the first hop, an end with the last.
            before = 0 if step.lease[:1] == (GRANT,) else len(move.hops) - len(lease_hops)
            for hop in move.hops:
                with_lease = lease_hops.pop(0) if lease_hops and before <= 0 else (None, None)
                before -= 1
                hops.append(
                    PathHop(
                        step.trigger, hop.source or BORN, hop.target, hop.event, str(hop.severity),
                        int(hop.opens_attempt), count_grants(with_lease), *with_lease,
                    )
                )  # fmt: skip
            state, category = hops[-1].target, lifecycle.category(hops[-1].target)
            started = begin(started, category, opened=move.source is None or move.opens_attempt)
        for with_lease in lease_hops:
            name = f"lease_{str(with_lease[1]).lower()}"
            hops.append(PathHop(SELF, state, state, name, "info", 0, count_grants(with_lease), *with_lease))
    left = lease is not None and any(hop.lease_to for hop in hops)
    ends = find_lease_end(leases.category(lease) if left and lease else None)
    return Path(lifecycle.name, tuple(hops), category, outcome_of(category), started, lease_ends=ends)


def make_forced_path(lifecycle: Lifecycle, leases: Lifecycle, source: str, lease: str | None, target: str) -> Path:
    """The path by which an operator forces a unit into a state."""
    live = lease is not None and leases.category(lease) in LIVE
    with_lease = next(lease_path(leases, lease, (REVOKE,))) if live else (None, None)
    hop = PathHop(FORCE, source, target, "forced", "warning", 0, 0, *with_lease)
    category = lifecycle.category(target)
    started = begin(KEEP, category, opened=False)
    return Path(
        lifecycle.name,
        (hop,),
        category,
        outcome_of(category),
        started,
        forced=True,
        lease_ends=LEASE_TAKEN if live else LEASE_GOES_ON,
    )


def lease_path(
    leases: Lifecycle, lease: str | None, triggers: tuple[str, ...]
) -> Iterator[tuple[str | None, str | None]]:
    """The hops that these triggers make of a lease."""
    for trigger in triggers:
        source = None if trigger == GRANT else lease
        lease = leases.move(source, trigger).path[-1]
        yield source, lease


def count_grants(with_lease: tuple[str | None, str | None]) -> int:
    """Returns how many leases a hop grants: one or none."""
    return int(with_lease[0] is None and with_lease[1] is not None)


def find_lease_end(category: str | None) -> int:
    """What becomes of a lease that is left in a state of this category; None: nothing."""
    if category is None or category in LIVE:
        return LEASE_GOES_ON
    return LEASE_FINISHED if category == Category.SUCCESS else LEASE_TAKEN


def outcome_of(category: str | None) -> int:
    """Returns the number that stands for the outcome of a category."""
    if category is None or category == Category.CLOSED:
        return SAME_OUTCOME
    return OUTCOME if category in SETTLES else NO_OUTCOME


SETTLES = frozenset({Category.SUCCESS, Category.FAILURE, Category.CANCELLED, Category.DEAD})


def begin(started: int, category: str, *, opened: bool) -> int:
    """What becomes of the time at which an attempt has begun, by one move more."""
    if opened:
        return SET_ANEW if category == Category.ACTIVE else CLEAR
    if category != Category.ACTIVE:
        return started
    return {KEEP: SET, SET: SET, CLEAR: SET_ANEW, SET_ANEW: SET_ANEW}[started]


def enumerate_paths(lifecycle: Lifecycle, leases: Lifecycle) -> Iterator[Path]:
    """Every path of a lifecycle that the engine may take, but for forced ones."""
    for source, trigger in lifecycle.moves:
        yield compose(lifecycle, leases, source or BORN, None, (Step(trigger),))
        for lease, triggers in list_lease_ways(lifecycle, leases, source, trigger):
            yield compose(lifecycle, leases, source or BORN, lease, (Step(trigger, triggers),))
    for state in lifecycle.states if lifecycle.leased else ():
        for lease, triggers in list_live_ways(lifecycle, leases, state):
            yield compose(lifecycle, leases, state, lease, (Step(SELF, triggers),))
    yield from starts_that_end(lifecycle, leases)


def list_lease_ways(
    lifecycle: Lifecycle, leases: Lifecycle, source: str | None, trigger: str
) -> Iterator[tuple[str | None, tuple[str, ...]]]:
    """What may become of the lease with a move: a grant where a worker takes the unit, else a hop of a live one."""
    if not lifecycle.leased or source is None:
        return
    if trigger in TAKES:
        yield None, (GRANT,)
        yield None, (GRANT, ACTIVATE)
        return
    stays = (
        lifecycle.category(lifecycle.move(source, trigger).path[-1]) in UNDER_LEASE
    )  # else no lease of it may be live
    for lease, triggers in list_live_ways(lifecycle, leases, source):
        if stays or leases.settled(leases.move(lease, triggers[-1]).path[-1]):
            yield lease, triggers


def list_live_ways(lifecycle: Lifecycle, leases: Lifecycle, source: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The hops of a lease that is live while a unit is in that state."""
    if lifecycle.category(source) not in UNDER_LEASE:
        return
    for state in leases.states:
        for trigger in leases.triggers(state):
            yield state, (trigger,)


def starts_that_end(lifecycle: Lifecycle, leases: Lifecycle) -> Iterator[Path]:
    """A start and what it came to, in one act: a worker often tells of both together."""
    for source in lifecycle.states:
        for lease in leases.states:
            for steps in pair_steps(lifecycle, leases, source, lease):
                yield compose(lifecycle, leases, source, lease, steps)


def pair_steps(lifecycle: Lifecycle, leases: Lifecycle, source: str, lease: str | None) -> Iterator[tuple[Step, Step]]:
    """Two steps that may be one act: the first begins the work under a live lease, the second ends that lease."""
    if (
        not lifecycle.leased
        or lease is None
        or leases.category(lease) not in LIVE
        or not lifecycle.allows(source, START)
    ):
        return
    activates = (ACTIVATE,) if leases.allows(lease, ACTIVATE) else ()
    active = leases.move(lease, ACTIVATE).path[-1] if activates else lease
    begun = lifecycle.move(source, START).path[-1]
    for trigger in lifecycle.triggers(begun):
        for end in BY_WORKER:
            if leases.allows(active, end):
                yield Step(START, activates), Step(trigger, (end,))


def paths_of(lifecycles: Mapping[str, Lifecycle]) -> Paths:
    """The paths of these lifecycles; the same for the same mapping."""
    known = CACHE.get(id(lifecycles))
    if known is None or known.lifecycles is not lifecycles:
        known = CACHE[id(lifecycles)] = Paths(lifecycles)
    return known


CACHE: dict[int, Paths] = {}  # by the identity of the mapping, which is kept with it
