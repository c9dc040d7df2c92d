"""`interlock show`: print a job with everything known about it, now or at an earlier time."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated

import typer
from msgspec.structs import asdict

from interlock.cli import tree
from interlock.cli.options import DEFAULT, Id, Tenant, Url, find_unit, open_app
from interlock.cli.output import Cell, Json, make_state_cell, on_terminal, print_json, print_line, print_table
from interlock.cli.progress import list_progress
from interlock.client import json_views
from interlock.client.durations import format_time, instant_us
from interlock.client.progress import WORKSTREAM, Progress, read_progress
from interlock.client.responses import TracebackResponse
from interlock.client.trees import TreeSnapshot, read_tree_snapshot
from interlock.core.notes import TRACEBACK
from interlock.kernel.durations import microseconds
from interlock.kernel.errors import InterlockError
from interlock.kernel.lifecycle import Category, Lifecycle
from interlock.kernel.rows import Note
from interlock.kernel.texts import make_plain
from interlock.plugins.evidence.queries import ArtifactInfo, list_artifacts
from interlock.store.connection import Connection
from interlock.store.queries.large_values import read_large_values
from interlock.store.queries.views import (
    Needed,
    View,
    find_open_gates,
    needs_of,
    notes_of,
    view,
    views_of,
)

# Not shown as fields: what has a table of its own, and other names for the same.
BESIDE = (*json_views.ALIASES, "lease", "needs", "waiting_on", "tracebacks")


def read_all(
    connection: Connection, tenant: int, lifecycles: Mapping[str, Lifecycle], unit: int
) -> tuple[View, TreeSnapshot, list[Needed], list[tuple[int, str]], list[Note], list[ArtifactInfo], Progress | None]:
    """Return a unit with what is below it, what it needs and waits on, its notes, its artifacts and, of a workstream,
    its progress, from one snapshot.
    """
    row = view(connection, tenant, unit)
    return (
        read_large_values(connection, row),
        read_tree_snapshot(connection, tenant, lifecycles, unit),
        needs_of(connection, tenant, unit),
        find_open_gates(connection, tenant, unit),
        notes_of(connection, tenant, unit),
        list_artifacts(connection, tenant, unit),
        read_progress(connection, tenant, unit) if row.unit.lifecycle == WORKSTREAM else None,
    )


def show_job(
    unit: Id,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Show it as it was at this time: 2030-01-31T08:00:00Z, or 10m for ten minutes ago."
        ),
    ] = None,
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Show a job: the tree below it, its fields, who holds it, what it needs, notes and artifacts."""
    if at is not None:
        show_past(unit, at, tenant, db, json)
        return
    with open_app(db, tenant) as app:
        job, below, needs, gates, notes, artifacts, progress = app.read(read_all, app.lifecycles, find_unit(app, unit))
        family = app.read(views_of, [node.unit for node in below.nodes[1:]]) if json else {}
    others = [note for note in notes if note.kind != TRACEBACK]
    if json:
        children = [{**json_views.make_job_fields(family[node.unit]), "depth": node.depth} for node in below.nodes[1:]]
        print_json(
            {
                **asdict(json_views.make_job_detail(job, needs, gates, notes)),
                "tree": [json_views.make_node(below, node) for node in below.nodes],
                "cut": below.cut,
                "children": children,
                "notes": [json_views.make_note(note) for note in others],
                "artifacts": [json_views.make_artifact(artifact) for artifact in artifacts],
                **({} if progress is None else {"progress": progress}),
            }
        )
        return
    if len(below.nodes) > 1:
        tree.print_tree(below)
        print_line("")
    if progress is not None:
        print_table(("PROGRESS", ""), list_progress(progress))
        print_line("")
    print_table(("FIELD", "VALUE"), list_fields(job))
    print_section(
        "NEEDS",
        [(need.called, make_state_cell(need.state, need.category)) for need in needs],
    )
    print_section("NOTES", [(format_time(note.at), note.kind, note.name, note.payload) for note in others])
    print_section(
        "ARTIFACTS",
        [(item.name, f"attempt {item.attempt}", f"{item.length} bytes", item.digest) for item in artifacts],
    )
    if job.unit.outcome != Category.SUCCESS:
        print_tracebacks(json_views.make_tracebacks(notes))


def print_tracebacks(tracebacks: list[TracebackResponse]) -> None:
    """Print how the attempts failed, one after the other."""
    for traceback in tracebacks:
        print_line(f"\nTRACEBACK of attempt {traceback.attempt}, {traceback.at}\n{make_plain(traceback.text)}")


def show_past(unit: str, time: str, tenant: int, db: str, json: bool) -> None:
    """Show a job and all below it as they were, read from their events."""
    with open_app(db, tenant) as app:
        at = parse_time(time, app.engine.read(lambda connection: connection.now(), tenant))
        number = find_unit(app, unit)
        past = app.read(read_tree_snapshot, app.lifecycles, number, at)
    if not past.nodes:
        raise InterlockError(f"{unit} did not exist at {format_time(at)}")
    if json:
        print_json(
            {"at": format_time(at), "tree": [json_views.make_node(past, node) for node in past.nodes], "cut": past.cut}
        )
        return
    if on_terminal():
        print_line(f"As it was at {format_time(at)}\n")
    tree.print_tree(past)


def parse_time(text: str, now: int) -> int:
    """Return the instant that a text names, or that was so long ago, in microseconds.

    Raises:
        InterlockError: it is neither.
    """
    try:
        return instant_us("--at", datetime.fromisoformat(text))
    except ValueError:
        pass
    try:
        return now - microseconds(text)
    except ValueError:
        allowed = "2030-01-31T08:00:00Z, or 10m for ten minutes ago"
        raise InterlockError(f"--at '{text}' is not a time; allowed is {allowed}") from None


def list_fields(job: View) -> list[tuple[str, Cell]]:
    """Return the fields of a job; those that it does not have are left out."""
    facts = {name: value for name, value in asdict(json_views.make_job_detail(job)).items() if name not in BESIDE}
    body, lease = job.body, json_views.make_lease(job)
    facts |= {
        "capabilities": ", ".join(job.capabilities),
        "labels": omit_empty(body.labels),
        "policy": omit_empty(body.policy),
    }
    facts |= {"input": body.input, "result": body.result}
    if lease:
        facts |= {f"lease_{name}": value for name, value in asdict(lease).items()}
    state = make_state_cell(job.unit.state, job.unit.category, job.unit.outcome)
    return [
        (name, state if name == "state" else str(value))
        for name, value in facts.items()
        if value not in (None, "", 0) or name == "priority"
    ]


def omit_empty(packed: str) -> str:
    """Return JSON text, or nothing for an empty object."""
    return "" if packed == "{}" else packed


def print_section(head: str, rows: Sequence[Sequence[Cell]]) -> None:
    """Print a table with a heading, if it has rows."""
    if rows:
        print_line("")
        print_table((head, *[""] * (len(rows[0]) - 1)), rows)
