"""`interlock events`: what happened to a job."""

from typing import Annotated

import typer

from interlock.cli.options import DEFAULT, Id, Tenant, Url, find_unit, open_app
from interlock.cli.output import Json, print_json, print_table
from interlock.client import json_views
from interlock.client.durations import format_time
from interlock.client.selections import check_value
from interlock.client.why.reasons import format_reason
from interlock.core.notes import CANCEL_REQUEST
from interlock.kernel.errors import InterlockError
from interlock.kernel.rows import Event
from interlock.store.queries.job_events import JOB, Place, read_job_events
from interlock.store.queries.views import events_of, read_summary

EVENTS_MAX = 1_000_000  # of one job
HEADS = ("VERSION", "AT", "EVENT", "FROM", "TO", "LEASE", "ATTEMPT", "BY", "REASON")


def list_events(
    unit: Id,
    after: Annotated[int, typer.Option(min=0, metavar="VERSION", help="Only events after this version.")] = 0,
    shape: Annotated[
        str | None,
        typer.Option("--shape", metavar="002", help="Of a job: document 002's events, heartbeats and renewals too."),
    ] = None,
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """List what happened to a job: every transition of it and of its leases."""
    if shape is not None:
        list_job_events(unit, shape, after, tenant, db, json)
        return
    with open_app(db, tenant) as app:
        events = app.read(events_of, find_unit(app, unit), after)
    if json:
        print_json({"events": [json_views.make_event(event) for event in events]})
        return
    rows = [
        (
            str(event.version), format_time(event.at), event.name, event.source or "", event.target,
            f"{event.lease_from or ''} → {event.lease_to}" if event.lease_to else "", str(event.attempt), event.actor,
            describe_reason(event),
        )
        for event in events
    ]  # fmt: skip
    print_table(HEADS, rows)


def describe_reason(event: Event) -> str:
    """Return why it happened; of a cancel also who had requested it, if somebody else carried it out."""
    payload = json_views.decode_json(event.payload)
    request = payload.get(CANCEL_REQUEST) if isinstance(payload, dict) else None
    return (
        f"{event.reason}; requested by {request['by']}{format_reason(request['reason'], '')}"
        if request
        else event.reason
    )


def list_job_events(unit: str, shape: str, after: int, tenant: int, db: str, json: bool) -> None:
    """List every event of a job in document 002's shape."""
    check_value("shape", shape, ("002",))
    if after:
        raise InterlockError("--after names a version, and events of --shape 002 are not all versions: leave it out")
    with open_app(db, tenant) as app:
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
