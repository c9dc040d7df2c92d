"""`interlock ui`: print a link that signs in to the pages."""

from importlib import import_module
from pathlib import Path
from typing import Annotated
from urllib.parse import unquote

import typer

from interlock.cli.options import DEFAULT, Url, open_app
from interlock.cli.output import print_line
from interlock.cli.server_options import check_server, read_key
from interlock.client.app import App
from interlock.client.keys import issue_key, load_or_create_key
from interlock.kernel.commands import CreateKey
from interlock.kernel.errors import InterlockError
from interlock.store.sqlite import MEMORY


def print_link(
    server: Annotated[str, typer.Option(help="Where the server is.")] = "http://127.0.0.1:8000",
    key_file: Annotated[Path | None, typer.Option(metavar="FILE", help="File with the key to sign in with.")] = None,
    db: Url = DEFAULT,
) -> None:
    """Print a link that signs in to the pages: once, within ten minutes.

    It signs in with the key of --key-file or INTERLOCK_KEY, or with the local key that is kept beside a SQLite file.
    """
    base = check_server(server).rstrip("/")
    key = read_key(key_file)
    if not key:
        with open_app(db, 1) as app:
            key = get_key(app) or ""
    if not key:
        raise InterlockError("there is no local key for PostgreSQL; give one with --key-file or INTERLOCK_KEY")
    print_line(make_link(base, key))


def make_link(base: str, key: str) -> str:
    """Return a link that signs in with a key.

    Raises:
        InterlockError: this is no key.
    """
    sessions = import_module("interlock.dashboard.sessions")
    try:
        return f"{base}/ui/enter/{sessions.make_link_token(key)}"
    except ValueError:
        raise InterlockError("this is no key; one looks like ilk_1_…") from None


def get_key(app: App, *, shell: bool = False) -> str | None:
    """Return a key for everything, kept beside a SQLite file from one start to the next; None for PostgreSQL.

    With `shell` it may submit shell commands too. That key is kept apart, so that no other start has it.
    """
    scopes = ("admin", "vouch", "shell") if shell else ("admin", "vouch")
    order = CreateKey(tenant=app.tenant, name="up", scopes=scopes)
    if app.url == f"sqlite://{MEMORY}":
        return issue_key(app, order).text
    if not app.url.startswith("sqlite:///"):
        return None
    file = Path(unquote(app.url.removeprefix("sqlite:///")))
    return load_or_create_key(app, file.with_name(f"{file.name}.shell.key" if shell else f"{file.name}.key"), order)
