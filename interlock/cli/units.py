"""`interlock list`, `show`, `events` and `why`: looking at units changes nothing."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Annotated

import typer
from msgspec.structs import asdict

from interlock.cli import tree
from interlock.cli.options import (
    DEFAULT,
    NO_WORDS,
    After,
    Id,
    Limit,
    Tenant,
    Url,
    Words,
    app_on,
    select,
    unit_of,
    with_filter,
)
from interlock.cli.output import Cell, Json, dump, on_terminal, say, state_cell, table
from interlock.client import json_views
from interlock.client.durations import format_time, instant_us
from interlock.client.inbox import format_view_id
from interlock.client.responses import TracebackResponse
from interlock.client.schedules import explain_schedule
from interlock.client.selections import check_value
from interlock.client.trees import TreeSnapshot, read_tree_snapshot
from interlock.client.why import explain
from interlock.client.why.reasons import format_reason
from interlock.core.notes import ASKED, TRACEBACK
from interlock.kernel.durations import microseconds
from interlock.kernel.errors import InterlockError
from interlock.kernel.ids import format_id, parse_id
from interlock.kernel.lifecycle import Category, Lifecycle
from interlock.kernel.rows import Artifact, Event, Note
from interlock.kernel.texts import make_plain
from interlock.store.connection import Connection
from interlock.store.queries.job_events import JOB, Place, read_job_events
from interlock.store.queries.lists import read_newest_units
from interlock.store.queries.views import (
    Filter,
    Glimpse,
    View,
    artifacts_of,
    events_of,
    find_open_gates,
    glimpse,
    needs_of,
    notes_of,
    schedule_of,
    view,
    views_of,
)

EVERY = 1_000_000  # events that are told of one job at most
# Not told as fields of a unit: what has a table of its own, and other words for the same.
BESIDE = (*json_views.ALIASES, "lease", "needs", "waiting_on", "tracebacks")
HEADS = ("ID", "TASK", "STATE", "QUEUE", "ATTEMPT", "WORKER", "MADE AT", "CHANGED AT", "KEY")


@with_filter()
def list_units(
    words: Words = NO_WORDS,
    limit: Limit = 50,
    after: After = None,
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """List units, the newest first."""
    with app_on(db, tenant) as app:
        wanted = select(app, words).filter
        page, following = app.read(
            gathered, app.lifecycles.values(), wanted, limit, None if after is None else parse_id(after)
        )
    if json:
        dump({"units": [json_views.make_job(one) for one in page], "more": following is not None})
        return
    table(HEADS, [row(one) for one in page])
    if on_terminal() and following is not None:
        say(f"\nThere are more: --after {following}")


def gathered(
    connection: Connection, tenant: int, lifecycles: Iterable[Lifecycle], wanted: Filter, limit: int, after: int | None
) -> tuple[list[View], str | None]:
    """As many units as are wanted, however far they lie apart, and the id behind which to go on."""
    kinds, found = tuple(lifecycles), list[View]()
    while True:
        page = read_newest_units(connection, tenant, kinds, wanted, limit - len(found), after)
        found += page.units
        if page.next is None or len(found) == limit:
            return found, page.next
        after = parse_id(page.next)


def row(one: View) -> list[Cell]:
    unit, body = one.unit, one.body
    return [
        format_view_id(one), body.task, state_cell(unit.state, unit.category), one.queue, str(unit.attempt),
        one.holder or "", format_time(body.created_at), format_time(unit.changed_at), body.key or "",
    ]  # fmt: skip


def look(
    connection: Connection, tenant: int, lifecycles: Mapping[str, Lifecycle], unit: int
) -> tuple[View, TreeSnapshot, list[Glimpse], list[tuple[int, str]], list[Note], list[Artifact]]:
    """A unit with what is below it, what it needs and waits on, and what is written beside it, from one picture."""
    return (
        view(connection, tenant, unit),
        read_tree_snapshot(connection, tenant, lifecycles, unit),
        needs_of(connection, tenant, unit),
        find_open_gates(connection, tenant, unit),
        notes_of(connection, tenant, unit),
        artifacts_of(connection, tenant, unit),
    )


def show(
    unit: Id,
    at: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="As it was then: 2030-01-31T08:00:00Z, or 10m for so long ago."),
    ] = None,
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Show one unit: the tree below it, what it is, who holds it, what it needs, notes and artifacts."""
    if at is not None:
        show_past(unit, at, tenant, db, json)
        return
    with app_on(db, tenant) as app:
        seen, below, needs, gates, notes, artifacts = app.read(look, app.lifecycles, unit_of(app, unit))
        family = app.read(views_of, [node.unit for node in below.nodes[1:]]) if json else {}
    others = [one for one in notes if one.kind != TRACEBACK]
    if json:
        children = [{**json_views.make_job_fields(family[node.unit]), "depth": node.depth} for node in below.nodes[1:]]
        dump(
            {
                **asdict(json_views.make_job_detail(seen, needs, gates, notes)),
                "tree": [json_views.make_node(below, node) for node in below.nodes],
                "cut": below.cut,
                "children": children,
                "notes": [json_views.make_note(one) for one in others],
                "artifacts": [json_views.make_artifact(one) for one in artifacts],
            }
        )
        return
    if len(below.nodes) > 1:
        tree.draw(below)
        say("")
    table(("FIELD", "VALUE"), fields(seen))
    section("NEEDS", [(format_id(one.lifecycle, one.unit), state_cell(one.state, one.category)) for one in needs])
    section("NOTES", [(format_time(one.at), one.kind, one.name, one.payload) for one in others])
    section(
        "ARTIFACTS", [(one.name, f"attempt {one.attempt}", f"{len(one.data)} bytes", one.digest) for one in artifacts]
    )
    if seen.unit.outcome != Category.SUCCESS:
        say_tracebacks(json_views.make_tracebacks(notes))


def say_tracebacks(tracebacks: list[TracebackResponse]) -> None:
    """How the attempts failed, one after the other."""
    for one in tracebacks:
        say(f"\nTRACEBACK of attempt {one.attempt}, {one.at}\n{make_plain(one.text)}")


def show_past(unit: str, time: str, tenant: int, db: str, json: bool) -> None:
    """A unit and all below it, as their events say that they were."""
    with app_on(db, tenant) as app:
        at = moment(time, app.engine.read(lambda connection: connection.now(), tenant))
        number = unit_of(app, unit)
        seen = app.read(read_tree_snapshot, app.lifecycles, number, at)
    if not seen.nodes:
        raise InterlockError(f"{unit} did not exist at {format_time(at)}")
    if json:
        dump(
            {"at": format_time(at), "tree": [json_views.make_node(seen, node) for node in seen.nodes], "cut": seen.cut}
        )
        return
    if on_terminal():
        say(f"As it was at {format_time(at)}\n")
    tree.draw(seen)


def moment(text: str, now: int) -> int:
    """An instant that somebody names, or so long ago. Raises InterlockError."""
    try:
        return instant_us("--at", datetime.fromisoformat(text))
    except ValueError:
        pass
    try:
        return now - microseconds(text)
    except ValueError:
        allowed = "2030-01-31T08:00:00Z, or 10m for so long ago"
        raise InterlockError(f"--at '{text}' is no instant; one looks like {allowed}") from None


def fields(seen: View) -> list[tuple[str, Cell]]:
    """What there is to say of a unit; what it has not got is left out."""
    facts = {name: value for name, value in asdict(json_views.make_job_detail(seen)).items() if name not in BESIDE}
    body, lease = seen.body, json_views.make_lease(seen)
    facts |= {"capabilities": ", ".join(seen.capabilities), "labels": text(body.labels), "policy": text(body.policy)}
    facts |= {"input": body.input, "result": body.result}
    if lease:
        facts |= {f"lease_{name}": value for name, value in asdict(lease).items()}
    state = state_cell(seen.unit.state, seen.unit.category)
    return [
        (name, state if name == "state" else str(value))
        for name, value in facts.items()
        if value not in (None, "", 0) or name == "priority"
    ]


def text(packed: str) -> str:
    return "" if packed == "{}" else packed


def section(head: str, rows: Sequence[Sequence[Cell]]) -> None:
    if rows:
        say("")
        table((head, *[""] * (len(rows[0]) - 1)), rows)


def events(
    unit: Id,
    after: Annotated[int, typer.Option(min=0, metavar="VERSION", help="Only what came after this version.")] = 0,
    shape_of: Annotated[
        str | None,
        typer.Option("--shape", metavar="002", help="Of a job: document 002's events, heartbeats and renewals too."),
    ] = None,
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Tell what happened to a unit, every move of it and of its leases."""
    if shape_of is not None:
        show_job_events(unit, shape_of, after, tenant, db, json)
        return
    with app_on(db, tenant) as app:
        found = app.read(events_of, unit_of(app, unit), after)
    if json:
        dump({"events": [json_views.make_event(one) for one in found]})
        return
    rows = [
        (
            str(one.version), format_time(one.at), one.name, one.source or "", one.target,
            f"{one.lease_from or ''} → {one.lease_to}" if one.lease_to else "", str(one.attempt), one.actor,
            reason_of(one),
        )
        for one in found
    ]  # fmt: skip
    table(("VERSION", "AT", "EVENT", "FROM", "TO", "LEASE", "ATTEMPT", "BY", "REASON"), rows)


def reason_of(event: Event) -> str:
    """Why it happened; of a cancel also who had asked for it, if somebody else carried it out."""
    payload = json_views.decode_json(event.payload)
    asked = payload.get(ASKED) if isinstance(payload, dict) else None
    return f"{event.reason}; asked by {asked['by']}{format_reason(asked['reason'], '')}" if asked else event.reason


def show_job_events(unit: str, shape_of: str, after: int, tenant: int, db: str, json: bool) -> None:
    """Every event of a job, in document 002's shape."""
    check_value("shape", shape_of, ("002",))
    if after:
        raise InterlockError("--after names a version, and events of --shape 002 are not all versions: leave it out")
    with app_on(db, tenant) as app:
        number = unit_of(app, unit)
        lifecycle = app.read(glimpse, number).lifecycle
        if lifecycle != JOB:
            raise InterlockError(f"document 002's shape is of jobs, and {unit} is a {lifecycle}")
        found = [json_views.make_job_event(one) for one in app.read(read_job_events, number, Place(), EVERY)]
    if json:
        dump({"events": found})
        return
    names = ("ts", "type", "version", "actor", "correlation_id", "cause", "id")
    rows = [["" if (value := getattr(one, name)) is None else str(value) for name in names] for one in found]
    table([name.upper() for name in names], rows)


def why(
    unit: Annotated[str, typer.Argument(metavar="ID|SCHEDULE", help="A unit, as in job_4r1, or a schedule's name.")],
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Say why a unit or a schedule is where it is, what keeps it, and what may move it on."""
    with app_on(db, tenant) as app:
        schedule = app.read(schedule_of, unit)
        found = None if schedule else app.read(explain, app.lifecycles, unit_of(app, unit))
        told = app.read(explain_schedule, unit) if schedule else ""
    if schedule:
        reason = "removed" if schedule.removed_at else "paused" if schedule.paused_at else "scheduled"
        dump({"schedule": unit, "reason": reason, "answer": told, "text": told}) if json else say(told)
    elif found:
        dump(found) if json else say(found.text)
