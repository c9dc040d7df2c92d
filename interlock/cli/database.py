"""`interlock db` and `interlock audit`: the database's schema, its health, and whether its record is whole."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import msgspec
import typer

from interlock.audit.laws import LAWS, audit
from interlock.cli.out import FINDING, Json, dump, report, say
from interlock.kernel.errors import InterlockError
from interlock.lifecycles import shipped
from interlock.store import migrate
from interlock.store.reads import tenants
from interlock.store.session import Session
from interlock.store.url import connect

app = typer.Typer(help="The database: its schema and its health.", no_args_is_help=True)
DEFAULT = "sqlite:///interlock.db"
Url = Annotated[
    str, typer.Option("--db", envvar="INTERLOCK_DB", help="sqlite:///file.db or postgresql://…", show_default=True)
]


@contextmanager
def opened(url: str) -> Iterator[Session]:
    """A connection that exists for one command; looking at a file that is not there does not make it."""
    session = connect(url)
    try:
        yield session
    finally:
        session.close()


def must_exist(url: str) -> None:
    path = url.removeprefix("sqlite:///")
    if path != url and not os.path.exists(path):
        raise InterlockError(f"there is no database '{path}'; `interlock db upgrade --db {url}` makes one")


@app.command()
def upgrade(db: Url = DEFAULT, json: Json = False) -> None:
    """Bring a database to the present schema, and its guard to the present lifecycles."""
    with opened(db) as session:
        done = migrate.upgrade(session, shipped().values())
        at = migrate.version(session)
    if json:
        dump({"schema": at, "run": done})
    else:
        say(f"schema {at}, " + (f"{len(done)} migrations run" if done else "nothing to do"))


@app.command()
def status(db: Url = DEFAULT, json: Json = False) -> None:
    """Say which schema a database has, and which is the present one."""
    must_exist(db)
    with opened(db) as session:
        at, newest = migrate.version(session), migrate.numbers()[-1]
    if json:
        dump({"schema": at, "newest": newest, "ok": at == newest})
    else:
        say(f"schema {at} of {newest}" + ("" if at == newest else f"; run `interlock db upgrade --db {db}`"))
    if at != newest:
        raise typer.Exit(FINDING)


@app.command()
def sql(db: Url = DEFAULT, json: Json = False) -> None:
    """Print the SQL of every migration, as `upgrade` would run it."""
    with opened("sqlite://:memory:" if db.startswith("sqlite") else db) as session:
        texts = {number: migrate.sql(number, session.name, session.pos) for number in migrate.numbers()}
    if json:
        dump({"migrations": [{"number": number, "sql": text} for number, text in texts.items()]})
    else:
        for number, text in texts.items():
            say(f"-- migration {number}\n{text}")


@app.command()
def doctor(db: Url = DEFAULT, json: Json = False) -> None:
    """Look for what would hurt later: settings that lose commits, roles that see too much, old transactions."""
    must_exist(db)
    with opened(db) as session:
        findings = session.findings()
    report(findings, "the database was looked at", json)


def audit_database(db: Url = DEFAULT, json: Json = False) -> None:
    """Ask every law of every unit: is the record whole, and does every row say what its events say?"""
    must_exist(db)
    with opened(db) as session:
        if migrate.version(session) != migrate.numbers()[-1]:
            raise InterlockError(f"the schema is not the present one; run `interlock db upgrade --db {db}`")
        session.begin()
        session.declare(tenants(session))
        broken = list(audit(session, shipped()))
        session.rollback()
    if json:
        dump({"laws": len(LAWS), "findings": [msgspec.to_builtins(one) for one in broken], "ok": not broken})
    else:
        for one in broken:
            say(f"unit {one.unit}: {one.text} [{one.law}]")
        say(f"{len(LAWS)} laws asked, {len(broken)} findings")
    if broken:
        raise typer.Exit(FINDING)
