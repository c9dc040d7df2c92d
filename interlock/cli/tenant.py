"""`interlock tenant`: whose work it is, and how much of it may be held and may wait at a time."""

from typing import Annotated, Any

import typer

from interlock.cli.options import DEFAULT, TENANT_MAX, Actor, Url, app_on, length, named
from interlock.cli.output import Json, dump, say, table
from interlock.client.app import App
from interlock.client.durations import format_time
from interlock.core.notes import BEATS_US, VERBOSE_US
from interlock.kernel.commands import SetTenant
from interlock.kernel.durations import spoken
from interlock.kernel.errors import InterlockError, Unknown
from interlock.kernel.rows import Tenant as Row
from interlock.store.queries.tenants import count_held, read_tenants
from interlock.store.queries.tenants import count_waiting as waiting_of

app = typer.Typer(help="Tenants, and how much of their work may be held and may wait.", no_args_is_help=True)
NONE = "none"
Which = Annotated[str, typer.Argument(metavar="TENANT", envvar="INTERLOCK_TENANT", help="A tenant's number or name.")]
Running = Annotated[
    str | None, typer.Option("--max-running", metavar="N|none", help="So many units may workers hold at a time.")
]
Waiting = Annotated[
    str | None, typer.Option("--max-waiting", metavar="N|none", help="So many units may wait; more are refused.")
]
Requests = Annotated[
    str | None, typer.Option("--max-requests", metavar="N|none", help="So often may it ask the server in a minute.")
]
Beats = Annotated[
    str | None, typer.Option("--keep-beats", metavar="DURATION|default", help="Heartbeats are kept so long; 2d.")
]
Verbose = Annotated[
    str | None, typer.Option("--keep-verbose", metavar="DURATION|default", help="Progress and logs are; 14d.")
]
HEADS = ("tenant", "name", "held", "max_running", "waiting", "max_waiting", "max_requests", "changed_at", "changed_by")


@app.command("list")
def list_tenants(db: Url = DEFAULT, json: Json = False) -> None:
    """List tenants: how much of each one's work is held and waits, and how much may."""
    with app_on(db, 1) as app:
        found = [facts(app, row) for row in app.engine.read(read_tenants)]
    if json:
        dump({"tenants": found})
    else:
        table([head.replace("_", " ").upper() for head in HEADS], [cells(one) for one in found])


@app.command()
def show(which: Which = "1", db: Url = DEFAULT, json: Json = False) -> None:
    """Show one tenant."""
    with app_on(db, 1) as app:
        told(facts(app, tenant_of(app, which)), json)


@app.command("set")
def set_limits(
    which: Which,
    name: Annotated[str | None, typer.Option(help="What it is called.")] = None,
    max_running: Running = None,
    max_waiting: Waiting = None,
    max_requests: Requests = None,
    keep_beats: Beats = None,
    keep_verbose: Verbose = None,
    actor: Actor = None,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Name a tenant, or change its limits; what is not given stays. A number that has no tenant yet becomes one."""
    order: dict[str, Any] = {} if name is None else {"name": name.strip()}
    for option, text in (
        ("max_running", max_running), ("max_waiting", max_waiting), ("max_requests", max_requests),
    ):  # fmt: skip
        if text is not None:
            order[option] = limit(option.replace("_", "-"), text)
    for option, text in (("keep-beats", keep_beats), ("keep-verbose", keep_verbose)):
        if text is not None:
            order[f"{option.replace('-', '_')}_us"] = None if text.strip() == "default" else length(option, text)
    if not order:
        options = "--name, --max-running, --max-waiting, --max-requests, --keep-beats or --keep-verbose"
        raise InterlockError(f"what is to be set? Give {options}")
    with app_on(db, 1) as app:
        number = int(which) if is_number(which) else tenant_of(app, which).id
        quota = app.send(SetTenant(tenant=number, actor=named(actor), **order))
        found = facts(app, tenant_of(app, str(quota.tenant)))
    told({**found, "changed": quota.changed}, json)


def is_number(text: str) -> bool:
    return text.isdecimal() and 1 <= int(text) <= TENANT_MAX


def limit(option: str, text: str) -> int | None:
    if text.strip().lower() == NONE:
        return None
    if not text.strip().isdecimal() or int(text) > TENANT_MAX:
        raise InterlockError(f"--{option} '{text}' is not allowed; allowed is a number from 0, or none")
    return int(text)


def tenant_of(app: App, text: str) -> Row:
    """The tenant that somebody means, by number or name. Raises Unknown, which says who is there."""
    found = app.engine.read(read_tenants)
    for row in found:
        if text in (str(row.id), row.name):
            return row
    there = ", ".join(f"{row.id} ({row.name})" for row in found)
    raise Unknown(
        f"there is no tenant '{text}'; there are {there}. `interlock tenant set NUMBER --name NAME` makes one"
    )


def facts(app: App, row: Row) -> dict[str, Any]:
    """A tenant as people see it; its work is counted."""
    return {
        "tenant": row.id, "name": row.name,
        "held": app.engine.read(lambda connection: count_held(connection, row.id), row.id),
        "max_running": row.max_running,
        "waiting": app.engine.read(lambda connection: waiting_of(connection, row.id), row.id),
        "max_waiting": row.max_waiting,
        "max_requests": row.max_requests, "keep_beats": spoken(row.keep_beats_us or BEATS_US),
        "keep_verbose": spoken(row.keep_verbose_us or VERBOSE_US),
        "changed_at": format_time(row.changed_at) if row.changed_at else None, "changed_by": row.changed_by or None,
    }  # fmt: skip


def cells(one: dict[str, Any]) -> list[str]:
    shown = {head: NONE if head.startswith("max") else "" for head in HEADS}
    return [shown[head] if one[head] is None else str(one[head]) for head in HEADS]


def told(one: dict[str, Any], json: bool) -> None:
    if json:
        dump(one)
        return
    running, waiting = (NONE if one[name] is None else one[name] for name in ("max_running", "max_waiting"))
    about = f"{one['held']} held, limit {running}; {one['waiting']} waiting, limit {waiting}"
    about += "" if one["max_requests"] is None else f"; {one['max_requests']} requests a minute"
    say(f"tenant {one['tenant']} ({one['name']}): {about}")
