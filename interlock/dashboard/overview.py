"""The overview page: the present state, and the last hour, day or week."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from interlock.client.stats import WORKER
from interlock.dashboard import charts
from interlock.dashboard.bulk_pages import count_rooms
from interlock.dashboard.pages import PageRequest
from interlock.dashboard.panels import format_event
from interlock.dashboard.work_pages import group_dead_letters
from interlock.kernel.ids import format_id
from interlock.kernel.lifecycle import Lifecycle
from interlock.kernel.metrics import OTHER, TIMEOUT
from interlock.server.errors import ApiError
from interlock.store.queries.dead_letters import DeadLetterConditions
from interlock.store.queries.feed import FeedEvent, read_latest
from interlock.store.queries.metrics import count_held_by_queue

RANGES = {"1h": "1 h", "24h": "24 h", "7d": "7 days"}
OUTCOMES = {"success": "successes", "failure": "failures", "cancelled": "cancelled", "dead": "dead letters"}
LOOKED_AT, SHOWN = 60, 15  # of the last events, without those of workers
TOP = 5
DEAD_LETTERS_MAX = 200  # that are grouped, the newest ones
QUEUES_MOST = 12


async def show_overview(request: PageRequest) -> dict[str, Any]:
    """Shows how it goes: what ended, waits, failed and works; queues; failures; and what needs a person.

    A question that takes too long leaves its part of the page out, and the page says so.
    """
    name = request.query.get("range", "1h")
    if name not in RANGES:
        raise ApiError(400, f"range = {name} is not allowed; allowed are {', '.join(RANGES)}")
    wait_for = request.wait_for
    history, inbox, dead_letters, workers, newest, events = await asyncio.gather(
        wait_for("how it went", request.ask("GET", "/v1/stats/history", [("range", name)])),
        wait_for("the inbox", request.ask("GET", "/v1/inbox", [("limit", str(TOP))])),
        wait_for("dead letters", request.read(group_dead_letters, DeadLetterConditions(), DEAD_LETTERS_MAX)),
        wait_for("workers", request.ask("GET", "/v1/workers")),
        wait_for("the newest job", request.ask("GET", "/v1/jobs", [("limit", "1")])),
        wait_for("the last events", request.read(read_latest, LOOKED_AT)),
    )
    # Behind the history: what that has counted, this one need not.
    stats, held = await asyncio.gather(
        wait_for("what waits", request.ask("GET", "/v1/stats")),
        wait_for("what runs", request.read(count_held_by_queue)),
    )
    rooms = count_rooms(workers["workers"] if workers else ())
    return {
        "ranges": RANGES, "range": name, "stats": stats, "history": history,
        "figures": list_figures(history, stats) if history else [],
        "chart": make_chart(history) if history else None,
        "queues": list_queues(stats, history, held or {}, rooms), "errors": list_errors(history) if history else [],
        "inbox": inbox["items"] if inbox else [], "groups": (dead_letters or ([], False))[0][:TOP],
        "silent": [worker for worker in workers["workers"] if worker["silent"]] if workers else [],
        "events": describe_events(request.site.server.app.lifecycles, events or ()),
        "is_empty": bool(newest) and not newest["jobs"],
        "behind": any(answer and answer["behind"] for answer in (stats, history)),
    }  # fmt: skip


def list_figures(history: Mapping[str, Any], stats: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Returns the numbers at the top: each with its name, its spark, and a line below it."""
    done = history["ended"]["success"]
    ready = f"{sum(queue['waiting'] for queue in stats['queues']):,} can start now" if stats else ""
    retried = f"{stats['retries']:,} retried in all" if stats else ""
    rows = (
        ("Done", sum(done), done, "success", f"{rate(done, history):,.1f} per minute"),
        ("Waiting", history["waiting"][-1], history["waiting"], "ready", ready),
        ("Failed attempts", sum(history["failures"]), history["failures"], "failure", retried),
        ("Workers", history["workers"][-1], history["workers"], "active", f"{history['held'][-1]:,} jobs running"),
    )
    return [
        {"name": name, "value": f"{value:,}", "spark": charts.draw_spark(values, name), "kind": kind, "below": below}
        for name, value, values, kind, below in rows
    ]  # fmt: skip


def rate(values: Sequence[int], history: Mapping[str, Any]) -> float:
    """Returns how many there were per minute."""
    return sum(values) * 60 / float(history["step"] * max(len(values), 1))


def make_chart(history: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the chart of what ended, stacked by outcome, with its legend, its instants and its numbers."""
    since, step = datetime.fromisoformat(history["since"]), timedelta(seconds=history["step"])
    parts = [charts.Part(outcome, name, history["ended"][outcome]) for outcome, name in OUTCOMES.items()]
    sums = [sum(values) for values in zip(*(part.values for part in parts), strict=True)]
    return {
        "drawing": charts.draw_stack(parts, since, step, "Jobs that ended"),
        "legend": [(part.category, part.name, f"{sum(part.values):,}") for part in parts],
        "ticks": charts.list_ticks(since, step, len(sums)),
        "rows": list(charts.list_rows(parts, since, step)),
        "top": f"{charts.find_top(max(sums, default=0)):,}",
        "step": {60: "minute", 900: "15 minutes", 7200: "2 hours"}.get(history["step"], f"{history['step']} s"),
    }  # fmt: skip


def list_queues(
    stats: Mapping[str, Any] | None, history: Mapping[str, Any] | None, held: Mapping[str, int], rooms: Counter[str]
) -> list[dict[str, Any]]:
    """Returns the queues in which something waits, runs or was done, those first in which most waits."""
    rows: dict[str, dict[str, Any]] = {}
    for queue in stats["queues"] if stats else ():
        rows[queue["queue"]] = {"name": queue["queue"], "waiting": queue["waiting"], "oldest": queue["oldest"]}
    for queue in history["queues"] if history else ():
        row = rows.setdefault(queue["queue"], {"name": queue["queue"], "waiting": 0, "oldest": None})
        row |= {name: queue[name] for name in ("attempts", "per_minute", "wait_p95", "run_p95")}
    for name in held:
        rows.setdefault(name, {"name": name, "waiting": 0, "oldest": None})
    for name, row in rows.items():
        running, room = held.get(name, 0), rooms[name]
        is_full = room and running >= room and row["waiting"]
        bar = charts.draw_share(running / max(room, 1), "failure" if is_full else "active")
        row |= {"held": running, "room": room, "bar": bar}
    ordered = sorted(rows.values(), key=lambda row: (-row["waiting"], -row.get("attempts", 0), row["name"]))
    return ordered[:QUEUES_MOST]


def describe_events(lifecycles: Mapping[str, Lifecycle], events: Iterable[FeedEvent]) -> list[dict[str, Any]]:
    """Returns what happened last to work, the newest first; what workers do besides is on their page."""
    own = [each for each in events if each.event.lifecycle != WORKER]
    return [
        {
            "id": format_id(each.event.lifecycle, each.event.unit), "task": each.task,
            **format_event(each.event, lifecycles.get(each.event.lifecycle)),
        }
        for each in own[:SHOWN]
    ]  # fmt: skip


def list_errors(history: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the errors that attempts failed with most often."""
    errors = history["errors"][:TOP]
    most = max((row["attempts"] for row in errors), default=1)
    return [
        {
            **row, "bar": charts.draw_share(row["attempts"] / most, "failure"),
            "link": f"?{urlencode({'error': row['error']})}" if row["error"] not in (OTHER, TIMEOUT) else "",
        }
        for row in errors
    ]  # fmt: skip
