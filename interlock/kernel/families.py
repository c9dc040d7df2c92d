"""Parents and children: how an end of one counts for the other."""

from dataclasses import dataclass

from interlock.kernel.lifecycle import Category, Lifecycle, Owner
from interlock.kernel.lifecycle_options import RollUp
from interlock.kernel.policy import AttemptsUsed, choose


def after_attempt(lifecycle: Lifecycle, state: str, used: AttemptsUsed, *, retryable: bool) -> str:
    """Whether a unit that follows its attempts opens another one: `retry`, or empty."""
    return "retry" if retryable and used.left() and lifecycle.allows(state, "retry") else ""


def follow_trigger(lifecycle: Lifecycle, state: str, trigger: str, target: str) -> str:
    """The trigger that a following unit fires when its child fired `trigger` and came to `target`.

    Empty if it is there already: the attempt that it opened itself is born behind it.
    """
    return "" if state == target and not lifecycle.allows(state, trigger) else choose(lifecycle, state, trigger)


@dataclass(frozen=True)
class Children:
    """How the children of a unit stand, as far as its verdict reads them."""

    total: int
    succeeded: int
    lost: int  # settled without success
    decided: int  # lost ones that decide
    deciders: int  # those that decide, whatever came of them
    won: int  # succeeded ones that decide
    gates: int
    blocked: int  # with a need that has not succeeded
    begun: int  # held, active or closing


def verdict_of_children(lifecycle: Lifecycle, state: str, children: Children, *, waits: bool = False) -> str:
    """The one thing that children say to their parent: the first that is true, if its lifecycle lists it here.

    Never a list to choose from: with a list, two triggers can undo each other for ever. With `waits`, a lost child or
    enough successes say nothing before all have ended, or those that are left cannot begin any more.
    """
    rule = lifecycle.options.roll_up
    ended = children.total > 0 and children.succeeded + children.lost == children.total
    ready = children.total - children.succeeded - children.lost - children.gates - children.blocked - children.begun
    moving = children.begun + children.gates + ready
    if rule is RollUp.REQUIRED and children.deciders:
        well = children.won == children.deciders  # whatever the optional ones do (A4-28)
    else:
        well = ended and (children.succeeded == children.total if rule is RollUp.CRITICAL else not children.decided)
    over = not waits or ended or not moving
    verdicts = {
        "stopped": ended and lifecycle.category(state) is Category.CLOSING,
        "fail": children.decided > 0 and over,
        "succeed": well and over,
        "stall": rule is RollUp.CRITICAL and children.total > 0 and not moving,
        "gate": children.gates > 0 and not children.begun and not ready,
        "begin": children.begun + children.succeeded + children.lost > 0,
    }
    trigger = next((trigger for trigger, true in verdicts.items() if true), "")
    return trigger if trigger and lifecycle.allows(state, trigger) else ""


def may_be_resumed(lifecycle: Lifecycle, state: str) -> bool:
    """Whether a person can let a unit go on that has ended in this state."""
    from_here = (move for (source, _), move in lifecycle.moves.items() if source == state)
    return any(move.owner is Owner.PERSON and not lifecycle.settled(move.path[-1]) for move in from_here)
