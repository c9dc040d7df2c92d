"""Durations that policy needs: backoff before a retry, terms of a lease, deadlines of states."""

import math

from interlock.kernel.commands import Policy
from interlock.kernel.durations import format_us
from interlock.kernel.errors import InterlockError
from interlock.kernel.lifecycle import Category, Lifecycle
from interlock.kernel.lifecycle_options import Backoff, LeaseRules

STANDS_US = 1_000 * 366 * 86_400_000_000  # by so much a deadline is put off while its clock stands
BEATS_HEARD = 3  # so many beats are missed before a worker counts as silent


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


def check_lease_terms(terms: LeaseRules, own: Policy) -> tuple[int, int]:
    """For how long a unit is leased, and how often its holder must be heard (0: never).

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    ttl_us, beat_us = compute_ttl_us(terms, own), 0 if own.silent else own.beat_us or terms.beat_us
    if own.silent and terms.silent_max_us is None:
        raise InterlockError("silent work is not allowed here: its worker must send heartbeats")
    check_duration("ttl_us", ttl_us, terms.ttl_min_us, (own.silent and terms.silent_max_us) or terms.ttl_max_us)
    if beat_us:
        check_duration("beat_us", beat_us, terms.beat_min_us, terms.beat_max_us)
        if ttl_us < 2 * beat_us:
            allowed = f"allowed is at least two heartbeats of {format_us(beat_us)}"
            raise InterlockError(f"ttl_us = {format_us(ttl_us)} is not allowed; {allowed}")
    elif own.sla_us and ttl_us < own.sla_us:
        sla = format_us(own.sla_us)
        raise InterlockError(f"ttl_us = {format_us(ttl_us)} is below the sla_us = {sla} of work without heartbeats")
    return ttl_us, beat_us


def compute_ttl_us(terms: LeaseRules, own: Policy) -> int:
    """For how long a unit asks to be leased.

    Whoever cannot beat is given as long as it takes until the work may be reclaimed (A1-8), as far as a lease may last.
    """
    if not own.silent or own.ttl_us is not None or own.reclaim_after_us is None:
        return own.ttl_us or terms.ttl_us
    return max(terms.ttl_min_us, min(own.reclaim_after_us, terms.silent_max_us or terms.ttl_max_us))


def clamp_lease_terms(terms: LeaseRules, own: Policy) -> tuple[int, int]:
    """The same at a grant. Rules that were tightened since the unit was made are clamped: it can always be leased."""
    silent = own.silent and terms.silent_max_us is not None
    most_us = (silent and terms.silent_max_us) or terms.ttl_max_us
    ttl_us = min(max(compute_ttl_us(terms, own), terms.ttl_min_us), most_us)
    if silent:
        return ttl_us, 0
    beat_us = min(max(own.beat_us or terms.beat_us, terms.beat_min_us), terms.beat_max_us)
    return ttl_us, min(beat_us, ttl_us // 2)


def check_duration(name: str, number: int, least: int, most: int) -> None:
    """A length of time within its bounds, all in microseconds.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    if not least <= number <= most:
        raise InterlockError(f"{name} = {format_us(number)} is not allowed; {format_us(least)} to {format_us(most)} is")


def time_limit(lifecycle: Lifecycle, state: str, own: Policy) -> int | None:
    """For how long a unit may stay in this state, as far as its own clock says."""
    rule = lifecycle.states[state]
    if state not in lifecycle.clocked:
        return None
    return own_limit(lifecycle, state, own) or rule.within_us


def present_deadline(deadline_at: int | None) -> int | None:
    """A deadline as people see it: a clock that stands has none until it goes on."""
    return None if deadline_at is None or deadline_at >= STANDS_US else deadline_at


def own_limit(lifecycle: Lifecycle, state: str, own: Policy) -> int | None:
    """What a unit says of itself about how long it may wait, be planned, run, be asked about, or take to stop."""
    rule = lifecycle.states[state]
    if rule.deadline == "overdue":
        return own.cancel_timeout_us
    if rule.deadline != "time_out":
        return None
    if rule.category is Category.ACTIVE:
        return own.timeout_us
    if rule.category is Category.READY or rule.category is Category.WAITING:
        planned = own.plan_timeout_us if lifecycle.allows(state, "plan") else None
        return planned or own.queue_timeout_us
    return own.expires_us if rule.category is Category.GATE else None


def is_quiet(beat_us: int, within_us: int) -> bool:
    """Whether a holder that beats so seldom (0: never) may be silent for longer than its worker may."""
    return beat_us == 0 or BEATS_HEARD * beat_us > within_us


def lease_end_at(terms: LeaseRules, now: int, ttl_us: int, beat_us: int, *, active: bool = True) -> int:
    """When a lease ends that was heard of now: the earliest of its TTL, the beats that it may miss, and its window.

    The window is for the acknowledgement, so it counts only until the lease is active. Without beats none is missed.
    """
    ends = [ttl_us]
    if terms.missed_beats and beat_us:
        ends.append(terms.missed_beats * beat_us)
    if terms.ack_us is not None and not active:
        ends.append(terms.ack_us)
    return now + min(ends)
