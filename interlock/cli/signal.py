"""`interlock signal`: something has happened that a unit waits for, or will wait for."""

from typing import Annotated

import typer

from interlock.cli.options import DEFAULT, Actor, Tenant, Url, app_on, named, unit_of
from interlock.cli.output import Json, dump, say
from interlock.core import validation
from interlock.kernel.commands import Signal
from interlock.kernel.ids import format_id
from interlock.store.queries.views import glimpse


def signal(
    unit: Annotated[str, typer.Argument(metavar="ID", help="A unit, a step, or its run.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="What has happened, as in ctx.wait_signal(NAME).")],
    data: Annotated[str, typer.Argument(metavar="[JSON]", help="What comes with it.")] = "null",
    actor: Actor = None,
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Give a signal. One that comes early is kept; the first one under a name stays."""
    validation.check_json("the data of the signal", data)
    with app_on(db, tenant) as app:
        command = Signal(unit=unit_of(app, unit), name=name, payload=data, tenant=tenant, actor=named(actor))
        standing = app.send(command)
        whose = format_id(app.read(glimpse, standing.unit).lifecycle, standing.unit)
    if json:
        dump({"id": whose, "name": name, "state": standing.state, "applied": standing.applied})
    elif standing.applied:
        say(f"{whose} has the signal '{name}'; it is {standing.state}")
    else:
        say(f"{whose} had the signal '{name}' before, and the first one stays; it is {standing.state}")
