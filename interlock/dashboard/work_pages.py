"""The pages of the day: the inbox, dead letters and queues."""

import asyncio
from collections import Counter
from typing import Any

from interlock.dashboard.bulk_pages import count_rooms
from interlock.dashboard.pages import PageRequest


def group_dead_letters(dead_letters: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Groups dead letters by task, reason and error, the largest group first."""
    counts = Counter((each["task"], each["reason_code"] or "", each["error_class"] or "") for each in dead_letters)
    return [
        {"task": task, "reason": reason, "error": error, "count": count}
        for (task, reason, error), count in counts.most_common()
    ]


async def show_inbox(request: PageRequest) -> dict[str, Any]:
    """Shows what waits for a person: the soonest due first, then the oldest."""
    wanted = [(name, value) for name, value in request.pairs if name in ("checks", "after")]
    page = await request.ask("GET", "/v1/inbox", [*wanted, ("limit", "100")])
    items = sorted(page["items"], key=lambda item: (item["expires_at"] or "9999", item["since"]))
    own = {request.caller.name, *request.caller.roles}
    for item in items:
        item["may"] = not item["approvers"] or bool(own & set(item["approvers"]))
        item["yes"] = sum(vote["approve"] for vote in item["votes"])
    return {"items": items, "next": page["next"]}


async def show_dead_letters(request: PageRequest) -> dict[str, Any]:
    """Shows dead letters, in groups and one by one."""
    page = await request.ask("GET", "/v1/dead-letters", [*request.pairs, ("limit", "100")])
    dead_letters = page["letters"]
    return {
        "letters": dead_letters, "next": page["next"],
        "groups": group_dead_letters([row for row in dead_letters if not row["again"]]),
    }  # fmt: skip


async def show_queues(request: PageRequest) -> dict[str, Any]:
    """Shows each queue: what waits, how old it is, what runs, and how much room its workers have."""
    stats, workers, pauses = await asyncio.gather(
        request.ask("GET", "/v1/stats"), request.ask("GET", "/v1/workers"), request.ask("GET", "/v1/pauses")
    )
    paused = {
        pause["name"]: pause for pause in pauses["pauses"] if pause["kind"] == "queue" and pause["ended_at"] is None
    }
    rooms = count_rooms(workers["workers"])
    rows = {queue["queue"]: queue for queue in stats["queues"]}
    names = sorted({*rows, *rooms, *paused})
    return {"queues": [
        {"name": name, "room": rooms[name], "paused": paused.get(name),
         "waiting": 0, "oldest": 0, **rows.get(name, {})} for name in names
    ]}  # fmt: skip
