"""`interlock cancel`: units are asked to stop, one or many."""

from typing import Annotated

import typer

from interlock.cli.options import (
    DEFAULT,
    NO_WORDS,
    Actor,
    DryRun,
    Every,
    Ids,
    Tenant,
    Url,
    Why,
    Words,
    app_on,
    named,
    select_some,
    with_filter,
)
from interlock.cli.output import FINDING, Json, counted, dump, say
from interlock.client.selections import CancelOutcome


@with_filter()
def cancel(
    unit: Ids = None,
    hard: Annotated[
        bool, typer.Option("--hard/--soft", help="At once, or so that its holder may end well (the default).")
    ] = False,
    words: Words = NO_WORDS,
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
        selection = select_some(app, words, unit, every)
        told = selection.cancel(hard=hard, reason=reason, by=named(actor), every=every, dry_run=dry_run)
    say_all(told, dry_run, json)


def say_all(told: list[CancelOutcome], dry_run: bool, json: bool) -> None:
    refused = [one for one in told if one.refused]
    if json:
        dump({"units": told, "dry_run": dry_run, "refused": len(refused)})
    else:
        for one in told:
            standing = f"{'asked to stop; it ' if one.applied else ''}is {one.state}"
            say(f"{one.id}: {one.refused or standing}")
        verb = "would be asked to stop" if dry_run else "asked to stop"
        say(f"{counted(len(told) - len(refused), 'unit')} {verb}, {len(refused)} refused")
    if refused:
        raise typer.Exit(FINDING)
