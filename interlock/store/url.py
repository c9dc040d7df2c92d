"""Parse a database URL: `sqlite:///path`, `sqlite://:memory:` or `postgresql://…`."""

from importlib import import_module
from types import ModuleType
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from interlock.kernel.errors import InterlockError
from interlock.store.connection import Connection, WakeupChannel
from interlock.store.sqlite import MEMORY, SqliteConnection
from interlock.store.sqlite.wakeups import FileWatcher

DEFAULT = "sqlite:///interlock.db"
ALLOWED = "allowed are sqlite:///file.db, sqlite:////path/to/file.db, sqlite://:memory: and postgresql://user@host/name"


PREPARE = "prepare=off in the URL prepares no statement; prepare has no other value, and is given once"


def split_prepare(url: str) -> tuple[str, bool]:
    """The URL of a server as its own library reads it, and whether statements may be prepared.

    Raises:
        InterlockError: `prepare` says something else than `off`.
    """
    parts = urlsplit(url)
    options = parse_qsl(parts.query, keep_blank_values=True)
    given = [value for name, value in options if name == "prepare"]
    if not given:
        return url, True
    if given != ["off"]:
        raise InterlockError(f"prepare={given[0]}: {PREPARE}")
    rest = [(name, value) for name, value in options if name != "prepare"]
    return parts._replace(query=urlencode(rest, quote_via=quote)).geturl(), False


def check_url(url: str) -> str:
    """A URL that names a database of a known kind.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    if not url.startswith("sqlite://") and urlsplit(url).scheme not in ("postgresql", "postgres"):
        raise InterlockError(f"'{url}' is no database that Interlock knows; {ALLOWED}")
    path = unquote(url.removeprefix("sqlite://"))
    if url.startswith("sqlite://") and path != MEMORY and (not path.startswith("/") or path == "/"):
        raise InterlockError(f"'{url}' names no file; {ALLOWED}")
    if not url.startswith("sqlite://"):
        split_prepare(url)
    return url


def connect(url: str, *, later: bool = False) -> Connection:
    """A connection to the database that a URL names.

    With `later` a server hears of it when it is first used.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    path = file_of(check_url(url))
    if path:
        return SqliteConnection(path)
    connection: Connection = import_postgres("connection").PostgresConnection(url, later=later)
    return connection


def open_wakeups(url: str) -> WakeupChannel | None:
    """How the processes on a database tell each other of new work; None if there can be no second process."""
    path = file_of(check_url(url))
    if path:
        return None if path == MEMORY else FileWatcher(path)
    channel: WakeupChannel = import_postgres("wakeups").Notify(url)
    return channel


def file_of(url: str) -> str:
    """The path of a SQLite file; empty for a server."""
    return unquote(url.removeprefix("sqlite://")).removeprefix("/") if url.startswith("sqlite://") else ""


def import_postgres(module: str) -> ModuleType:
    """The driver is an extra: who runs on SQLite does not need it.

    Raises:
        InterlockError: it is not there.
    """
    try:
        return import_module(f"interlock.store.postgres.{module}")
    except ModuleNotFoundError:
        raise InterlockError("PostgreSQL needs its driver: pip install 'interlock[postgres]'") from None
