"""`interlock stats`: how the work goes, by type."""

import time

import msgspec

from interlock.cli.options import DEFAULT, Tenant, Url, app_on
from interlock.cli.output import Json, dump, on_terminal, say, table
from interlock.client.app import App
from interlock.client.stats import Spread, Stats, TypeStats
from interlock.client.stats import stats as stats_of
from interlock.store.queries.metrics import read_next_counts

COUNT_SECONDS = 5.0  # that may be spent on counting what is new
HEADS = (
    "TYPE", "CLAIMS", "EXPIRIES", "RETRIES", "FAILURES", "DEAD", "QUEUE P50", "QUEUE P95", "RUN P50", "RUN P95",
)  # fmt: skip


def stats(tenant: Tenant = 1, db: Url = DEFAULT, json: Json = False) -> None:
    """Tell how the work goes: claims, retries and failures, and p50 and p95 of each type of work."""
    with app_on(db, tenant) as app:
        behind = count_up(app)
        found = app.read(stats_of, behind)
    if json:
        dump(found)
        return
    table(HEADS, [cells(one) for one in found.types])
    if on_terminal():
        say(f"\n{summary(found)}")


def count_up(app: App) -> bool:
    """What happened is counted, as far as a few seconds allow; answers whether more is left."""
    end, behind = time.monotonic() + COUNT_SECONDS, True
    while behind and time.monotonic() < end:
        tally, behind = app.read(read_next_counts, app.lifecycles)
        if tally:
            app.send(msgspec.structs.replace(tally, tenant=app.tenant))
    return behind


def cells(one: TypeStats) -> list[str]:
    counts = (one.claims, one.lease_expiries, one.retries, one.failures, one.dead_lettered)
    return [one.type, *map(str, counts), *times(one.queue), *times(one.run)]


def times(spread: Spread | None) -> list[str]:
    return ["", ""] if spread is None else [seconds(spread.p50), seconds(spread.p95)]


def seconds(number: float) -> str:
    """A time that was estimated, in three digits or so."""
    return f"{number * 1_000:.3g}ms" if number < 1 else f"{number:.3g}s" if number < 1_000 else f"{number:.0f}s"


def summary(found: Stats) -> str:
    late = "; more has happened than could be counted in time, ask again" if found.behind else ""
    return (
        f"{found.DLQ_count} dead letters, {found.held} units held by {found.workers} workers, "
        f"{found.lease_renewals} renewals, {found.claim_conflicts} claim conflicts{late}"
    )
