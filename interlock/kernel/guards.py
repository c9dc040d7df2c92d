"""Guards that a lifecycle file may name, and the function that checks each.

A guard that refuses is a law of the verb, one that chooses is a line of the policy; a file only says where they hold.
Functions are named as text, because the kernel knows nothing of what is built on it; a test resolves every name.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from interlock.kernel.lifecycle import Category, Lifecycle, Move, Owner
from interlock.kernel.lifecycle_options import CancelMode, RollUp

# Triggers that the engine fires by itself, and those that it fires on a holder's word.
BY_ENGINE = frozenset(
    {"ready", "claim", "reclaim", "retry", "exhaust", "lost", "time_out", "due", "overdue"}
    | {"parent_cancelled", "parent_failed"}
)
BY_CHILDREN = frozenset({"begin", "gate", "succeed", "stall"})
BY_HOLDER = frozenset({"start", "beat", "complete", "fail", "release", "snooze", "stopped"})

LOSSES = ("lost", "reclaim", "expire")  # a holder that vanishes is answered by one of these
COUNTING = (RollUp.ALL, RollUp.CRITICAL, RollUp.REQUIRED)


@dataclass(frozen=True)
class Guard:
    """Something that the engine asks: what it means, the function that asks it, and of which moves it is asked."""

    meaning: str
    asked_by: str
    asked_of: Callable[[Lifecycle, Move], bool]


def is_worked(lifecycle: Lifecycle) -> bool:
    """Whether workers hold its units, or those whose moves it makes."""
    return lifecycle.leased or lifecycle.options.roll_up is RollUp.FOLLOW


def triggers(*names: str) -> Callable[[Lifecycle, Move], bool]:
    """Returns a test for moves by one of these triggers, of units that workers do."""
    return lambda lifecycle, move: is_worked(lifecycle) and move.trigger in names


def match_report(name: str) -> Callable[[Lifecycle, Move], bool]:
    """Of a move by which a holder reports how its work ended."""
    return lambda lifecycle, move: is_worked(lifecycle) and move.trigger == name and move.owner is Owner.HOLDER


def match_in(name: str, trigger: str) -> Callable[[Lifecycle, Move], bool]:
    """Of a move of one of the two lifecycles that the engine itself keeps for workers and leases."""
    return lambda lifecycle, move: lifecycle.name == name and move.trigger == trigger


def is_claim(lifecycle: Lifecycle, move: Move) -> bool:
    """Whether a move grants a lease."""
    return lifecycle.leased and move.trigger in ("claim", "reclaim")


def is_clock(lifecycle: Lifecycle, move: Move) -> bool:
    """Whether the clock of its state alone fires it: a lost lease, or a cancel that its holder answers, has another."""
    if move.source is None or move.trigger in LOSSES or (is_worked(lifecycle) and move.trigger == "overdue"):
        return False
    return move.trigger == lifecycle.states[move.source].deadline


def is_soft_cancel(lifecycle: Lifecycle, move: Move) -> bool:
    """Whether a move is a cancel that its holder is asked to carry out."""
    flagged = lifecycle.options.cancel_mode is CancelMode.FLAGGED
    return flagged and move.trigger == "cancel" and lifecycle.category(move.source or "") is Category.ACTIVE


def is_word_of_children(move: Move) -> bool:
    """Whether a move follows from what became of the children."""
    return move.trigger in BY_CHILDREN or (move.trigger in ("fail", "stopped") and move.owner is Owner.ENGINE)


GUARDS: Mapping[str, Guard] = MappingProxyType(
    {
        "attempts_left": Guard(
            "another attempt may be opened: the budget has one left, and no cancel was asked for",
            "interlock.kernel.policy.AttemptsUsed.left",
            triggers("retry", "lost", "reclaim"),
        ),
        "available": Guard(
            "nobody holds it, its needs are met, its delay and its signal have come, and its keys and limits have room",
            "interlock.core.advance.derive",
            lambda lifecycle, move: is_claim(lifecycle, move) or match_in("lease", "grant")(lifecycle, move),
        ),
        "cancel_asked": Guard(
            "a cancel was asked for",
            "interlock.kernel.policy.after_stop",
            lambda lifecycle, move: (
                match_report("stopped")(lifecycle, move) or match_in("lease", "acknowledge")(lifecycle, move)
            ),
        ),
        "cancel_now": Guard(
            "the cancel is hard, its deadline has passed, nobody holds the job, or its parent has ended",
            "interlock.kernel.policy.cancel_action",
            is_soft_cancel,
        ),
        "cancel_overdue": Guard(
            "a cancel was asked for, and its deadline has passed or nobody is left to answer it",
            "interlock.core.timers.fire_timer",
            triggers("overdue"),
        ),
        "capabilities_match": Guard(
            "the worker serves its queue and has every capability that it wants",
            "interlock.store.queries.claims.find_claimable",
            is_claim,
        ),
        "children_say_so": Guard(
            "it is the first verdict that is true of how its children stand, under the rule of roll_up",
            "interlock.kernel.families.verdict_of_children",
            lambda lifecycle, move: lifecycle.options.roll_up in COUNTING and is_word_of_children(move),
        ),
        "current_child_says_so": Guard(
            "the one child that does its work has begun, succeeded or ended without success, as the trigger says",
            "interlock.core.reactions.roll_up.current_child",
            lambda lifecycle, move: lifecycle.options.roll_up is RollUp.SINGLE and is_word_of_children(move),
        ),
        "deadline_passed": Guard(
            "the clock of its state has run out",
            "interlock.core.timers.fire_timer",
            is_clock,
        ),
        "drained": Guard(
            "somebody has asked the worker to leave, and it holds nothing",
            "interlock.core.workers.drain_if_empty",
            match_in("worker", "drain"),
        ),
        "failed_for_good": Guard(
            "no attempt follows the failure: it is not retryable, or none is left and its policy says failed",
            "interlock.kernel.policy.after_failure",
            lambda lifecycle, move: match_report("fail")(lifecycle, move) and lifecycle.allows(move.source, "retry"),
        ),
        "holds_nothing": Guard(
            "the worker has given back the last job that it held",
            "interlock.core.workers.lock_worker",
            match_in("worker", "free"),
        ),
        "lease_expired": Guard(
            "the time of the lease is over, and nobody has renewed it",
            "interlock.core.timers.fire_timer",
            match_in("lease", "expire"),
        ),
        "needs_met": Guard(
            "everything that it needs has succeeded, or ended where that is enough, and its parent has its plan",
            "interlock.core.reactions.needs.go_on",
            lambda lifecycle, move: move.trigger == "ready",
        ),
        "no_attempt_left": Guard(
            "no other attempt may be opened: the budget is used up, a cancel was asked for, or it is a compensation "
            "that failed for good",
            "interlock.kernel.policy.AttemptsUsed.left",
            triggers("exhaust"),
        ),
        "only_open_child": Guard(
            "no other child of its parent is open, if the parent's rule is that one child at a time does the work",
            "interlock.core.submit.refuse_second_child",
            lambda lifecycle, move: move.source is None and move.trigger == "submit",
        ),
        "plan_has_children": Guard(
            "at least one child was made",
            "interlock.core.decide.apply_verdict",
            lambda lifecycle, move: (
                move.trigger == "plan" and move.owner in (Owner.PERSON, Owner.VALIDATOR, Owner.REPORTER)
            ),
        ),
        "quorum_reached": Guard(
            "as many of those who have a vote have approved as it requires; one by default",
            "interlock.plugins.approvals.votes.cast",
            lambda lifecycle, move: move.trigger == "approve" and move.owner is Owner.PERSON,
        ),
        "retryable": Guard(
            "the failure may pass: its holder says so, or a time limit ended the attempt",
            "interlock.kernel.policy.after_failure",
            triggers("retry"),
        ),
    }
)


def list_guards(lifecycle: Lifecycle, move: Move) -> list[str]:
    """The guards that the engine asks for a move, and that its file may name."""
    return [name for name, guard in GUARDS.items() if guard.asked_of(lifecycle, move)]
