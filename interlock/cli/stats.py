"""`interlock stats`: claims, retries, failures and times, by type of work."""

import time

import msgspec

from interlock.cli.options import DEFAULT, Tenant, Url, open_app
from interlock.cli.output import Json, on_terminal, print_json, print_line, print_table
from interlock.client.app import App
from interlock.client.stats import Spread, Stats, TypeStats
from interlock.client.stats import stats as read_stats
from interlock.store.queries.metrics import read_next_counts

COUNT_SECONDS = 5.0  # that may be spent on counting what is new
HEADS = (
    "TYPE", "CLAIMS", "EXPIRIES", "RETRIES", "FAILURES", "DEAD", "QUEUE P50", "QUEUE P95", "RUN P50", "RUN P95",
)  # fmt: skip


def print_stats(tenant: Tenant = 1, db: Url = DEFAULT, json: Json = False) -> None:
    """Print claims, retries and failures of each type of work, and p50 and p95 of its waiting and running time."""
    with open_app(db, tenant) as app:
        behind = count_up(app)
        stats = app.read(read_stats, behind)
    if json:
        print_json(stats)
        return
    print_table(HEADS, [make_cells(row) for row in stats.types])
    if on_terminal():
        print_line(f"\n{format_summary(stats)}")


def count_up(app: App) -> bool:
    """Count what has happened, as far as a few seconds allow; return whether more is left."""
    end, behind = time.monotonic() + COUNT_SECONDS, True
    while behind and time.monotonic() < end:
        tally, behind = app.read(read_next_counts, app.lifecycles)
        if tally:
            app.send(msgspec.structs.replace(tally, tenant=app.tenant))
    return behind


def make_cells(row: TypeStats) -> list[str]:
    """Make a row of the table of types."""
    counts = (row.claims, row.lease_expiries, row.retries, row.failures, row.dead_lettered)
    return [row.type, *map(str, counts), *format_spread(row.queue), *format_spread(row.run)]


def format_spread(spread: Spread | None) -> list[str]:
    """Format p50 and p95; empty cells if there is nothing to show."""
    return ["", ""] if spread is None else [format_seconds(spread.p50), format_seconds(spread.p95)]


def format_seconds(number: float) -> str:
    """Return an estimated time with three digits or so."""
    return f"{number * 1_000:.3g}ms" if number < 1 else f"{number:.3g}s" if number < 1_000 else f"{number:.0f}s"


def format_summary(stats: Stats) -> str:
    """Format the line above the table."""
    late = "; more has happened than could be counted in time, run it again" if stats.behind else ""
    return (
        f"{stats.DLQ_count} dead letters, {stats.held} jobs held by {stats.workers} workers, "
        f"{stats.lease_renewals} renewals, {stats.claim_conflicts} claim conflicts{late}"
    )
