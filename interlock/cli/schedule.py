"""`interlock schedule`: what is done by the clock, and how to stop it for a while."""

from itertools import islice
from typing import Annotated, Any, TypeVar

import typer

from interlock.cli.app_loader import known_plugins
from interlock.cli.options import (
    DEFAULT,
    Actor,
    Tenant,
    Url,
    known_lifecycles,
    must_be_present,
    must_exist,
    named,
    opened,
)
from interlock.cli.output import Json, dump, say, table
from interlock.client.schedules import explain_pause
from interlock.kernel.commands import Command, FireSchedule, PauseSchedule, Planned, RemoveSchedule, ResumeSchedule
from interlock.kernel.errors import Unknown
from interlock.kernel.ids import format_id
from interlock.kernel.rows import Schedule
from interlock.plugins import make_engine
from interlock.plugins.schedules.cron import after, format_instant
from interlock.store.connection import Connection
from interlock.store.queries.snapshots import snapshot
from interlock.store.queries.views import glimpse, schedule_of, schedules_of, skipped_of

app = typer.Typer(name="schedule", help="What is done by the clock.", no_args_is_help=True)
A = TypeVar("A")
Name = Annotated[str, typer.Argument(metavar="NAME", envvar="INTERLOCK_SCHEDULE", help="The schedule's name.")]
Reason = Annotated[str, typer.Option(envvar="INTERLOCK_REASON", help="Why; it is told to whoever asks.")]
Next = Annotated[int, typer.Option("--next", envvar="INTERLOCK_NEXT", min=1, max=100, help="So many instants.")]
Limit = Annotated[int, typer.Option(envvar="INTERLOCK_LIMIT", min=1, max=10_000, help="How many to show.")]


@app.command("list")
def listing(db: Url = DEFAULT, tenant: Tenant = 1, following: Next = 3, json: Json = False) -> None:
    """The schedules, their next instants in their own time zone, and what they made last."""
    with looking(db) as connection, snapshot(connection, [tenant]):
        rows = [facts(connection, schedule, following) for schedule in schedules_of(connection, tenant)]
    if json:
        dump({"schedules": rows})
    elif not rows:
        say("there is no schedule; `@app.every(…)` on a task makes one when its worker starts")
    else:
        heads = ("name", "timing", "timezone", "overlap", "missed", "last", "next")
        table(
            heads,
            [[row[head] or "-" for head in heads[:6]] + [row["paused"] or ", ".join(row["next"])] for row in rows],
        )


def facts(connection: Connection, schedule: Schedule, following: int) -> dict[str, Any]:
    """A schedule as people see it."""
    coming = [] if schedule.next_at is None else after(schedule.timing, schedule.timezone, schedule.next_at - 1)
    return {
        "name": schedule.name, "timing": schedule.timing, "timezone": schedule.timezone, "overlap": schedule.overlap,
        "missed": schedule.missed, "last": last_unit(connection, schedule), "paused": explain_pause(schedule),
        "next": [format_instant(at, schedule.timezone) for at in islice(coming, following)],
    }  # fmt: skip


def last_unit(connection: Connection, schedule: Schedule) -> str:
    """The unit that it made last, by its id; one that was archived is gone."""
    try:
        seen = glimpse(connection, schedule.tenant, schedule.last_unit or 0)
    except Unknown:
        return ""
    return f"{format_id(seen.lifecycle, seen.unit)} {seen.state}"


@app.command()
def skipped(name: Name, db: Url = DEFAULT, tenant: Tenant = 1, limit: Limit = 50, json: Json = False) -> None:
    """The instants for which a schedule made nothing, the latest first, and why."""
    with looking(db) as connection, snapshot(connection, [tenant]):
        schedule = schedule_of(connection, tenant, name)
        found = skipped_of(connection, tenant, name, limit)
    if schedule is None:
        raise Unknown(f"there is no schedule '{name}'; `interlock schedule list` shows those that there are")
    rows = [
        {"first": format_instant(one.first_at, schedule.timezone), "last": format_instant(one.last_at,
         schedule.timezone),
         "count": one.count or None, "reason": one.reason}
        for one in found
    ]  # fmt: skip
    if json:
        dump({"skipped": rows})
    elif not rows:
        say(f"schedule {name} has skipped nothing in the last 14 days")
    else:
        heads = ("first", "last", "count", "reason")
        table(heads, [[str(row[head] or "not counted") for head in heads] for row in rows])


@app.command()
def pause(
    name: Name, reason: Reason = "", actor: Actor = None, db: Url = DEFAULT, tenant: Tenant = 1, json: Json = False
) -> None:
    """Let a schedule make nothing until it is resumed."""
    told(send(db, PauseSchedule(name=name, tenant=tenant, actor=named(actor), reason=reason.strip())), json)


@app.command()
def resume(name: Name, actor: Actor = None, db: Url = DEFAULT, tenant: Tenant = 1, json: Json = False) -> None:
    """Let a paused schedule go on with its next instant."""
    told(send(db, ResumeSchedule(name=name, tenant=tenant, actor=named(actor))), json)


@app.command()
def remove(
    name: Name, reason: Reason = "", actor: Actor = None, db: Url = DEFAULT, tenant: Tenant = 1, json: Json = False
) -> None:
    """Let a schedule make nothing any more; what it made stays. A worker whose app still defines it brings it back."""
    told(send(db, RemoveSchedule(name=name, tenant=tenant, actor=named(actor), reason=reason.strip())), json)


@app.command()
def trigger(
    name: Name, reason: Reason = "", actor: Actor = None, db: Url = DEFAULT, tenant: Tenant = 1, json: Json = False
) -> None:
    """Make a unit of a schedule now, whatever its clock says."""
    made = send(db, FireSchedule(name=name, tenant=tenant, actor=named(actor), reason=reason.strip()))
    with looking(db) as connection, snapshot(connection, [tenant]):
        seen = glimpse(connection, tenant, made.unit)
    if json:
        dump({"unit": format_id(seen.lifecycle, made.unit), "state": seen.state})
    else:
        say(f"{format_id(seen.lifecycle, made.unit)} is {seen.state}")


def looking(url: str) -> Any:
    """A connection to a database that is there."""
    must_exist(url)
    return opened(url)


def send(url: str, command: Command[A]) -> A:
    with looking(url) as connection:
        must_be_present(connection, url)
        return make_engine(connection, known_lifecycles(), registry=known_plugins()).send(command)


def told(planned: Planned, json: bool) -> None:
    """Where the schedule stands now."""
    if json:
        dump(planned)
        return
    coming = "" if planned.next_at is None else f", its next instant is {format_instant(planned.next_at)}"
    state = "removed" if planned.removed else "paused" if planned.paused else f"active{coming}"
    say(f"schedule {planned.name} is {state}" + ("" if planned.changed else "; it was so before"))
