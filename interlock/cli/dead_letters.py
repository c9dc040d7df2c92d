"""`interlock dead`: the dead letters, and what can be done with them."""

from typing import Annotated

import typer
from msgspec.structs import asdict

from interlock.cli import units
from interlock.cli.archive import Out, move
from interlock.cli.options import (
    DEFAULT,
    KINDS,
    NO_WORDS,
    Actor,
    After,
    DryRun,
    Every,
    Id,
    Ids,
    Limit,
    Tenant,
    Url,
    Why,
    Words,
    app_on,
    named,
    select,
    select_some,
    unit_of,
    with_filter,
)
from interlock.cli.output import FINDING, Json, counted, dump, on_terminal, say, table
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
    glimpse,
    listing,
    needs_of,
    notes_of,
    read_last_tracebacks,
    view,
)

app = typer.Typer(help="Dead letters: what was given up, why, and how to do it again.", no_args_is_help=True)
TOGETHER = 1_000  # letters whose tracebacks are read in one statement
# What is told of the end of a letter.
END = (
    "reason_code", "stage", "last_error", "attempts", "last_owner", "last_lease_expires_at", "correlation_id",
    "dead_since",
)  # fmt: skip
Codes = Annotated[str | None, typer.Option("--code", help=f"With this reason code: {', '.join(REASONS)}.")]


def letters(
    connection: Connection, tenant: int, wanted: Filter, limit: int, after: int | None
) -> list[DeadLetterResponse]:
    """Dead letters, the highest id first."""
    found = listing(connection, tenant, wanted, limit, after)
    ids = [one.unit.id for one in found]
    ends, tracebacks = read_dead_letters(connection, tenant, ids), dict[int, Note]()
    for start in range(0, len(ids), TOGETHER):
        tracebacks |= read_last_tracebacks(connection, tenant, ids[start : start + TOGETHER])
    return [json_views.make_dead_letter(one, ends[one.unit.id], tracebacks.get(one.unit.id)) for one in found]


def look(connection: Connection, tenant: int, unit: int) -> tuple[JobDetailResponse, DeadLetterResponse, View]:
    """A dead letter with all that is known of it. Raises InterlockError if it is none."""
    found, end = view(connection, tenant, unit), read_dead_letters(connection, tenant, [unit]).get(unit)
    if end is None:
        raise InterlockError(f"{format_view_id(found)} is no dead letter: it is {found.unit.state}")
    needs, gates = needs_of(connection, tenant, unit), find_open_gates(connection, tenant, unit)
    return (
        json_views.make_job_detail(found, needs, gates, notes_of(connection, tenant, unit)),
        json_views.make_dead_letter(found, end, None),
        found,
    )


@app.command("list")
@with_filter(*KINDS)
def list_dead(
    words: Words = NO_WORDS,
    limit: Limit = 50,
    after: After = None,
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """List dead letters, the newest first."""
    with app_on(db, tenant) as app:
        wanted = select(app, words).dead.filter
        found = app.read(letters, wanted, limit + 1, None if after is None else parse_id(after))
    page, more = found[:limit], len(found) > limit
    if json:
        dump({"dead": page, "more": more})
        return
    heads = ("ID", "TASK", "REASON", "STAGE", "ATTEMPTS", "SINCE", "LAST ERROR")
    rows = [
        (
            one.id, one.task, str(one.reason_code), one.stage or "", str(one.attempts), one.changed_at,
            shorten(one.last_error or ""),
        )
        for one in page
    ]  # fmt: skip
    table(heads, rows)
    if on_terminal() and more:
        say(f"\nThere are more: --after {page[-1].id}")


@app.command()
def show(unit: Id, tenant: Tenant = 1, db: Url = DEFAULT, json: Json = False) -> None:
    """Show one dead letter: the reason, the stage, the last error, and all that the unit says."""
    with app_on(db, tenant) as app:
        whole, letter, seen = app.read(look, unit_of(app, unit))
    end = {name: getattr(letter, name) for name in END}
    if json:
        dump({**asdict(whole), **end})
        return
    facts = [*((name, str(value)) for name, value in end.items() if value is not None), *units.fields(seen)]
    table(("FIELD", "VALUE"), list(dict(facts).items()))
    units.say_tracebacks(whole.tracebacks)
    say(f"\nDo it again: interlock dead requeue {whole.id}")


@app.command()
@with_filter(*KINDS)
def requeue(
    unit: Ids = None,
    words: Words = NO_WORDS,
    code: Codes = None,
    every: Every = False,
    again: Annotated[bool, typer.Option("--again", help="Also those that were requeued before.")] = False,
    dry_run: DryRun = False,
    actor: Actor = None,
    reason: Why = "",
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Do dead letters again, each as a new unit; the dead one stays as it is. One that was requeued is left alone."""
    with app_on(db, tenant) as app:
        selection = select_dead(app, words, unit, code, every)
        told = selection.requeue(again=again, reason=reason, by=named(actor), every=every, dry_run=dry_run)
    refused = [one for one in told if one.refused]
    if json:
        dump({"units": told, "dry_run": dry_run, "refused": len(refused)})
    else:
        for one in told:
            say(f"{one.id}: {said_of(one, dry_run)}")
        fresh = sum(one.created or (dry_run and not one.new) for one in told)
        say(f"{counted(fresh, 'unit')} {'would be ' if dry_run else ''}requeued, {len(refused)} refused")
    if refused:
        raise typer.Exit(FINDING)


def said_of(one: RequeueOutcome, dry_run: bool) -> str:
    if one.refused:
        return one.refused
    if one.created:
        return f"done again as {one.new}"
    return f"requeued before, as {one.new}" if one.new else "would be done again" if dry_run else "left"


def select_dead(app: App, words: Words, ids: list[str] | None, code: str | None, every: bool) -> Selection:
    """The dead letters that are meant. By id it may be any unit that has ended, whatever its code."""
    if code is not None:
        check_value("reason code", code, REASONS)
    return select_some(app, words if ids else {**words, "reason_code": code}, ids, every)


@app.command()
@with_filter(*KINDS)
def purge(
    unit: Ids = None,
    words: Words = NO_WORDS,
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
    """Move dead letters to a file, and out of the database; those that are part of a tree leave with it."""
    with app_on(db, tenant) as app:
        dead = [one.unit for one in select_dead(app, words, unit, code, every).dead.refs()]
        for one in dead:
            found = app.read(glimpse, one)
            if found.outcome != Category.DEAD:
                raise InterlockError(f"{format_id(found.lifecycle, one)} is no dead letter: it is {found.state}")
        order = Archive(unit=0, file="", digest="", tenant=tenant, actor=named(actor), reason=reason)
        move(app, dead, out, order, dry_run=dry_run, json=json)
