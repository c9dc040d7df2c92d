"""Counters by minute and by hour, for charts, and their retention."""

from collections.abc import Iterator, Sequence
from functools import partial

import msgspec

from interlock.kernel.commands import MinuteCount
from interlock.kernel.metrics import OTHER
from interlock.kernel.minute_metrics import HOUR_US, KEPT_US, LABELS_MOST, MINUTE_US, Labels, MinuteSums, expires_at
from interlock.kernel.minute_metrics import list_minutes as list_counts
from interlock.store.connection import Connection
from interlock.store.unit_of_work import UnitOfWork

ADD = """
INSERT INTO metric_minute (tenant, span, metric, at, label, bucket, value, expires)
VALUES (:tenant, :span, :metric, :at, :label, :bucket, :value, :expires)
ON CONFLICT (tenant, span, metric, at, label, bucket) DO UPDATE SET value = metric_minute.value + excluded.value
"""
LABELS = """
SELECT DISTINCT at, label FROM metric_minute
WHERE tenant = :tenant AND span = :span AND metric = :metric AND at >= :first AND at <= :last
"""
# Grouped by the database: a day has many minutes.
SERIES = """
SELECT at - at % :step, label, bucket, sum(value) FROM metric_minute
WHERE tenant = :tenant AND span = :span AND metric = :metric AND at >= :since GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
"""
KEY = "span, metric, at, label, bucket"
FORGET = f"""
DELETE FROM metric_minute WHERE tenant = :tenant AND ({KEY}) IN (
    SELECT {KEY} FROM metric_minute WHERE tenant = :tenant AND expires <= :now ORDER BY expires LIMIT :limit)
RETURNING 1
"""
# What the minutes of an hour have more than the hour. All labels together, because each is folded by itself.
DIFFERENCES = f"""
SELECT tenant, metric, bucket, hour, sum(more) FROM (
    SELECT tenant, metric, bucket, at - at % {HOUR_US} AS hour, value AS more FROM metric_minute
    WHERE span = {MINUTE_US} AND at >= :since
    UNION ALL SELECT tenant, metric, bucket, at, -value FROM metric_minute WHERE span = {HOUR_US} AND at >= :since
) AS both_spans GROUP BY tenant, metric, bucket, hour HAVING sum(more) <> 0 ORDER BY 1, 2, 4, 3
"""
TOO_MANY = f"""
SELECT tenant, metric, at, count(DISTINCT label) FROM metric_minute WHERE label <> '{OTHER}'
GROUP BY tenant, span, metric, at HAVING count(DISTINCT label) > {LABELS_MOST} ORDER BY 1, 2, 3
"""


class SeriesPoint(msgspec.Struct, frozen=True):
    """What was counted of one label and bucket in one step of a chart, which began at `at`."""

    at: int
    label: str
    bucket: int
    value: int


def list_minutes(connection: Connection, tenant: int, sums: MinuteSums) -> tuple[MinuteCount, ...]:
    """Returns what is to be added to the minutes and hours of a tenant."""
    return list_counts(sums, partial(read_labels, connection, tenant), connection.now()) if sums else ()


def read_labels(connection: Connection, tenant: int, span: int, metric: str, first: int, last: int) -> Labels:
    """Reads which labels a metric has in each stretch of time."""
    given = {"tenant": tenant, "span": span, "metric": metric, "first": first, "last": last}
    labels: dict[tuple[int, str, int], list[str]] = {}
    for at, label in connection.rows(LABELS, given):
        labels.setdefault((span, metric, at), []).append(label)
    return labels


def add_minutes(tx: UnitOfWork, tenant: int, counts: Sequence[MinuteCount]) -> None:
    """Adds counts to the minutes and hours of a tenant."""
    if counts:
        tx.connection.many(ADD, [
            {"tenant": tenant, **msgspec.structs.asdict(count), "expires": expires_at(count.span, count.at)}
            for count in counts
        ])  # fmt: skip


def forget_minutes(tx: UnitOfWork, limit: int) -> int:
    """Minutes and hours whose time is over are gone, at most `limit` rows; returns how many."""
    return len(tx.connection.rows(FORGET, {"tenant": tx.tenant, "now": tx.now, "limit": limit}))


def read_series(
    connection: Connection, tenant: int, metric: str, span: int, since: int, step: int
) -> list[SeriesPoint]:
    """Returns what was counted of a metric since an instant, in steps of so many microseconds, the oldest first."""
    given = {"tenant": tenant, "span": span, "metric": metric, "since": since, "step": step}
    return [SeriesPoint(at, label, bucket, int(value)) for at, label, bucket, value in connection.rows(SERIES, given)]


def find_wrong_minutes(connection: Connection) -> Iterator[str]:
    """Yields where hours are not the sum of their minutes, while both are kept, and where there are too many labels."""
    since = connection.now() - KEPT_US[MINUTE_US]
    since += HOUR_US - since % HOUR_US
    for tenant, metric, bucket, hour, more in connection.rows(DIFFERENCES, {"since": since}):
        place = f"'{metric}' of tenant {tenant}, bucket {bucket}, in the hour from {hour}"
        yield f"{place}: its minutes have {int(more):+} against the hour"
    for tenant, metric, at, labels in connection.rows(TOO_MANY):
        yield f"'{metric}' of tenant {tenant} at {at} has {labels} labels, and {LABELS_MOST} are told apart"
