"""The `interlock` command: its verbs, and the one place where errors become text and exit codes."""

import io
import os
import signal as signals
import sys
from pathlib import Path
from typing import Annotated

import typer

from interlock import __version__
from interlock.cli import (
    archive,
    cancel,
    database,
    dead_letters,
    demo,
    force,
    graph,
    inbox,
    key,
    lifecycle,
    run,
    serve,
    signal,
    stats,
    submit,
    tenant,
    units,
    up,
    validate_log,
    watch,
    worker,
    workers,
)
from interlock.cli.app_loader import named_plugins
from interlock.cli.arguments import hide_passwords
from interlock.cli.options import OWN_FILES
from interlock.cli.output import USAGE, Json, complain, say
from interlock.core.plugin import Registry, load_part
from interlock.kernel.errors import InterlockError
from interlock.plugins import STANDARD

app = typer.Typer(
    name="interlock",
    help="Durable work on explicit state machines.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Every option can be given by the environment: --limit of `list` is INTERLOCK_LIST_LIMIT.
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "INTERLOCK"},
)
app.add_typer(lifecycle.app, name="lifecycle")
app.add_typer(database.app, name="db")
app.command("up")(up.up)
app.command("serve")(serve.serve)
app.add_typer(demo.app, name="demo")
app.command("audit")(database.audit_database)
app.command("submit")(submit.submit)
app.command("run")(run.run)
app.command("rerun")(run.rerun)
app.command("list")(units.list_units)
app.command("show")(units.show)
app.command("events")(units.events)
app.command("why")(units.why)
app.command("stats")(stats.stats)
app.command("graph")(graph.graph)
app.command("watch")(watch.watch)
app.command("cancel")(cancel.cancel)
app.command("inbox")(inbox.inbox)
app.command("approve")(inbox.approve)
app.command("reject")(inbox.reject)
app.command("decide")(inbox.decide)
app.command("signal")(signal.signal)
app.add_typer(dead_letters.app, name="dead")
workers.app.command("run")(worker.worker)
app.add_typer(workers.app, name="worker")
app.add_typer(tenant.app, name="tenant")
app.add_typer(key.app, name="key")
app.command("archive")(archive.archive)
app.command("force")(force.force)
app.command("validate-log")(validate_log.validate_log)


def add_groups(cli: typer.Typer, registry: Registry) -> None:
    """The commands of plugins are there, each group under the name that it gives itself."""
    for place in registry.groups.values():
        group = load_part(place)
        cli.add_typer(group, name=group.info.name)


add_groups(app, STANDARD)


def version(wanted: bool) -> None:
    if wanted:
        say(f"interlock {__version__}")
        raise typer.Exit


@app.callback()
def interlock(
    lifecycles: Annotated[
        list[Path] | None,
        typer.Option(
            "--lifecycles", metavar="FILE", envvar="INTERLOCK_LIFECYCLES", help="A lifecycle file of your own."
        ),
    ] = None,
    show: Annotated[
        bool,
        typer.Option("--version", callback=version, is_eager=True, allow_from_autoenv=False, help="Print the version."),
    ] = False,
) -> None:
    """Durable work on explicit state machines."""
    OWN_FILES[:] = lifecycles or []


@app.command()
def hello(json: Json = False) -> None:
    """What Interlock knows, and how to look at it."""
    if json:
        lifecycle.listing(json=True)
        return
    say(f"Interlock {__version__} knows these lifecycles:\n")
    lifecycle.listing(json=False)
    say("\nLook at one:       interlock lifecycle show job")
    say("Draw them all:     interlock lifecycle docs")
    say("Prove them:        interlock lifecycle check")
    say("Check a log:       interlock validate-log FILE")
    say("\n(The command is .venv/bin/interlock in this folder.)")


def main() -> None:
    """Run a command. A refusal is a sentence on standard error, never a traceback."""
    if hasattr(signals, "SIGPIPE"):
        signals.signal(signals.SIGPIPE, signals.SIG_DFL)  # whoever read our output has had enough
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal may lack a letter that we print
    try:
        hide_passwords()
        add_groups(app, Registry(named_plugins()))
        try:
            app()
        finally:
            sys.stdout.flush()  # here, where a full disk can still be told
    except InterlockError as error:
        complain(f"interlock: {error}")
        sys.exit(USAGE)
    except OSError as error:
        complain(f"interlock: the output cannot be written: {error.strerror}")
        os._exit(USAGE)  # an ordinary exit would try to write it once more
