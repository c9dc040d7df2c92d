"""The pages of the inbox, dead letters and queues."""

import asyncio
from collections import Counter
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import urlencode

import msgspec

from interlock.client.inbox import InboxItem, read_inbox_page, to_tuple
from interlock.client.json_views import make_inbox_item
from interlock.client.selections import make_ends_filter
from interlock.dashboard.bulk_pages import DEAD_LETTERS, count_rooms
from interlock.dashboard.charts import draw_share
from interlock.dashboard.decisions import Decision, describe_decision, read_decisions, refuse_vote
from interlock.dashboard.job_pages import read_number
from interlock.dashboard.pages import PageRequest
from interlock.kernel.approvals import VERDICTS
from interlock.kernel.minute_metrics import find_exception
from interlock.store.connection import Connection
from interlock.store.queries.dead_letters import END, DeadLetterConditions, read_newest
from interlock.store.queries.metrics import count_held_by_queue

GROUPED_MAX = 2_000  # dead letters that the page looks at to group them, the newest ones
GROUPS_SHOWN = 25  # the largest
QUEUE_ROWS = 40
INBOX_MAX, INBOX_ROWS = 1_000, 20  # items that are put in order, the oldest ones; and shown on one page
# Characters of an input that the inbox shows: at most, of all on a page together, and of each in any case.
INPUT_SHOWN, INPUTS_SHOWN, INPUT_LEAST = 2_000, 6_000, 200
SOMETIME = 2**62  # when that is due which has no time limit
NO_WORDS = ("reject", "cancel", "invalid")  # that say no


async def show_inbox(request: PageRequest) -> dict[str, Any]:
    """Shows what waits for a person: the soonest due first, then the oldest.

    Raises:
        ApiError: it is not allowed; the text says what is.
    """
    query = request.make_request(
        request.site.operations["GET", "/v1/inbox"], [pair for pair in request.pairs if pair[0] != "row"], {}, {}
    ).query
    lifecycles = request.site.server.app.lifecycles
    inbox_items = await request.read(
        read_inbox_page, lifecycles, query.by, to_tuple(query.role), query.checks, INBOX_MAX + 1, 0
    )
    count = min(len(inbox_items), INBOX_MAX)
    ordered = sorted(inbox_items[:INBOX_MAX], key=lambda item: (item.expires_at or SOMETIME, item.since, item.unit))
    first = read_number(request, "row", 1, max(count, 1)) if "row" in request.query else 1
    page = ordered[first - 1 : first - 1 + INBOX_ROWS]
    decisions = await request.wait_for(
        "what decisions do", request.read(read_decisions, [item.unit for item in page])
    )  # fmt: skip
    own = [("by", request.caller.name), *(("role", role) for role in request.caller.roles)]
    items, room = [], INPUTS_SHOWN
    for item in page:
        cut = cut_input(item.input, max(INPUT_LEAST, min(INPUT_SHOWN, room)))
        room -= cut.length
        items.append({**describe_item(request, item, (decisions or {}).get(item.unit)), "cut": cut})
    return {
        "items": items,
        "count": count, "has_more": len(inbox_items) > INBOX_MAX, **describe_part(first, INBOX_ROWS, count),
        "views": [
            ("all", "?", not request.query or request.query.keys() == {"row"}),
            (f"mine: {', '.join(value for _, value in own)}", f"?{urlencode(own)}", "by" in request.query),
            ("with checks", "?checks=true", "checks" in request.query),
        ],
    }  # fmt: skip


def describe_part(first: int, rows: int, count: int) -> dict[str, Any]:
    """Returns which rows of a long list are shown, and where those before and behind them begin."""
    after = first + rows if first + rows <= count else None
    return {"row": first, "before": max(1, first - rows) if first > 1 else None, "after": after}


def describe_item(request: PageRequest, item: InboxItem, known: Decision | None) -> dict[str, Any]:
    """Returns what the inbox shows of an item. `known` is what a decision on it will touch, if that could be read."""
    shown: dict[str, Any] = msgspec.to_builtins(make_inbox_item(item))
    shown["yes"] = item.given
    scopes = {word: "approve" if word in VERDICTS else "operate" for word in item.words}
    refusals = {
        word: "" if request.may(scope) else f"this key lacks the scope '{scope}'" for word, scope in scopes.items()
    }
    refused = refuse_vote(item, request.caller)
    shown["buttons"] = [
        {"word": word, "name": word.replace("_", " ").capitalize(), "is_no": word in NO_WORDS,
         "verb": word if word in VERDICTS else "decide",
         "refusal": refusals[word] or (refused if word in VERDICTS else "")}
        for word in item.words
    ]  # fmt: skip
    lifecycles = request.site.server.app.lifecycles
    texts = [(word, describe_decision(lifecycles, shown, word, known)) for word in item.words if known]
    shown["does"] = [(word.replace("_", " ").capitalize(), text) for word, text in texts if text]
    return shown


class CutInput(NamedTuple):
    """What is shown of an input, so that one can decide by it: texts of several lines as they are, the rest as JSON."""

    rest: Any  # what is shown whole; None: nothing
    beginning: str  # of what is too long
    texts: list[tuple[str, str]]  # each with its name
    is_cut: bool
    length: int  # in characters


def cut_input(value: Any, most: int) -> CutInput:
    """Returns what is shown of an input, with at most so many characters."""
    lines = {k: v for k, v in value.items() if isinstance(v, str) and "\n" in v} if isinstance(value, dict) else {}
    rest = {name: each for name, each in value.items() if name not in lines} if lines else value
    text = msgspec.json.format(msgspec.json.encode(rest), indent=2).decode() if rest not in (None, {}) else ""
    left, texts = most - min(len(text), most), []
    for name, each in lines.items():
        texts.append((name, each[: max(left, INPUT_LEAST)]))
        left -= min(left, len(each))
    is_cut = len(text) > most or any(len(each) < len(lines[name]) for name, each in texts)
    length = min(len(text), most) + sum(len(each) for _, each in texts)
    return CutInput(None if len(text) > most else rest, text[:most] if len(text) > most else "", texts, is_cut, length)


async def show_dead_letters(request: PageRequest) -> dict[str, Any]:
    """Shows dead letters, in groups over the newest of them, and a page of them one by one."""
    page = await request.ask("GET", "/v1/dead-letters", [*request.pairs, ("limit", "50")])
    filters = {name: value for name, value in request.pairs if name in DEAD_LETTERS}
    since = datetime.fromisoformat(filters.pop("since")) if "since" in filters else None
    wanted = make_ends_filter(request.site.server.app.lifecycles, since=since, **filters)
    grouping = await request.wait_for("groups", request.read(group_dead_letters, wanted, GROUPED_MAX))
    groups, has_more = grouping or ([], False)
    grouped = GROUPED_MAX if has_more else None
    return {
        "letters": page["letters"], "next": page["next"], "groups": groups[:GROUPS_SHOWN], "grouped": grouped,
        "groups_rest": max(0, len(groups) - GROUPS_SHOWN),
    }  # fmt: skip


def group_dead_letters(
    connection: Connection, tenant: int, wanted: DeadLetterConditions, limit: int
) -> tuple[list[dict[str, Any]], bool]:
    """Groups the newest dead letters that were not done again by task, reason and error, the largest group first.

    `limit` is how many are looked at. Returns also whether there are more.
    """
    dead_letters, last = read_newest(connection, tenant, wanted, limit, END)
    counts: Counter[tuple[str, ...]] = Counter()
    for each in dead_letters:
        if each.again_at is None:
            details = each.details
            exception = find_exception(details.get("last_error") or "")
            counts[each.task, details.get("reason_code") or "", details.get("error_class") or "", exception] += 1
    names = ("task", "reason_code", "error_class", "error")
    groups = [
        {
            "task": facts[0], "reason": facts[1], "error": facts[3] or facts[2], "count": count,
            "link": urlencode([pair for pair in zip(names, facts, strict=True) if pair[1]]),
        }
        for facts, count in counts.most_common()
    ]  # fmt: skip
    return groups, last is not None


async def show_queues(request: PageRequest) -> dict[str, Any]:
    """Shows each queue: what waits, how old it is, what runs, the room of its workers, and how much it finishes."""
    stats, workers, pauses, history, held = await asyncio.gather(
        request.wait_for("what waits", request.ask("GET", "/v1/stats")),
        request.wait_for("capacity", request.ask("GET", "/v1/workers")), request.ask("GET", "/v1/pauses"),
        request.wait_for("what is finished", request.ask("GET", "/v1/stats/history", [("range", "1h")])),
        request.wait_for("what runs", request.read(count_held_by_queue)),
    )  # fmt: skip
    paused = {
        pause["name"]: pause for pause in pauses["pauses"] if pause["kind"] == "queue" and pause["ended_at"] is None
    }
    rooms = count_rooms(workers["workers"] if workers else ())
    rows = {queue["queue"]: queue for queue in stats["queues"]} if stats else {}
    past = {queue["queue"]: queue for queue in history["queues"]} if history else {}
    every = sorted({*rows, *rooms, *paused, *(held or {}), *past})
    first = read_number(request, "row", 1, max(len(every), 1)) if "row" in request.query else 1
    names = every[first - 1 : first - 1 + QUEUE_ROWS]
    return {"count": len(every), **describe_part(first, QUEUE_ROWS, len(every)), "queues": [
        {"name": name, "room": rooms[name], "paused": paused.get(name), "held": (held or {}).get(name, 0),
         "per_minute": past.get(name, {}).get("per_minute", 0), "run_p95": past.get(name, {}).get("run_p95"),
         "bar": draw_share((held or {}).get(name, 0) / max(rooms[name], 1), "active"),
         "waiting": 0, "oldest": 0, **rows.get(name, {})} for name in names
    ]}  # fmt: skip
