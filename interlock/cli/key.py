"""`interlock key`: how programs across the network speak for a tenant, and what they may ask."""

from typing import Annotated

import typer

from interlock.cli.options import DEFAULT, Actor, Tenant, Url, app_on, length, named
from interlock.cli.output import Json, dump, on_terminal, say, table
from interlock.client.durations import format_time
from interlock.client.keys import Secret, describe_key, issue_key
from interlock.kernel.api_keys import KIND, SCOPES
from interlock.kernel.commands import CreateKey, RevokeKey, RotateKey
from interlock.kernel.ids import format_id, parse_id
from interlock.store.queries.api_keys import list_api_keys

app = typer.Typer(help="Keys of the server: who may ask, and what.", no_args_is_help=True)
Which = Annotated[str, typer.Argument(metavar="KEY", help="A key's id, as in key_4r1.")]
Scopes = Annotated[
    list[str], typer.Option("--scope", help=f"What it may be used for: {', '.join(SCOPES)}; several are allowed.")
]
Expires = Annotated[
    str | None, typer.Option("--expires", metavar="DURATION", help="For how long it lasts, as in 90d; else for ever.")
]
Roles = Annotated[
    list[str] | None, typer.Option("--role", help="What its holder is, for approvals that ask for a role; several.")
]
HEADS = ("id", "name", "scopes", "roles", "state", "created_at", "created_by", "expires_at", "rotated_at", "revoked_at")


@app.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose it is, or what for.")],
    scope: Scopes,
    role: Roles = None,
    expires: Expires = None,
    actor: Actor = None,
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Make a key. It is shown once: only its digest is kept. Piped, nothing but the key is printed."""
    order = CreateKey(
        tenant=tenant, actor=named(actor), name=name.strip(), scopes=listed(scope),
        roles=listed(role or []),
        expires_us=None if expires is None else length("expires", expires),
    )  # fmt: skip
    with app_on(db, tenant, make=True) as app:
        tell(issue_key(app, order), json)


@app.command()
def rotate(
    which: Which,
    expires: Expires = None,
    actor: Actor = None,
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Give a key another secret: its id and what it may be used for stay, and within a second the old one is void."""
    order = RotateKey(
        tenant=tenant, actor=named(actor), key=parse_id(which),
        expires_us=None if expires is None else length("expires", expires),
    )  # fmt: skip
    with app_on(db, tenant) as app:
        tell(issue_key(app, order), json)


@app.command()
def revoke(which: Which, actor: Actor = None, tenant: Tenant = 1, db: Url = DEFAULT, json: Json = False) -> None:
    """Make a key void, for good; every server knows within a second."""
    with app_on(db, tenant) as app:
        done = app.send(RevokeKey(tenant=tenant, actor=named(actor), key=parse_id(which)))
    if json:
        dump({"id": format_id(KIND, done.key), "revoked": done.revoked, "changed": done.changed})
    else:
        say(f"{format_id(KIND, done.key)} ({done.name}) is void" + ("" if done.changed else "; it was before"))


@app.command("list")
def list_keys(tenant: Tenant = 1, db: Url = DEFAULT, json: Json = False) -> None:
    """List the keys of a tenant, also those that are void; never a secret."""
    with app_on(db, tenant) as app:
        now = app.engine.read(lambda connection: connection.now(), tenant)
        found = [describe_key(row, now) for row in app.read(list_api_keys)]
    if json:
        dump({"keys": found})
    else:
        rows = [
            [",".join(one[head]) if head in ("scopes", "roles") else one[head] or "" for head in HEADS] for one in found
        ]
        table([head.replace("_", " ").upper() for head in HEADS], rows)


def listed(words: list[str]) -> tuple[str, ...]:
    return tuple(part.strip() for word in words for part in word.split(",") if part.strip())


def tell(made: Secret, json: bool) -> None:
    name, until = format_id(KIND, made.issued.key), format_time(made.issued.expires_at)
    if json:
        dump(
            {
                "id": name,
                "name": made.issued.name,
                "scopes": made.issued.scopes,
                "roles": made.issued.roles,
                "expires_at": until,
                "key": made.text,
            }
        )
    elif on_terminal():
        say(f"{name} ({', '.join(made.issued.scopes)}){f', until {until}' if until else ''}. It is not shown again:")
        say(made.text)
    else:
        say(made.text)
