"""History of a tenant's work by time: ends, waiting and running time, failures.

All of it is read from what is counted by minute and by hour, so it costs the same however many units there are.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from interlock.client.durations import format_time
from interlock.client.stats import Rows, find_quantile
from interlock.kernel import metrics
from interlock.kernel.lifecycle import SETTLED, Category, Lifecycle
from interlock.kernel.minute_metrics import ENDED, FAILED, HOUR_US, LEVEL, MINUTE_US, RUN, WAIT, WORKER, WORKERS
from interlock.store.connection import Connection
from interlock.store.queries.metrics import read_counts
from interlock.store.queries.minute_metrics import SeriesPoint, read_series

MILLION = 1_000_000
OUTCOMES = (Category.SUCCESS, Category.FAILURE, Category.CANCELLED, Category.DEAD)
WAITING = (Category.WAITING, Category.READY)
HELD = (Category.HELD, Category.ACTIVE, Category.CLOSING)


class TimeRange(msgspec.Struct, frozen=True):
    """How far to look back: so many steps, each so long, counted from minutes or hours; in microseconds."""

    steps: int
    step: int
    span: int
    sums: int  # the span that sums by queue and error are taken from: a day has many minutes


RANGES = {
    "1h": TimeRange(60, MINUTE_US, MINUTE_US, MINUTE_US),
    "24h": TimeRange(96, 15 * MINUTE_US, MINUTE_US, HOUR_US),
    "7d": TimeRange(84, 2 * HOUR_US, HOUR_US, HOUR_US),
}


class QueueHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The attempts of a queue that ended, and how long they waited and ran, in seconds, at p95."""

    queue: str
    attempts: int
    per_minute: float
    wait_p95: float | None
    run_p95: float | None


class ErrorHistory(msgspec.Struct, frozen=True):
    """How many attempts failed with an error."""

    error: str
    attempts: int


class History(msgspec.Struct, frozen=True, kw_only=True):
    """What happened in each step since an instant, the oldest first. The last step is not over yet.

    `ended` has jobs by outcome, `failures` has attempts. `waiting`, `held` and `workers` are how many there were at
    the end of each step. `behind` says that not all that happened was counted yet.
    """

    range: str
    since: str
    step: int  # in seconds
    ended: dict[str, list[int]]
    failures: list[int]
    waiting: list[int]
    held: list[int]
    workers: list[int]
    queues: list[QueueHistory]
    errors: list[ErrorHistory]
    behind: bool


def read_history(
    connection: Connection, tenant: int, name: str, lifecycles: Mapping[str, Lifecycle], behind: bool
) -> History:
    """Returns how it went in one of the ranges, by its name."""
    wanted, now = RANGES[name], connection.now()
    first = now - now % wanted.step - (wanted.steps - 1) * wanted.step
    places = {first + number * wanted.step: number for number in range(wanted.steps)}

    def read(metric: str, span: int) -> list[SeriesPoint]:
        return read_series(connection, tenant, metric, span, first, wanted.step)

    failed = read(FAILED, wanted.span)
    levels = list_levels(count_now(read_counts(connection, tenant), lifecycles), read(LEVEL, wanted.span), places)
    ended = {outcome.value: [0] * wanted.steps for outcome in OUTCOMES}
    for point in read(ENDED, wanted.span):
        if point.label in ended and point.at in places:
            ended[point.label][places[point.at]] += point.value
    minutes = (now - first) / MINUTE_US
    return History(
        range=name, since=format_time(first), step=wanted.step // MILLION, ended=ended,
        failures=add_up(failed, places), waiting=add_levels(levels, WAITING, wanted.steps),
        held=add_levels(levels, HELD, wanted.steps), workers=add_levels(levels, (WORKERS,), wanted.steps),
        queues=list_queues(read(WAIT, wanted.sums), read(RUN, wanted.sums), minutes), errors=list_errors(failed),
        behind=behind,
    )  # fmt: skip


def count_now(rows: Rows, lifecycles: Mapping[str, Lifecycle]) -> Counter[str]:
    """Returns how many there are, by category and of workers: as many as came, without those that left."""
    levels: Counter[str] = Counter()
    for name, words, value in rows:
        if name != metrics.MOVES or words[0] not in lifecycles:
            continue
        states = lifecycles[words[0]].states
        for state, sign in ((words[1], -1), (words[2], 1)):
            if state in states and states[state].category not in SETTLED:
                levels[WORKERS if words[0] == WORKER else states[state].category.value] += sign * value
    return levels


def list_levels(
    now: Mapping[str, int], changes: Iterable[SeriesPoint], places: Mapping[int, int]
) -> dict[str, list[int]]:
    """Returns how many there were at the end of each step, from how many there are and what changed since."""
    by_label: defaultdict[str, list[int]] = defaultdict(lambda: [0] * len(places))
    for point in changes:
        if point.at in places:
            by_label[point.label][places[point.at]] += point.value
    levels: dict[str, list[int]] = {}
    for label in {*by_label, *now}:
        level, series = now.get(label, 0), list[int]()
        for change in reversed(by_label[label]):
            series.append(max(level, 0))
            level -= change
        levels[label] = series[::-1]
    return levels


def add_levels(levels: Mapping[str, Sequence[int]], labels: Iterable[str], steps: int) -> list[int]:
    """Adds up the levels of these labels, step by step."""
    chosen = [levels[label] for label in labels if label in levels]
    return [sum(values) for values in zip(*chosen, strict=True)] if chosen else [0] * steps


def add_up(points: Iterable[SeriesPoint], places: Mapping[int, int]) -> list[int]:
    """Returns the sum of all labels, by step."""
    sums = [0] * len(places)
    for point in points:
        if point.at in places:
            sums[places[point.at]] += point.value
    return sums


def list_queues(waits: Iterable[SeriesPoint], runs: Iterable[SeriesPoint], minutes: float) -> list[QueueHistory]:
    """Returns the queues of which attempts waited or ended, the busiest first."""
    waited, ran = group_times(waits), group_times(runs)
    queues = [
        QueueHistory(
            queue=queue, attempts=sum(ran[queue].values()), per_minute=round(sum(ran[queue].values()) / minutes, 2),
            wait_p95=find_quantile(waited[queue], 0.95) if waited[queue] else None,
            run_p95=find_quantile(ran[queue], 0.95) if ran[queue] else None,
        )
        for queue in {*waited, *ran}
    ]  # fmt: skip
    return sorted(queues, key=lambda each: (-each.attempts, each.queue))


def group_times(points: Iterable[SeriesPoint]) -> defaultdict[str, Counter[int]]:
    """Groups counted times by queue."""
    by_queue: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for point in points:
        by_queue[point.label][point.bucket] += point.value
    return by_queue


def list_errors(points: Iterable[SeriesPoint]) -> list[ErrorHistory]:
    """Returns errors by how many attempts failed with them, the most frequent first."""
    counts: Counter[str] = Counter()
    for point in points:
        counts[point.label] += point.value
    return [ErrorHistory(error, count) for error, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
