"""`interlock db`: the schema of the database, its health, and what to do after a restore."""

from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from interlock.cli.app_loader import load_registry
from interlock.cli.options import (
    DEFAULT,
    Actor,
    Url,
    check_exists,
    check_schema,
    get_actor,
    load_lifecycles,
    open_connection,
)
from interlock.cli.output import FINDING, Json, format_count, print_findings, print_json, print_line
from interlock.kernel.commands import Revoke
from interlock.kernel.errors import InterlockError
from interlock.kernel.rows import Lease
from interlock.plugins import make_engine
from interlock.store import doctor, migrate, restore, rights
from interlock.store.connection import Connection

app = typer.Typer(help="The database: its schema and its health.", no_args_is_help=True)


@app.command("upgrade")
def upgrade_schema(db: Url = DEFAULT, json: Json = False) -> None:
    """Upgrade the schema, and the guard in the database to the present lifecycles."""
    with open_connection(db) as connection:
        done = migrate.upgrade(connection, load_lifecycles().values(), load_registry().tables)
        at = migrate.version(connection)
        lines = rights.format_for_dba(connection) if connection.many_writers else []
    if json:
        print_json({"schema": at, "run": done, "for_dba": lines})
        return
    print_line(f"schema {at}, " + (f"{format_count(len(done), 'migration')} run" if done else "nothing to do"))
    if lines:
        print_line("\nIt works for its owner as it is. For roles that cannot switch the guard off, let a DBA run")
        for line in lines:
            print_line(f"  {line}")
        print_line("and then upgrade once more: it gives them their rights.")


@app.command("status")
def print_status(db: Url = DEFAULT, json: Json = False) -> None:
    """Print which schema a database has, and which is the present one."""
    check_exists(db)
    with open_connection(db) as connection:
        at, newest = migrate.version(connection), migrate.numbers()[-1]
    if json:
        print_json({"schema": at, "newest": newest, "ok": at == newest})
    else:
        print_line(f"schema {at} of {newest}" + ("" if at == newest else f"; run `interlock db upgrade --db {db}`"))
    if at != newest:
        raise typer.Exit(FINDING)


@app.command("sql")
def print_sql(db: Url = DEFAULT, json: Json = False) -> None:
    """Print the SQL of every migration, as `upgrade` would run it."""
    with open_connection("sqlite://:memory:" if db.startswith("sqlite") else db) as connection:
        texts = {number: migrate.sql(number, connection.name) for number in migrate.numbers()}
        after = rights.statements(connection) if connection.many_writers and migrate.version(connection) else []
    if json:
        print_json({"migrations": [{"number": number, "sql": text} for number, text in texts.items()], "after": after})
    else:
        for number, text in texts.items():
            print_line(f"-- migration {number}\n{text}")
        for statement in after:
            print_line(f"{statement};")


@app.command("doctor")
def diagnose(db: Url = DEFAULT, json: Json = False) -> None:
    """Look for problems before they hurt: settings that lose commits, roles with too many rights, old transactions."""
    check_exists(db)
    with open_connection(db) as connection:
        findings = doctor.diagnose(connection, load_lifecycles())
    print_findings(findings, "database checked", json)


@app.command("restored")
def begin_after_restore(
    while_connected: Annotated[
        bool, typer.Option("--while-connected", help="Do not refuse while others are connected to the database.")
    ] = False,
    actor: Actor = None,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Run this after a database was restored from a backup: a new epoch begins, and every live lease is revoked."""
    check_exists(db)
    who = get_actor(actor)
    with open_connection(db) as connection:
        check_schema(connection, db)
        if not while_connected:
            restore.refuse_others(connection)
        begun = restore.begin_again(connection, connection.now())
        states, left = revoke_leases(connection, begun.leases, who)
    if json:
        print_json({
            "generation": begun.generation, "epoch": begun.epoch, "void": sum(states.values()), "states": states,
            "left": left, "ok": not left,
        })  # fmt: skip
    else:
        print_line(f"generation {begun.generation}, epoch {begun.epoch}; cursors and anchors from before are refused")
        now = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        print_line(
            f"{format_count(sum(states.values()), 'live lease')} revoked"
            + (f"; their jobs are {now} now" if now else "")
        )
        for lease in left:
            print_line(f"id {lease['unit']} is still held: {lease['why']}")
    if left:
        raise typer.Exit(FINDING)


def revoke_leases(
    connection: Connection, leases: Iterable[Lease], actor: str
) -> tuple[Counter[str], list[dict[str, Any]]]:
    """Revoke leases. Return how many of their units are in which state now, and those whose lease is still live."""
    states, left = Counter[str](), []
    committer = make_engine(connection, load_lifecycles(), registry=load_registry()).committer
    replies = {
        lease.unit: committer.put(Revoke(unit=lease.unit, tenant=lease.tenant, actor=actor, reason=restore.REASON))
        for lease in leases
    }
    while committer.step():
        pass
    for unit, reply in replies.items():
        try:
            states[reply.result().state] += 1
        except InterlockError as refused:
            left.append({"unit": unit, "why": str(refused)})
    return states, left
