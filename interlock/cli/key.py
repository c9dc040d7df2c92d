"""`interlock key`: create, rotate, revoke and list API keys."""

from typing import Annotated

import typer

from interlock.cli.options import DEFAULT, Actor, Tenant, Url, get_actor, open_app, parse_length, split_commas
from interlock.cli.output import Json, format_heads, on_terminal, print_json, print_line, print_table
from interlock.client.durations import format_time
from interlock.client.keys import Secret, describe_key, issue_key
from interlock.kernel.api_keys import KIND, SCOPES
from interlock.kernel.commands import CreateKey, RevokeKey, RotateKey
from interlock.kernel.ids import format_id, parse_id
from interlock.store.queries.api_keys import list_api_keys

app = typer.Typer(help="API keys: create, rotate, revoke, list.", no_args_is_help=True)
Which = Annotated[str, typer.Argument(metavar="KEY", help="A key's id, as in key_4r1.")]
Scopes = Annotated[
    list[str], typer.Option("--scope", help=f"What it may be used for: {', '.join(SCOPES)}; several are allowed.")
]
Expires = Annotated[
    str | None,
    typer.Option("--expires", metavar="DURATION", help="Valid for this long, such as 90d (default: for ever)."),
]
Roles = Annotated[
    list[str] | None,
    typer.Option("--role", help="Role of its holder, for approvals that require one; several are allowed."),
]
FIELDS = (
    "id",
    "name",
    "scopes",
    "roles",
    "state",
    "created_at",
    "created_by",
    "expires_at",
    "rotated_at",
    "revoked_at",
)


@app.command("create")
def create_key(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose key it is, or what for.")],
    scope: Scopes,
    role: Roles = None,
    expires: Expires = None,
    actor: Actor = None,
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Create a key. It is shown once: only its digest is kept. When piped, only the key is printed."""
    order = CreateKey(
        tenant=tenant, actor=get_actor(actor), name=name.strip(), scopes=split_commas(scope),
        roles=split_commas(role),
        expires_us=None if expires is None else parse_length("expires", expires),
    )  # fmt: skip
    with open_app(db, tenant, make=True) as app:
        print_secret(issue_key(app, order), json)


@app.command("rotate")
def rotate_key(
    which: Which,
    expires: Expires = None,
    actor: Actor = None,
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Give a key a new secret; its id and scopes stay, and the old secret stops working within a second."""
    order = RotateKey(
        tenant=tenant, actor=get_actor(actor), key=parse_id(which),
        expires_us=None if expires is None else parse_length("expires", expires),
    )  # fmt: skip
    with open_app(db, tenant) as app:
        print_secret(issue_key(app, order), json)


@app.command("revoke")
def revoke_key(which: Which, actor: Actor = None, tenant: Tenant = 1, db: Url = DEFAULT, json: Json = False) -> None:
    """Revoke a key for good; it stops working on every server within a second."""
    with open_app(db, tenant) as app:
        done = app.send(RevokeKey(tenant=tenant, actor=get_actor(actor), key=parse_id(which)))
    if json:
        print_json({"id": format_id(KIND, done.key), "revoked": done.revoked, "changed": done.changed})
    else:
        print_line(
            f"{format_id(KIND, done.key)} ({done.name}) is revoked" + ("" if done.changed else "; it was before")
        )


@app.command("list")
def list_keys(tenant: Tenant = 1, db: Url = DEFAULT, json: Json = False) -> None:
    """List the keys of a tenant, revoked ones too; never a secret."""
    with open_app(db, tenant) as app:
        now = app.engine.read(lambda connection: connection.now(), tenant)
        keys = [describe_key(row, now) for row in app.read(list_api_keys)]
    if json:
        print_json({"keys": keys})
    else:
        rows = [
            [",".join(row[field]) if field in ("scopes", "roles") else row[field] or "" for field in FIELDS]
            for row in keys
        ]
        print_table(format_heads(FIELDS), rows)


def print_secret(made: Secret, json: bool) -> None:
    """Print a key that was just made; when piped, nothing else."""
    name, until = format_id(KIND, made.issued.key), format_time(made.issued.expires_at)
    if json:
        print_json(
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
        print_line(
            f"{name} ({', '.join(made.issued.scopes)}){f', until {until}' if until else ''}. It is not shown again:"
        )
        print_line(made.text)
    else:
        print_line(made.text)
