"""Prometheus metrics of this process: commands, commits and statements by duration.

The numbers come from an observer of the engine (`store/observer.py`). They are of one process and begin at zero with
it; those of `metrics.py` are counted in the database and are the same at every server. Commands are shown to their own
tenant alone; commits and statements are shared by all tenants.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from threading import Lock
from typing import Any

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from interlock.kernel.commands import Command
from interlock.kernel.errors import InterlockError, StoreError
from interlock.server.operations import Operation, Request
from interlock.store.observer import Observer

PROMETHEUS = "text/plain; version=0.0.4"
BOUNDS = (0.0001, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds
KINDS = ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH", "BEGIN", "COMMIT", "SAVEPOINT")  # of statements


class Histogram:
    """Durations: how many were at most as long as each bound, and their sum in seconds."""

    def __init__(self) -> None:
        self.counts, self.sum = [0] * (len(BOUNDS) + 1), 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.sum += seconds

    def list_buckets(self) -> list[tuple[str, float]]:
        """Returns the buckets as Prometheus has them: each counts those below it too."""
        return list(zip([*map(str, BOUNDS), "+Inf"], accumulate(self.counts), strict=True))


class MetricsObserver(Observer):
    """Counts what an engine does. It is told in the threads of the engine, and read in those of the server."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.commands: dict[tuple[int, str, str], Histogram] = {}  # by tenant, command and outcome
        self.statements: dict[str, Histogram] = {}  # by kind
        self.commits, self.failed_commits, self.units, self.groups = Histogram(), 0, 0, 0

    def on_group(self, commands: Sequence[Command[Any]]) -> None:
        with self.lock:
            self.groups += 1

    def on_command(self, command: Command[Any], seconds: float, error: Exception | None) -> None:
        key = (command.tenant, type(command).__name__, name_outcome(error))
        with self.lock:
            self.commands.setdefault(key, Histogram()).add(seconds)

    def on_commit(self, units: int, seconds: float, error: Exception | None) -> None:
        with self.lock:
            self.commits.add(seconds)
            self.units += 0 if error else units
            self.failed_commits += 1 if error else 0

    def on_statement(self, sql: str, seconds: float, error: Exception | None) -> None:
        first = sql.split(maxsplit=1)[0].upper() if sql and not sql.isspace() else ""
        kind = first if first in KINDS else "OTHER"
        with self.lock:
            self.statements.setdefault(kind, Histogram()).add(seconds)

    def collect(self, tenant: int) -> Iterator[Metric]:
        """Returns the metrics that a tenant is shown."""
        text = "Commands of this tenant that this server carried out, by how long they took"
        commands = HistogramMetricFamily("interlock_server_command_seconds", text, labels=("command", "outcome"))
        statements = HistogramMetricFamily(
            "interlock_server_statement_seconds", "Statements that this server sent to the database", labels=("kind",)
        )
        commits = HistogramMetricFamily("interlock_server_commit_seconds", "Transactions that this server committed")
        with self.lock:
            for (owner, command, outcome), histogram in sorted(self.commands.items()):
                if owner == tenant:
                    commands.add_metric([command, outcome], histogram.list_buckets(), histogram.sum)
            for kind, histogram in sorted(self.statements.items()):
                statements.add_metric([kind], histogram.list_buckets(), histogram.sum)
            commits.add_metric([], self.commits.list_buckets(), self.commits.sum)
            failed = CounterMetricFamily(
                "interlock_server_failed_commits", "Commits that the database refused", value=self.failed_commits
            )
            groups = CounterMetricFamily(
                "interlock_server_groups", "Groups of commands that shared a transaction", value=self.groups
            )
            units = CounterMetricFamily("interlock_server_units", "Units that commits wrote", value=self.units)
        yield from (commands, statements, commits, failed, groups, units)


def name_outcome(error: Exception | None) -> str:
    """Returns how a command ended: `ok`, `refused` because of what it asked, or `error`."""
    if error is None:
        return "ok"
    return "refused" if isinstance(error, InterlockError) and not isinstance(error, StoreError) else "error"


class ProcessCollector(Collector):
    """The metrics of a process, for one tenant."""

    def __init__(self, observer: MetricsObserver, tenant: int) -> None:
        self.observer, self.tenant = observer, tenant

    def collect(self) -> Iterator[Metric]:
        return self.observer.collect(self.tenant)


async def read_process_metrics(request: Request) -> str:
    """Answers the metrics of this process."""
    return generate_latest(ProcessCollector(request.server.observer, request.caller.tenant)).decode()


ROUTES = (
    Operation(
        method="GET", path="/metrics/server", scope="admin",
        summary="Show the metrics of this process for Prometheus: commands, commits and statements by duration",
        call=read_process_metrics, response=str, media=PROMETHEUS,
    ),
)  # fmt: skip
