"""What is counted by minute and by hour: from the time of the events, and never more labels than are told apart."""

from collections import Counter
from collections.abc import Iterable

import pytest

from interlock.kernel.commands import MinuteCount
from interlock.kernel.metrics import OTHER, ObservedEvent
from interlock.kernel.minute_metrics import (
    FAILED,
    HOUR_US,
    KEPT_US,
    LABELS_MOST,
    LEVEL,
    MINUTE_US,
    RUN,
    WAIT,
    Labels,
    expires_at,
    find_error,
    list_minutes,
    sum_minutes,
)
from interlock.lifecycles import shipped

START = 500_000 * HOUR_US
SECOND = 1_000_000


def observe(
    trigger: str, source: str | None, target: str, at: int, lifecycle: str = "job", payload: str = "{}",
    lease: tuple[str | None, str | None] = (None, None), waited: int | None = None, ran: int | None = None,
    queue: str | None = None,
) -> ObservedEvent:  # fmt: skip
    return ObservedEvent(lifecycle, trigger, source, target, *lease, at, payload, "mail", waited, ran, queue)


def live(
    at: int, wait: int, run: int, queue: str = "q", end: str = "succeeded", payload: str = "{}"
) -> list[ObservedEvent]:
    """One job, from its birth to its end."""
    claimed, ended = at + wait, at + wait + run
    return [
        observe("submit", None, "queued", at),
        observe("claim", "queued", "assigned", claimed, lease=(None, "GRANTED"), waited=at, queue=queue),
        observe("start", "assigned", "running", claimed, lease=("GRANTED", "ACTIVE")),
        observe("end", "running", end, ended, lease=("ACTIVE", "RELEASED"), ran=claimed, queue=queue, payload=payload),
    ]


def no_labels(span: int, metric: str, first: int, last: int) -> Labels:
    return {}


def by_place(counts: Iterable[MinuteCount], span: int) -> dict[tuple[str, int, str, int], int]:
    return {
        (one.metric, (one.at - START) // MINUTE_US, one.label, one.bucket): one.value
        for one in counts
        if one.span == span
    }


def test_a_job_is_counted_in_the_minutes_of_its_events_and_in_their_hours() -> None:
    events = [
        *live(START, 3 * SECOND, 7 * SECOND),
        *live(START + 50 * SECOND, 20 * SECOND, 60 * SECOND, end="failed", payload='{"error_class": "Boom"}'),
        observe("register", None, "initializing", START, "worker"),
        observe("register", "initializing", "idle", START, "worker"),
        observe("drain", "idle", "shutdown", START + 61 * SECOND, "worker"),
    ]
    counts = list_minutes(sum_minutes(shipped(), events), no_labels, START)
    assert by_place(counts, MINUTE_US) == {
        ("ended", 0, "success", 0): 1, ("ended", 2, "failure", 0): 1, ("failures", 2, "Boom", 0): 1,
        ("wait", 0, "q", 9): 1, ("wait", 1, "q", 11): 1, ("run", 0, "q", 10): 1, ("run", 2, "q", 12): 1,
        ("level", 0, "ready", 0): 1, ("level", 1, "ready", 0): -1, ("level", 1, "active", 0): 1,
        ("level", 2, "active", 0): -1, ("level", 0, "workers", 0): 1, ("level", 1, "workers", 0): -1,
    }  # fmt: skip
    assert by_place(counts, HOUR_US) == {
        ("ended", 0, "success", 0): 1, ("ended", 0, "failure", 0): 1, ("failures", 0, "Boom", 0): 1,
        ("wait", 0, "q", 9): 1, ("wait", 0, "q", 11): 1, ("run", 0, "q", 10): 1, ("run", 0, "q", 12): 1,
    }  # fmt: skip


def test_strangers_choose_no_more_labels_than_are_told_apart() -> None:
    """Whatever is there already stays told apart; of what is new, the most frequent; and nothing is lost."""
    there = [f"there{number}" for number in range(LABELS_MOST - 1)]

    def some_labels(span: int, metric: str, first: int, last: int) -> Labels:
        return {(span, metric, START): [*there, OTHER]} if span == MINUTE_US else {}

    events = [one for number in range(30) for one in live(START, SECOND, SECOND, f"new{number}")]
    events += [*live(START, SECOND, SECOND, "new7"), *live(START, SECOND, SECOND, there[0])]
    counts = list_minutes(sum_minutes(shipped(), events), some_labels, START)
    for metric in (WAIT, RUN):
        minute = {one.label: one.value for one in counts if (one.span, one.metric) == (MINUTE_US, metric)}
        assert minute == {"new7": 2, there[0]: 1, OTHER: 29}
        hour = {one.label: one.value for one in counts if (one.span, one.metric) == (HOUR_US, metric)}
        assert (len(hour), sum(hour.values()), hour["new7"]) == (LABELS_MOST + 1, 32, 2)


def test_what_is_not_kept_any_more_is_not_counted() -> None:
    old, gone = START - KEPT_US[MINUTE_US] - HOUR_US, START - KEPT_US[HOUR_US] - HOUR_US
    events = [*live(START, SECOND, SECOND), *live(old, SECOND, SECOND), *live(gone, SECOND, SECOND)]
    counts = list_minutes(sum_minutes(shipped(), events), no_labels, START)
    assert Counter((one.span, one.at) for one in counts if one.metric == RUN) == {
        (MINUTE_US, START): 1, (HOUR_US, START): 1, (HOUR_US, old): 1,
    }  # fmt: skip
    # The minutes of an hour go together, so that what is left of an hour is all of it.
    assert {expires_at(MINUTE_US, START + minute * MINUTE_US) for minute in range(60)} == {
        START + HOUR_US + KEPT_US[MINUTE_US]
    }


def test_an_attempt_without_an_error_did_not_fail() -> None:
    payloads = ['{"timeout": true}', '{"error_class": "timeout"}', '{"timeout": false}', "{}", '{"x": "error_class"}']
    events = [observe("end", "running", "queued", START, payload=payload) for payload in payloads]
    sums = sum_minutes(shipped(), events)
    assert {place[2]: value for place, value in sums.items() if place[0] == FAILED} == {"timeout": 2}
    assert {place[2]: value for place, value in sums.items() if place[0] == LEVEL} == {"active": -5, "ready": 5}


@pytest.mark.parametrize(
    ("payload", "name"),
    [
        ('{"error_class": "TransientError", "error": "CardDeclined: do not honour"}', "CardDeclined"),
        ('{"error_class": "PermanentError", "error": "no such order: 7"}', "PermanentError"),
        ('{"error_class": "ValidationError", "error": ""}', "ValidationError"),
        ('{"timeout": true}', "timeout"),
        ('{"error": "of no attempt"}', None),
    ],
)
def test_a_failure_is_called_by_its_exception_or_else_by_its_class(payload: str, name: str | None) -> None:
    assert find_error(payload) == name
