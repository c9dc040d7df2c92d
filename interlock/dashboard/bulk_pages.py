"""Bulk cancel and requeue: a preview page, and the result after it was confirmed.

What is shown can be out of date when it is confirmed. Then nothing is done, and the page says what has changed. Whoever
confirms the same preview twice gets the same answer twice, and it is done once.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from litestar import Response

from interlock.client.durations import format_rounded
from interlock.dashboard.pages import PageRequest
from interlock.dashboard.render import make_printable, render
from interlock.kernel.errors import InterlockError
from interlock.kernel.lifecycle import Category, Lifecycle
from interlock.kernel.lifecycle_options import CancelMode
from interlock.server.auth import require_scope
from interlock.server.errors import ApiError, make_api_error

MANY = ("state", "category")  # fields of a filter that may be given several times
JOBS = (*MANY, "lifecycle", "task", "queue", "key", "correlation", "error", "worker", "parent", "top")
DEAD_LETTERS = ("lifecycle", "task", "queue", "error_class", "error", "reason_code", "since")
CHOOSE = "choose some rows of a list, or all that match its filter"
OUT_OF_DATE = "this preview is out of date, and nothing was done"
CHANGES_MAX = 5  # that are told
SHOWN = 100  # jobs that are named when it is done
SECOND_US = 1_000_000


class BulkVerb(NamedTuple):
    """What is done to many: the page that shows it, the operation that does it, and how both are spoken of."""

    verb: str
    page: str  # below /ui
    operation: str
    fields: tuple[str, ...]  # of its filter
    back: str  # the list that it comes from
    nouns: str
    by_id: bool = True  # whether ids may be given instead of a filter


CANCEL = BulkVerb("cancel", "/jobs/cancel", "/v1/jobs/cancel", JOBS, "/jobs", "jobs")
REQUEUE = BulkVerb("requeue", "/jobs/requeue", "/v1/jobs/requeue", JOBS, "/jobs", "dead letters")
REQUEUE_DEAD = BulkVerb(
    "requeue", "/dead-letters/requeue", "/v1/dead-letters/requeue", DEAD_LETTERS, "/dead-letters", "dead letters", False
)
VERBS = (CANCEL, REQUEUE, REQUEUE_DEAD)


# What is meant.


def make_body(verb: BulkVerb, pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Returns the body of the request that a page sends.

    Raises:
        ApiError: nothing is chosen.
    """
    given = dict(pairs)
    filters: dict[str, Any] = {name: value for name, value in pairs if name in verb.fields and name not in MANY}
    filters |= {name: values for name in MANY if (values := [value for field, value in pairs if field == name])}
    body: dict[str, Any] = {"filter": filters, "reason": given.get("reason", "")}
    if verb.by_id:
        ids = [value for name, value in pairs if name == "id"] + [
            each for each in given.get("ids", "").split(",") if each
        ]  # fmt: skip
        if "all" not in given:
            body |= {"filter": {}, "ids": ids}
        if not ids and "all" not in given:
            raise ApiError(400, CHOOSE)
        body["every"] = not (filters.keys() - {"top"}) and "all" in given
    if verb.verb == CANCEL.verb:
        body["hard"] = given.get("hard", "") == "true"
    return body


def list_fields(verb: BulkVerb, pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Returns the fields of the URL that say what is meant, to be sent again by a form."""
    if verb.by_id and "all" not in dict(pairs):
        ids = dict.fromkeys(make_body(verb, pairs)["ids"])
        return [("ids", ",".join(ids))]
    return [(name, value) for name, value in pairs if name in (*verb.fields, "all")]


# The preview.


async def preview_cancel(request: PageRequest) -> dict[str, Any]:
    """Shows what would be cancelled."""
    return await preview(request, CANCEL)


async def preview_requeue(request: PageRequest) -> dict[str, Any]:
    """Shows which dead letters of a list of jobs would be done again."""
    return await preview(request, REQUEUE)


async def preview_dead_letters(request: PageRequest) -> dict[str, Any]:
    """Shows which dead letters would be done again."""
    return await preview(request, REQUEUE_DEAD)


async def preview(request: PageRequest, verb: BulkVerb) -> dict[str, Any]:
    """Shows how many are meant, in which groups, what is left out, the oldest, and what will become of them.

    What is wrong with the choice is said in place.

    Raises:
        ApiError: a key that may not read.
    """
    require_scope(request.caller, "read")
    shown: dict[str, Any] = {"verb": verb, "wrong": "", "fields": [], "counted": None}
    try:
        body = make_body(verb, request.pairs)
        counted = await request.ask("POST", verb.operation, body=body)
    except (ApiError, InterlockError) as error:
        answer = make_api_error(error, by_id=False)
        if answer.status != 400:
            raise
        return {**shown, "wrong": str(answer)}
    groups = counted["groups"]
    queues: list[tuple[str, str]] = []
    if verb.verb != CANCEL.verb and groups:
        queues = await forecast(request, groups)
    lifecycles = request.site.server.app.lifecycles
    return {
        **shown, "counted": counted, "groups": groups, "fields": list_fields(verb, request.pairs),
        "reason": body["reason"], "hard": body.get("hard", False), "queues": queues,
        "rest": counted["count"] - sum(group["count"] for group in groups),
        "oldest": min(groups, key=lambda group: group["oldest_at"] or "", default=None),
        "ends": describe_ends(lifecycles, groups, body.get("hard", False)) if verb.verb == CANCEL.verb else [],
        "remembered": msgspec.json.encode(count_groups(groups)).decode(),
    }  # fmt: skip


def count_groups(groups: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Returns how many are in each group, by how people would name it."""
    counts: Counter[str] = Counter()
    for group in groups:
        names = (group[name] for name in ("state", "task", "queue", "reason_code", "error_class", "error"))
        counts[" · ".join(make_printable(name)[:80] for name in names if name)] += group["count"]
    return dict(counts)


def describe_ends(
    lifecycles: Mapping[str, Lifecycle], groups: Iterable[Mapping[str, Any]], hard: bool
) -> list[tuple[int, str]]:
    """Returns what becomes of those that are cancelled, each with how many."""
    counts: Counter[str] = Counter()
    for group in groups:
        lifecycle = lifecycles[group["lifecycle"]]
        runs = lifecycle.category(group["state"]) in (Category.HELD, Category.ACTIVE)
        if runs and not hard and lifecycle.options.cancel_mode is not CancelMode.IMMEDIATE:
            within_us = lifecycle.options.cancel_within_us
            limit = f", within {format_rounded(within_us)}" if within_us else ""
            counts[f"run now and are asked to stop{limit}"] += group["count"]
        else:
            counts["are cancelled at once"] += group["count"]
    return [(count, end) for end, count in counts.items()]


async def forecast(request: PageRequest, groups: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Returns the queues that the groups go to, each with how many wait there and how long it will need for all."""
    stats, workers = await asyncio.gather(request.ask("GET", "/v1/stats"), request.ask("GET", "/v1/workers"))
    waiting = {queue["queue"]: queue["waiting"] for queue in stats["queues"]}
    medians = {kind["type"]: kind["run"]["p50"] for kind in stats["types"] if kind["run"]}
    rooms = count_rooms(workers["workers"])
    added: Counter[str] = Counter()
    lengths: Counter[str] = Counter()
    for group in groups:
        added[group["queue"]] += group["count"]
        lengths[group["queue"]] += medians.get(group["task"], 0) * group["count"]
    return [
        (queue, describe_queue(waiting.get(queue, 0), count, rooms[queue], lengths[queue] / count))
        for queue, count in sorted(added.items())
    ]


def describe_queue(waiting: int, added: int, room: int, seconds: float) -> str:
    """Returns how long a queue will need for what waits there and what comes to it.

    Parameters:
        room: how many jobs its workers run at a time.
        seconds: how long a job takes; 0 if that is not known.
    """
    now = f"where {waiting:,} wait" if waiting else "where nothing waits"
    if not room:
        return f"{now}; no worker serves it, so they wait until one does"
    if not seconds:
        return f"{now}; {room:,} run at a time, and how long one takes is not known yet"
    needed = math.ceil((waiting + added) / room) * seconds
    return f"{now}; all of them need about {format_rounded(round(needed * SECOND_US))}, {room:,} at a time"


def count_rooms(workers: Iterable[Mapping[str, Any]]) -> Counter[str]:
    """Returns how many jobs of each queue can run at a time."""
    rooms: Counter[str] = Counter()
    for worker in workers:
        given = worker["queues"]  # with the room of each, or the names alone
        rooms.update(given if isinstance(given, dict) else dict.fromkeys(given or (), worker["concurrency"]))
    return rooms


# Confirming it.


async def confirm(verb: BulkVerb, request: PageRequest, form: Mapping[str, str]) -> Response[Any]:
    """Does what was shown, once, and shows what came of it.

    Raises:
        ApiError: that is out of date.
    """
    token = form.get("confirm", "")
    if not token:
        raise ApiError(400, "confirm is missing; look at the preview, and send its form")
    done = await request.site.answer_once(f"{request.session.nonce} {token}", lambda: carry_out(verb, request, form))
    text = render(
        "bulk_done.html", **request.site.describe(request.session), verb=verb, done=done, refusal="", live="",
        units=done["units"][:SHOWN], back=[pair for pair in list_fields(verb, list(form.items())) if pair[0] != "ids"],
    )  # fmt: skip
    return Response(text, media_type="text/html", status_code=200)


async def carry_out(verb: BulkVerb, request: PageRequest, form: Mapping[str, str]) -> dict[str, Any]:
    """Sends what was shown, unless something of it has changed."""
    body = make_body(verb, list(form.items()))
    now = await request.ask("POST", verb.operation, body=body)
    changes = compare_groups(read_groups(form.get("remembered", "")), count_groups(now["groups"]))
    if changes:
        raise ApiError(409, f"{OUT_OF_DATE}: {'; '.join(changes)}", code="CONFIRM_MISMATCH")
    if verb.by_id:
        body["unchanged"] = True
    done: dict[str, Any] = await request.ask("POST", verb.operation, body={**body, "confirm": form["confirm"]})
    return done


def read_groups(text: str) -> dict[str, int]:
    """Returns the groups that a form was made with.

    Raises:
        ApiError: what no form of ours has.
    """
    try:
        return msgspec.json.decode(text or "{}", type=dict[str, int])
    except msgspec.MsgspecError:
        raise ApiError(400, "remembered is not allowed; send the form as the page has it") from None


def compare_groups(before: Mapping[str, int], now: Mapping[str, int]) -> list[str]:
    """Returns what has changed since a preview was shown. What came since was not shown, and is left out anyway."""
    changes = [
        f"{name}: {count:,} were shown, now there {'is' if now.get(name) == 1 else 'are'} {now.get(name, 0):,}"
        for name, count in before.items() if now.get(name, 0) < count
    ]  # fmt: skip
    more = len(changes) - CHANGES_MAX
    return [*changes[:CHANGES_MAX], *([f"and {more:,} other groups have fewer"] if more > 0 else [])]
