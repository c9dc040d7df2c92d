"""`interlock up`: a worker and the HTTP API in one process, with a key that is ready to use."""

import asyncio
import socket
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated
from urllib.parse import unquote

import typer

from interlock import __version__
from interlock.cli.app_loader import find_app, named_plugins, queues_of
from interlock.cli.options import DEFAULT, Url
from interlock.cli.output import say
from interlock.cli.serve import extra
from interlock.cli.worker import Capabilities, Grace, LogFormat, LogLevel, Name, Queues, run, shown_url, words
from interlock.client.app import App
from interlock.client.keys import issue_key, load_or_create_key
from interlock.kernel.commands import CreateKey
from interlock.kernel.errors import InterlockError
from interlock.store.sqlite import MEMORY
from interlock.worker import demo_tasks
from interlock.worker.loop import GRACE, Worker

HOST, PORT, PORTS = "127.0.0.1", 8000, 100  # so many ports are tried, from the first one on
HINTS = {
    "submit": "interlock submit greet --arg name=you",
    "list": "interlock list",
    "why": "interlock why ID",
    "watch": "interlock watch",
    "demo": "interlock demo split-brain",
    "audit": "interlock audit",
    "lifecycle": "interlock lifecycle show job",
}
Port = Annotated[
    int | None,
    typer.Option(
        envvar="INTERLOCK_PORT", min=0, max=65535, show_default=False,
        help=f"The port of the API; by default {PORT}, or the next one that is free.",
    ),
]  # fmt: skip


def up(
    ctx: typer.Context,
    place: Annotated[
        str, typer.Argument(metavar="[MODULE:APP]", envvar="INTERLOCK_APP", help="By default, a few tasks to try.")
    ] = "",
    db: Url = DEFAULT,
    queue: Queues = None,
    cap: Capabilities = None,
    name: Name = "",
    port: Port = None,
    grace: Grace = GRACE,
    log_format: LogFormat = "text",
    log_level: LogLevel = "info",
) -> None:
    """Start everything in one process: store, clock, worker and API. An app has its own database, or that of --db."""
    source = ctx.get_parameter_source("db")
    named = source is not None and source.name == "COMMANDLINE"  # INTERLOCK_DB is for apps that name none
    app = find_app(place, db if named else None) if place else demo_tasks.made(db)
    app.add_plugins(named_plugins())
    worker = Worker(app, queues_of(queue or (), app), name=name, capabilities=words(cap), grace=grace)
    with ExitStack() as beside:
        beside.callback(app.close)
        asyncio.run(worker.client.connect())
        told = api(app, port, beside, demo=not place)
        say(f"Interlock {__version__} on {shown_url(app)}, worker {worker.name}")
        say(f"Tasks: {', '.join(app.tasks)}\n\n{told}\n")
        if not place:
            say("Or by the command, in this folder (it is .venv/bin/interlock after `make run`):")
            known = getattr(ctx.find_root().command, "commands", {})
            for hint in [text for verb, text in HINTS.items() if verb in known]:
                say(f"  {hint}" + (f" --db {db}" if db != DEFAULT and not hint.startswith("interlock l") else ""))
        say("Ctrl-C stops it.")
        sys.stdout.flush()
        run(worker, log_format, log_level, beside)


def api(app: App, port: int | None, beside: ExitStack, *, demo: bool) -> str:
    """The API is served beside, and this says how to use it; or why it is not."""
    try:
        server = extra()
    except InterlockError as missing:
        return f"There is no HTTP API here: {missing}"
    listener = listening(port)
    beside.callback(listener.close)
    try:
        beside.enter_context(server.serving_beside(app, listener))
    except server.UnsafeRole as unsafe:
        listener.close()
        return f"There is no HTTP API here: {unsafe}"
    base = f"http://{HOST}:{listener.getsockname()[1]}"
    return f"The HTTP API is at {base} (try it there). {lines(base, ready_key(app), demo)}"


def lines(base: str, key: str | None, demo: bool) -> str:
    """What can be pasted into another terminal as it is."""
    if key is None:
        return "A key is made by `interlock key create NAME --scope admin --db …`."
    sign = f"-H 'Authorization: Bearer {key}'"
    if not demo:
        return f"See the newest jobs:\n\n  curl -s {sign} {base}/v1/jobs"
    job = """-H 'Content-Type: application/json' -d '{"task": "greet", "input": {"name": "you"}}'"""
    return (
        f"In another terminal, submit a job:\n\n  curl -s {sign} {base}/v1/jobs {job}\n\n"
        f"and see it done:\n\n  curl -s {sign} '{base}/v1/jobs?task=greet&limit=1'"
    )


def listening(port: int | None) -> socket.socket:
    """A socket on this machine alone, on that port; if none was named, on the first that is free."""
    wanted = range(PORT, PORT + PORTS) if port is None else [port]
    for one in wanted:
        try:
            return socket.create_server((HOST, one))
        except OSError as error:
            why = error.strerror
    which = f"port {port}" if port is not None else f"any port from {PORT} to {PORT + PORTS - 1}"
    raise InterlockError(f"the API cannot listen on {which} of {HOST}: {why}; name a free one with --port")


def ready_key(app: App) -> str | None:
    """A key for everything, kept beside a SQLite file from one start to the next; elsewhere people make their own."""
    order = CreateKey(tenant=app.tenant, name="up", scopes=("admin", "vouch"))
    if app.url == f"sqlite://{MEMORY}":
        return issue_key(app, order).text
    if not app.url.startswith("sqlite:///"):
        return None
    file = Path(unquote(app.url.removeprefix("sqlite:///")))
    return load_or_create_key(app, file.with_name(f"{file.name}.key"), order)
