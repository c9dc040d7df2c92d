"""The page of a job: its lifecycle diagram, its events, and its state at an earlier version."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from interlock.audit.draw import draw_lifecycle
from interlock.client.durations import format_time
from interlock.client.json_views import make_job
from interlock.client.timelines import WIDTH, list_attempts, list_leases
from interlock.client.why import Why, explain
from interlock.dashboard.decisions import read_refusal
from interlock.dashboard.pages import MovedPage, PageRequest
from interlock.dashboard.panels import find_shown_category, find_standing, list_live_states, make_tabs, make_timeline
from interlock.dashboard.values import FoldedValue, read_folded_detail
from interlock.kernel.approvals import VERDICTS
from interlock.kernel.commands.operators import REASONS
from interlock.kernel.errors import Unknown
from interlock.kernel.lifecycle import Category, Lifecycle, Owner
from interlock.kernel.lifecycle_options import RollUp
from interlock.kernel.rows import Event, Note
from interlock.plugins.evidence.queries import ArtifactInfo, list_artifacts
from interlock.server.auth import Caller
from interlock.server.errors import ApiError
from interlock.server.operations import parse_unit_id
from interlock.store.connection import Connection
from interlock.store.queries.views import (
    View,
    children_of,
    events_of,
    find_archive,
    read_newest_notes,
    read_newest_version,
)

EVENTS_MAX, NOTES_MAX = 2_000, 500  # of a job that a page reads, the last ones
TAB_ROWS, TIMELINE_ROWS = 30, 24  # of a tab on one page; of a timeline, the last ones
TABS = ("events", "attempts", "steps", "leases", "notes", "artifacts")
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
    refusal: str = ""  # why it is greyed

    @property
    def allowed(self) -> bool:
        return not self.refusal


QUARTERS = tuple((WIDTH * place // 5, "") for place in range(1, 5))  # lines behind a timeline
COMMENT = "Comment (kept in the event)"
# By the trigger of a lifecycle that people fire.
BUTTONS = {
    "approve": Button("approve", "Approve", "approve", "go", "comment", COMMENT),
    "reject": Button("reject", "Reject", "approve", "no", "comment", COMMENT),
    "cancel": Button("cancel", "Cancel", "operate", "no"),
    "bury": Button("bury", "Make it a dead letter", "operate", "no", "reason", "Reason", choices=REASONS),
    "drain": Button("drain", "Drain"),
    "skip": Button("skip", "Skip"),
    "plan": Button("decide", "Plan", "operate", "go", "comment", COMMENT, "plan"),
    "resume": Button("decide", "Resume", "operate", "go", "comment", COMMENT, "resume"),
}
RUN_NOW = Button("run-now", "Run now")
OF_TIME = ("delayed", "backing_off", "snoozed")  # reasons of `why` that time alone ends
AGAIN = {Category.DEAD: Button("requeue", "Requeue")}


class JobRows(NamedTuple):
    """What the page of a job shows, as it is read together."""

    detail: dict[str, Any]
    folded: Mapping[str, FoldedValue]
    events: list[Event]
    notes: list[Note]
    artifacts: list[ArtifactInfo]
    children: list[View]
    now: int
    refusal: str  # why whoever looks may not vote on it


def read_job_rows(
    connection: Connection, tenant: int, unit: int, lifecycles: Mapping[str, Lifecycle], caller: Caller
) -> JobRows:  # fmt: skip
    """Reads a job, its last events, its last notes, its artifacts and its children."""
    newest, notes = (
        read_newest_version(connection, tenant, unit),
        read_newest_notes(connection, tenant, unit, NOTES_MAX),
    )
    return JobRows(
        *read_folded_detail(connection, tenant, unit, notes),
        events_of(connection, tenant, unit, max(0, newest - EVENTS_MAX)), notes,
        list_artifacts(connection, tenant, unit), children_of(connection, tenant, unit), connection.now(),
        read_refusal(connection, tenant, lifecycles, unit, caller),
    )  # fmt: skip


async def find_job(request: PageRequest) -> int:
    """Returns the job that the path names.

    Raises:
        ApiError: one that was archived: it says in which file.
    """
    try:
        return await request.find_unit()
    except Unknown:
        file = await request.read(find_archive, parse_unit_id(request.path["id"]))
        if file is None:
            raise
    raise ApiError(404, f"{request.path['id']} was archived; it is in the file {file}")


async def show_job(request: PageRequest) -> dict[str, Any]:
    """Shows a job with its lifecycle, why it is where it is, and what happened."""
    unit = await find_job(request)
    lifecycles = request.site.server.app.lifecycles
    rows, why = await asyncio.gather(
        request.read(read_job_rows, unit, lifecycles, request.caller), ask_why(request, unit)
    )
    lifecycle = find_lifecycle(request, rows.detail)
    if lifecycle.options.roll_up not in (RollUp.NONE, RollUp.FOLLOW):
        raise MovedPage(f"/runs/{rows.detail['id']}")
    version = read_number(request, "version", rows.events[0].version, rows.events[-1].version)
    past = [event for event in rows.events if event.version <= version]
    slider = Slider("version", version, rows.events[0].version, rows.events[-1].version, "version")
    return describe_job(request, why, lifecycle, rows, past, slider)


async def ask_why(request: PageRequest, unit: int) -> Why | None:
    """Returns why a job is where it is."""
    return await request.wait_for("why", request.read(explain, request.site.server.app.lifecycles, unit))


def find_lifecycle(request: PageRequest, detail: Mapping[str, Any]) -> Lifecycle:
    """Returns the lifecycle of a job.

    Raises:
        ApiError: this server was started without it.
    """
    lifecycle = request.site.server.app.lifecycles.get(detail["lifecycle"])
    if lifecycle is None:
        raise ApiError(409, f"this server does not know the lifecycle '{detail['lifecycle']}'; start it with its file")
    return lifecycle


class Slider(NamedTuple):
    """Where one looks among the events: the name of the field in the URL, its value, and what it may be."""

    name: str
    value: int
    least: int
    most: int
    label: str

    @property
    def is_past(self) -> bool:
        return self.value < self.most


def describe_job(
    request: PageRequest, why: Why | None, lifecycle: Lifecycle, rows: JobRows, past: Sequence[Event], slider: Slider
) -> dict[str, Any]:  # fmt: skip
    """Returns what the page of a job shows: everything as these events left it."""
    detail = rows.detail
    lifecycles = request.site.server.app.lifecycles
    standing, live = find_standing(past, lifecycle), list_live_states(lifecycles)
    until = standing.at if slider.is_past else rows.now
    leases, attempts = list_leases(past, live), list_attempts(past, lifecycle)
    children = [make_job(view) for view in rows.children if view.body.created_at <= until]
    tabs = make_tabs(past, lifecycle, live, rows.notes, rows.artifacts, children, until)
    tab = request.query.get("tab", "events")
    if tab not in TABS:
        raise ApiError(400, f"tab = {tab} is not allowed; allowed are {', '.join(TABS)}")
    rows_of_tab = tabs.get(tab, [])
    first = read_number(request, "from", 1, max(len(rows_of_tab), 1)) if "from" in request.query else 1
    last = first - 1 + TAB_ROWS
    timeline = make_timeline(past, lifecycle, live, [note for note in rows.notes if note.at <= until], until)
    return {
        "job": detail, "why": why, "standing": standing, "state": standing.state,
        "category": find_shown_category(past, lifecycle),
        "at": format_time(standing.at), "slider": slider, "is_past": slider.is_past,
        "drawing": Markup(draw_lifecycle(lifecycle, lit=standing.state, taken=standing.taken, styled=False)),
        "holder": leases[-1] if leases and leases[-1].ended_at is None else None,
        "error": next((each for each in reversed(attempts) if each.error), None),
        "past_cost": round(sum(each.cost for each in attempts), 6),
        "timeline": timeline[-TIMELINE_ROWS:], "timeline_rest": max(0, len(timeline) - TIMELINE_ROWS),
        "tabs": {name: len(shown) for name, shown in tabs.items()}, "tab": tab, "shown": rows_of_tab[first - 1 : last],
        "from_row": first, "back_row": max(1, first - TAB_ROWS) if first > 1 else None,
        "next_row": last + 1 if last < len(rows_of_tab) else None,
        "buttons": list_buttons(
            lifecycle, detail["state"], request.may, waits_for_time=bool(why and why.reason in OF_TIME),
            refusal=rows.refusal,
        ),
        "folded": rows.folded,
        "has_correlation": detail["correlation"] not in find_own_numbers(detail),
        "has_ended": detail["outcome"] is not None, "quarters": QUARTERS,
        "made_by": past[0].actor if past[0].version == 1 else "",
        "live": detail["outcome"] is None and slider.name not in request.query, "run": detail["id"],
    }  # fmt: skip


def find_own_numbers(detail: Mapping[str, Any]) -> list[str]:
    """Returns what the correlation of a job is if nobody gave one: its own number, or that of what it is part of."""
    return [str(parse_unit_id(detail[name])) for name in ("id", "parent") if detail[name]]


def read_number(request: PageRequest, name: str, least: int, most: int) -> int:
    """Returns a number of the URL, or the greatest.

    Raises:
        ApiError: it is not allowed; the text says what is.
    """
    text = request.query.get(name)
    if text is None:
        return most
    if not (text.isascii() and text.isdecimal() and len(text) < 10) or not least <= int(text) <= most:
        raise ApiError(400, f"{name} = {text} is not allowed; allowed are {least} to {most}")
    return int(text)


def list_buttons(
    lifecycle: Lifecycle, state: str, may: Callable[[str], bool], *, waits_for_time: bool = False, refusal: str = ""
) -> list[Button]:
    """Lists what a person may do here: exactly the moves that the lifecycle lists for one, or doing it again.

    What the key does not allow is among them, and says so. `may` says whether the key has a scope, `refusal` why its
    holder may not vote here. What waits for its time can be run now.
    """
    listed = [move for (source, _), move in lifecycle.moves.items() if source == state]
    buttons = [get_button(move.trigger) for move in listed if move.owner is Owner.PERSON]
    if lifecycle.birth.trigger == SUBMIT and state in lifecycle.states and lifecycle.settled(state):
        buttons.append(AGAIN.get(lifecycle.category(state), Button("rerun", "Run again")))
    if waits_for_time:
        buttons.insert(0, RUN_NOW)
    return [button._replace(refusal=refuse(button, may, refusal)) for button in buttons]


def refuse(button: Button, may: Callable[[str], bool], refusal: str) -> str:
    """Returns why somebody may not press a button; empty if they may."""
    if not may(button.scope):
        return f"this key lacks the scope '{button.scope}'"
    return refusal if button.verb in VERDICTS else ""


def get_button(trigger: str) -> Button:
    """Returns the button of a trigger; one of a user's own lifecycle is decided by its name."""
    name = trigger.replace("_", " ").capitalize()
    return BUTTONS.get(trigger) or Button("decide", name, "operate", "go", "comment", COMMENT, trigger)
