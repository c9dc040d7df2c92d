"""The pages of jobs and runs: the list, one of them with its lifecycle lit, and how it stood at an earlier version."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from markupsafe import Markup

from interlock.audit.draw import draw_lifecycle
from interlock.dashboard.pages import MovedPage, PageRequest
from interlock.kernel.commands.operators import REASONS
from interlock.kernel.errors import InterlockError
from interlock.kernel.lifecycle import SETTLED, Category, Lifecycle, Owner
from interlock.kernel.lifecycle_options import RollUp
from interlock.server.errors import ApiError, make_api_error

FILTERS = ("state", "category", "lifecycle", "task", "queue", "key", "correlation", "parent", "worker")
EVENTS_MAX = 200  # of a job that a page shows
BAR = 1_000  # units of width of the waterfall
SUBMIT = "submit"  # births of what people and programs ask for; workers and leases are born otherwise


class Button(NamedTuple):
    """What a person may do to a job: the path of the action, its name, the scope that it needs, and its field."""

    verb: str
    name: str
    scope: str = "operate"
    kind: str = "go"
    field: str = "reason"
    label: str = "Reason (kept in the event)"
    word: str = ""  # of the lifecycle, for those that are decided by name
    choices: tuple[str, ...] = ()  # what the field may be, if not any text
    allowed: bool = True


COMMENT = "Comment (kept in the event)"
# By the trigger of a lifecycle that people fire.
BUTTONS = {
    "approve": Button("approve", "Approve", "approve", "go", "comment", COMMENT),
    "reject": Button("reject", "Reject", "approve", "no", "comment", COMMENT),
    "cancel": Button("cancel", "Cancel", "operate", "no"),
    "bury": Button("bury", "Make it a dead letter", "operate", "no", "reason", "Reason", choices=REASONS),
    "drain": Button("drain", "Drain"),
    "plan": Button("decide", "Plan", "operate", "go", "comment", COMMENT, "plan"),
    "resume": Button("decide", "Resume", "operate", "go", "comment", COMMENT, "resume"),
}
AGAIN = {Category.DEAD: Button("requeue", "Requeue")}


async def list_jobs(request: PageRequest) -> dict[str, Any]:
    """Lists jobs, the newest first."""
    return await list_work(request, "/v1/jobs", "jobs", "Jobs")


async def list_runs(request: PageRequest) -> dict[str, Any]:
    """Lists runs, the newest first."""
    return await list_work(request, "/v1/runs", "runs", "Runs")


async def list_work(request: PageRequest, operation: str, name: str, title: str) -> dict[str, Any]:
    """Lists jobs or runs that fit the filter in the URL. A wrong word is told what is allowed, in place."""
    wrong = ""
    page: dict[str, Any] = {name: [], "next": None, "count": None}
    try:
        page = await request.ask(
            "GET", operation, [*request.pairs, *([] if "limit" in request.query else [("limit", "25")])]
        )
    except (ApiError, InterlockError) as error:
        wrong = str(make_api_error(error, by_id=False))
    chips = [(field, value) for field, value in request.pairs if field in FILTERS]
    return {
        "title": title,
        "jobs": page[name],
        "next": page["next"],
        "chips": chips,
        "wrong": wrong,
        "filters": FILTERS,
    }


async def show_job(request: PageRequest) -> dict[str, Any]:
    """Shows a job with its lifecycle, why it is where it is, and what happened."""
    unit = request.path["id"]
    detail, why, events = await asyncio.gather(
        request.ask("GET", "/v1/jobs/{id}", parameters={"id": unit}),
        request.ask("GET", "/v1/jobs/{id}/why", parameters={"id": unit}),
        read_events(request, unit),
    )
    lifecycle = request.site.server.app.lifecycles[detail["lifecycle"]]
    if lifecycle.options.roll_up not in (RollUp.NONE, RollUp.FOLLOW) and request.page != "/runs/{id}":
        raise MovedPage(f"/runs/{detail['id']}")
    version = read_version(request, events)
    past = [event for event in events if event["version"] <= version]
    now = past[-1] if past else None
    taken = Counter((event["from"], event["to"]) for event in past if event["from"] not in (None, event["to"]))
    state = now["to"] if now else detail["state"]
    return {
        "job": detail, "why": why, "events": list(reversed(past)), "version": version,
        "versions": events[-1]["version"] if events else 1, "earliest": events[0]["version"] if events else 1,
        "is_past": bool(events) and version < events[-1]["version"], "state": state,
        "category": lifecycle.states[state].category.value if state in lifecycle.states else detail["category"],
        "drawing": Markup(draw_lifecycle(lifecycle, lit=state, taken=dict(taken), styled=False)),
        "attempts": split_attempts(past), "buttons": list_buttons(request, lifecycle, detail),
        "has_ended": detail["outcome"] is not None,
        "live": "" if detail["outcome"] is not None or request.query.get("version") else f"?run={detail['id']}",
    }  # fmt: skip


async def read_events(request: PageRequest, unit: str) -> list[dict[str, Any]]:
    """Returns the last events of a job, the oldest first."""
    events: list[dict[str, Any]] = []
    after = 0
    while True:
        page = await request.ask(
            "GET", "/v1/jobs/{id}/events", [("after", str(after)), ("limit", "200")], parameters={"id": unit}
        )
        events = [*events, *page["events"]][-EVENTS_MAX:]
        if page["next"] is None:
            return events
        after = page["next"]


def read_version(request: PageRequest, events: Sequence[Mapping[str, Any]]) -> int:
    """Returns the version that the URL names, or the newest. Raises ApiError."""
    newest = events[-1]["version"] if events else 1
    text = request.query.get("version")
    if text is None:
        return int(newest)
    if not text.isdecimal() or not 1 <= int(text) <= newest:
        raise ApiError(400, f"version = {text} is not allowed; allowed are 1 to {newest}")
    return int(text)


def split_attempts(events: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns when each attempt began and ended, and what ended it."""
    attempts: dict[int, dict[str, Any]] = {}
    for event in events:
        attempt = attempts.setdefault(
            event["attempt"], {"attempt": event["attempt"], "began": event["at"], "ended": None, "end": "", "fence": 0}
        )
        attempt |= {"ended": event["at"], "end": event["name"], "fence": max(attempt["fence"], event["fence"])}
    return list(attempts.values())


def list_buttons(request: PageRequest, lifecycle: Lifecycle, job: Mapping[str, Any]) -> list[Button]:
    """Lists what a person may do here: exactly the moves that the lifecycle lists for one, or doing it again."""
    listed = [move for (state, _), move in lifecycle.moves.items() if state == job["state"]]
    buttons = [BUTTONS[move.trigger] for move in listed if move.owner is Owner.PERSON and move.trigger in BUTTONS]
    if lifecycle.birth.trigger == SUBMIT and job["category"] in SETTLED:
        buttons.append(AGAIN.get(job["category"], Button("rerun", "Run again")))
    return [button._replace(allowed=request.may(button.scope)) for button in buttons]


async def show_run(request: PageRequest) -> dict[str, Any]:
    """Shows a run: as a job, with all below it as a table and a waterfall."""
    shown, below = await asyncio.gather(
        show_job(request), request.ask("GET", "/v1/jobs/{id}/steps", parameters={"id": request.path["id"]})
    )
    return {**shown, "steps": lay_out_steps(below["steps"], shown["job"]), "cut": below["cut"]}


def lay_out_steps(steps: Sequence[Mapping[str, Any]], run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the steps with where their bars begin and end in the waterfall."""
    first = parse_instant(run["created_at"])
    ends = [parse_instant(step["ended_at"] or step["began_at"] or step["created_at"]) for step in steps]
    last = max(*ends, first + 0.001) if ends else first + 0.001
    scale = BAR / (last - first)
    laid = []
    for step in steps:
        born = (parse_instant(step["created_at"]) - first) * scale
        began = (parse_instant(step["began_at"]) - first) * scale if step["began_at"] else None
        ended = (parse_instant(step["ended_at"]) - first) * scale if step["ended_at"] else float(BAR)
        laid.append({
            **step, "born": max(0, round(born)),
            "waited": max(1, round((ended if began is None else began) - born)),
            "began": None if began is None else max(0, round(began)),
            "ran": 0 if began is None else max(2, round(ended - began)),
        })  # fmt: skip
    return laid


def parse_instant(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
