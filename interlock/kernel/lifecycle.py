"""What a lifecycle is: a closed table of states, and the moves between them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum, auto
from functools import cached_property

from interlock.kernel.errors import Refused


class Category(StrEnum):
    """What a state means to code that must span lifecycles."""

    WAITING = auto()  # for needs, for a delay, for a plan
    READY = auto()  # for a worker
    HELD = auto()  # by a worker that has not begun
    ACTIVE = auto()
    GATE = auto()  # for a verdict, from a person or a check
    CLOSING = auto()  # asked to stop, not yet stopped
    SUCCESS = auto()
    FAILURE = auto()
    CANCELLED = auto()
    DEAD = auto()  # the dead-letter queue is this category
    CLOSED = auto()  # settled before, and now told to the world


for category in Category:  # found without a call, as from Python 3.12 on: every move asks for some of them
    type.__setattr__(Category, category.name, category)

SETTLED = frozenset({Category.SUCCESS, Category.FAILURE, Category.CANCELLED, Category.DEAD, Category.CLOSED})


class Owner(StrEnum):
    """Who may fire a move. The engine alone writes it."""

    ENGINE = auto()  # the engine itself: time, policy, children
    HOLDER = auto()  # the worker under its lease
    PERSON = auto()  # a user, an operator or a client acting for one
    VALIDATOR = auto()  # whoever gives the verdict of a check
    REPORTER = auto()  # whoever told the world


# Triggers that the engine fires by itself, and those that it fires on a holder's word.
BY_ENGINE = frozenset(
    {"ready", "claim", "reclaim", "retry", "exhaust", "lost", "time_out", "due", "overdue"}
    | {"parent_cancelled", "parent_failed"}
)
BY_CHILDREN = frozenset({"begin", "gate", "succeed", "stall"})
BY_HOLDER = frozenset({"start", "beat", "complete", "fail", "release", "snooze", "stopped"})


class Severity(StrEnum):
    INFO = auto()
    WARNING = auto()
    ERROR = auto()
    CRITICAL = auto()


class RollUp(StrEnum):
    """How the children of a unit decide its state."""

    NONE = auto()
    ALL = auto()  # every child must succeed
    CRITICAL = auto()  # a critical child's failure decides; others block those that need them
    REQUIRED = auto()  # every required child must succeed
    SINGLE = auto()  # one child at a time does the work
    FOLLOW = auto()  # the unit makes the moves of its current child


class CancelMode(StrEnum):
    IMMEDIATE = auto()  # asked and done in one transaction
    FLAGGED = auto()  # the holder is told and may still finish; hard cancel is immediate
    TWO_PHASE = auto()  # a state of its own until the holder answers or the deadline passes


@dataclass(frozen=True, kw_only=True)
class State:
    """A place to rest. `cancel` and `deadline` say how an unfinished one is left when nobody acts."""

    name: str
    category: Category
    about: str = ""
    cancel: str = ""  # "" (a listed move, or nothing said), "deferred" or "refused"
    cancel_why: str = ""
    deadline: str = ""  # the trigger that its own clock fires, "parent", "none", or nothing said
    deadline_why: str = ""
    within_us: int | None = None  # the default of that clock; without it only a unit's own limit counts

    @cached_property
    def settled(self) -> bool:
        return self.category in SETTLED


@dataclass(frozen=True, kw_only=True)
class Move:
    """The one answer to a trigger in a state: a path of one or more states, each hop a transition."""

    source: str | None  # None: before birth
    trigger: str
    path: tuple[str, ...]
    owner: Owner
    events: tuple[str, ...]  # the document's own name for each hop
    severities: tuple[Severity, ...]
    opens_attempt: bool = False  # closes attempt n and opens n+1, at its first hop
    extension: bool = False  # not in the document
    why: str = ""
    guards: tuple[str, ...] = ()  # what the engine asks first; see kernel/guards.py
    note: str = ""  # for readers; it claims nothing

    @cached_property
    def hops(self) -> "list[Hop]":
        """The transitions of this move, in order."""
        sources = (self.source, *self.path)
        return [
            Hop(
                source=sources[step],
                target=target,
                trigger=self.trigger,
                owner=self.owner,
                event=self.events[step],
                severity=self.severities[step],
                opens_attempt=self.opens_attempt and step == 0,
                extension=self.extension,
                why=self.why,
                guards=self.guards,
                note=self.note,
            )
            for step, target in enumerate(self.path)
        ]


@dataclass(frozen=True, kw_only=True)
class Hop:
    """One transition, as the database, the docs and the checkers know it."""

    source: str | None
    target: str
    trigger: str
    owner: Owner
    event: str
    severity: Severity
    opens_attempt: bool
    extension: bool
    why: str
    guards: tuple[str, ...]
    note: str


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How often a unit may be tried. Without `losses`, failures and lost leases share `attempts`."""

    attempts: int = 3
    losses: int | None = None
    snoozes: int = 100
    exhausted: str = "exhaust"  # the trigger for a failure when nothing is left: "exhaust" or "fail"


@dataclass(frozen=True, kw_only=True)
class Backoff:
    """min(cap, base × factor^n) × (1 ± jitter) after the n-th try, and never more than the cap."""

    base_us: int
    factor: int = 2
    cap_us: int | None = None
    jitter: float = 0.0


@dataclass(frozen=True, kw_only=True)
class LeaseTerms:
    """For how long a worker may speak for a unit, and how often it must be heard."""

    ttl_us: int
    ttl_min_us: int
    ttl_max_us: int
    silent_max_us: int | None = None  # the longest TTL of a type that cannot beat
    beat_us: int
    beat_min_us: int
    beat_max_us: int
    missed_beats: int = 0  # so many missed beats end a lease before its TTL; 0: only the TTL counts
    ack_us: int | None = None  # an unacknowledged lease ends here


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the engine must know of a lifecycle beside its table."""

    roll_up: RollUp = RollUp.NONE
    follows: str = ""  # the lifecycle of the child that a `follow` unit mirrors
    cancel_mode: CancelMode = CancelMode.IMMEDIATE
    cancel_within_us: int | None = None
    monotonic: bool = True  # without the moves that open an attempt, nothing happens twice
    monotonic_why: str = ""
    budget: Budget = field(default_factory=Budget)
    backoff: Backoff | None = None
    lease: LeaseTerms | None = None


@dataclass(frozen=True, kw_only=True)
class Lifecycle:
    name: str
    document: str
    title: str
    about: str
    notes: tuple[str, ...]
    states: Mapping[str, State]
    moves: Mapping[tuple[str | None, str], Move]
    options: Options

    def move(self, state: str | None, trigger: str) -> Move:
        """The listed answer to `trigger` in `state`; raises Refused where there is none."""
        try:
            return self.moves[state, trigger]
        except KeyError:
            raise Refused(self.name, state, trigger, self.triggers(state)) from None

    def allows(self, state: str | None, trigger: str) -> bool:
        return (state, trigger) in self.moves

    # What every move asks of its state is looked up in sets.

    @cached_property
    def clocked(self) -> frozenset[str]:
        """The states with a clock of their own."""
        return frozenset(name for name, state in self.states.items() if self.allows(name, state.deadline))

    @cached_property
    def reclaimed(self) -> frozenset[str]:
        """The states in which a unit whose lease is over waits for another worker."""
        return frozenset(name for name in self.states if self.allows(name, "reclaim"))

    @cached_property
    def unsettled(self) -> frozenset[str]:
        return frozenset(name for name, state in self.states.items() if not state.settled)

    def triggers(self, state: str | None) -> tuple[str, ...]:
        return tuple(trigger for source, trigger in self.moves if source == state)

    def category(self, state: str) -> Category:
        return self.states[state].category

    def settled(self, state: str) -> bool:
        return self.states[state].settled

    def final(self, state: str) -> bool:
        """Whether no move leaves a settled state."""
        return self.settled(state) and not any(hop.source == state for hop in self.hops)

    @property
    def birth(self) -> Move:
        return next(move for move in self.moves.values() if move.source is None)

    @property
    def initial(self) -> str:
        return self.birth.path[0]

    @property
    def leased(self) -> bool:
        """Whether workers claim units of this lifecycle."""
        return any(state.category is Category.READY for state in self.states.values())

    @cached_property
    def hops(self) -> tuple[Hop, ...]:
        """Every single hop once. It is an extension only if every move that makes it is one."""
        order = {name: place for place, name in enumerate(self.states)}
        merged: dict[tuple[str | None, str, str], Hop] = {}
        for move in self.moves.values():
            for hop in move.hops:
                known = merged.get((hop.source, hop.trigger, hop.target))
                if known is None or (known.extension and not hop.extension):
                    merged[hop.source, hop.trigger, hop.target] = hop
        return tuple(sorted(merged.values(), key=lambda hop: -1 if hop.source is None else order[hop.source]))
