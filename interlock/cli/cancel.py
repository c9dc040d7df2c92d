"""`interlock cancel`: stop one job or many."""

from typing import Annotated

import typer

from interlock.cli.options import (
    DEFAULT,
    NO_FILTERS,
    Actor,
    DryRun,
    Every,
    Filters,
    Ids,
    Tenant,
    Url,
    Why,
    add_filter_options,
    get_actor,
    open_app,
    select_some,
)
from interlock.cli.output import FINDING, Json, print_json, print_line
from interlock.client.selections import CancelOutcome


@add_filter_options()
def cancel(
    unit: Ids = None,
    hard: Annotated[
        bool, typer.Option("--hard/--soft", help="Stop immediately; by default the handler is asked to stop.")
    ] = False,
    filters: Filters = NO_FILTERS,
    every: Every = False,
    dry_run: DryRun = False,
    actor: Actor = None,
    reason: Why = "",
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Cancel jobs, runs or steps, by id or by a filter; a filter selects only those that have not ended."""
    with open_app(db, tenant) as app:
        selection = select_some(app, filters, unit, every)
        outcomes = selection.cancel(hard=hard, reason=reason, by=get_actor(actor), every=every, dry_run=dry_run)
    print_outcomes(outcomes, dry_run, json)


def print_outcomes(outcomes: list[CancelOutcome], dry_run: bool, json: bool) -> None:
    """Print what became of each job, and how many were refused."""
    refused = [outcome for outcome in outcomes if outcome.refused]
    if json:
        print_json({"units": outcomes, "dry_run": dry_run, "refused": len(refused)})
    else:
        for outcome in outcomes:
            standing = f"{'asked to stop; it ' if outcome.applied else ''}is {outcome.state}"
            print_line(f"{outcome.id}: {outcome.refused or standing}")
        verb = "would be asked to stop" if dry_run else "asked to stop"
        print_line(f"{len(outcomes) - len(refused)} {verb}, {len(refused)} refused")
    if refused:
        raise typer.Exit(FINDING)
