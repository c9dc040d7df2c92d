"""`interlock force`: what an operator does to a unit when nothing else helps."""

import getpass
from typing import Annotated

import typer

from interlock.cli.database import DEFAULT, Url, must_be_present, must_exist, opened
from interlock.cli.out import Json, dump, say
from interlock.engine.door import Engine
from interlock.kernel.commands import Force
from interlock.kernel.errors import InterlockError
from interlock.lifecycles import shipped

ID_MAX, TENANT_MAX = 2**63 - 1, 2**31 - 1


def force(
    unit: Annotated[int, typer.Argument(metavar="UNIT", min=1, max=ID_MAX, help="The unit's id.")],
    state: Annotated[str, typer.Argument(metavar="STATE", help="The state of its lifecycle that it is to have.")],
    reason: Annotated[str, typer.Option(help="Why; it is kept with the event for ever.")],
    actor: Annotated[str | None, typer.Option(help="Who; by default the user of the operating system.")] = None,
    tenant: Annotated[int, typer.Option(min=1, max=TENANT_MAX, help="Whose unit it is.")] = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Put a unit into a state past its table. Its event says who did it and why, and bears the mark 'force'."""
    must_exist(db)
    command = Force(unit=unit, state=state, tenant=tenant, actor=named(actor), reason=reason.strip())
    with opened(db) as session:
        must_be_present(session, db)
        standing = Engine(session, shipped()).send(command)
    if json:
        dump(standing)
    else:
        say(f"unit {standing.unit} is {standing.state} (version {standing.version}), forced by {command.actor}")


def named(actor: str | None) -> str:
    """Who acts: as given, or the user of the operating system."""
    try:
        name = getpass.getuser() if actor is None else actor.strip()
    except (OSError, KeyError):
        name = ""  # a user without a name, as in some containers
    if not name:
        raise InterlockError("nobody is named who forces this; give --actor NAME")
    return name
