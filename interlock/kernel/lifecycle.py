"""A lifecycle: a closed table of states, and of the moves between them.

What is here
------------
A lifecycle file (`lifecycles/job.toml` is the one to read) becomes one `Lifecycle`: its `states`, and its `moves` by
(state, trigger). A **trigger** names what happens ("claim", "complete", "lost"); a **state** is where a unit rests; a
**move** is the one answer of a state to a trigger. There is never a choice: if what happens must be told apart first (a
failure with attempts left, or without), the policy (`kernel/policy.py`) decides which trigger it is.

Verbs never name states. They fire triggers, and `Lifecycle.move` says where that leads or raises Refused. So the same
verb serves jobs, CI attempts and steps, whose states have other names. Code that must know what a state means to
everybody asks for its **category**: waiting, ready, held, active, … and five settled ones, which are ends.

A move may pass more than one state at once. Each step of it is a **hop**, and each hop is one event of the record.
In which order: the loader reads a file and the lint checks it (every state can be reached and left, every unfinished
state says what cancel and its deadline do); the migration writes the hops to the database, whose guard refuses every
other one; then verbs use the table. Nothing here changes after loading, so much is computed once and kept.

What is not pretty: `owner` says who may fire a move, but verbs see to it; and a lease has a lifecycle of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum, auto
from functools import cached_property

from interlock.kernel.errors import Refused
from interlock.kernel.lifecycle_options import Options


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
    """Who may fire a move. Whoever fires it, the engine makes the move."""

    ENGINE = auto()  # the engine itself: time, policy, children
    HOLDER = auto()  # the worker under its lease
    PERSON = auto()  # a user, an operator or a client acting for one
    VALIDATOR = auto()  # whoever gives the verdict of a check
    REPORTER = auto()  # whoever told the world


class Severity(StrEnum):
    """How serious an event is."""

    INFO, WARNING, ERROR, CRITICAL = "info", "warning", "error", "critical"


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
class Transition:
    """What a move and its hops have in common."""

    source: str | None  # None: before birth
    trigger: str
    owner: Owner
    opens_attempt: bool = False  # closes attempt n and opens n+1, at its first hop
    extension: bool = False  # not in the document
    why: str = ""
    guards: tuple[str, ...] = ()  # what verbs and the policy ask before; see kernel/guards.py
    note: str = ""  # for readers; it claims nothing


@dataclass(frozen=True, kw_only=True)
class Hop(Transition):
    """One transition, as the database, the docs and the checkers know it."""

    target: str
    event: str
    severity: Severity


@dataclass(frozen=True, kw_only=True)
class Move(Transition):
    """The one answer to a trigger in a state: a path of one or more states, each hop a transition."""

    path: tuple[str, ...]
    events: tuple[str, ...]  # the document's own name for each hop
    severities: tuple[Severity, ...]

    @cached_property
    def hops(self) -> list[Hop]:
        """The transitions of this move, in order."""
        shared = {field.name: getattr(self, field.name) for field in fields(Transition)}
        steps = zip((self.source, *self.path), self.path, self.events, self.severities, strict=False)
        hops = []
        for source, target, event, severity in steps:
            hops.append(Hop(**{**shared, "source": source}, target=target, event=event, severity=severity))
            shared["opens_attempt"] = False
        return hops


@dataclass(frozen=True, kw_only=True)
class Lifecycle:
    """A closed table of states and of the moves between them, with its options."""

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

    @cached_property
    def clocked(self) -> frozenset[str]:
        """The states with a clock of their own; as a set, because every move asks."""
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

    @property
    def birth(self) -> Move:
        return next(move for move in self.moves.values() if move.source is None)

    @property
    def initial(self) -> str:
        return self.birth.path[0]

    @cached_property
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
