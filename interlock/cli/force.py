"""`interlock force`: put a job into any state of its lifecycle, as a last resort."""

from typing import Annotated

import typer

from interlock.cli.app_loader import load_registry
from interlock.cli.options import (
    DEFAULT,
    Actor,
    Id,
    Tenant,
    Url,
    check_exists,
    check_schema,
    get_actor,
    load_lifecycles,
    open_connection,
)
from interlock.cli.output import Json, print_json, print_line
from interlock.kernel.commands import Force
from interlock.kernel.ids import format_id, parse_id
from interlock.plugins import make_engine
from interlock.store.queries.views import read_summary


def force(
    unit: Id,
    state: Annotated[str, typer.Argument(metavar="STATE", help="The state to put it into, one of its lifecycle.")],
    reason: Annotated[str, typer.Option(help="Why; kept with the event for ever.")],
    actor: Actor = None,
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Put a job into a state that its lifecycle does not allow. The event says who did it and why."""
    check_exists(db)
    number = int(unit) if unit.isdecimal() and len(unit) < len(str(2**63)) else parse_id(unit)
    command = Force(unit=number, state=state, tenant=tenant, actor=get_actor(actor), reason=reason.strip())
    with open_connection(db) as connection:
        check_schema(connection, db)
        engine = make_engine(connection, load_lifecycles(), registry=load_registry())
        standing = engine.send(command)
        name = format_id(
            engine.read(lambda connection: read_summary(connection, tenant, number), tenant).lifecycle, number
        )
    if json:
        print_json({"unit": name, "state": standing.state, "version": standing.version, "applied": standing.applied})
    else:
        print_line(f"{name} is {standing.state} (version {standing.version}), forced by {command.actor}")
