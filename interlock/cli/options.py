"""What commands have in common: the database, the tenant, who acts, and which units are meant."""

import getpass
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated
from urllib.parse import unquote

import typer

from interlock.client.app import App
from interlock.client.app import open as open_app
from interlock.client.times import length_us
from interlock.kernel.errors import InterlockError, Unknown
from interlock.kernel.lifecycle import Category, Lifecycle
from interlock.kernel.names import meant, shown
from interlock.lifecycles import load, shipped
from interlock.store import migrate
from interlock.store.connection import Connection
from interlock.store.sqlite import MEMORY
from interlock.store.url import checked, connect
from interlock.store.views import Filter, archived_in, counts_by, glimpse

DEFAULT = "sqlite:///interlock.db"
TENANT_MAX = 2**31 - 1
LIMIT_MAX = 100_000
OWN_FILES: list[Path] = []  # lifecycle files that the user named before the command
NUMBER_MAX = 19  # digits
Url = Annotated[
    str, typer.Option("--db", envvar="INTERLOCK_DB", help="sqlite:///file.db or postgresql://…", show_default=True)
]
Tenant = Annotated[int, typer.Option(envvar="INTERLOCK_TENANT", min=1, max=TENANT_MAX, help="Whose work it is.")]
Actor = Annotated[
    str | None,
    typer.Option(envvar="INTERLOCK_ACTOR", help="Who asks; by default the user of the operating system."),
]
Why = Annotated[str, typer.Option("--reason", help="Why; it is kept with the event.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="A unit, as in job_4r1, or by its plain number.")]
Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]…", help="Units, as in job_4r1.")]
Every = Annotated[bool, typer.Option("--all", help="All that there are; without it a filter is needed.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]

Limit = Annotated[int, typer.Option(min=1, max=LIMIT_MAX, help="So many at most.")]
After = Annotated[
    str | None, typer.Option(metavar="ID", help="The next page: what is older than this, the last one seen.")
]

# Which units are meant.
States = Annotated[list[str] | None, typer.Option("--state", help="In this state; may be given several times.")]
Categories = Annotated[
    list[str] | None, typer.Option("--category", help=f"In a state of this category: {', '.join(Category)}.")
]
Lifecycles = Annotated[str | None, typer.Option("--lifecycle", help="Of this lifecycle.")]
Tasks = Annotated[str | None, typer.Option("--task", help="Of this task.")]
Queues = Annotated[str | None, typer.Option("--queue", help="In this queue.")]
Keys = Annotated[str | None, typer.Option("--key", help="Submitted under this key.")]
Correlations = Annotated[str | None, typer.Option("--correlation", help="With this correlation id.")]
Holders = Annotated[str | None, typer.Option("--worker", help="Held by the worker of this name.")]
Parents = Annotated[str | None, typer.Option("--parent", metavar="ID", help="Children of this unit.")]


@contextmanager
def opened(url: str) -> Iterator[Connection]:
    """A connection that exists for one command."""
    session = connect(url)
    try:
        yield session
    finally:
        session.close()


def known_lives() -> dict[str, Lifecycle]:
    """The shipped lifecycles, and the user's own."""
    return {**shipped(), **{life.name: life for life in map(load, OWN_FILES)}}


def must_exist(url: str) -> None:
    """Looking at a file that is not there does not make it."""
    path = unquote(url.removeprefix("sqlite:///"))
    if url.startswith("sqlite:///") and not os.path.exists(path):
        raise InterlockError(f"there is no database '{path}'; `interlock db upgrade --db {url}` makes one")


def must_be_present(session: Connection, url: str) -> None:
    if migrate.version(session) != migrate.numbers()[-1]:
        raise InterlockError(f"the schema is not the present one; run `interlock db upgrade --db {url}`")


@contextmanager
def app_on(url: str, tenant: int, *, make: bool = False) -> Iterator[App]:
    """An app for one command. Only one that makes work makes a database that is not there, or upgrades a file."""
    if checked(url) == f"sqlite://{MEMORY}":
        raise InterlockError("a database in memory ends with its process; name a file: --db sqlite:///file.db")
    if not make:
        must_exist(url)
        if url.startswith("sqlite:"):
            with opened(url) as session:
                must_be_present(session, url)
    with open_app(url, tenant=tenant, lifecycles=OWN_FILES) as app:
        yield app


def named(actor: str | None) -> str:
    """Who acts: as given, or the user of the operating system."""
    try:
        name = getpass.getuser() if actor is None else actor.strip()
    except (OSError, KeyError):
        name = ""  # a user without a name, as in some containers
    if not name:
        raise InterlockError("nobody is named who does this; give --actor NAME")
    return name


def unit_of(app: App, text: str) -> int:
    """The unit that somebody means, which exists. Raises Unknown, which says what is there under that id."""
    word = text.strip()
    numbers = {meant(word), int(word)} if word.isdecimal() and len(word) < NUMBER_MAX else {meant(word)}
    names = {unit: name for unit in sorted(numbers) if (name := name_in(app, unit))}
    if len(names) > 1:
        raise Unknown(f"'{text}' may mean {' or '.join(names.values())}; give the whole id")
    if not names:
        files = [file for unit in sorted(numbers) if (file := app.read(archived_in, unit))]
        raise Unknown(f"'{text}' was archived in '{files[0]}'" if files else f"there is no unit '{text}'")
    ((unit, name),) = names.items()
    if "_" in word and word.lower().rpartition("_")[0] != name.rpartition("_")[0]:
        raise Unknown(f"there is no unit '{text}'; did you mean {name}?")
    return unit


def name_in(app: App, unit: int) -> str | None:
    """The id of a unit as it is shown; None if there is none."""
    try:
        return shown(app.read(glimpse, unit).lifecycle, unit)
    except Unknown:
        return None


def chosen(
    app: App,
    *,
    states: Sequence[str] | None = None,
    categories: Sequence[str] | None = None,
    lifecycle: str | None = None,
    task: str | None = None,
    queue: str | None = None,
    key: str | None = None,
    correlation: str | None = None,
    holder: str | None = None,
    parent: str | None = None,
) -> Filter:
    """The units that somebody means by words. A wrong word is told what the right ones are."""
    there = app.read(counts_by)
    lives = [*dict.fromkeys([*app.lives, *(life for life, _, _ in there)])]
    if lifecycle is not None:
        one_of("lifecycle", lifecycle, lives)
    known = [state for life in app.lives.values() if lifecycle in (None, life.name) for state in life.states]
    known += [state for life, state, _ in there if lifecycle in (None, life)]
    for state in states or ():
        one_of("state", state, [*dict.fromkeys(known)])
    for category in categories or ():
        one_of("category", category, list(Category))
    return Filter(
        states=tuple(states or ()), categories=tuple(categories or ()), lifecycle=lifecycle, task=task, queue=queue,
        key=key, correlation=correlation, holder=holder, parent=None if parent is None else unit_of(app, parent),
    )  # fmt: skip


def one_of(name: str, word: str, allowed: Sequence[str]) -> None:
    if word not in allowed:
        raise InterlockError(f"there is no {name} '{word}'; there are {', '.join(allowed)}")


def refuse_unfiltered(ids: Sequence[str] | None, wanted: Filter, every: bool) -> None:
    """Nothing is done to many units by mistake: ids, a filter or --all, and one of them only."""
    if not ids and wanted.empty and not every:
        raise InterlockError("which units? Give ids, a filter such as --task NAME, or --all")
    if ids and (every or not wanted.empty):
        raise InterlockError("give ids, or a filter, or --all: not two of them")


def length(name: str, text: str) -> int:
    return length_us(f"--{name}", text)
