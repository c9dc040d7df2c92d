"""The policy: pure functions that choose a trigger (retry, fail, dead letter) and judge a lease.

A verb knows what happened ("the holder says that it failed"), a lifecycle knows where triggers lead. Between them
somebody must say which trigger it is: `retry` while attempts are left, `exhaust` or `fail` when none is. That is here
(but for a failed compensation: `count_failure`). Every function is pure, without a clock, a database and chance, so the
model check (`audit/model`) asks the same functions as the engine does.

In the order of a job's life:

1. A worker may take a unit by `claim_trigger`: `claim` where it is ready, `reclaim` where a lost lease left it. Every
   grant has the `next_fence`, which is higher than all before it.
2. Every message of a holder is judged by `why_stale` first: secret, fence, state and end of the lease.
3. A beat may start what has not begun (`beat_trigger`).
4. The end: `complete`, or what a failure (`after_failure`), a stop (`after_stop`), a release (`after_release`), a lost
   lease (`after_loss`) or a timeout (`after_timeout`) comes to. The lease ends with it, by `lease_end_trigger`.
5. A cancel is done at once, asked of the holder, or kept for later (`cancel_action`); when its deadline has passed,
   `after_cancel_deadline` says how it is done without the holder.

`AttemptsUsed` is what decides between another attempt and the end. Its counts include the present failure or loss.

How long leases last: `kernel/timing.py`; what children mean to a parent: `kernel/families.py`. What is not pretty: not
every lifecycle lists each trigger, so most functions name a first choice and what to do without it (`choose`).
"""

from dataclasses import dataclass

from interlock.kernel.errors import Refused
from interlock.kernel.lifecycle import Category, Lifecycle
from interlock.kernel.lifecycle_options import Budget, CancelMode

# While a unit is in one of these, its holder keeps the lease.
LEASED = frozenset({Category.HELD, Category.ACTIVE, Category.CLOSING})
LIVE = frozenset({Category.HELD, Category.ACTIVE})  # a lease's own categories

# How a lease ends, by what ended it.
LEASE_ENDS = {"finish": "complete", "stop": "acknowledge", "lose": "expire", "force": "revoke"}

ASK = "ask"  # cancel: tell the holder, move nothing yet
DEFER = "defer"  # cancel: keep the wish until the lifecycle has a move for it


def choose(lifecycle: Lifecycle, state: str, *wanted: str) -> str:
    """The first of `wanted` that the lifecycle lists here; raises Refused if it lists none."""
    for trigger in wanted:
        if lifecycle.allows(state, trigger):
            return trigger
    raise Refused(lifecycle.name, state, wanted[0], lifecycle.triggers(state))


@dataclass(frozen=True)
class AttemptsUsed:
    """What was used up of a unit's budget, and whether somebody has asked for its cancel."""

    budget: Budget
    failures: int
    losses: int
    cancel_asked: bool = False

    def left(self, *, lost: bool = False) -> bool:
        """Whether another attempt may be opened. A cancel that was asked for is never outlived by one."""
        if self.cancel_asked:
            return False
        if self.budget.losses is None:
            return self.failures + self.losses < self.budget.attempts
        return self.losses < self.budget.losses if lost else self.failures < self.budget.attempts


def claim_trigger(lifecycle: Lifecycle, state: str, *, held: bool) -> str:
    """The trigger by which a worker may take this unit now; empty if it may not."""
    if held:
        return ""
    if lifecycle.category(state) is Category.READY and lifecycle.allows(state, "claim"):
        return "claim"
    return "reclaim" if lifecycle.allows(state, "reclaim") else ""


def next_fence(fence: int) -> int:
    """The fence of the next grant: it only grows, so an outside system can refuse an older one."""
    return fence + 1


def beat_trigger(lifecycle: Lifecycle, state: str) -> str:
    """What the beat of a running handler moves; empty if it only renews.

    Where a lease must be acknowledged first, a beat does not start anything (A4-37).
    """
    if lifecycle.allows(state, "beat"):
        return "beat"
    if not lifecycle.allows(state, "start"):
        return ""
    if lifecycle.options.lease and lifecycle.options.lease.ack_us is not None:
        raise Refused(lifecycle.name, state, "beat", lifecycle.triggers(state))
    return "start"


def after_failure(lifecycle: Lifecycle, state: str, used: AttemptsUsed, *, retryable: bool) -> str:
    """What a failure that the holder reports comes to."""
    if not retryable:
        return choose(lifecycle, state, "fail", "bury")
    if used.left() and lifecycle.allows(state, "retry"):
        return "retry"
    if used.cancel_asked and lifecycle.allows(state, "stopped"):
        return "stopped"
    if not lifecycle.allows(state, "retry"):
        return choose(lifecycle, state, "fail", *(() if used.left() else ("exhaust",)), "bury")
    return choose(lifecycle, state, used.budget.exhausted, "exhaust", "fail")


def after_release(lifecycle: Lifecycle, state: str, used: AttemptsUsed, trigger: str) -> str:
    """What giving a unit back (`release`, `snooze`) comes to: the end, if a cancel was asked for."""
    return choose(lifecycle, state, "stopped", "overdue") if used.cancel_asked else choose(lifecycle, state, trigger)


def after_loss(lifecycle: Lifecycle, state: str, used: AttemptsUsed) -> str:
    """What a lost lease comes to; empty if the unit stays where it is until another worker reclaims it."""
    if used.left(lost=True):
        return "" if lifecycle.allows(state, "reclaim") else choose(lifecycle, state, "lost")
    # The holder is gone, so nobody can answer a cancel any more (A4-14).
    return after_cancel_deadline(lifecycle, state) if used.cancel_asked else choose(lifecycle, state, "exhaust", "lost")


def after_timeout(lifecycle: Lifecycle, state: str, used: AttemptsUsed) -> str:
    """What running too long comes to: a retry while attempts are left."""
    return "retry" if used.left() and lifecycle.allows(state, "retry") else choose(lifecycle, state, "time_out")


def cancel_action(lifecycle: Lifecycle, state: str, *, hard: bool, held: bool) -> str:
    """What asking for a cancel does now: the trigger `cancel`, ASK or DEFER; raises Refused."""
    softly = lifecycle.options.cancel_mode is CancelMode.FLAGGED and not hard
    if softly and held and lifecycle.category(state) is Category.ACTIVE:
        return ASK
    if lifecycle.allows(state, "cancel"):
        return "cancel"
    if lifecycle.states[state].cancel == "deferred":
        return DEFER
    raise Refused(lifecycle.name, state, "cancel", lifecycle.triggers(state))


def after_cancel_deadline(lifecycle: Lifecycle, state: str) -> str:
    """What a cancel comes to whose deadline has passed, or whose holder is gone."""
    return choose(lifecycle, state, "overdue", "cancel")


def is_cancel_resumed(lifecycle: Lifecycle, source: str, target: str) -> bool:
    """Whether a cancel that `source` deferred can be carried out in `target`."""
    return lifecycle.states[source].cancel == "deferred" and lifecycle.allows(target, "cancel")


def after_stop(lifecycle: Lifecycle, state: str, *, cancel_requested: bool) -> str:
    """What a holder's word that it has stopped comes to; only an answer to a cancel is heard."""
    if not cancel_requested:
        raise Refused(lifecycle.name, state, "stopped", lifecycle.triggers(state))
    return choose(lifecycle, state, "stopped")


def keeps_lease(lifecycle: Lifecycle, state: str) -> bool:
    """Whether the holder of a unit in this state keeps its lease."""
    return lifecycle.category(state) in LEASED


def activates(lifecycle: Lifecycle, state: str) -> bool:
    """Whether a lease is active here: as soon as its holder may complete the unit."""
    return lifecycle.allows(state, "complete")


def lease_end_trigger(lease: Lifecycle, state: str, cause: str) -> str:
    """The trigger that ends a lease; one that was never acknowledged can only expire or be revoked."""
    return choose(lease, state, LEASE_ENDS[cause], "revoke")


def why_stale(lease: Lifecycle, state: str, *, fence: int, owner: str, until: int, by: str, sent: int, now: int) -> str:
    """Why `by`, who sends the fence `sent`, may not speak for the unit at `now`; empty if it may."""
    if by != owner:
        return "UNKNOWN_LEASE"
    if sent != fence:
        return "LEASE_SUPERSEDED" if sent < fence else "UNKNOWN_LEASE"
    if lease.states[state].settled:
        return "LEASE_REVOKED" if lease.category(state) is Category.CANCELLED else "LEASE_ENDED"
    return "LEASE_EXPIRED" if now >= until else ""
