"""The pages of the day: the inbox, dead letters, queues, and starting a job."""

import asyncio
from collections import Counter
from typing import Any

import msgspec

from interlock.dashboard.pages import PageRequest
from interlock.server.errors import ApiError


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


async def preview_requeue(request: PageRequest) -> dict[str, Any]:
    """Shows what would be done again: how many, in which groups, the oldest; and asks to confirm it."""
    wanted = {name: value for name, value in request.pairs if name in ("task", "reason_code", "error_class", "queue")}
    counted = await request.ask(
        "POST", "/v1/dead-letters/requeue", body={"filter": wanted, "reason": request.query.get("reason", "")}
    )
    page = await request.ask("GET", "/v1/dead-letters", [*wanted.items(), ("limit", "200")])
    dead_letters = [row for row in page["letters"] if not row["again"]]
    stats = await request.ask("GET", "/v1/stats")
    queues = sorted({row["queue"] for row in dead_letters})
    waiting = {queue["queue"]: queue["waiting"] for queue in stats["queues"]}
    return {
        "wanted": wanted, "counted": counted, "groups": group_dead_letters(dead_letters),
        "oldest": min(dead_letters, key=lambda row: row["dead_since"], default=None),
        "queues": [(queue, waiting.get(queue, 0)) for queue in queues], "reason": request.query.get("reason", ""),
    }  # fmt: skip


async def show_queues(request: PageRequest) -> dict[str, Any]:
    """Shows each queue: what waits, how old it is, what runs, and how much room its workers have."""
    stats, workers, pauses = await asyncio.gather(
        request.ask("GET", "/v1/stats"), request.ask("GET", "/v1/workers"), request.ask("GET", "/v1/pauses")
    )
    paused = {
        pause["name"]: pause for pause in pauses["pauses"] if pause["kind"] == "queue" and pause["ended_at"] is None
    }
    rooms: Counter[str] = Counter()
    for worker in workers["workers"]:
        given = worker["queues"]  # with the room of each, or the names alone
        rooms.update(given if isinstance(given, dict) else dict.fromkeys(given or (), worker["capacity"]))
    rows = {queue["queue"]: queue for queue in stats["queues"]}
    names = sorted({*rows, *rooms, *paused})
    return {"queues": [
        {"name": name, "room": rooms[name], "paused": paused.get(name),
         "waiting": 0, "oldest": 0, **rows.get(name, {})} for name in names
    ]}  # fmt: skip


async def show_tasks(request: PageRequest) -> dict[str, Any]:
    """Shows the tasks that can be started."""
    return {"tasks": (await request.ask("GET", "/v1/tasks"))["tasks"]}


async def show_start(request: PageRequest) -> dict[str, Any]:
    """Shows the form of a task's parameters."""
    return {
        "task": await request.ask("GET", "/v1/tasks/{name}", parameters={"name": request.path["name"]}),
        "given": "",
    }


def parse_input(text: str) -> Any:
    """Returns what was typed as JSON. Raises ApiError."""
    try:
        return msgspec.json.decode(text or "{}")
    except msgspec.DecodeError as error:
        raise ApiError(400, f"the input is no JSON: {error}") from None
