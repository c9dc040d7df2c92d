"""`interlock dead-letters`: list dead letters, requeue them, or move them to a file."""

from typing import Annotated

import typer
from msgspec.structs import asdict

from interlock.cli import show
from interlock.cli.archive import Out, move_trees
from interlock.cli.options import (
    DEFAULT,
    KINDS,
    NO_FILTERS,
    Actor,
    After,
    DryRun,
    Every,
    Filters,
    Id,
    Ids,
    Limit,
    Tenant,
    Url,
    Why,
    add_filter_options,
    find_unit,
    get_actor,
    open_app,
    select,
    select_some,
)
from interlock.cli.output import FINDING, Json, on_terminal, print_json, print_line, print_table
from interlock.client import json_views
from interlock.client.app import App
from interlock.client.inbox import format_view_id
from interlock.client.responses import DeadLetterResponse, JobDetailResponse
from interlock.client.selections import RequeueOutcome, Selection, check_value
from interlock.client.why.reasons import shorten
from interlock.kernel.commands import REASONS, Archive
from interlock.kernel.errors import InterlockError
from interlock.kernel.ids import format_id, parse_id
from interlock.kernel.lifecycle import Category
from interlock.kernel.rows import Note
from interlock.store.connection import Connection
from interlock.store.queries.dead_letters import read_dead_letters
from interlock.store.queries.views import (
    Filter,
    View,
    find_open_gates,
    listing,
    needs_of,
    notes_of,
    read_last_tracebacks,
    read_summary,
    view,
)

app = typer.Typer(
    help="Dead letters: list jobs that were given up, show why, requeue or purge them.", no_args_is_help=True
)
TOGETHER = 1_000  # letters whose tracebacks are read in one statement
# The fields that only a dead letter has.
END = (
    "reason_code", "stage", "last_error", "attempts", "last_owner", "last_lease_expires_at", "correlation_id",
    "dead_since",
)  # fmt: skip
Codes = Annotated[str | None, typer.Option("--code", help=f"Only with this reason code: {', '.join(REASONS)}.")]


def list_page(
    connection: Connection, tenant: int, selected: Filter, limit: int, after: int | None
) -> list[DeadLetterResponse]:
    """Return dead letters, the highest id first."""
    views = listing(connection, tenant, selected, limit, after)
    ids = [view.unit.id for view in views]
    ends, tracebacks = read_dead_letters(connection, tenant, ids), dict[int, Note]()
    for start in range(0, len(ids), TOGETHER):
        tracebacks |= read_last_tracebacks(connection, tenant, ids[start : start + TOGETHER])
    return [json_views.make_dead_letter(view, ends[view.unit.id], tracebacks.get(view.unit.id)) for view in views]


def read_dead_letter(
    connection: Connection, tenant: int, unit: int
) -> tuple[JobDetailResponse, DeadLetterResponse, View]:
    """Return a dead letter with all that is known of it.

    Raises:
        InterlockError: the job is no dead letter.
    """
    job, end = view(connection, tenant, unit), read_dead_letters(connection, tenant, [unit]).get(unit)
    if end is None:
        raise InterlockError(f"{format_view_id(job)} is no dead letter: it is {job.unit.state}")
    needs, gates = needs_of(connection, tenant, unit), find_open_gates(connection, tenant, unit)
    return (
        json_views.make_job_detail(job, needs, gates, notes_of(connection, tenant, unit)),
        json_views.make_dead_letter(job, end, None),
        job,
    )


@app.command("list")
@add_filter_options(*KINDS)
def list_dead_letters(
    filters: Filters = NO_FILTERS,
    limit: Limit = 50,
    after: After = None,
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """List dead letters, the newest first."""
    with open_app(db, tenant) as app:
        selected = select(app, filters).dead.filter
        dead_letters = app.read(list_page, selected, limit + 1, None if after is None else parse_id(after))
    page, more = dead_letters[:limit], len(dead_letters) > limit
    if json:
        print_json({"dead": page, "more": more})
        return
    heads = ("ID", "TASK", "REASON", "STAGE", "ATTEMPTS", "SINCE", "LAST ERROR")
    rows = [
        (
            row.id, row.task, str(row.reason_code), row.stage or "", str(row.attempts), row.changed_at,
            shorten(row.last_error or ""),
        )
        for row in page
    ]  # fmt: skip
    print_table(heads, rows)
    if on_terminal() and more:
        print_line(f"\nThere are more: --after {page[-1].id}")


@app.command("show")
def show_dead_letter(unit: Id, tenant: Tenant = 1, db: Url = DEFAULT, json: Json = False) -> None:
    """Show a dead letter: the reason, the stage, the last error, and all fields of the job."""
    with open_app(db, tenant) as app:
        whole, dead_letter, job = app.read(read_dead_letter, find_unit(app, unit))
    end = {name: getattr(dead_letter, name) for name in END}
    if json:
        print_json({**asdict(whole), **end})
        return
    facts = [*((name, str(value)) for name, value in end.items() if value is not None), *show.list_fields(job)]
    print_table(("FIELD", "VALUE"), list(dict(facts).items()))
    show.print_tracebacks(whole.tracebacks)
    print_line(f"\nRequeue it: interlock dead-letters requeue {whole.id}")


@app.command("requeue")
@add_filter_options(*KINDS)
def requeue_dead_letters(
    unit: Ids = None,
    filters: Filters = NO_FILTERS,
    code: Codes = None,
    every: Every = False,
    again: Annotated[bool, typer.Option("--again", help="Also those that were already requeued.")] = False,
    dry_run: DryRun = False,
    actor: Actor = None,
    reason: Why = "",
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Requeue dead letters, each as a new job; the dead one stays as it is. Those already requeued are skipped."""
    with open_app(db, tenant) as app:
        selection = select_dead(app, filters, unit, code, every)
        outcomes = selection.requeue(again=again, reason=reason, by=get_actor(actor), every=every, dry_run=dry_run)
    refused = [outcome for outcome in outcomes if outcome.refused]
    if json:
        print_json({"units": outcomes, "dry_run": dry_run, "refused": len(refused)})
    else:
        for outcome in outcomes:
            print_line(f"{outcome.id}: {describe_outcome(outcome, dry_run)}")
        fresh = sum(outcome.created or (dry_run and not outcome.new) for outcome in outcomes)
        print_line(f"{fresh} {'would be ' if dry_run else ''}requeued, {len(refused)} refused")
    if refused:
        raise typer.Exit(FINDING)


def describe_outcome(outcome: RequeueOutcome, dry_run: bool) -> str:
    """Say what became of a dead letter that was to be requeued."""
    if outcome.refused:
        return outcome.refused
    if outcome.created:
        return f"requeued as {outcome.new}"
    return f"requeued before, as {outcome.new}" if outcome.new else "would be requeued" if dry_run else "left"


def select_dead(app: App, filters: Filters, ids: list[str] | None, code: str | None, every: bool) -> Selection:
    """Return the dead letters that are meant. By id it may be any job that has ended, whatever its code."""
    if code is not None:
        check_value("reason code", code, REASONS)
    return select_some(app, filters if ids else {**filters, "reason_code": code}, ids, every)


@app.command("purge")
@add_filter_options(*KINDS)
def purge_dead_letters(
    unit: Ids = None,
    filters: Filters = NO_FILTERS,
    code: Codes = None,
    every: Every = False,
    out: Out = None,
    dry_run: DryRun = False,
    actor: Actor = None,
    reason: Why = "",
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Move dead letters from the database to a file; those that are part of a tree are moved with it."""
    with open_app(db, tenant) as app:
        dead = [ref.unit for ref in select_dead(app, filters, unit, code, every).dead.refs()]
        for number in dead:
            dead_letter = app.read(read_summary, number)
            if dead_letter.outcome != Category.DEAD:
                raise InterlockError(
                    f"{format_id(dead_letter.lifecycle, number)} is no dead letter: it is {dead_letter.state}"
                )
        order = Archive(unit=0, file="", digest="", tenant=tenant, actor=get_actor(actor), reason=reason)
        move_trees(app, dead, out, order, dry_run=dry_run, json=json)
