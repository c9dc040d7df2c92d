"""`interlock tenant`: tenants, and the limits of each."""

from typing import Annotated, Any

import typer

from interlock.cli.options import DEFAULT, TENANT_MAX, Actor, Url, get_actor, open_app, parse_length
from interlock.cli.output import Json, format_heads, print_json, print_line, print_table
from interlock.client.app import App
from interlock.client.durations import format_time
from interlock.core.notes import BEATS_US, VERBOSE_US
from interlock.kernel.commands import SetTenant
from interlock.kernel.durations import format_us
from interlock.kernel.errors import InterlockError, Unknown
from interlock.kernel.rows import Tenant as Row
from interlock.store.queries.tenants import count_held, count_waiting, read_tenants

app = typer.Typer(help="Tenants and their limits.", no_args_is_help=True)
NONE = "none"
Which = Annotated[str, typer.Argument(metavar="TENANT", envvar="INTERLOCK_TENANT", help="A tenant's number or name.")]
Running = Annotated[
    str | None,
    typer.Option("--max-running", metavar="N|none", help="Maximum number of jobs that workers hold at a time."),
]
Waiting = Annotated[
    str | None,
    typer.Option("--max-waiting", metavar="N|none", help="Maximum number of waiting jobs; further ones are refused."),
]
Requests = Annotated[str | None, typer.Option("--max-requests", metavar="N|none", help="Requests per minute.")]
Beats = Annotated[
    str | None,
    typer.Option("--keep-beats", metavar="DURATION|default", help="How long heartbeats are kept (default: 2d)."),
]
Verbose = Annotated[
    str | None,
    typer.Option(
        "--keep-verbose", metavar="DURATION|default", help="How long progress and logs are kept (default: 14d)."
    ),
]
FIELDS = ("tenant", "name", "held", "max_running", "waiting", "max_waiting", "max_requests", "changed_at", "changed_by")


@app.command("list")
def list_tenants(db: Url = DEFAULT, json: Json = False) -> None:
    """List tenants with their limits: how many jobs of each run and wait, and how many may."""
    with open_app(db, 1) as app:
        tenants = [describe_tenant(app, row) for row in app.engine.read(read_tenants)]
    if json:
        print_json({"tenants": tenants})
    else:
        print_table(format_heads(FIELDS), [make_cells(tenant) for tenant in tenants])


@app.command("show")
def show_tenant(which: Which = "1", db: Url = DEFAULT, json: Json = False) -> None:
    """Show one tenant."""
    with open_app(db, 1) as app:
        print_tenant(describe_tenant(app, find_tenant(app, which)), json)


@app.command("set")
def set_limits(
    which: Which,
    name: Annotated[str | None, typer.Option(help="Its name.")] = None,
    max_running: Running = None,
    max_waiting: Waiting = None,
    max_requests: Requests = None,
    keep_beats: Beats = None,
    keep_verbose: Verbose = None,
    actor: Actor = None,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Name a tenant, or change its limits; what is not given stays. A new number makes a new tenant."""
    order: dict[str, Any] = {} if name is None else {"name": name.strip()}
    for option, text in (
        ("max_running", max_running), ("max_waiting", max_waiting), ("max_requests", max_requests),
    ):  # fmt: skip
        if text is not None:
            order[option] = parse_limit(option.replace("_", "-"), text)
    for option, text in (("keep-beats", keep_beats), ("keep-verbose", keep_verbose)):
        if text is not None:
            order[f"{option.replace('-', '_')}_us"] = None if text.strip() == "default" else parse_length(option, text)
    if not order:
        options = "--name, --max-running, --max-waiting, --max-requests, --keep-beats or --keep-verbose"
        raise InterlockError(f"what is to be set? Give {options}")
    with open_app(db, 1) as app:
        number = int(which) if is_number(which) else find_tenant(app, which).id
        quota = app.send(SetTenant(tenant=number, actor=get_actor(actor), **order))
        tenant = describe_tenant(app, find_tenant(app, str(quota.tenant)))
    print_tenant({**tenant, "changed": quota.changed}, json)


def is_number(text: str) -> bool:
    """Whether a text is the number of a tenant."""
    return text.isdecimal() and 1 <= int(text) <= TENANT_MAX


def parse_limit(option: str, text: str) -> int | None:
    """Parse a limit; `none` is None."""
    if text.strip().lower() == NONE:
        return None
    if not text.strip().isdecimal() or int(text) > TENANT_MAX:
        raise InterlockError(f"--{option} '{text}' is not allowed; allowed is a number from 0, or none")
    return int(text)


def find_tenant(app: App, text: str) -> Row:
    """Return the tenant of a number or a name.

    Raises:
        Unknown: there is none; it says which there are.
    """
    rows = app.engine.read(read_tenants)
    for row in rows:
        if text in (str(row.id), row.name):
            return row
    there = ", ".join(f"{row.id} ({row.name})" for row in rows)
    raise Unknown(
        f"there is no tenant '{text}'; there are {there}. `interlock tenant set NUMBER --name NAME` makes one"
    )


def describe_tenant(app: App, row: Row) -> dict[str, Any]:
    """Return a tenant as it is shown, with its jobs counted."""
    return {
        "tenant": row.id, "name": row.name,
        "held": app.engine.read(lambda connection: count_held(connection, row.id), row.id),
        "max_running": row.max_running,
        "waiting": app.engine.read(lambda connection: count_waiting(connection, row.id), row.id),
        "max_waiting": row.max_waiting,
        "max_requests": row.max_requests, "keep_beats": format_us(row.keep_beats_us or BEATS_US),
        "keep_verbose": format_us(row.keep_verbose_us or VERBOSE_US),
        "changed_at": format_time(row.changed_at) if row.changed_at else None, "changed_by": row.changed_by or None,
    }  # fmt: skip


def make_cells(tenant: dict[str, Any]) -> list[str]:
    """Make a row of the table of tenants."""
    empty = {field: NONE if field.startswith("max") else "" for field in FIELDS}
    return [empty[field] if tenant[field] is None else str(tenant[field]) for field in FIELDS]


def print_tenant(tenant: dict[str, Any], json: bool) -> None:
    """Print a tenant with its limits."""
    if json:
        print_json(tenant)
        return
    running, waiting = (NONE if tenant[name] is None else tenant[name] for name in ("max_running", "max_waiting"))
    about = f"{tenant['held']} held, limit {running}; {tenant['waiting']} waiting, limit {waiting}"
    about += "" if tenant["max_requests"] is None else f"; {tenant['max_requests']} requests per minute"
    print_line(f"tenant {tenant['tenant']} ({tenant['name']}): {about}")
