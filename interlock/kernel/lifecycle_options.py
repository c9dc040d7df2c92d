"""Options of a lifecycle file: roll-up, cancel, budgets, backoff and leases."""

from dataclasses import dataclass, field
from enum import StrEnum, auto


class RollUp(StrEnum):
    """How the children of a unit decide its state."""

    NONE = auto()
    ALL = auto()  # every child must succeed
    CRITICAL = auto()  # a critical child's failure decides; others block those that need them
    REQUIRED = auto()  # every required child must succeed
    SINGLE = auto()  # one child at a time does the work
    FOLLOW = auto()  # the unit makes the moves of its current child


class CancelMode(StrEnum):
    """What a cancel does to a unit that somebody holds."""

    IMMEDIATE = auto()  # asked and done in one transaction
    FLAGGED = auto()  # the holder is told and may still finish; hard cancel is immediate
    TWO_PHASE = auto()  # a state of its own until the holder answers or the deadline passes


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
class LeaseRules:
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
    lease: LeaseRules | None = None
