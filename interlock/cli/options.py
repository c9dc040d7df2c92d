"""Options that commands share: database, tenant, actor, and the filters that select jobs."""

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

import interlock
from interlock.cli.app_loader import find_plugins, load_registry
from interlock.client.app import App
from interlock.client.durations import length_us
from interlock.client.selections import Selection
from interlock.kernel.errors import InterlockError, Unknown
from interlock.kernel.ids import format_id, parse_id
from interlock.kernel.lifecycle import Category, Lifecycle
from interlock.lifecycles import load, shipped
from interlock.store import migrate
from interlock.store.connection import Connection
from interlock.store.queries.views import child_named, find_archive, read_summary
from interlock.store.sqlite import MEMORY
from interlock.store.url import check_url, connect

DEFAULT = "sqlite:///interlock.db"
TENANT_MAX = 2**31 - 1
LIMIT_MAX = 100_000
OWN_FILES: list[Path] = []  # lifecycle files that the user named before the command
NUMBER_MAX = 19  # digits
Url = Annotated[
    str, typer.Option("--db", envvar="INTERLOCK_DB", help="sqlite:///file.db or postgresql://…", show_default=True)
]
Tenant = Annotated[int, typer.Option(envvar="INTERLOCK_TENANT", min=1, max=TENANT_MAX, help="Number of the tenant.")]
Actor = Annotated[str | None, typer.Option(envvar="INTERLOCK_ACTOR", help="Who does this (default: your OS user).")]
Why = Annotated[str, typer.Option("--reason", help="Why; kept with the event.")]
Id = Annotated[
    str,
    typer.Argument(metavar="ID", help="A job, run or step, as in job_4r1 or RUN/STEP, or its plain number."),
]
Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]…", help="Jobs, runs or steps, as in job_4r1.")]
Every = Annotated[bool, typer.Option("--all", help="All of them; without it, ids or a filter are needed.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only print what would be done.")]

Limit = Annotated[int, typer.Option(min=1, max=LIMIT_MAX, help="Maximum number to show.")]
After = Annotated[str | None, typer.Option(metavar="ID", help="Next page: only those older than this id.")]

# Which jobs are meant.
FILTERS: dict[str, Any] = {
    "state": Annotated[
        list[str] | None, typer.Option("--state", help="Only in this state; may be given several times.")
    ],
    "category": Annotated[
        list[str] | None,
        typer.Option("--category", help=f"Only in a state of this category: {', '.join(Category)}."),
    ],
    "lifecycle": Annotated[str | None, typer.Option("--lifecycle", help="Only of this lifecycle.")],
    "task": Annotated[str | None, typer.Option("--task", help="Only of this task.")],
    "queue": Annotated[str | None, typer.Option("--queue", help="Only in this queue.")],
    "key": Annotated[str | None, typer.Option("--key", help="Only with this idempotency key.")],
    "correlation": Annotated[str | None, typer.Option("--correlation", help="Only with this correlation id.")],
    "error": Annotated[str | None, typer.Option("--error", help="Only those whose last error begins with this.")],
    "worker": Annotated[str | None, typer.Option("--worker", help="Only those that this worker holds, by its name.")],
    "parent": Annotated[str | None, typer.Option("--parent", metavar="ID", help="Only children of this job or run.")],
}
KINDS = ("lifecycle", "task", "queue")  # the filters of what has ended
Filters = dict[str, Any]  # the filter options that were given, by name
NO_FILTERS: Filters = {}
NOT_TWO = "give ids, or a filter, or --all: not two of them"


@contextmanager
def open_connection(url: str) -> Iterator[Connection]:
    """Open a connection for one command."""
    connection = connect(url)
    try:
        yield connection
    finally:
        connection.close()


def load_lifecycles() -> dict[str, Lifecycle]:
    """Return the shipped lifecycles, those of plugins, and the user's own."""
    own = {lifecycle.name: lifecycle for lifecycle in map(load, OWN_FILES)}
    return load_registry().lifecycles({**shipped(), **own})


def check_exists(url: str) -> None:
    """Refuse a SQLite file that is not there: looking at it must not make it.

    Raises:
        InterlockError: the file does not exist.
    """
    path = unquote(url.removeprefix("sqlite:///"))
    if url.startswith("sqlite:///") and not os.path.exists(path):
        raise InterlockError(f"there is no database '{path}'; `interlock db upgrade --db {url}` makes one")


def check_schema(connection: Connection, url: str) -> None:
    """Refuse a database whose schema is not that of this program.

    Raises:
        InterlockError: the schema is older or newer.
    """
    if migrate.version(connection) != migrate.numbers()[-1]:
        raise InterlockError(f"the schema is not the present one; run `interlock db upgrade --db {url}`")


@contextmanager
def open_app(url: str, tenant: int, *, make: bool = False) -> Iterator[App]:
    """Open an app for one command. With `make`, a database that is not there is made, and a file is upgraded."""
    if check_url(url) == f"sqlite://{MEMORY}":
        raise InterlockError("a database in memory ends with its process; name a file: --db sqlite:///file.db")
    if not make:
        check_exists(url)
        if url.startswith("sqlite:"):
            with open_connection(url) as connection:
                check_schema(connection, url)
    with interlock.open(url, tenant=tenant, lifecycles=OWN_FILES, plugins=find_plugins()) as app:
        yield app


@contextmanager
def open_app_in_memory() -> Iterator[App]:
    """Open an app whose database ends with the command, to check what is not to be submitted."""
    with interlock.open(f"sqlite://{MEMORY}", lifecycles=OWN_FILES, plugins=find_plugins()) as app:
        yield app


def get_actor(actor: str | None) -> str:
    """Return who acts: as given, or the user of the operating system.

    Raises:
        InterlockError: nobody is named, and the user has no name.
    """
    try:
        name = getpass.getuser() if actor is None else actor.strip()
    except (OSError, KeyError):
        name = ""  # a user without a name, as in some containers
    if not name:
        raise InterlockError("nobody is named who does this; give --actor NAME")
    return name


def find_unit(app: App, text: str) -> int:
    """Return the number of the job, run or step that an id names, or a step's name behind the id of its run.

    Raises:
        Unknown: there is none; it says what is there under that id.
    """
    run, slash, step = text.partition("/")
    if slash:
        return app.read(child_named, find_unit(app, run), step).unit
    word = text.strip()
    numbers = {parse_id(word), int(word)} if word.isdecimal() and len(word) < NUMBER_MAX else {parse_id(word)}
    names = {unit: name for unit in sorted(numbers) if (name := find_name(app, unit))}
    if len(names) > 1:
        raise Unknown(f"'{text}' may mean {' or '.join(names.values())}; give the whole id")
    if not names:
        files = [file for unit in sorted(numbers) if (file := app.read(find_archive, unit))]
        raise Unknown(f"'{text}' was archived in '{files[0]}'" if files else f"no job, run or step '{text}'")
    ((unit, name),) = names.items()
    if "_" in word and word.lower().rpartition("_")[0] != name.rpartition("_")[0]:
        raise Unknown(f"no job, run or step '{text}'; did you mean {name}?")
    return unit


def find_name(app: App, unit: int) -> str | None:
    """Return the id of a unit as it is shown; None if there is none."""
    try:
        return format_id(app.read(read_summary, unit).lifecycle, unit)
    except Unknown:
        return None


def add_filter_options(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the filter options of these names, or all of them: it takes them as one dictionary `filters`."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        options = {name: FILTERS[name] for name in names or FILTERS}
        parameters = list[Parameter]()
        for parameter in signature(command).parameters.values():
            if parameter.name != "filters":
                parameters.append(parameter)
            else:
                kind = parameter.kind
                parameters += [Parameter(name, kind, default=None, annotation=options[name]) for name in options]

        @wraps(command)
        def run(**given: Any) -> None:
            filters = {name: given.pop(name) for name in options}
            command(**given, filters=filters)

        run.__signature__ = signature(command).replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate


def select(app: App, filters: Filters, ids: Sequence[str] | None = None) -> Selection:
    """Return the jobs that filters or ids name.

    Raises:
        InterlockError: a filter has a value that is not allowed, or both are given.
    """
    parent = filters.get("parent")
    values: Any = {**filters, "parent": None if parent is None else find_unit(app, parent)}
    by_filter = app.jobs(**values)
    if ids and not by_filter.empty:
        raise InterlockError(NOT_TWO)
    return app.jobs(*[find_unit(app, text) for text in ids]) if ids else by_filter


def select_some(app: App, filters: Filters, ids: Sequence[str] | None, every: bool) -> Selection:
    """Do the same for a command that changes jobs, so that nobody changes all of them by mistake.

    Raises:
        InterlockError: unless ids, a filter or --all is given, and only one of them.
    """
    if ids and every:
        raise InterlockError(NOT_TWO)
    selection = select(app, filters, ids)
    if selection.empty and not every:
        raise InterlockError("which jobs? Give ids, a filter such as --task NAME, or --all")
    return selection


def parse_length(name: str, text: str) -> int:
    """Return the length of time that an option names, in microseconds."""
    return length_us(f"--{name}", text)


def split_commas(words: Sequence[str] | None) -> tuple[str, ...]:
    """Return the parts of an option that may be given several times, and several at once with commas between."""
    return tuple(part.strip() for word in words or () for part in word.split(",") if part.strip())
