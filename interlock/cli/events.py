"""`interlock events`: list the events of a job or of everything, and follow new ones."""

import time
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from interlock.cli.options import DEFAULT, LIMIT_MAX, Tenant, Url, find_unit, open_app, parse_length
from interlock.cli.output import Cell, Json, on_terminal, print_json, print_json_line, print_line, print_table
from interlock.client import json_views
from interlock.client.app import App
from interlock.client.durations import format_time
from interlock.client.event_views import FeedEventResponse
from interlock.client.feed import PAGE, Feed
from interlock.client.responses import EventResponse
from interlock.client.selections import check_value
from interlock.client.why.reasons import format_reason
from interlock.core.notes import CANCEL_REQUEST
from interlock.kernel.errors import InterlockError
from interlock.kernel.rows import Event
from interlock.store.queries.job_events import JOB, Place, read_job_events
from interlock.store.queries.views import events_of, read_summary

EVENTS_MAX = 1_000_000  # of one job
SHOWN = 50  # events of everything in a table
VERSION_MAX = 9  # digits
PAUSE = 0.25  # seconds between two looks at one job
HEADS = ("VERSION", "AT", "EVENT", "FROM", "TO", "LEASE", "ATTEMPT", "BY", "REASON")
FEED_HEADS = ("AT", "ID", "EVENT", "FROM", "TO", "TASK", "BY", "REASON", "CURSOR")
ONLY_ALL = "is for the events of everything: leave the id out, or give it as --job ID or --run ID"
Several = list[str] | None


def list_events(
    unit: Annotated[
        str | None,
        typer.Argument(metavar="[ID]", help="A job, run or step, as in job_4r1 (default: everything)."),
    ] = None,
    after: Annotated[
        str | None,
        typer.Option(
            metavar="CURSOR|VERSION", help="Only events after this cursor, or `now`; of one ID, after this version."
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep running, and print what is new.")] = False,
    jsonl: Annotated[bool, typer.Option("--jsonl", help="Print one line of JSON per event.")] = False,
    lifecycle: Annotated[Several, typer.Option(help="Only of this lifecycle; may be given several times.")] = None,
    state: Annotated[Several, typer.Option(help="Only transitions to this state; may be given several times.")] = None,
    trigger: Annotated[Several, typer.Option(help="Only this trigger; may be given several times.")] = None,
    task: Annotated[str | None, typer.Option(help="Only of this task.")] = None,
    queue: Annotated[str | None, typer.Option(help="Only of jobs of this queue.")] = None,
    by: Annotated[str | None, typer.Option(help="Only what this person, worker or key did.")] = None,
    correlation: Annotated[str | None, typer.Option(help="Only with this correlation id.")] = None,
    job: Annotated[str | None, typer.Option(metavar="ID", help="Only of this job, run or step.")] = None,
    run: Annotated[str | None, typer.Option(metavar="ID", help="Only of this run and all below it.")] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, max=LIMIT_MAX, help="Maximum number (default: 50; with --jsonl, all).")
    ] = None,
    within: Annotated[
        str | None, typer.Option("--for", metavar="DURATION", help="With --follow: stop after this long, such as 30s.")
    ] = None,
    shape: Annotated[
        str | None,
        typer.Option("--shape", metavar="002", help="Of a job: events as document 002 lists them."),
    ] = None,
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """List the events of a job, or of everything in commit order. With --follow, print new ones as they happen."""
    filters = {
        "lifecycle": lifecycle, "state": state, "trigger": trigger, "task": task, "queue": queue, "actor": by,
        "correlation": correlation, "job": job, "run": run,
    }  # fmt: skip
    if within is not None and not follow:
        raise InterlockError("--for is for --follow: without it, the list ends by itself")
    until = None if within is None else time.monotonic() + parse_length("for", within) / 1_000_000
    with open_app(db, tenant) as app:
        if unit is not None:
            refuse_filters(filters, limit)
            list_events_of(app, unit, after, follow, until, shape, jsonl, json)
            return
        if shape is not None:
            raise InterlockError("--shape is of one job: give its id")
        ids = {name: find_unit(app, text) for name, text in (("job", job), ("run", run)) if text is not None}
        feed = app.events(after=after, follow=follow, **{**filters, **ids})  # type: ignore[arg-type]
        if follow or jsonl:
            print_feed(feed, limit, until, jsonl or json)
        else:
            print_page(feed, limit or SHOWN, json)


# Everything.


def refuse_filters(filters: dict[str, Any], limit: int | None) -> None:
    """Raises InterlockError if a filter was given together with an id."""
    named = [name for name, value in {**filters, "limit": limit}.items() if value]
    if named:
        raise InterlockError(f"--{named[0].replace('actor', 'by')} {ONLY_ALL}")


def print_page(feed: Feed, limit: int, json: bool) -> None:
    """Print one page of everything, and where the next one begins."""
    events, more = list[FeedEventResponse](), True
    while more and len(events) < limit:
        page = feed.page(min(limit - len(events), PAGE))
        events += page.events
        feed.cursor, more = page.next, page.more
    if json:
        print_json({"events": events, "next": feed.cursor, "more": more})
        return
    print_table(FEED_HEADS, map(make_row, events))
    if on_terminal() and more:
        print_line(f"\nThere are more: --after {feed.cursor}")


def print_feed(feed: Feed, limit: int | None, until: float | None, jsonl: bool) -> None:
    """Print events as they come, until the end, the limit or the time."""
    if not jsonl:
        print_line("\t".join(FEED_HEADS))
    for number, event in enumerate(iterate_until(feed, until), 1):
        print_event(event, make_row(event), jsonl)
        if number == limit:
            return


def iterate_until(feed: Feed, until: float | None) -> Iterator[FeedEventResponse]:
    """Yield the events of a feed; it ends with the time, or when the user stops it."""
    try:
        for events in feed.pages():
            yield from events
            if until is not None and time.monotonic() >= until:
                return
    except KeyboardInterrupt:
        return


def make_row(event: FeedEventResponse) -> list[Cell]:
    """Make a row of the table of all events."""
    return [
        event.at, event.unit, event.name, event.source or "", event.target, event.task, event.actor,
        describe_reason(event), event.cursor,
    ]  # fmt: skip


def print_event(event: EventResponse, row: list[Cell], jsonl: bool) -> None:
    """Print an event as a line of JSON or as a line of cells."""
    if jsonl:
        print_json_line(event)
    else:
        print_line("\t".join(" ".join(str(cell).split()) for cell in row))


# One job.


def list_events_of(
    app: App, unit: str, after: str | None, follow: bool, until: float | None, shape: str | None, jsonl: bool,
    json: bool,
) -> None:  # fmt: skip
    """List the events of one job, run or step; with `follow` until it has ended."""
    version = parse_version(after)
    if shape is not None:
        if follow or jsonl:
            raise InterlockError("events of --shape 002 come as a list: leave --follow and --jsonl out")
        list_job_events(app, unit, shape, version, json)
        return
    number = find_unit(app, unit)
    if follow or jsonl:
        for event in follow_job(app, number, version, follow, until):
            print_event(json_views.make_event(event), make_job_row(event), jsonl or json)
        return
    events = app.read(events_of, number, version)
    if json:
        print_json({"events": [json_views.make_event(event) for event in events]})
    else:
        print_table(HEADS, map(make_job_row, events))


def parse_version(text: str | None) -> int:
    """Return the version that --after names, of one job.

    Raises:
        InterlockError: it is no version.
    """
    if text is None:
        return 0
    if not (text.isascii() and text.isdecimal() and len(text) <= VERSION_MAX):
        raise InterlockError(f"--after '{text}' is not allowed; of one job it is a version, a number from 0 on")
    return int(text)


def follow_job(app: App, unit: int, after: int, follow: bool, until: float | None) -> Iterator[Event]:
    """Yield the events of a job until it has ended, or those that there are."""
    try:
        while True:
            ended = app.read(read_summary, unit).outcome is not None
            for event in app.read(events_of, unit, after):
                after = event.version
                yield event
            if ended or not follow or (until is not None and time.monotonic() >= until):
                return
            time.sleep(PAUSE)
    except KeyboardInterrupt:
        return


def make_job_row(event: Event) -> list[Cell]:
    """Make a row of the table of one job's events."""
    return [
        str(event.version), format_time(event.at), event.name, event.source or "", event.target,
        f"{event.lease_from or ''} → {event.lease_to}" if event.lease_to else "", str(event.attempt), event.actor,
        describe_reason(json_views.make_event(event)),
    ]  # fmt: skip


def describe_reason(event: EventResponse) -> str:
    """Return why it happened; of a cancel also who had requested it, if somebody else carried it out."""
    request = event.payload.get(CANCEL_REQUEST) if isinstance(event.payload, dict) else None
    return (
        f"{event.reason}; requested by {request['by']}{format_reason(request['reason'], '')}"
        if request
        else event.reason
    )


def list_job_events(app: App, unit: str, shape: str, after: int, json: bool) -> None:
    """List every event of a job in document 002's shape."""
    check_value("shape", shape, ("002",))
    if after:
        raise InterlockError("--after names a version, and events of --shape 002 are not all versions: leave it out")
    number = find_unit(app, unit)
    lifecycle = app.read(read_summary, number).lifecycle
    if lifecycle != JOB:
        raise InterlockError(f"document 002's shape is of jobs, and {unit} is a {lifecycle}")
    events = [json_views.make_job_event(event) for event in app.read(read_job_events, number, Place(), EVENTS_MAX)]
    if json:
        print_json({"events": events})
        return
    names = ("ts", "type", "version", "actor", "correlation_id", "cause", "id")
    rows = [["" if (value := getattr(event, name)) is None else str(value) for name in names] for event in events]
    print_table([name.upper() for name in names], rows)
