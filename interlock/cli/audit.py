"""`interlock audit`: check the record, and that every row is what its events make of it."""

from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer

from interlock.audit import anchors
from interlock.audit.laws import Broken, audit
from interlock.audit.laws.database import GUARDED, UNDAMAGED, audit_itself, stop_at_damage
from interlock.audit.laws.rows import LAWS
from interlock.cli.app_loader import load_registry
from interlock.cli.options import DEFAULT, Url, check_exists, check_schema, load_lifecycles, open_connection
from interlock.cli.output import FINDING, Json, format_count, format_problems, print_json, print_line
from interlock.client.durations import format_time
from interlock.kernel.errors import Corrupt
from interlock.kernel.ids import format_id
from interlock.store.connection import Connection
from interlock.store.queries.evidence import count_unsealed
from interlock.store.queries.snapshots import read_forced_moves, read_lifecycle_names, snapshot

LISTED_MAX = 1_000  # findings that are listed in JSON; `found` counts all
CHECKS = (*LAWS, UNDAMAGED, GUARDED)  # beside those of plugins


def audit_database(
    db: Url = DEFAULT,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Rebuild every row from its events, and compare.")] = False,
    since: Annotated[Path | None, typer.Option(help="Prove that nothing in this anchor was lost or rewritten.")] = None,
    archives: Annotated[Path | None, typer.Option(help="Where archive files are now, for --since.")] = None,
    from_seal: Annotated[
        int, typer.Option(min=1, metavar="N", help="Trust the record before seal N of each tenant.")
    ] = 1,
    anchor: Annotated[
        Path | None, typer.Option(help="Write an anchor to this new file, if no problem is found.")
    ] = None,
    json: Json = False,
) -> None:
    """Check the whole database: every event and row, and whether it is guarded. Exits with 1 if a problem is found."""
    check_exists(db)
    if anchor:
        anchors.refuse_existing(anchor)
    plugin_laws = load_registry().laws
    checks = len(CHECKS) + len(plugin_laws) + rebuild + (since is not None)
    with open_connection(db) as connection:
        check_schema(connection, db)
        with snapshot(connection):
            # The anchor first: one that cannot be used is refused before the long part.
            lost = anchors.since(connection, since, archives) if since else iter(())
            lifecycles = load_lifecycles()
            broken = chain(
                lost,
                audit_itself(connection, lifecycles),
                audit(connection, lifecycles, rebuild=rebuild, from_seal=from_seal, laws=plugin_laws),
            )
            problems, findings = print_broken(stop_at_damage(broken), json)
            forced, unsealed = list_forced(connection), describe_unsealed(connection)
            end = anchors.write(connection, anchor) if anchor and not problems else None
    if json:
        facts = {
            "laws": checks, "found": problems, "findings": findings, "ok": not problems, "forced": forced,
            "unsealed": unsealed,
        }  # fmt: skip
        print_json(facts | ({"anchor": end} if end else {}))
    else:
        print_unproblematic(forced, unsealed)
        print_line(f"{checks} checks run, {format_problems(problems)}")
        if end:
            events = format_count(end.events, "event")
            print_line(f"{events} of {format_count(end.units, 'id')} anchored, digest {end.digest}")
    if problems:
        raise typer.Exit(FINDING)


def describe_unsealed(connection: Connection) -> dict[str, Any]:
    """Return how many acts no seal covers yet, and since when."""
    try:
        acts, since = count_unsealed(connection)
    except Corrupt:  # which is a finding already
        return {"acts": None, "since": None}
    return {"acts": acts, "since": None if since is None else format_time(since)}


def list_forced(connection: Connection) -> list[dict[str, Any]]:
    """Return every transition that an operator forced, the last ones if there are very many: who, when and why."""
    try:
        moves = read_forced_moves(connection)[-LISTED_MAX:]
    except Corrupt:  # which is a finding already
        return []
    names = read_lifecycle_names(connection, sorted({move.unit for move in moves}))
    return [
        {
            "unit": format_id(names[move.unit], move.unit) if move.unit in names else str(move.unit),
            "version": move.version, "state": move.target, "by": move.actor, "at": format_time(move.at),
            "reason": move.reason,
        }
        for move in moves
    ]  # fmt: skip


def print_unproblematic(forced: list[dict[str, Any]], unsealed: dict[str, Any]) -> None:
    """Print what is worth knowing and no problem: forced transitions, and what is not sealed yet."""
    for move in forced:
        by = f"by {move['by']} at {move['at']}: {move['reason']}"
        print_line(f"forced, no problem: {move['unit']} to {move['state']} {by}")
    if unsealed["acts"]:
        changes = format_count(unsealed["acts"], "change")
        print_line(f"not sealed yet, no problem: {changes} since {unsealed['since']}; the next tick seals them")


def print_broken(broken: Iterable[Broken], json: bool) -> tuple[int, list[Broken]]:
    """Print each finding as it comes; with `json`, collect the first of them instead. Return how many, and those."""
    problems, findings = 0, []
    for problems, finding in enumerate(broken, 1):
        if not json:
            print_line(f"{f'id {finding.unit}: ' if finding.unit else ''}{finding.text} [{finding.law}]")
        elif problems <= LISTED_MAX:
            findings.append(finding)
    return problems, findings
