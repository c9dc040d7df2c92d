"""The decisions: which trigger a fact comes to, and who may speak for a unit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.kernel import families, policy, timing
from interlock.kernel.errors import Refused
from interlock.kernel.lifecycle_options import Backoff, Budget
from interlock.kernel.policy import AttemptsUsed
from interlock.lifecycles import find
from interlock.store.queries.claims import rotate_queues, split_room

ONE = Budget(attempts=3)
TWO = Budget(attempts=1, losses=2)


@pytest.mark.parametrize(
    ("budget", "failures", "losses", "lost", "left"),
    [
        (ONE, 1, 1, False, True),
        (ONE, 2, 1, False, False),
        (ONE, 0, 3, True, False),
        (TWO, 1, 0, False, False),
        (TWO, 0, 1, True, True),
        (TWO, 0, 2, True, False),
        (TWO, 0, 2, False, True),
    ],
)
def test_attempts_left(budget: Budget, failures: int, losses: int, lost: bool, left: bool) -> None:
    assert AttemptsUsed(budget, failures, losses).left(lost=lost) is left


def test_a_cancel_that_was_asked_for_leaves_no_attempt() -> None:
    assert not AttemptsUsed(ONE, 0, 0, cancel_asked=True).left()


@pytest.mark.parametrize(
    ("name", "state", "tally", "retryable", "trigger"),
    [
        ("job", "running", AttemptsUsed(ONE, 1, 0), True, "retry"),
        ("job", "running", AttemptsUsed(ONE, 3, 0), True, "exhaust"),
        ("job", "running", AttemptsUsed(Budget(attempts=3, exhausted="fail"), 3, 0), True, "fail"),
        ("job", "running", AttemptsUsed(ONE, 1, 0), False, "fail"),
        ("job", "running", AttemptsUsed(ONE, 1, 0, cancel_asked=True), True, "stopped"),
        ("job", "assigned", AttemptsUsed(ONE, 1, 0), True, "retry"),
        ("job", "assigned", AttemptsUsed(ONE, 1, 0), False, "bury"),
        ("step", "RUNNING", AttemptsUsed(ONE, 3, 0), True, "exhaust"),
        ("agent_job", "running", AttemptsUsed(ONE, 1, 0), True, "fail"),
        ("ci_attempt", "RUNNING", AttemptsUsed(TWO, 1, 0), True, "fail"),
    ],
)
def test_after_a_failure(name: str, state: str, tally: AttemptsUsed, retryable: bool, trigger: str) -> None:
    assert policy.after_failure(find(name), state, tally, retryable=retryable) == trigger


@pytest.mark.parametrize(
    ("name", "state", "tally", "trigger"),
    [
        ("job", "running", AttemptsUsed(ONE, 0, 1), "lost"),
        ("job", "running", AttemptsUsed(ONE, 0, 3), "exhaust"),
        ("job", "running", AttemptsUsed(ONE, 0, 1, cancel_asked=True), "cancel"),
        ("agent_job", "claimed", AttemptsUsed(ONE, 0, 1), ""),
        ("agent_job", "running", AttemptsUsed(ONE, 0, 3), "exhaust"),
        ("step", "RUNNING", AttemptsUsed(ONE, 0, 1), ""),
        ("ci_attempt", "UPLOADING", AttemptsUsed(TWO, 0, 1), "lost"),
        ("ci_attempt", "UPLOADING", AttemptsUsed(TWO, 0, 1, cancel_asked=True), "overdue"),
        ("ci_attempt", "CANCEL_REQUESTED", AttemptsUsed(TWO, 0, 1, cancel_asked=True), "overdue"),
    ],
)
def test_after_a_lost_lease(name: str, state: str, tally: AttemptsUsed, trigger: str) -> None:
    assert policy.after_loss(find(name), state, tally) == trigger


@pytest.mark.parametrize(
    ("name", "state", "tally", "trigger"),
    [
        ("job", "running", AttemptsUsed(ONE, 1, 0), "retry"),
        ("job", "running", AttemptsUsed(ONE, 3, 0), "time_out"),
        ("job", "queued", AttemptsUsed(ONE, 1, 0), "time_out"),
        ("task", "validating", AttemptsUsed(ONE, 1, 0), "time_out"),
        ("ci_attempt", "RUNNING", AttemptsUsed(TWO, 0, 0), "time_out"),
    ],
)
def test_after_running_too_long(name: str, state: str, tally: AttemptsUsed, trigger: str) -> None:
    assert policy.after_timeout(find(name), state, tally) == trigger


@pytest.mark.parametrize(
    ("name", "state", "hard", "held", "answer"),
    [
        ("job", "queued", False, False, "cancel"),
        ("job", "assigned", False, True, "cancel"),
        ("job", "running", False, True, policy.ASK),
        ("job", "running", True, True, "cancel"),
        ("step", "RUNNING", False, True, "cancel"),
        ("ci_run", "PLANNING", False, False, policy.DEFER),
        ("ci_attempt", "UPLOADING", False, True, policy.DEFER),
        ("ci_attempt", "RUNNING", False, True, "cancel"),
    ],
)
def test_what_a_cancel_does(name: str, state: str, hard: bool, held: bool, answer: str) -> None:
    assert policy.cancel_action(find(name), state, hard=hard, held=held) == answer


@pytest.mark.parametrize(("name", "state"), [("workstream", "validating"), ("job", "succeeded"), ("worker", "busy")])
def test_where_a_cancel_is_refused(name: str, state: str) -> None:
    with pytest.raises(Refused):
        policy.cancel_action(find(name), state, hard=True, held=False)


def test_only_an_answer_to_a_cancel_is_heard() -> None:
    assert policy.after_stop(find("job"), "running", cancel_requested=True) == "stopped"
    with pytest.raises(Refused):
        policy.after_stop(find("job"), "running", cancel_requested=False)


@pytest.mark.parametrize(
    ("name", "state", "trigger"),
    [("job", "assigned", "start"), ("job", "running", ""), ("ci_attempt", "STARTING", "beat"), ("step", "RUNNING", "")],
)
def test_what_a_beat_moves(name: str, state: str, trigger: str) -> None:
    assert policy.beat_trigger(find(name), state) == trigger


def test_a_beat_before_the_acknowledgement_is_refused() -> None:
    with pytest.raises(Refused):
        policy.beat_trigger(find("ci_attempt"), "LEASED")


@pytest.mark.parametrize(
    ("name", "state", "held", "trigger"),
    [
        ("job", "queued", False, "claim"),
        ("job", "running", False, ""),
        ("agent_job", "running", True, ""),
        ("agent_job", "running", False, "reclaim"),
        ("ci_job", "QUEUED", False, ""),
    ],
)
def test_what_a_worker_may_claim(name: str, state: str, held: bool, trigger: str) -> None:
    assert policy.claim_trigger(find(name), state, held=held) == trigger


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({}, ""),
        ({"by": "B"}, "UNKNOWN_LEASE"),
        ({"sent": 1}, "LEASE_SUPERSEDED"),
        ({"sent": 3}, "UNKNOWN_LEASE"),
        ({"now": 100}, "LEASE_EXPIRED"),
        ({"state": "REVOKED"}, "LEASE_REVOKED"),
        ({"state": "COMPLETED"}, "LEASE_ENDED"),
        ({"state": "GRANTED"}, ""),
    ],
)
def test_who_may_speak(facts: dict[str, object], why: str) -> None:
    said = {
        "state": "ACTIVE",
        "fence": 2,
        "owner": "A",
        "until": 100,
        "by": "A",
        "sent": 2,
        "now": 99,
        **facts,
    }
    assert policy.why_stale(find("lease"), **said) == why  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("state", "cause", "trigger"),
    [("ACTIVE", "finish", "complete"), ("ACTIVE", "stop", "acknowledge"), ("ACTIVE", "lose", "expire"),
     ("ACTIVE", "force", "revoke"), ("GRANTED", "finish", "revoke"), ("GRANTED", "lose", "expire")],
)  # fmt: skip
def test_how_a_lease_ends(state: str, cause: str, trigger: str) -> None:
    assert policy.lease_end_trigger(find("lease"), state, cause) == trigger


def test_a_following_unit_stays_where_it_already_is() -> None:
    job = find("ci_job")
    assert families.follow_trigger(job, "QUEUED", "ready", "QUEUED") == ""
    assert families.follow_trigger(job, "CREATED", "ready", "QUEUED") == "ready"
    with pytest.raises(Refused):
        families.follow_trigger(job, "CREATED", "upload", "UPLOADING")


def test_a_logical_job_tries_again_while_its_budget_lasts() -> None:
    job = find("ci_job")
    assert (
        families.after_attempt(job, "FAILED", AttemptsUsed(Budget(attempts=2, losses=1), 1, 0), retryable=True)
        == "retry"
    )
    assert (
        families.after_attempt(job, "FAILED", AttemptsUsed(Budget(attempts=2, losses=1), 1, 0), retryable=False) == ""
    )
    assert families.after_attempt(job, "FAILED", AttemptsUsed(Budget(attempts=1, losses=1), 1, 0), retryable=True) == ""
    assert families.after_attempt(job, "SUCCEEDED", AttemptsUsed(Budget(attempts=9), 0, 0), retryable=True) == ""


def test_a_release_under_a_cancel_is_its_end() -> None:
    asked = AttemptsUsed(ONE, 0, 0, cancel_asked=True)
    assert policy.after_release(find("job"), "running", AttemptsUsed(ONE, 0, 0), "snooze") == "snooze"
    assert policy.after_release(find("job"), "running", asked, "release") == "stopped"
    assert policy.after_release(find("ci_attempt"), "UPLOADING", asked, "release") == "overdue"


def test_shares_are_fair_and_spend_all_room() -> None:
    assert split_room(10, 3) == [4, 3, 3]
    assert split_room(1, 3) == [1, 0, 0]
    assert split_room(6, 1) == [6]


def test_every_queue_has_its_turn() -> None:
    queues = ["a", "b", "c"]
    orders = [rotate_queues(queues, f"claim {number}") for number in range(300)]
    assert {"".join(order) for order in orders} == {"abc", "bca", "cab"}
    assert all(sum(order[0] == queue for order in orders) > 60 for queue in queues)
    assert orders == [rotate_queues(queues, f"claim {number}") for number in range(300)]
    assert rotate_queues([], "claim") == []


SPREADS = st.floats(0, 1, exclude_max=True)


@given(
    st.integers(0, 10**9), st.integers(1, 4), st.integers(1, 10**9), st.floats(0, 1, exclude_max=True),
    st.integers(0, 60), SPREADS,
)  # fmt: skip
def test_no_delay_is_longer_than_the_cap_whatever_the_jitter(
    base_us: int, factor: int, cap_us: int, jitter: float, tries: int, spread: float
) -> None:
    """S-4: jitter is inside the cap, and still at least 1 - jitter of the delay that it spreads."""
    rule = Backoff(base_us=base_us, factor=factor, cap_us=cap_us, jitter=jitter)
    plain_us = min(cap_us, base_us * factor ** min(tries, 40))
    delay_us = timing.backoff(rule, tries, spread)
    assert delay_us <= cap_us
    assert round((1 - jitter) * plain_us) <= delay_us <= round((1 + jitter) * plain_us)


@given(st.integers(1, 10**6), st.integers(0, 20), SPREADS)
def test_a_delay_below_the_cap_is_spread_to_both_sides(base_us: int, tries: int, spread: float) -> None:
    rule = Backoff(base_us=base_us, cap_us=3 * base_us * 2**tries, jitter=0.5)
    expected = base_us * 2**tries * (0.5 + spread)
    assert abs(timing.backoff(rule, tries, spread) - expected) <= 1


def test_delays_at_the_cap_differ() -> None:
    """Were they only cut off at the cap, half of the retries would come at one instant."""
    rule = Backoff(base_us=500_000, cap_us=60_000_000, jitter=0.5)
    delays = {timing.backoff(rule, 30, timing.spread(unit, 1)) for unit in range(1_000)}
    assert len(delays) > 990
    assert 30_000_000 <= min(delays) < 31_000_000
    assert 59_000_000 < max(delays) <= 60_000_000
