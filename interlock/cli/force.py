"""`interlock force`: what an operator does to a unit when nothing else helps."""

from typing import Annotated

import typer

from interlock.cli.app_loader import known_plugins
from interlock.cli.options import (
    DEFAULT,
    Actor,
    Id,
    Tenant,
    Url,
    known_lifecycles,
    must_be_present,
    must_exist,
    named,
    opened,
)
from interlock.cli.output import Json, dump, say
from interlock.kernel.commands import Force
from interlock.kernel.ids import format_id, parse_id
from interlock.plugins import make_engine
from interlock.store.queries.views import glimpse


def force(
    unit: Id,
    state: Annotated[str, typer.Argument(metavar="STATE", help="The state of its lifecycle that it is to have.")],
    reason: Annotated[str, typer.Option(help="Why; it is kept with the event for ever.")],
    actor: Actor = None,
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Put a unit into a state past its table. Its event says who did it and why, and bears the mark 'force'."""
    must_exist(db)
    number = int(unit) if unit.isdecimal() and len(unit) < len(str(2**63)) else parse_id(unit)
    command = Force(unit=number, state=state, tenant=tenant, actor=named(actor), reason=reason.strip())
    with opened(db) as connection:
        must_be_present(connection, db)
        engine = make_engine(connection, known_lifecycles(), registry=known_plugins())
        standing = engine.send(command)
        name = format_id(engine.read(lambda connection: glimpse(connection, tenant, number), tenant).lifecycle, number)
    if json:
        dump({"unit": name, "state": standing.state, "version": standing.version, "applied": standing.applied})
    else:
        say(f"{name} is {standing.state} (version {standing.version}), forced by {command.actor}")
