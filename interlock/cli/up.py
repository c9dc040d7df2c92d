"""`interlock up`: run a worker and the HTTP API in one process, with an API key that is ready to use."""

import asyncio
import socket
import sys
from contextlib import ExitStack
from typing import Annotated

import typer

from interlock import __version__
from interlock.cli.app_loader import find_app, find_plugins, parse_queues
from interlock.cli.options import DEFAULT, Url, split_commas
from interlock.cli.output import print_line
from interlock.cli.serve import import_pages, import_server
from interlock.cli.ui import get_key, make_link
from interlock.cli.worker import (
    Capabilities,
    Grace,
    LogFormat,
    LogLevel,
    Name,
    Queues,
    Repo,
    Shell,
    ShellEnv,
    ShellFolder,
    ShellSandbox,
    ShellSecret,
    format_url,
    make_shell_settings,
    run_until_stopped,
)
from interlock.client.app import App
from interlock.kernel.errors import InterlockError
from interlock.worker import demo_tasks
from interlock.worker.loop import GRACE, Worker
from interlock.worker.repositories import parse_repositories

HOST, PORT, PORTS = "127.0.0.1", 8000, 100  # so many ports are tried, from the first one on
HINTS = (
    "interlock submit greet --arg name=you", "interlock list", "interlock why ID", "interlock watch",
    "interlock demo split-brain", "interlock audit", "interlock lifecycle show job",
)  # fmt: skip
Port = Annotated[
    int | None,
    typer.Option(
        envvar="INTERLOCK_PORT", min=0, max=65535, show_default=False,
        help=f"Port of the API (default: {PORT}, or the next free one).",
    ),
]  # fmt: skip


def start(
    ctx: typer.Context,
    place: Annotated[
        str,
        typer.Argument(
            metavar="[MODULE:APP]", envvar="INTERLOCK_APP", help="App whose tasks to run (default: a few tasks to try)."
        ),
    ] = "",
    db: Url = DEFAULT,
    queue: Queues = None,
    cap: Capabilities = None,
    name: Name = "",
    port: Port = None,
    grace: Grace = GRACE,
    shell: Shell = False,
    shell_directory: ShellFolder = ".",
    shell_env: ShellEnv = None,
    shell_secret: ShellSecret = None,
    shell_sandbox: ShellSandbox = "auto",
    repo: Repo = None,
    log_format: LogFormat = "text",
    log_level: LogLevel = "info",
) -> None:
    """Start a worker and the HTTP API in one process. An app uses its own database unless --db is given."""
    settings = make_shell_settings(shell, shell_directory, shell_env, shell_secret, shell_sandbox)
    source = ctx.get_parameter_source("db")
    is_given = source is not None and source.name == "COMMANDLINE"  # INTERLOCK_DB is for apps that name none
    app = find_app(place, db if is_given else None) if place else demo_tasks.make_app(db)
    app.add_plugins(find_plugins())
    worker = Worker(
        app, parse_queues(queue or (), app), name=name, capabilities=split_commas(cap), grace=grace, shell=settings,
        repositories=parse_repositories(repo or []),
    )  # fmt: skip
    with ExitStack() as beside:
        beside.callback(app.close)
        asyncio.run(worker.client.connect())
        api = start_api(app, port, beside, demo=not place, shell=shell)
        print_line(f"Interlock {__version__} on {format_url(app)}, worker {worker.name}")
        print_line(f"Tasks: {', '.join(app.tasks)}\n\n{api}\n")
        if not place:
            print_line("Or by the command, in this folder (it is .venv/bin/interlock after `make run`):")
            for hint in HINTS:
                print_line(
                    f"  {hint}" + (f" --db {db}" if db != DEFAULT and not hint.startswith("interlock l") else "")
                )
        print_line("Ctrl-C stops it.")
        sys.stdout.flush()
        run_until_stopped(worker, log_format, log_level, beside)


def start_api(app: App, port: int | None, beside: ExitStack, *, demo: bool, shell: bool) -> str:
    """Start the API in a thread; return how to use it, or why there is none."""
    try:
        server = import_server()
    except InterlockError as missing:
        return f"There is no HTTP API here: {missing}"
    listener = open_listener(port)
    beside.callback(listener.close)
    try:
        beside.enter_context(server.serve_beside(app, listener, import_pages()))
    except server.UnsafeRole as unsafe:
        listener.close()
        return f"There is no HTTP API here: {unsafe}"
    base = f"http://{HOST}:{listener.getsockname()[1]}"
    key = get_key(app, shell=shell)
    return f"{describe_pages(base, key)}\n\nThe HTTP API is at {base}/api. {describe_use(base, key, demo)}"


def describe_pages(base: str, key: str | None) -> str:
    """Return where the pages are, with a link that signs in if there is a key to sign in with."""
    if key is None:
        return f"The pages are at {base}/ui/."
    return f"The pages are at {base}/ui/. This link signs in, once, within ten minutes:\n\n  {make_link(base, key)}"


def describe_use(base: str, key: str | None, demo: bool) -> str:
    """Return commands that can be pasted into another terminal as they are."""
    if key is None:
        return "Create a key with `interlock key create NAME --scope admin --db …`."
    sign = f"-H 'Authorization: Bearer {key}'"
    if not demo:
        return f"See the newest jobs:\n\n  curl -s {sign} {base}/v1/jobs"
    job = """-H 'Content-Type: application/json' -d '{"task": "greet", "input": {"name": "you"}}'"""
    return (
        f"In another terminal, submit a job:\n\n  curl -s {sign} {base}/v1/jobs {job}\n\n"
        f"and see it done:\n\n  curl -s {sign} '{base}/v1/jobs?task=greet&limit=1'"
    )


def open_listener(port: int | None) -> socket.socket:
    """Open a socket for this machine alone, on that port, or without one on the first port that is free.

    Raises:
        InterlockError: no port is free.
    """
    wanted = range(PORT, PORT + PORTS) if port is None else [port]
    for number in wanted:
        try:
            return socket.create_server((HOST, number))
        except OSError as error:
            why = error.strerror
    which = f"port {port}" if port is not None else f"any port from {PORT} to {PORT + PORTS - 1}"
    raise InterlockError(f"the API cannot listen on {which} of {HOST}: {why}; name a free one with --port")
