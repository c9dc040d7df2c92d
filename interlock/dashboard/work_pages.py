"""The pages of the day: the inbox, dead letters and queues."""

import asyncio
from collections import Counter
from datetime import datetime
from typing import Any

from interlock.client.selections import make_ends_filter
from interlock.dashboard.bulk_pages import DEAD_LETTERS, count_rooms
from interlock.dashboard.decisions import describe_decision, read_decisions
from interlock.dashboard.pages import PageRequest
from interlock.server.operations import parse_unit_id
from interlock.store.connection import Connection
from interlock.store.queries.dead_letters import END, DeadLetterConditions, read_newest
from interlock.store.queries.metrics import count_held_by_queue

GROUPED_MAX = 2_000  # dead letters that the page looks at to group them, the newest ones


async def show_inbox(request: PageRequest) -> dict[str, Any]:
    """Shows what waits for a person: the soonest due first, then the oldest."""
    wanted = [(name, value) for name, value in request.pairs if name in ("checks", "after")]
    page = await request.ask("GET", "/v1/inbox", [*wanted, ("limit", "100")])
    items = sorted(page["items"], key=lambda item: (item["expires_at"] or "9999", item["since"]))
    own = {request.caller.name, *request.caller.roles}
    for item in items:
        item["may"] = not item["approvers"] or bool(own & set(item["approvers"]))
        item["yes"] = sum(vote["approve"] for vote in item["votes"])
    units = {item["id"]: parse_unit_id(item["id"]) for item in items}
    decisions = await request.read(read_decisions, list(units.values()))
    lifecycles = request.site.server.app.lifecycles
    for item in items:  # what was archived meanwhile is not known any more
        known = decisions.get(units[item["id"]])
        texts = [(word, describe_decision(lifecycles, item, word, known)) for word in item["words"] if known]
        item["does"] = [(word.replace("_", " ").capitalize(), text) for word, text in texts if text]
    return {"items": items, "next": page["next"]}


async def show_dead_letters(request: PageRequest) -> dict[str, Any]:
    """Shows dead letters, in groups over the newest of them, and a page of them one by one."""
    page = await request.ask("GET", "/v1/dead-letters", [*request.pairs, ("limit", "100")])
    filters = {name: value for name, value in request.pairs if name in DEAD_LETTERS}
    since = datetime.fromisoformat(filters.pop("since")) if "since" in filters else None
    wanted = make_ends_filter(request.site.server.app.lifecycles, since=since, **filters)
    groups, has_more = await request.read(group_dead_letters, wanted, GROUPED_MAX)
    grouped = GROUPED_MAX if has_more else None
    return {"letters": page["letters"], "next": page["next"], "groups": groups, "grouped": grouped}


def group_dead_letters(
    connection: Connection, tenant: int, wanted: DeadLetterConditions, limit: int
) -> tuple[list[dict[str, Any]], bool]:
    """Groups the newest dead letters that were not done again by task, reason and error, the largest group first.

    `limit` is how many are looked at. Returns also whether there are more.
    """
    dead_letters, last = read_newest(connection, tenant, wanted, limit, END)
    counts: Counter[tuple[str, str, str]] = Counter()
    for each in dead_letters:
        if each.again_at is None:
            details = each.details
            counts[each.task, details.get("reason_code") or "", details.get("error_class") or ""] += 1
    groups = [
        {"task": task, "reason": reason, "error": error, "count": count}
        for (task, reason, error), count in counts.most_common()
    ]
    return groups, last is not None


async def show_queues(request: PageRequest) -> dict[str, Any]:
    """Shows each queue: what waits, how old it is, what runs, the room of its workers, and how much it finishes."""
    stats, workers, pauses, history, held = await asyncio.gather(
        request.ask("GET", "/v1/stats"), request.ask("GET", "/v1/workers"), request.ask("GET", "/v1/pauses"),
        request.ask("GET", "/v1/stats/history", [("range", "1h")]), request.read(count_held_by_queue),
    )  # fmt: skip
    paused = {
        pause["name"]: pause for pause in pauses["pauses"] if pause["kind"] == "queue" and pause["ended_at"] is None
    }
    rooms = count_rooms(workers["workers"])
    rows = {queue["queue"]: queue for queue in stats["queues"]}
    rates = {queue["queue"]: queue["per_minute"] for queue in history["queues"]}
    names = sorted({*rows, *rooms, *paused, *held})
    return {"queues": [
        {"name": name, "room": rooms[name], "paused": paused.get(name), "held": held.get(name, 0),
         "per_minute": rates.get(name, 0),
         "waiting": 0, "oldest": 0, **rows.get(name, {})} for name in names
    ]}  # fmt: skip
