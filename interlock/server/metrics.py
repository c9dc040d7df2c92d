"""Prometheus metrics of a tenant, counted in the database, so that every server answers the same."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from interlock.client.stats import Stats
from interlock.client.stats import stats as read_stats
from interlock.core.plugin import Gauge, PluginMetrics
from interlock.kernel import metrics
from interlock.server.auth import read_loop_time
from interlock.server.operations import Operation, Request
from interlock.store.connection import Connection
from interlock.store.queries.metrics import Depth, Gauges, read_counts, read_gauges, read_next_counts

PROMETHEUS = "text/plain; version=0.0.4"
SCRAPE_SECONDS = 10.0  # that a question may take: a backlog is to be seen just while it is large
SECONDS = 5.0  # that a scrape may count; what is left then, the next one counts
QUEUES_MOST = 100  # told apart; strangers choose their names
COUNTERS: dict[str, tuple[str, tuple[str, ...]]] = {
    metrics.MOVES: ("Moves of units", ("lifecycle", "from", "to")),
    metrics.CLAIMS: ("Leases that were granted", ("type",)),
    metrics.CONFLICTS: ("Messages under a lease that was not their sender's any more", ("verb",)),
    metrics.RENEWALS: ("Beats that made a lease longer", ()),
    metrics.EXPIRIES: ("Leases that ended because nobody renewed them", ("type",)),
    metrics.RETRIES: ("Attempts that were made again", ("type", "reason")),
    metrics.FAILURES: ("Attempts that failed", ("type", "reason")),
    metrics.DEAD: ("Units that became dead letters", ("type", "stage", "reason")),
}
LATENCY = "How long units waited for a worker (queue), and how long workers held them at work (run)"
Rows = Sequence[tuple[str, list[str], int]]


class FixedCollector(Collector):
    """Metrics that are known already."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self.metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self.metrics


async def read_metrics(request: Request) -> str:
    """The metrics of the caller's tenant, with everything counted that has happened, as far as time allows."""
    of_plugins = request.app.registry.metrics
    return await request.read(render, of_plugins, behind=await count_up(request))


async def show_stats(request: Request) -> Stats:
    """How the work of the caller's tenant goes, p50 and p95 included."""
    return await request.read(read_stats, await count_up(request))


async def count_up(request: Request) -> bool:
    """What has happened is counted, as far as time allows; answers whether more is left."""
    end = read_loop_time() + min(SECONDS, request.question_seconds / 2)
    async with request.server.counting(request.caller.tenant):  # what others count meanwhile need not be read twice
        while True:
            tally, behind = await request.read(read_next_counts, request.app.lifecycles)
            if tally:
                await request.send(tally)
            if not behind or read_loop_time() >= end:
                return behind


def render(connection: Connection, tenant: int, of_plugins: Sequence[PluginMetrics], *, behind: bool) -> str:
    """Renders the metrics of a tenant, those of plugins included."""
    more = [gauge for metrics_of in of_plugins for gauge in metrics_of(connection, tenant)]
    return render_text(read_counts(connection, tenant), read_gauges(connection, tenant), more, behind=behind)


def render_text(rows: Rows, now: Gauges, of_plugins: Sequence[Gauge] = (), *, behind: bool) -> str:
    """All of it as Prometheus reads it."""
    collector = FixedCollector(
        [
            *make_counters(rows, now),
            make_latency(rows),
            *make_gauges(now, behind),
            *make_worker_metrics(now),
            *make_plugin_gauges(of_plugins),
        ]
    )
    return generate_latest(collector).decode()


def make_plugin_gauges(gauges: Sequence[Gauge]) -> Iterator[Metric]:
    """What plugins tell; numbers of one name are one family."""
    families: dict[str, GaugeMetricFamily] = {}
    for gauge in gauges:
        name = f"interlock_{gauge.name}"
        family = families.setdefault(name, GaugeMetricFamily(name, gauge.help, labels=tuple(gauge.labels)))
        family.add_metric(list(gauge.labels.values()), gauge.value)
    yield from families.values()


def make_counters(rows: Rows, now: Gauges) -> Iterator[Metric]:
    """Makes the counters."""
    for name, (description, labels) in COUNTERS.items():
        family = CounterMetricFamily(f"interlock_{name}", description, labels=labels)
        own = [(words, value) for metric, words, value in rows if metric == name]
        if name == metrics.RENEWALS:
            own = [([], now.renewals + sum(value for _, value in own))]
        for words, value in own:
            family.add_metric(words, value)
        yield family


def make_latency(rows: Rows) -> Metric:
    """Makes the histogram of waiting and running times."""
    family = HistogramMetricFamily("interlock_latency_seconds", LATENCY, labels=("type", "phase"))
    counts: dict[tuple[str, str], dict[int, int]] = {}
    for name, words, value in rows:
        if name == metrics.LATENCY:
            counts.setdefault((words[0], words[1]), {})[int(words[2])] = value
    for name, words, total in rows:
        if name == metrics.LATENCY_US:
            family.add_metric(words, count_buckets(counts.get((words[0], words[1]), {})), total / 1_000_000)
    return family


def count_buckets(counts: Mapping[int, int]) -> list[tuple[str, float]]:
    """How many took at most so long, for each bound."""
    bounds = [*(str(bound / 1_000_000) for bound in metrics.BOUNDS_US), "+Inf"]
    return list(zip(bounds, accumulate(counts.get(place, 0) for place in range(len(bounds))), strict=True))


def make_gauges(now: Gauges, behind: bool) -> Iterator[Metric]:
    """Makes the gauges."""
    depth = GaugeMetricFamily("interlock_queue_depth", "Units that may be claimed now", labels=("queue",))
    age = GaugeMetricFamily("interlock_queue_oldest_seconds", "For how long the oldest has waited", labels=("queue",))
    for depth_row in group_queues(now.depths):
        depth.add_metric([depth_row.queue], depth_row.units)
        age.add_metric([depth_row.queue], max(now.now - depth_row.oldest_at, 0) / 1_000_000)
    yield from (depth, age)
    for name, description, value in (
        ("dlq_count", "Dead letters that there are", now.dead),
        ("inflight", "Units that workers hold", now.held),
        ("workers", "Workers that have not shut down", now.workers),
        ("counting_behind", "1 if not all that happened is counted yet", int(behind)),
    ):
        yield GaugeMetricFamily(f"interlock_{name}", description, value=value)


def make_worker_metrics(now: Gauges) -> Iterator[Metric]:
    """How busy each worker is, and how much it has done; of those that have not shut down."""
    use = GaugeMetricFamily(
        "interlock_worker_utilization", "Share of its places that a worker uses, 1 is all", labels=("worker",)
    )
    done = CounterMetricFamily(
        "interlock_worker_completions", "Jobs that a worker has finished, whatever came of them", labels=("worker",)
    )
    for load in now.loads:
        use.add_metric([load.name], load.holding / load.places)
        done.add_metric([load.name], load.completions)
    yield from (use, done)


def group_queues(depths: Sequence[Depth]) -> list[Depth]:
    """The deepest queues, and all others as one."""
    if len(depths) <= QUEUES_MOST:
        return list(depths)
    ordered = sorted(depths, key=lambda depth_row: (-depth_row.units, depth_row.queue))
    rest = ordered[QUEUES_MOST - 1 :]
    other = Depth(
        metrics.OTHER, sum(depth_row.units for depth_row in rest), min(depth_row.oldest_at for depth_row in rest)
    )
    return [*(depth_row for depth_row in ordered[: QUEUES_MOST - 1] if depth_row.queue != metrics.OTHER), other]


ROUTES = (
    Operation(
        method="GET", path="/metrics", scope="read", summary="Metrics of a tenant for Prometheus", call=read_metrics,
        response=str, media=PROMETHEUS, question_seconds=SCRAPE_SECONDS,
    ),
    Operation(
        method="GET", path="/v1/stats", scope="read", summary="Show statistics by type of work", call=show_stats,
        response=Stats, question_seconds=SCRAPE_SECONDS,
    ),
)  # fmt: skip
