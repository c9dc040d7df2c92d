"""`interlock db` and `interlock audit`: the database's schema, its health, and whether its record is whole."""

from collections import Counter
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer

from interlock.audit import anchors
from interlock.audit.laws import Broken, audit
from interlock.audit.laws.database import audit_itself, until_damage
from interlock.audit.laws.rows import LAWS
from interlock.cli.app_loader import known_plugins
from interlock.cli.options import DEFAULT, Actor, Url, known_lifecycles, must_be_present, must_exist, named, opened
from interlock.cli.output import FINDING, Json, counted, dump, report, say
from interlock.client.durations import format_time
from interlock.kernel.commands import Revoke
from interlock.kernel.errors import Corrupt, InterlockError
from interlock.kernel.ids import format_id
from interlock.kernel.rows import Lease
from interlock.plugins import make_engine
from interlock.store import doctor, migrate, restore, rights
from interlock.store.connection import Connection
from interlock.store.queries.evidence import count_unsealed
from interlock.store.queries.snapshots import read_forced_moves, read_lifecycle_names, snapshot

app = typer.Typer(help="The database: its schema and its health.", no_args_is_help=True)
LISTED_MAX = 1_000  # findings that a program is told one by one; `found` counts all


@app.command()
def upgrade(db: Url = DEFAULT, json: Json = False) -> None:
    """Bring a database to the present schema, and its guard to the present lifecycles."""
    with opened(db) as connection:
        done = migrate.upgrade(connection, known_lifecycles().values(), known_plugins().tables)
        at = migrate.version(connection)
        lines = rights.format_for_dba(connection) if connection.many_writers else []
    if json:
        dump({"schema": at, "run": done, "for_dba": lines})
        return
    say(f"schema {at}, " + (f"{counted(len(done), 'migration')} run" if done else "nothing to do"))
    if lines:
        say("\nIt works for its owner as it is. For roles that cannot switch the guard off, let a DBA run")
        for line in lines:
            say(f"  {line}")
        say("and then upgrade once more: it gives them their rights.")


@app.command()
def status(db: Url = DEFAULT, json: Json = False) -> None:
    """Say which schema a database has, and which is the present one."""
    must_exist(db)
    with opened(db) as connection:
        at, newest = migrate.version(connection), migrate.numbers()[-1]
    if json:
        dump({"schema": at, "newest": newest, "ok": at == newest})
    else:
        say(f"schema {at} of {newest}" + ("" if at == newest else f"; run `interlock db upgrade --db {db}`"))
    if at != newest:
        raise typer.Exit(FINDING)


@app.command()
def sql(db: Url = DEFAULT, json: Json = False) -> None:
    """Print the SQL of every migration, as `upgrade` would run it."""
    with opened("sqlite://:memory:" if db.startswith("sqlite") else db) as connection:
        texts = {number: migrate.sql(number, connection.name) for number in migrate.numbers()}
        after = rights.statements(connection) if connection.many_writers and migrate.version(connection) else []
    if json:
        dump({"migrations": [{"number": number, "sql": text} for number, text in texts.items()], "after": after})
    else:
        for number, text in texts.items():
            say(f"-- migration {number}\n{text}")
        for statement in after:
            say(f"{statement};")


@app.command("doctor")
def doctor_database(db: Url = DEFAULT, json: Json = False) -> None:
    """Look for what would hurt later: settings that lose commits, roles that see too much, old transactions."""
    must_exist(db)
    with opened(db) as connection:
        findings = doctor.diagnose(connection, known_lifecycles())
    report(findings, "the database was looked at", json)


@app.command()
def restored(
    while_connected: Annotated[
        bool, typer.Option("--while-connected", help="Others may stay connected to the same database of a server.")
    ] = False,
    actor: Actor = None,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Say that a database was brought back from a backup: a new epoch begins, and every live lease is void."""
    must_exist(db)
    who = named(actor)
    with opened(db) as connection:
        must_be_present(connection, db)
        if not while_connected:
            restore.refuse_others(connection)
        begun = restore.begin_again(connection, connection.now())
        states, left = void_leases(connection, begun.leases, who)
    if json:
        dump({
            "generation": begun.generation, "epoch": begun.epoch, "void": sum(states.values()), "states": states,
            "left": left, "ok": not left,
        })  # fmt: skip
    else:
        say(f"generation {begun.generation}, epoch {begun.epoch}; cursors and anchors from before are refused")
        now = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        say(f"{counted(sum(states.values()), 'live lease')} void" + (f"; their units are {now} now" if now else ""))
        for one in left:
            say(f"unit {one['unit']} is still held: {one['why']}")
    if left:
        raise typer.Exit(FINDING)


def void_leases(
    connection: Connection, leases: Iterable[Lease], actor: str
) -> tuple[Counter[str], list[dict[str, Any]]]:
    """The states that the units of these leases are in now, and how many; and those whose lease could not be voided."""
    states, left = Counter[str](), []
    committer = make_engine(connection, known_lifecycles(), registry=known_plugins()).committer
    asked = {
        lease.unit: committer.put(Revoke(unit=lease.unit, tenant=lease.tenant, actor=actor, reason=restore.REASON))
        for lease in leases
    }
    while committer.step():
        pass
    for unit, answer in asked.items():
        try:
            states[answer.result().state] += 1
        except InterlockError as refused:
            left.append({"unit": unit, "why": str(refused)})
    return states, left


def audit_database(
    db: Url = DEFAULT,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Rebuild every row from its events, and compare.")] = False,
    since: Annotated[Path | None, typer.Option(help="Prove that nothing in this anchor was lost or rewritten.")] = None,
    archives: Annotated[Path | None, typer.Option(help="Where archive files are now, for --since.")] = None,
    from_seal: Annotated[
        int, typer.Option(min=1, metavar="N", help="Take acts and seals before seal N of each tenant as they are.")
    ] = 1,
    anchor: Annotated[Path | None, typer.Option(help="Write an anchor to this new file, if all is well.")] = None,
    json: Json = False,
) -> None:
    """Ask every law of every unit: is the record whole, and does every row say what its events say? Is it guarded?"""
    must_exist(db)
    if anchor:
        anchors.must_be_free(anchor)
    plugin_laws = known_plugins().laws
    laws = len(LAWS) + len(plugin_laws) + rebuild + (since is not None)
    with opened(db) as connection:
        must_be_present(connection, db)
        with snapshot(connection):
            # The anchor first: one that cannot be used is told before the long part.
            kept = anchors.since(connection, since, archives) if since else iter(())
            lifecycles = known_lifecycles()
            broken = chain(
                kept,
                audit_itself(connection, lifecycles),
                audit(connection, lifecycles, rebuild=rebuild, from_seal=from_seal, laws=plugin_laws),
            )
            count, some = told(until_damage(broken), json)
            forced, unsealed = told_forced(connection), told_unsealed(connection)
            end = anchors.write(connection, anchor) if anchor and not count else None
    if json:
        facts = {"laws": laws, "found": count, "findings": some, "ok": not count, "forced": forced}
        facts["unsealed"] = unsealed
        dump(facts | ({"anchor": end} if end else {}))
    else:
        for one in forced:
            say(f"forced, no finding: {one['unit']} to {one['state']} by {one['by']} at {one['at']}: {one['reason']}")
        if unsealed["acts"]:
            acts = counted(unsealed["acts"], "act")
            say(f"not sealed yet, no finding: {acts} since {unsealed['since']}; the next tick seals them")
        say(f"{laws} laws asked, {counted(count, 'finding')}")
        if end:
            say(f"{counted(end.units, 'unit')}, {counted(end.events, 'event')} anchored, digest {end.digest}")
    if count:
        raise typer.Exit(FINDING)


def told_unsealed(connection: Connection) -> dict[str, Any]:
    """How many acts no seal covers yet, and since when."""
    try:
        acts, since = count_unsealed(connection)
    except Corrupt:  # which is a finding already
        return {"acts": None, "since": None}
    return {"acts": acts, "since": None if since is None else format_time(since)}


def told_forced(connection: Connection) -> list[dict[str, Any]]:
    """Every move that an operator forced, the last ones where there are very many: who, when and why."""
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


def told(broken: Iterable[Broken], json: bool) -> tuple[int, list[Broken]]:
    """How many findings there are, each said as it is found; for a program, the first of them instead."""
    count, some = 0, []
    for count, one in enumerate(broken, 1):
        if not json:
            say(f"{f'unit {one.unit}: ' if one.unit else ''}{one.text} [{one.law}]")
        elif count <= LISTED_MAX:
            some.append(one)
    return count, some
