"""`interlock schedule`: list schedules, pause, unpause, remove and fire them."""

from itertools import islice
from typing import Annotated, Any, TypeVar

import typer

from interlock.cli.app_loader import load_registry
from interlock.cli.options import (
    DEFAULT,
    Actor,
    Tenant,
    Url,
    check_exists,
    check_schema,
    get_actor,
    load_lifecycles,
    open_connection,
)
from interlock.cli.output import Json, format_heads, print_json, print_line, print_table
from interlock.client.schedules import explain_pause
from interlock.kernel.commands import Command, FireSchedule, PauseSchedule, Planned, RemoveSchedule, ResumeSchedule
from interlock.kernel.errors import Unknown
from interlock.kernel.ids import format_id
from interlock.kernel.rows import Schedule
from interlock.plugins import make_engine
from interlock.plugins.schedules.cron import format_instant, iterate_instants
from interlock.store.connection import Connection
from interlock.store.queries.snapshots import snapshot
from interlock.store.queries.views import read_skipped, read_summary, schedule_of, schedules_of

app = typer.Typer(
    name="schedule", help="Schedules: list, pause, unpause, trigger or remove them.", no_args_is_help=True
)
A = TypeVar("A")
Name = Annotated[str, typer.Argument(metavar="NAME", envvar="INTERLOCK_SCHEDULE", help="The schedule's name.")]
Reason = Annotated[str, typer.Option(envvar="INTERLOCK_REASON", help="Why; shown by `interlock why`.")]
Next = Annotated[
    int, typer.Option("--next", envvar="INTERLOCK_NEXT", min=1, max=100, help="How many next times to show.")
]
Limit = Annotated[int, typer.Option(envvar="INTERLOCK_LIMIT", min=1, max=10_000, help="Maximum number to show.")]


@app.command("list")
def list_schedules(db: Url = DEFAULT, tenant: Tenant = 1, following: Next = 3, json: Json = False) -> None:
    """List schedules, their next times in their own time zone, and what they submitted last."""
    with open_existing(db) as connection, snapshot(connection, [tenant]):
        rows = [describe_schedule(connection, schedule, following) for schedule in schedules_of(connection, tenant)]
    if json:
        print_json({"schedules": rows})
    elif not rows:
        print_line("there is no schedule; `@app.every(…)` on a task makes one when its worker starts")
    else:
        heads = ("name", "timing", "timezone", "overlap", "missed", "last", "next")
        print_table(
            format_heads(heads),
            [[row[head] or "-" for head in heads[:6]] + [row["paused"] or ", ".join(row["next"])] for row in rows],
        )


def describe_schedule(connection: Connection, schedule: Schedule, following: int) -> dict[str, Any]:
    """Return a schedule as it is shown."""
    coming = (
        [] if schedule.next_at is None else iterate_instants(schedule.timing, schedule.timezone, schedule.next_at - 1)
    )
    return {
        "name": schedule.name, "timing": schedule.timing, "timezone": schedule.timezone, "overlap": schedule.overlap,
        "missed": schedule.missed, "last": describe_last(connection, schedule), "paused": explain_pause(schedule),
        "next": [format_instant(at, schedule.timezone) for at in islice(coming, following)],
    }  # fmt: skip


def describe_last(connection: Connection, schedule: Schedule) -> str:
    """Return the id and state of the job that it submitted last; empty if that was archived."""
    try:
        last = read_summary(connection, schedule.tenant, schedule.last_unit or 0)
    except Unknown:
        return ""
    return f"{format_id(last.lifecycle, last.unit)} {last.state}"


@app.command("skipped")
def list_skipped(name: Name, db: Url = DEFAULT, tenant: Tenant = 1, limit: Limit = 50, json: Json = False) -> None:
    """List the times at which a schedule submitted nothing, the latest first, and why."""
    with open_existing(db) as connection, snapshot(connection, [tenant]):
        schedule = schedule_of(connection, tenant, name)
        skips = read_skipped(connection, tenant, name, limit)
    if schedule is None:
        raise Unknown(f"there is no schedule '{name}'; `interlock schedule list` shows those that there are")
    rows = [
        {
            "first": format_instant(skip.first_at, schedule.timezone),
            "last": format_instant(skip.last_at, schedule.timezone),
            "count": skip.count or None,
            "reason": skip.reason,
        }
        for skip in skips
    ]
    if json:
        print_json({"skipped": rows})
    elif not rows:
        print_line(f"schedule {name} has skipped nothing in the last 14 days")
    else:
        heads = ("first", "last", "count", "reason")
        print_table(format_heads(heads), [[str(row[head] or "not counted") for head in heads] for row in rows])


@app.command("pause")
def pause_schedule(
    name: Name, reason: Reason = "", actor: Actor = None, db: Url = DEFAULT, tenant: Tenant = 1, json: Json = False
) -> None:
    """Pause a schedule: it submits nothing until it is unpaused."""
    print_schedule(
        send(db, PauseSchedule(name=name, tenant=tenant, actor=get_actor(actor), reason=reason.strip())), json
    )


@app.command("unpause")
def unpause_schedule(
    name: Name, actor: Actor = None, db: Url = DEFAULT, tenant: Tenant = 1, json: Json = False
) -> None:
    """Unpause a schedule; it goes on at its next time."""
    print_schedule(send(db, ResumeSchedule(name=name, tenant=tenant, actor=get_actor(actor))), json)


app.command("resume", hidden=True)(unpause_schedule)


@app.command("remove")
def remove_schedule(
    name: Name, reason: Reason = "", actor: Actor = None, db: Url = DEFAULT, tenant: Tenant = 1, json: Json = False
) -> None:
    """Remove a schedule; what it submitted stays. A worker whose app still defines it brings it back."""
    print_schedule(
        send(db, RemoveSchedule(name=name, tenant=tenant, actor=get_actor(actor), reason=reason.strip())), json
    )


@app.command("trigger")
def fire_schedule(
    name: Name, reason: Reason = "", actor: Actor = None, db: Url = DEFAULT, tenant: Tenant = 1, json: Json = False
) -> None:
    """Submit the job of a schedule now, whatever its next time."""
    fired = send(db, FireSchedule(name=name, tenant=tenant, actor=get_actor(actor), reason=reason.strip()))
    with open_existing(db) as connection, snapshot(connection, [tenant]):
        job = read_summary(connection, tenant, fired.unit)
    if json:
        print_json({"unit": format_id(job.lifecycle, fired.unit), "state": job.state})
    else:
        print_line(f"{format_id(job.lifecycle, fired.unit)} is {job.state}")


def open_existing(url: str) -> Any:
    """Open a connection to a database that exists."""
    check_exists(url)
    return open_connection(url)


def send(url: str, command: Command[A]) -> A:
    """Send a command on a database that is there and up to date."""
    with open_existing(url) as connection:
        check_schema(connection, url)
        return make_engine(connection, load_lifecycles(), registry=load_registry()).send(command)


def print_schedule(planned: Planned, json: bool) -> None:
    """Print what a schedule is now."""
    if json:
        print_json(planned)
        return
    coming = "" if planned.next_at is None else f", its next time is {format_instant(planned.next_at)}"
    state = "removed" if planned.removed else "paused" if planned.paused else f"active{coming}"
    print_line(f"schedule {planned.name} is {state}" + ("" if planned.changed else "; it was so before"))
