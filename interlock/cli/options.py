"""What commands have in common: the database, the tenant, who acts, and which units are meant."""

import getpass
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import unquote

import typer

from interlock.cli.app_loader import known_plugins, named_plugins
from interlock.client.app import App
from interlock.client.app import open as open_app
from interlock.client.durations import length_us
from interlock.client.selections import Selection
from interlock.kernel.errors import InterlockError, Unknown
from interlock.kernel.ids import format_id, parse_id
from interlock.kernel.lifecycle import Category, Lifecycle
from interlock.lifecycles import load, shipped
from interlock.store import migrate
from interlock.store.connection import Connection
from interlock.store.queries.views import find_archive, glimpse
from interlock.store.sqlite import MEMORY
from interlock.store.url import checked, connect

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
FILTERS: dict[str, Any] = {
    "state": States, "category": Categories, "lifecycle": Lifecycles, "task": Tasks, "queue": Queues, "key": Keys,
    "correlation": Correlations, "worker": Holders, "parent": Parents,
}  # fmt: skip
KINDS = ("lifecycle", "task", "queue")  # the filters of what has ended
Words = dict[str, Any]  # what was given of the filter options
NO_WORDS: Words = {}
NOT_TWO = "give ids, or a filter, or --all: not two of them"


@contextmanager
def opened(url: str) -> Iterator[Connection]:
    """A connection that exists for one command."""
    connection = connect(url)
    try:
        yield connection
    finally:
        connection.close()


def known_lifecycles() -> dict[str, Lifecycle]:
    """The shipped lifecycles, those of plugins, and the user's own."""
    own = {lifecycle.name: lifecycle for lifecycle in map(load, OWN_FILES)}
    return known_plugins().lifecycles({**shipped(), **own})


def must_exist(url: str) -> None:
    """Looking at a file that is not there does not make it."""
    path = unquote(url.removeprefix("sqlite:///"))
    if url.startswith("sqlite:///") and not os.path.exists(path):
        raise InterlockError(f"there is no database '{path}'; `interlock db upgrade --db {url}` makes one")


def must_be_present(connection: Connection, url: str) -> None:
    if migrate.version(connection) != migrate.numbers()[-1]:
        raise InterlockError(f"the schema is not the present one; run `interlock db upgrade --db {url}`")


@contextmanager
def app_on(url: str, tenant: int, *, make: bool = False) -> Iterator[App]:
    """An app for one command. Only one that makes work makes a database that is not there, or upgrades a file."""
    if checked(url) == f"sqlite://{MEMORY}":
        raise InterlockError("a database in memory ends with its process; name a file: --db sqlite:///file.db")
    if not make:
        must_exist(url)
        if url.startswith("sqlite:"):
            with opened(url) as connection:
                must_be_present(connection, url)
    with open_app(url, tenant=tenant, lifecycles=OWN_FILES, plugins=named_plugins()) as app:
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
    numbers = {parse_id(word), int(word)} if word.isdecimal() and len(word) < NUMBER_MAX else {parse_id(word)}
    names = {unit: name for unit in sorted(numbers) if (name := name_in(app, unit))}
    if len(names) > 1:
        raise Unknown(f"'{text}' may mean {' or '.join(names.values())}; give the whole id")
    if not names:
        files = [file for unit in sorted(numbers) if (file := app.read(find_archive, unit))]
        raise Unknown(f"'{text}' was archived in '{files[0]}'" if files else f"there is no unit '{text}'")
    ((unit, name),) = names.items()
    if "_" in word and word.lower().rpartition("_")[0] != name.rpartition("_")[0]:
        raise Unknown(f"there is no unit '{text}'; did you mean {name}?")
    return unit


def name_in(app: App, unit: int) -> str | None:
    """The id of a unit as it is shown; None if there is none."""
    try:
        return format_id(app.read(glimpse, unit).lifecycle, unit)
    except Unknown:
        return None


def with_filter(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command takes filter options, all of them or those of these names, where it says `words`, as one dictionary."""

    def change(command: Callable[..., None]) -> Callable[..., None]:
        options = {name: FILTERS[name] for name in names or FILTERS}
        parameters = list[Parameter]()
        for one in signature(command).parameters.values():
            if one.name != "words":
                parameters.append(one)
            else:
                parameters += [Parameter(name, one.kind, default=None, annotation=options[name]) for name in options]

        @wraps(command)
        def run(**given: Any) -> None:
            words = {name: given.pop(name) for name in options}
            command(**given, words=words)

        run.__signature__ = signature(command).replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        return run

    return change


def select(app: App, words: Words, ids: Sequence[str] | None = None) -> Selection:
    """The units that somebody means by words or by ids. A wrong word is told what the right ones are."""
    parent = words.get("parent")
    given: Any = {**words, "parent": None if parent is None else unit_of(app, parent)}
    by_words = app.jobs(**given)
    if ids and not by_words.empty:
        raise InterlockError(NOT_TWO)
    return app.jobs(*[unit_of(app, one) for one in ids]) if ids else by_words


def select_some(app: App, words: Words, ids: Sequence[str] | None, every: bool) -> Selection:
    """The same for a command that acts, so that nothing is done to many units by mistake.

    Raises:
        InterlockError: unless ids, a filter or --all is given, and only one of them.
    """
    if ids and every:
        raise InterlockError(NOT_TWO)
    selection = select(app, words, ids)
    if selection.empty and not every:
        raise InterlockError("which units? Give ids, a filter such as --task NAME, or --all")
    return selection


def length(name: str, text: str) -> int:
    return length_us(f"--{name}", text)
