"""The `interlock` command: the list of commands, and the one place where errors become text and exit codes."""

import io
import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from interlock import __version__
from interlock.cli.app_loader import find_plugins
from interlock.cli.arguments import hide_passwords
from interlock.cli.options import OWN_FILES
from interlock.cli.output import INTERRUPTED, USAGE, print_error, print_line
from interlock.core.plugin import Registry, load_part
from interlock.kernel.errors import InterlockError
from interlock.plugins import STANDARD
from interlock.store.connection import LostCommit

HERE = "interlock.cli."
# Where each command is: a program loads the one that it runs, and all of them only to list them.
COMMANDS = {
    "info": "info:print_info",
    "up": "up:start",
    "serve": "serve:start_server",
    "ui": "ui:print_link",
    "submit": "submit:submit",
    "list": "list:list_jobs",
    "show": "show:show_job",
    "events": "events:list_events",
    "why": "why:explain_job",
    "stats": "stats:print_stats",
    "graph": "graph:draw_graph",
    "watch": "watch:watch",
    "cancel": "cancel:cancel",
    "run-now": "run_now:run_now",
    "archive": "archive:archive",
    "force": "force:force",
    "audit": "audit:audit_database",
    "validate-log": "validate_log:validate_log",
}
GROUPS = {
    "worker": "worker:app",
    "dead-letters": "dead_letters:app",
    "tenant": "tenant:app",
    "key": "key:app",
    "db": "db:app",
    "lifecycle": "lifecycle:app",
    "demo": "demo:app",
}
ALIASES = {"hello": "info", "dead": "dead-letters"}


def make_app(only: str = "") -> typer.Typer:
    """The command line with all of its commands, or with one of ours alone."""
    app = typer.Typer(
        name="interlock",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        # Every option can be given by the environment: --limit of `list` is INTERLOCK_LIST_LIMIT.
        context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "INTERLOCK"},
    )
    app.callback()(set_options)
    names = [only] if only else [*COMMANDS, *GROUPS, *ALIASES]
    for name in names:
        target = ALIASES.get(name, name)
        if target in COMMANDS:
            app.command(name, hidden=name in ALIASES)(load_part(HERE + COMMANDS[target]))
        else:
            app.add_typer(load_part(HERE + GROUPS[target]), name=name, hidden=name in ALIASES)
    if not only:
        add_groups(app, STANDARD)
    return app


def __getattr__(name: str) -> typer.Typer:
    """`app`, the whole command line, is made when somebody wants it: a program that runs one command does not."""
    if name != "app":
        raise AttributeError(name)
    app = globals()["app"] = make_app()
    return app


def add_groups(cli: typer.Typer, registry: Registry) -> None:
    """Add the commands of plugins: a group under the name that it gives itself, or beside ours if it has none."""
    for place in registry.groups.values():
        cli.add_typer(load_part(place))


def find_only(words: list[str]) -> str:
    """The command of ours that a command line begins with; empty if it is another one, or an option comes first."""
    first = words[0] if words else ""
    return first if first in COMMANDS or first in GROUPS or first in ALIASES else ""


def print_version(wanted: bool) -> None:
    """Print the version and exit, if that is wanted."""
    if wanted:
        print_line(f"interlock {__version__}")
        raise typer.Exit


def set_options(
    lifecycles: Annotated[
        list[Path] | None,
        typer.Option(
            "--lifecycles", metavar="FILE", envvar="INTERLOCK_LIFECYCLES", help="A lifecycle file of your own."
        ),
    ] = None,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=print_version, is_eager=True, allow_from_autoenv=False, help="Print the version."
        ),
    ] = False,
) -> None:
    """A job queue and workflow engine in which the database enforces the state machine."""
    OWN_FILES[:] = lifecycles or []


def main() -> None:
    """Run a command. A refusal is a sentence on standard error, never a traceback."""
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # whoever read our output has had enough
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal may lack a letter that we print
    try:
        hide_passwords()
        only = find_only(sys.argv[1:])
        app = make_app(only)
        if not only:
            add_groups(app, Registry(find_plugins()))
        try:
            app()
        finally:
            sys.stdout.flush()  # here, where a full disk can still be reported
    except InterlockError as error:
        print_error(f"interlock: {error}")
        sys.exit(USAGE)
    except LostCommit as error:
        print_error(f"interlock: the database cannot be written: {error}")
        sys.exit(USAGE)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)  # while it was starting
    except OSError as error:
        print_error(f"interlock: the output cannot be written: {error.strerror}")
        os._exit(USAGE)  # an ordinary exit would try to write it once more
