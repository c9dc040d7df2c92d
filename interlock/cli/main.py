"""The `interlock` command: its commands, and the one place where errors become text and exit codes."""

import io
import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from interlock import __version__
from interlock.cli import (
    archive,
    audit,
    cancel,
    db,
    dead_letters,
    demo,
    events,
    force,
    graph,
    info,
    key,
    lifecycle,
    run_now,
    serve,
    show,
    stats,
    submit,
    tenant,
    ui,
    up,
    validate_log,
    watch,
    why,
    worker,
)
from interlock.cli.app_loader import find_plugins
from interlock.cli.arguments import hide_passwords
from interlock.cli.list import list_jobs
from interlock.cli.options import OWN_FILES
from interlock.cli.output import USAGE, print_error, print_line
from interlock.core.plugin import Registry, load_part
from interlock.kernel.errors import InterlockError
from interlock.plugins import STANDARD

app = typer.Typer(
    name="interlock",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Every option can be given by the environment: --limit of `list` is INTERLOCK_LIST_LIMIT.
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "INTERLOCK"},
)
app.command("info")(info.print_info)
app.command("hello", hidden=True)(info.print_info)
app.command("up")(up.start)
app.command("serve")(serve.start_server)
app.command("ui")(ui.print_link)
app.command("submit")(submit.submit)
app.command("list")(list_jobs)
app.command("show")(show.show_job)
app.command("events")(events.list_events)
app.command("why")(why.explain_job)
app.command("stats")(stats.print_stats)
app.command("graph")(graph.draw_graph)
app.command("watch")(watch.watch)
app.command("cancel")(cancel.cancel)
app.command("run-now")(run_now.run_now)
app.command("archive")(archive.archive)
app.command("force")(force.force)
app.command("audit")(audit.audit_database)
app.command("validate-log")(validate_log.validate_log)
app.add_typer(worker.app, name="worker")
app.add_typer(dead_letters.app, name="dead-letters")
app.add_typer(dead_letters.app, name="dead", hidden=True)
app.add_typer(tenant.app, name="tenant")
app.add_typer(key.app, name="key")
app.add_typer(db.app, name="db")
app.add_typer(lifecycle.app, name="lifecycle")
app.add_typer(demo.app, name="demo")


def add_groups(cli: typer.Typer, registry: Registry) -> None:
    """Add the commands of plugins: a group under the name that it gives itself, or beside ours if it has none."""
    for place in registry.groups.values():
        cli.add_typer(load_part(place))


add_groups(app, STANDARD)


def print_version(wanted: bool) -> None:
    if wanted:
        print_line(f"interlock {__version__}")
        raise typer.Exit


@app.callback()
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
    """Durable jobs and workflows on explicit state machines."""
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
        add_groups(app, Registry(find_plugins()))
        try:
            app()
        finally:
            sys.stdout.flush()  # here, where a full disk can still be reported
    except InterlockError as error:
        print_error(f"interlock: {error}")
        sys.exit(USAGE)
    except OSError as error:
        print_error(f"interlock: the output cannot be written: {error.strerror}")
        os._exit(USAGE)  # an ordinary exit would try to write it once more
