"""`interlock run-now`: end the delay of a job that waits for its time."""

from interlock.cli.options import DEFAULT, Actor, Id, Tenant, Url, Why, find_name, find_unit, get_actor, open_app
from interlock.cli.output import Json, print_json, print_line
from interlock.kernel.commands import RunNow


def run_now(
    unit: Id, actor: Actor = None, reason: Why = "", tenant: Tenant = 1, db: Url = DEFAULT, json: Json = False
) -> None:
    """Run a job now that is delayed, was snoozed or waits to be tried again."""
    with open_app(db, tenant) as app:
        number = find_unit(app, unit)
        standing = app.send(RunNow(unit=number, tenant=tenant, actor=get_actor(actor), reason=reason.strip()))
        name = find_name(app, number) or unit
    if json:
        print_json({"unit": name, "state": standing.state, "version": standing.version, "applied": standing.applied})
    else:
        done = "no longer waits for its time" if standing.applied else "was asked to run now before"
        print_line(f"{name} {done}; it is {standing.state}")
