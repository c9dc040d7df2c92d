"""Metrics by minute and by hour, for charts: ends, failed attempts, amounts and times.

`ended` counts units by the category that they ended in, `failures` attempts by their error, `wait` and `run` the times
of attempts by queue, in the buckets of the metrics. `level` is what came minus what left, by category (and `workers`):
whoever knows how much there is now knows from it how much there was.

Everything counts at the time of its event, however late it is counted. Minutes are kept for two days, hours for ninety.
Strangers choose the names of errors and queues: of one metric in one minute or hour the first twenty labels are told
apart, and the rest is `other`, so that the minutes of an hour always add up to it.
"""

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from interlock.kernel.commands import MinuteCount
from interlock.kernel.lifecycle import Category, Lifecycle
from interlock.kernel.metrics import BOUNDS_US, NONE, OTHER, TIMEOUT, ObservedEvent

MINUTE_US, HOUR_US = 60_000_000, 3_600_000_000
KEPT_US = {MINUTE_US: 48 * HOUR_US, HOUR_US: 90 * 24 * HOUR_US}
ENDED, FAILED, LEVEL, WAIT, RUN = "ended", "failures", "level", "wait", "run"
NAMED_BY_STRANGERS = (FAILED, WAIT, RUN)
LABELS_MOST = 20
NAMED = re.compile(r"[A-Za-z_][\w.]{0,59}(?=: )")  # the exception at the beginning of an error, as workers tell it
WORKER, WORKERS = "worker", "workers"  # the lifecycle, and its label

MinuteSums = Counter[tuple[str, int, str, int]]  # by metric, minute, label and bucket
Labels = Mapping[tuple[int, str, int], Iterable[str]]  # by span, metric and when it began
ReadLabels = Callable[[int, str, int, int], Labels]  # by span and metric, from one instant to another


def sum_minutes(lifecycles: Mapping[str, Lifecycle], events: Iterable[ObservedEvent]) -> MinuteSums:
    """Returns what these events add, by minute."""
    sums = MinuteSums()
    for event in events:
        minute = event.at - event.at % MINUTE_US
        lifecycle = lifecycles.get(event.lifecycle)
        if lifecycle is not None and event.source != event.target:
            sum_move(sums, lifecycle, event, minute)
        sum_times(sums, event, minute)
        if error := find_error(event.payload):
            sums[FAILED, minute, error, 0] += 1
    return sums


def sum_move(sums: MinuteSums, lifecycle: Lifecycle, event: ObservedEvent, minute: int) -> None:
    """Adds that a unit left one category and came to another."""
    source, target = lifecycle.states.get(event.source or ""), lifecycle.states.get(event.target)
    left = source.category if source and not source.settled else None
    came = target.category if target and not target.settled else None
    if lifecycle.name == WORKER:
        sums[LEVEL, minute, WORKERS, 0] += (came is not None) - (left is not None)
        return
    if left is not None:
        sums[LEVEL, minute, left.value, 0] -= 1
    if came is not None:
        sums[LEVEL, minute, came.value, 0] += 1
    has_ended = target is not None and target.settled and not (source and source.settled)
    if target is not None and has_ended and target.category is not Category.CLOSED:
        sums[ENDED, minute, target.category.value, 0] += 1


def sum_times(sums: MinuteSums, event: ObservedEvent, minute: int) -> None:
    """Adds how long an attempt waited, or ran."""
    queue = event.queue or NONE
    if event.lease_from is None and event.lease_to is not None and event.waited_from is not None:
        sums[WAIT, minute, queue, bisect_left(BOUNDS_US, event.at - event.waited_from)] += 1
    if event.lease_to is not None and event.ran_from is not None:
        sums[RUN, minute, queue, bisect_left(BOUNDS_US, event.at - event.ran_from)] += 1


def find_error(payload: str) -> str | None:
    """Returns what an attempt failed with, if the event tells that one failed: the exception, or else its class."""
    if '"error_class"' not in payload and '"timeout"' not in payload:
        return None
    fields: dict[str, Any] = msgspec.json.decode(payload)
    if not fields.get("error_class"):
        return TIMEOUT if fields.get("timeout") else None
    return find_exception(str(fields.get("error") or "")) or str(fields["error_class"])


def find_exception(error: str) -> str:
    """Returns the exception that an error begins with, as workers tell it; empty if it names none."""
    named = NAMED.match(error)
    return named[0] if named else ""


def list_minutes(sums: MinuteSums, read_labels: ReadLabels, now: int) -> tuple[MinuteCount, ...]:
    """Returns what is to be added to the minutes and hours that are still kept.

    Parameters:
        read_labels: returns the labels that a metric has already.
        now: in microseconds; what ended its time before is left out.
    """
    counts: list[MinuteCount] = []
    for span in (MINUTE_US, HOUR_US):
        by_place: defaultdict[tuple[str, int], Counter[tuple[str, int]]] = defaultdict(Counter)
        for (metric, minute, label, bucket), value in sums.items():
            at = minute - minute % span
            if expires_at(span, at) > now:
                by_place[metric, at][label, bucket] += value
        known = find_labels(by_place, span, read_labels)
        for (metric, at), values in sorted(by_place.items()):
            if metric in NAMED_BY_STRANGERS:
                values = fold(values, known.get((span, metric, at), ()))
            counts += [
                MinuteCount(span, metric, at, label, bucket, value)
                for (label, bucket), value in sorted(values.items())
                if value
            ]
    return tuple(counts)


def find_labels(
    places: Iterable[tuple[str, int]], span: int, read_labels: ReadLabels
) -> dict[tuple[int, str, int], Iterable[str]]:
    """Returns the labels that are there already, of the metrics whose labels strangers choose."""
    known: dict[tuple[int, str, int], Iterable[str]] = {}
    for wanted in NAMED_BY_STRANGERS:
        if instants := [at for metric, at in places if metric == wanted]:
            known |= read_labels(span, wanted, min(instants), max(instants))
    return known


def fold(values: Mapping[tuple[str, int], int], known: Iterable[str]) -> Counter[tuple[str, int]]:
    """Returns counts by label and bucket with no more labels than are told apart; the rest is `other`."""
    kept = {label for label in known if label != OTHER}
    by_label: Counter[str] = Counter()
    for (label, _), value in values.items():
        by_label[label] += value
    for label, _ in sorted(by_label.items(), key=lambda item: (-item[1], item[0])):
        if len(kept) < LABELS_MOST and label != OTHER:
            kept.add(label)
    folded: Counter[tuple[str, int]] = Counter()
    for (label, bucket), value in values.items():
        folded[label if label in kept else OTHER, bucket] += value
    return folded


def expires_at(span: int, at: int) -> int:
    """Returns until when a minute or an hour is kept; the minutes of an hour go together."""
    return at - at % HOUR_US + HOUR_US + KEPT_US[span]
