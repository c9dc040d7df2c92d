"""Decisions that choose between triggers, and judgements about leases. Pure: same inputs, same answer.

A verb knows what happened; these functions know which of the lifecycle's triggers that is.
Counts are handed in with the present failure or loss already counted.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from interlock.kernel.commands import Policy
from interlock.kernel.durations import spoken
from interlock.kernel.errors import InterlockError, Refused
from interlock.kernel.lifecycle import Backoff, Budget, CancelMode, Category, LeaseTerms, Lifecycle, RollUp

# While a unit is in one of these, its holder keeps the lease.
LEASED = frozenset({Category.HELD, Category.ACTIVE, Category.CLOSING})
LIVE = frozenset({Category.HELD, Category.ACTIVE})  # a lease's own categories

# How a lease ends, by what ended it.
LEASE_ENDS = {"finish": "complete", "stop": "acknowledge", "lose": "expire", "force": "revoke"}

BEATS_HEARD = 3  # so many beats are missed before a worker counts as silent

ASK = "ask"  # cancel: tell the holder, move nothing yet
DEFER = "defer"  # cancel: keep the wish until the lifecycle has a move for it


def choose(lifecycle: Lifecycle, state: str, *wanted: str) -> str:
    """The first of `wanted` that the lifecycle lists here; raises Refused if it lists none."""
    for trigger in wanted:
        if lifecycle.allows(state, trigger):
            return trigger
    raise Refused(lifecycle.name, state, wanted[0], lifecycle.triggers(state))


@dataclass(frozen=True)
class Tally:
    """What was used up of a unit's budget, and whether somebody has asked for its cancel."""

    budget: Budget
    failures: int
    losses: int
    asked: bool = False

    def left(self, *, lost: bool = False) -> bool:
        """Whether another attempt may be opened. A cancel that was asked for is never outlived by one."""
        if self.asked:
            return False
        if self.budget.losses is None:
            return self.failures + self.losses < self.budget.attempts
        return self.losses < self.budget.losses if lost else self.failures < self.budget.attempts


def claim(lifecycle: Lifecycle, state: str, *, held: bool) -> str:
    """The trigger by which a worker may take this unit now; empty if it may not."""
    if held:
        return ""
    if lifecycle.category(state) is Category.READY and lifecycle.allows(state, "claim"):
        return "claim"
    return "reclaim" if lifecycle.allows(state, "reclaim") else ""


def next_fence(fence: int) -> int:
    """The fence of the next grant: it only grows, so an outside system can refuse an older one."""
    return fence + 1


def beat(lifecycle: Lifecycle, state: str) -> str:
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


def after_failure(lifecycle: Lifecycle, state: str, tally: Tally, *, retryable: bool) -> str:
    """What a failure that the holder reports comes to."""
    if not retryable:
        return choose(lifecycle, state, "fail", "bury")
    if tally.left() and lifecycle.allows(state, "retry"):
        return "retry"
    if tally.asked and lifecycle.allows(state, "stopped"):
        return "stopped"
    if not lifecycle.allows(state, "retry"):
        return choose(lifecycle, state, "fail", *(() if tally.left() else ("exhaust",)), "bury")
    return choose(lifecycle, state, tally.budget.exhausted, "exhaust", "fail")


def after_release(lifecycle: Lifecycle, state: str, tally: Tally, said: str) -> str:
    """What giving a unit back (`release`, `snooze`) comes to: the end, if a cancel was asked for."""
    return choose(lifecycle, state, "stopped", "overdue") if tally.asked else choose(lifecycle, state, said)


def after_loss(lifecycle: Lifecycle, state: str, tally: Tally) -> str:
    """What a lost lease comes to; empty if the unit stays where it is until another worker reclaims it."""
    if tally.left(lost=True):
        return "" if lifecycle.allows(state, "reclaim") else choose(lifecycle, state, "lost")
    # The holder is gone, so nobody can answer a cancel any more (A4-14).
    return overdue(lifecycle, state) if tally.asked else choose(lifecycle, state, "exhaust", "lost")


def after_timeout(lifecycle: Lifecycle, state: str, tally: Tally) -> str:
    """What running too long comes to: a retry while attempts are left."""
    return "retry" if tally.left() and lifecycle.allows(state, "retry") else choose(lifecycle, state, "time_out")


def after_attempt(lifecycle: Lifecycle, state: str, tally: Tally, *, retryable: bool) -> str:
    """Whether a unit that follows its attempts opens another one: `retry`, or empty."""
    return "retry" if retryable and tally.left() and lifecycle.allows(state, "retry") else ""


def follow(lifecycle: Lifecycle, state: str, trigger: str, target: str) -> str:
    """The trigger that a following unit fires when its child fired `trigger` and came to `target`.

    Empty if it is there already: the attempt that it opened itself is born behind it.
    """
    return "" if state == target and not lifecycle.allows(state, trigger) else choose(lifecycle, state, trigger)


def cancel(lifecycle: Lifecycle, state: str, *, hard: bool, held: bool) -> str:
    """What asking for a cancel does now: the trigger `cancel`, ASK or DEFER; raises Refused."""
    softly = lifecycle.options.cancel_mode is CancelMode.FLAGGED and not hard
    if softly and held and lifecycle.category(state) is Category.ACTIVE:
        return ASK
    if lifecycle.allows(state, "cancel"):
        return "cancel"
    if lifecycle.states[state].cancel == "deferred":
        return DEFER
    raise Refused(lifecycle.name, state, "cancel", lifecycle.triggers(state))


def overdue(lifecycle: Lifecycle, state: str) -> str:
    """What a cancel comes to whose deadline has passed, or whose holder is gone."""
    return choose(lifecycle, state, "overdue", "cancel")


def resumed_cancel(lifecycle: Lifecycle, source: str, target: str) -> bool:
    """Whether a cancel that `source` deferred can be carried out in `target`."""
    return lifecycle.states[source].cancel == "deferred" and lifecycle.allows(target, "cancel")


def stopped(lifecycle: Lifecycle, state: str, *, asked: bool) -> str:
    """What a holder's word that it has stopped comes to; only an answer to a cancel is heard."""
    if not asked:
        raise Refused(lifecycle.name, state, "stopped", lifecycle.triggers(state))
    return choose(lifecycle, state, "stopped")


def keeps_lease(lifecycle: Lifecycle, state: str) -> bool:
    """Whether the holder of a unit in this state keeps its lease."""
    return lifecycle.category(state) in LEASED


def activates(lifecycle: Lifecycle, state: str) -> bool:
    """Whether a lease is active here: as soon as its holder may complete the unit."""
    return lifecycle.allows(state, "complete")


def lease_end(lease: Lifecycle, state: str, cause: str) -> str:
    """The trigger that ends a lease; one that was never acknowledged can only expire or be revoked."""
    return choose(lease, state, LEASE_ENDS[cause], "revoke")


def stale(lease: Lifecycle, state: str, *, fence: int, owner: str, until: int, by: str, said: int, now: int) -> str:
    """Why `by`, who says fence `said`, may not speak for the unit at `now`; empty if it may."""
    if by != owner:
        return "UNKNOWN_LEASE"
    if said != fence:
        return "LEASE_SUPERSEDED" if said < fence else "UNKNOWN_LEASE"
    if lease.states[state].settled:
        return "LEASE_REVOKED" if lease.category(state) is Category.CANCELLED else "LEASE_ENDED"
    return "LEASE_EXPIRED" if now >= until else ""


def backoff(rule: Backoff, tries: int, spread: float) -> int:
    """How long to wait after the n-th try, in microseconds; `spread` in [0, 1) places it within the jitter.

    No delay is longer than the cap. The jitter is placed below it, not cut off there: else half of the delays that
    have reached the cap would be equal, and retries would come together.
    """
    cap_us = math.inf if rule.cap_us is None else rule.cap_us
    delay_us: float = min(rule.base_us * rule.factor ** min(tries, 40), cap_us)
    shortest_us, longest_us = delay_us * (1 - rule.jitter), min(delay_us * (1 + rule.jitter), cap_us)
    return round(shortest_us + (longest_us - shortest_us) * spread)


def spread(unit: int, attempt: int) -> float:
    """A number in [0, 1) that is the same whenever this attempt of this unit is asked about, and like no other."""
    mixed = (unit * 0x9E3779B97F4A7C15 + attempt * 0xD1B54A32D192ED03) & 0xFFFFFFFFFFFFFFFF
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = ((mixed ^ mixed >> shift) * factor) & 0xFFFFFFFFFFFFFFFF
    return (mixed ^ mixed >> 31) / 2**64


def lease_terms(terms: LeaseTerms, own: Policy) -> tuple[int, int]:
    """For how long a unit is leased, and how often its holder must be heard (0: never). Raises InterlockError."""
    ttl_us, beat_us = wanted_ttl_us(terms, own), 0 if own.silent else own.beat_us or terms.beat_us
    if own.silent and terms.silent_max_us is None:
        raise InterlockError("silent work is not allowed here: its holder must beat")
    within("ttl_us", ttl_us, terms.ttl_min_us, (own.silent and terms.silent_max_us) or terms.ttl_max_us)
    if beat_us:
        within("beat_us", beat_us, terms.beat_min_us, terms.beat_max_us)
        if ttl_us < 2 * beat_us:
            raise InterlockError(
                f"ttl_us = {spoken(ttl_us)} is not allowed; at least two beats of {spoken(beat_us)} are"
            )
    elif own.sla_us and ttl_us < own.sla_us:
        sla = spoken(own.sla_us)
        raise InterlockError(f"ttl_us = {spoken(ttl_us)} is below the sla_us = {sla} of work that cannot beat")
    return ttl_us, beat_us


def wanted_ttl_us(terms: LeaseTerms, own: Policy) -> int:
    """For how long a unit asks to be leased.

    Whoever cannot beat is given as long as it takes until the work may be reclaimed (A1-8), as far as a lease may last.
    """
    if not own.silent or own.ttl_us is not None or own.reclaim_after_us is None:
        return own.ttl_us or terms.ttl_us
    return max(terms.ttl_min_us, min(own.reclaim_after_us, terms.silent_max_us or terms.ttl_max_us))


def granted_terms(terms: LeaseTerms, own: Policy) -> tuple[int, int]:
    """The same at a grant. Rules that were tightened since the unit was made are clamped: it can always be leased."""
    silent = own.silent and terms.silent_max_us is not None
    most_us = (silent and terms.silent_max_us) or terms.ttl_max_us
    ttl_us = min(max(wanted_ttl_us(terms, own), terms.ttl_min_us), most_us)
    if silent:
        return ttl_us, 0
    beat_us = min(max(own.beat_us or terms.beat_us, terms.beat_min_us), terms.beat_max_us)
    return ttl_us, min(beat_us, ttl_us // 2)


def within(name: str, number: int, least: int, most: int) -> None:
    if not least <= number <= most:
        raise InterlockError(f"{name} = {spoken(number)} is not allowed; {spoken(least)} to {spoken(most)} is")


def time_limit(lifecycle: Lifecycle, state: str, own: Policy) -> int | None:
    """For how long a unit may stay in this state, as far as its own clock says."""
    rule = lifecycle.states[state]
    if state not in lifecycle.clocked:
        return None
    return (own_limit(rule.category, own) if rule.deadline == "time_out" else None) or rule.within_us


def own_limit(category: Category, own: Policy) -> int | None:
    """What a unit says of itself about how long it may wait, run, or be asked about."""
    if category is Category.ACTIVE:
        return own.timeout_us
    if category is Category.READY or category is Category.WAITING:
        return own.queue_timeout_us
    return own.expires_us if category is Category.GATE else None


def quiet(beat_us: int, within_us: int) -> bool:
    """Whether a holder that beats so seldom (0: never) may be silent for longer than its worker may."""
    return beat_us == 0 or BEATS_HEARD * beat_us > within_us


def shares(room: int, queues: int) -> list[int]:
    """How many units a claim takes of each queue if all have enough; what is left over goes to the first ones."""
    return [room // queues + (place < room % queues) for place in range(queues)]


def rotated(queues: Sequence[str], key: str) -> list[str]:
    """The queues in their order, from the one whose turn it is in the claim with this key."""
    turn = int.from_bytes(sha256(key.encode()).digest()[:8], "big") % len(queues) if queues else 0
    return [*queues[turn:], *queues[:turn]]


def lease_end_at(terms: LeaseTerms, now: int, ttl_us: int, beat_us: int, *, active: bool = True) -> int:
    """When a lease ends that was heard of now: the earliest of its TTL, the beats that it may miss, and its window.

    The window is for the acknowledgement, so it counts only until the lease is active. Without beats none is missed.
    """
    ends = [ttl_us]
    if terms.missed_beats and beat_us:
        ends.append(terms.missed_beats * beat_us)
    if terms.ack_us is not None and not active:
        ends.append(terms.ack_us)
    return now + min(ends)


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


def verdict(lifecycle: Lifecycle, state: str, children: Children) -> str:
    """The one thing that children say to their parent: the first that is true, if its lifecycle lists it here.

    Never a list to choose from: with a list, two triggers can undo each other for ever.
    """
    rule = lifecycle.options.roll_up
    ended = children.total > 0 and children.succeeded + children.lost == children.total
    ready = children.total - children.succeeded - children.lost - children.gates - children.blocked - children.begun
    moving = children.begun + children.gates + ready
    if rule is RollUp.REQUIRED and children.deciders:
        well = children.won == children.deciders  # whatever the optional ones do (A4-28)
    else:
        well = ended and (children.succeeded == children.total if rule is RollUp.CRITICAL else not children.decided)
    verdicts = {
        "stopped": ended and lifecycle.category(state) is Category.CLOSING,
        "fail": children.decided > 0,
        "succeed": well,
        "stall": rule is RollUp.CRITICAL and children.total > 0 and not moving,
        "gate": children.gates > 0 and not children.begun and not ready,
        "begin": children.begun + children.succeeded + children.lost > 0,
    }
    said = next((trigger for trigger, true in verdicts.items() if true), "")
    return said if said and lifecycle.allows(state, said) else ""


def after_parent(lifecycle: Lifecycle, state: str, *, cancelled: bool) -> str:
    """What the end of a parent does to a child; empty if nothing can be done, or the wish must wait."""
    told = "parent_cancelled" if cancelled else "parent_failed"
    return next((trigger for trigger in (told, "cancel") if lifecycle.allows(state, trigger)), "")
