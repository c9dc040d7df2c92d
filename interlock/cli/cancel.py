"""`interlock cancel`: units are asked to stop, one or many."""

from typing import Annotated, Any

import msgspec
import typer

from interlock.cli.options import (
    DEFAULT,
    Actor,
    Categories,
    Correlations,
    DryRun,
    Every,
    Holders,
    Ids,
    Keys,
    Lifecycles,
    Parents,
    Queues,
    States,
    Tasks,
    Tenant,
    Url,
    Why,
    app_on,
    chosen,
    named,
    refuse_unfiltered,
    unit_of,
)
from interlock.cli.out import FINDING, Json, counted, dump, say
from interlock.client.app import App
from interlock.kernel.commands import Cancel
from interlock.kernel.errors import Contended, Refused, Unknown
from interlock.kernel.lifecycle import SETTLED, Category
from interlock.kernel.names import shown
from interlock.store.views import Filter, glimpse, matching

OPEN = tuple(category for category in Category if category not in SETTLED)


def cancel(
    unit: Ids = None,
    hard: Annotated[
        bool, typer.Option("--hard/--soft", help="At once, or so that its holder may end well (the default).")
    ] = False,
    state: States = None,
    category: Categories = None,
    lifecycle: Lifecycles = None,
    task: Tasks = None,
    queue: Queues = None,
    key: Keys = None,
    correlation: Correlations = None,
    worker: Holders = None,
    parent: Parents = None,
    every: Every = False,
    dry_run: DryRun = False,
    actor: Actor = None,
    reason: Why = "",
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Cancel units, by their ids or by a filter; by a filter only those that have not ended."""
    with app_on(db, tenant) as app:
        wanted = chosen(
            app, states=state, categories=category, lifecycle=lifecycle, task=task, queue=queue, key=key,
            correlation=correlation, holder=worker, parent=parent,
        )  # fmt: skip
        refuse_unfiltered(unit, wanted, every)
        units = [unit_of(app, one) for one in unit] if unit else stoppable(app, wanted)
        order = Cancel(unit=0, hard=hard, tenant=tenant, actor=named(actor), reason=reason)
        told = [stop(app, order, one, dry_run=dry_run) for one in units]
    say_all(told, dry_run, json)


def stoppable(app: App, wanted: Filter) -> list[int]:
    """Those of the units meant that have not ended and that a cancel may be asked of; parents come first."""
    narrowed = msgspec.structs.replace(wanted, categories=wanted.categories or OPEN)
    lives = [life.name for life in app.lives.values() if life.birth.trigger == "submit"]
    found = app.read(matching, narrowed)
    return [one for one in found if app.read(glimpse, one).lifecycle in lives]


def stop(app: App, order: Cancel, unit: int, *, dry_run: bool) -> dict[str, Any]:
    """What came of asking one unit to stop."""
    before = app.read(glimpse, unit)
    told = {"id": shown(before.lifecycle, unit), "state": before.state, "applied": False, "refused": None}
    if dry_run:
        return told
    try:
        standing = app.send(msgspec.structs.replace(order, unit=unit))
    except (Refused, Unknown, Contended) as refused:
        ended = app.read(glimpse, unit).outcome is not None and before.outcome is None  # with its parent, just now
        return told | {"state": app.read(glimpse, unit).state, "refused": None if ended else str(refused)}
    return told | {"state": standing.state, "applied": standing.applied}


def say_all(told: list[dict[str, Any]], dry_run: bool, json: bool) -> None:
    refused = [one for one in told if one["refused"]]
    if json:
        dump({"units": told, "dry_run": dry_run, "refused": len(refused)})
    else:
        for one in told:
            said = f"{'asked to stop; it ' if one['applied'] else ''}is {one['state']}"
            say(f"{one['id']}: {one['refused'] or said}")
        verb = "would be asked to stop" if dry_run else "asked to stop"
        say(f"{counted(len(told) - len(refused), 'unit')} {verb}, {len(refused)} refused")
    if refused:
        raise typer.Exit(FINDING)
