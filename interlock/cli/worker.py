"""`interlock worker`: run the tasks of an app, list workers, and drain them."""

import asyncio
import gc
import logging
import os
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import interlock
from interlock.cli.app_loader import find_app, find_plugins, parse_queues
from interlock.cli.logs import write_log
from interlock.cli.options import (
    DEFAULT,
    Actor,
    DryRun,
    Every,
    Tenant,
    Url,
    Why,
    get_actor,
    open_app,
    split_commas,
)
from interlock.cli.output import Json, format_count, make_state_cell, print_json, print_line, print_table
from interlock.cli.server_options import check_server, read_key
from interlock.client import json_views
from interlock.client.app import App
from interlock.client.durations import format_time
from interlock.client.responses import WorkerResponse
from interlock.client.why.workers import list_queues
from interlock.kernel.commands import Drain
from interlock.kernel.errors import InterlockError, Unknown
from interlock.kernel.ids import format_id, parse_id
from interlock.kernel.lifecycle import Category
from interlock.kernel.rows import Unit, WorkerRow
from interlock.store.queries.views import workers_seen
from interlock.worker.loop import GRACE, Worker
from interlock.worker.repositories import parse_repositories
from interlock.worker.shell import ShellSettings

log = logging.getLogger("interlock.worker")
RUN = "run"
DEFAULT_QUEUE = "default"
COLLECT = (50_000, 20, 100)  # a claim makes thousands of objects at once, and few of them live on
ECHO = 0.5  # seconds within which a second signal is the first one, passed on by make or a shell

Queues = Annotated[
    list[str] | None,
    typer.Option(
        "-q", "--queue", envvar="INTERLOCK_QUEUES", metavar="NAME:N,…",
        help="Queues, and how many jobs of each may run at a time (default: the queues of the app's tasks).",
    ),
]  # fmt: skip
Database = Annotated[
    str | None,
    typer.Option("--db", metavar="URL", help="Database to work on, instead of the app's own."),
]
Capabilities = Annotated[
    list[str] | None, typer.Option("--cap", envvar="INTERLOCK_CAPABILITIES", help="Capability that this worker has.")
]
Name = Annotated[
    str, typer.Option(envvar="INTERLOCK_WORKER_NAME", help="Its name (default: the machine's and four letters).")
]
Grace = Annotated[
    float,
    typer.Option(envvar="INTERLOCK_GRACE", min=0, help="Seconds that running jobs get to finish on shutdown."),
]
Server = Annotated[
    str, typer.Option(envvar="INTERLOCK_SERVER", metavar="URL", help="Server to work for, instead of the database.")
]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        envvar="INTERLOCK_KEY_FILE",
        help="File with the key for the server, which only you may read (default: INTERLOCK_KEY).",
    ),
]
Shell = Annotated[
    bool, typer.Option("--shell", envvar="INTERLOCK_SHELL", help="Also run jobs that are shell commands.")
]
ShellFolder = Annotated[
    str,
    typer.Option(
        "--shell-directory", envvar="INTERLOCK_SHELL_DIRECTORY", metavar="FOLDER", help="Where shell commands run."
    ),
]
ShellEnv = Annotated[
    list[str] | None,
    typer.Option(
        "--shell-env", envvar="INTERLOCK_SHELL_ENV", metavar="NAME", help="Environment variable that they get."
    ),
]
ShellSecret = Annotated[
    list[str] | None,
    typer.Option(
        "--shell-secret", envvar="INTERLOCK_SHELL_SECRET", metavar="NAME",
        help="Environment variable that they get; its value is masked in their output.",
    ),
]  # fmt: skip
ShellSandbox = Annotated[
    str, typer.Option("--shell-sandbox", envvar="INTERLOCK_SHELL_SANDBOX", help="auto, bubblewrap or none.")
]
Repo = Annotated[
    list[str] | None,
    typer.Option(
        "--repo", envvar="INTERLOCK_REPO", metavar="NAME=FOLDER",
        help="Git repository that this worker has, for jobs that need it.",
    ),
]  # fmt: skip
LogFormat = Annotated[str, typer.Option(envvar="INTERLOCK_LOG_FORMAT", help="text or json.")]
LogLevel = Annotated[str, typer.Option(envvar="INTERLOCK_LOG_LEVEL", help="debug, info, warning or error.")]


class RunByDefault(TyperGroup):
    """`interlock worker MODULE:APP …` is `interlock worker run MODULE:APP …`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "-h", "--help"):
            args = [RUN, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    help="Run the tasks of an app (interlock worker module:app), list workers, or drain them.",
    no_args_is_help=True,
    cls=RunByDefault,
)


@app.command("list")
def list_workers(
    gone: Annotated[bool, typer.Option("--gone", help="Also those that have shut down.")] = False,
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """List workers: the jobs that they hold, their queues, and the time of the last heartbeat."""
    with open_app(db, tenant) as client:
        rows = client.read(workers_seen, gone)
    if json:
        print_json({"workers": [json_views.make_worker(worker, unit) for worker, unit in rows]})
        return
    print_table(
        ("ID", "NAME", "STATE", "HOLDS", "QUEUES", "CAPABILITIES", "LAST HEARD"),
        [
            (
                format_id(json_views.WORKER, worker.unit), worker.name,
                make_state_cell(describe_state(worker, unit), unit.category),
                f"{worker.holding}/{worker.concurrency or worker.capacity}", ",".join(list_queues(worker)),
                worker.capabilities, format_time(worker.seen_at),
            )
            for worker, unit in rows
        ],
    )  # fmt: skip


def describe_state(worker: WorkerRow, unit: Unit) -> str:
    """Return the state of a worker, with what it does not show: that it is silent, or drained."""
    if unit.category == Category.CLOSING:
        return f"{unit.state}, silent since {format_time(worker.seen_at)}"
    return f"{unit.state}, draining" if worker.draining and unit.category != Category.CLOSED else unit.state


@app.command("drain")
def drain_workers(
    worker: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME|ID]…", help="Workers, by name or as in worker_4r1.")
    ] = None,
    every: Every = False,
    dry_run: DryRun = False,
    actor: Actor = None,
    reason: Why = "",
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Stop workers from taking new jobs; each shuts down when its last job has ended."""
    if bool(worker) == every:
        raise InterlockError("which workers? Give names or ids, or --all")
    with open_app(db, tenant) as client:
        rows = client.read(workers_seen)
        units = [row.unit for row, _ in rows] if every else [find_worker(rows, name) for name in worker or ()]
        order = {"tenant": tenant, "actor": get_actor(actor), "reason": reason}
        workers = [drain_worker(client, unit, order, dry_run=dry_run) for unit in dict.fromkeys(units)]
    if json:
        print_json({"workers": workers, "dry_run": dry_run})
        return
    for drained in workers:
        print_line(f"{drained.name} ({drained.id}): {drained.state}, holds {drained.holding}")
    print_line(f"{format_count(len(workers), 'worker')} {'would be ' if dry_run else ''}drained")


def find_worker(rows: list[tuple[WorkerRow, Unit]], text: str) -> int:
    """Return the worker of a name or an id.

    Raises:
        Unknown: there is none, or more than one; it says which there are.
    """
    by_name = [worker.unit for worker, _ in rows if worker.name == text]
    if len(by_name) > 1:
        ids = ", ".join(format_id(json_views.WORKER, unit) for unit in by_name)
        raise Unknown(f"'{text}' may mean {ids}; give the id")
    if by_name:
        return by_name[0]
    names = {worker.unit: worker.name for worker, _ in rows}
    try:
        unit = parse_id(text)
    except Unknown:
        unit = 0
    if unit not in names:
        raise Unknown(f"there is no worker '{text}'; there are {', '.join(names.values()) or 'none'}")
    return unit


def drain_worker(client: App, unit: int, order: dict[str, Any], *, dry_run: bool) -> WorkerResponse:
    """Drain a worker, and return it as it is then."""
    if not dry_run:
        client.send(Drain(worker=unit, **order))
    return next(json_views.make_worker(row, its) for row, its in client.read(workers_seen, True) if row.unit == unit)


@app.command(RUN)
def run_worker(
    place: Annotated[
        str, typer.Argument(metavar="MODULE:APP", envvar="INTERLOCK_APP", help="Such as mail:app; --shell needs none.")
    ] = "",
    queue: Queues = None,
    db: Database = None,
    cap: Capabilities = None,
    name: Name = "",
    grace: Grace = GRACE,
    server: Server = "",
    key_file: KeyFile = None,
    shell: Shell = False,
    shell_directory: ShellFolder = ".",
    shell_env: ShellEnv = None,
    shell_secret: ShellSecret = None,
    shell_sandbox: ShellSandbox = "auto",
    repo: Repo = None,
    log_format: LogFormat = "text",
    log_level: LogLevel = "info",
) -> None:
    """Run the tasks of an app until SIGTERM or Ctrl-C; a second one stops immediately. --server needs no database."""
    if db is not None and (server or key_file):
        raise InterlockError("give --db or --server, not both")
    if not place and not shell and not repo:
        raise InterlockError("which app? Name it as in `interlock worker mail:app`, or give --shell to run commands")
    client = find_app(place, db) if place else make_plain_app(db)
    if server or key_file:
        client.reach(check_server(server), read_key(key_file))
    settings = make_shell_settings(shell, shell_directory, shell_env, shell_secret, shell_sandbox)
    queues = parse_queues(queue or (() if place else (DEFAULT_QUEUE,)), client)
    worker = Worker(
        client, queues, name=name, capabilities=split_commas(cap), grace=grace, shell=settings,
        repositories=parse_repositories(repo or []),
    )  # fmt: skip
    run_until_stopped(worker, log_format, log_level)


def make_shell_settings(
    shell: bool, directory: str, environment: list[str] | None, secrets: list[str] | None, sandbox: str
) -> ShellSettings | None:
    """Return how a worker runs shell commands; None if it runs none.

    Raises:
        InterlockError: a variable is not set, or something is said of commands that are not to be run.
    """
    if shell:
        return ShellSettings(
            directory=directory, environment=read_variables("--shell-env", environment),
            secrets=read_variables("--shell-secret", secrets), sandbox=sandbox,
        )  # fmt: skip
    if environment or secrets or directory != "." or sandbox != "auto":
        raise InterlockError("--shell-directory, --shell-env, --shell-secret and --shell-sandbox need --shell")
    return None


def make_plain_app(db: str | None) -> App:
    """Return an app without tasks of its own, for a worker that only runs commands."""
    return interlock.open(db, plugins=find_plugins())


def read_variables(option: str, names: list[str] | None) -> dict[str, str]:
    """Return variables of this process by their names.

    Raises:
        InterlockError: one of them is not set.
    """
    wanted = split_commas(names)
    if missing := [name for name in wanted if name not in os.environ]:
        raise InterlockError(f"{option} names {missing[0]}, which is not set here")
    return {name: os.environ[name] for name in wanted}


def format_url(client: App) -> str:
    """Return the URL of an app's database without the password in it."""
    scheme, _, rest = client.url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"


def run_until_stopped(worker: Worker, log_format: str, log_level: str, beside: ExitStack | None = None) -> None:
    """Run a worker until a signal stops it, and log meanwhile; what is in `beside` is closed after it."""
    gc.freeze()  # what was imported stays, and is not looked at again each time
    gc.set_threshold(*COLLECT)
    with write_log(log_format, log_level, lambda: format_live_line(worker)):
        asyncio.run(run_until_signal(worker, beside or ExitStack()))


async def run_until_signal(worker: Worker, beside: ExitStack) -> None:
    """Run a worker until it is told to stop by a signal."""
    loop = asyncio.get_running_loop()
    signals = StopSignals(worker)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signals.receive, number)
    try:
        await worker.run()
    finally:
        await asyncio.to_thread(beside.close)
        worker.app.close()
    if any(queue.running for queue in worker.queues.values()):
        # A handler that will not stop would keep the process: what it held is given back, and nobody waits for it.
        log.warning("handlers that did not stop end with this process")
        exit_now(0)
    log.info("worker stopped: it holds no lease any more")


class StopSignals:
    """The signals that stop a worker: the first lets running jobs finish, the second does not."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.first: float | None = None

    def receive(self, number: signal.Signals) -> None:
        now = time.monotonic()
        if self.first is None:
            self.first = now
            grace = self.worker.grace
            log.warning("%s: running jobs have %g s to finish; a second one stops immediately", number.name, grace)
            self.worker.stop()
        elif now - self.first >= ECHO:
            log.warning("%s again: stopping immediately; held jobs are lost when their leases expire", number.name)
            exit_now(128 + number)


def exit_now(code: int) -> None:
    """End the process without waiting for threads."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def format_live_line(worker: Worker) -> str:
    """Return the line below the log on a terminal: what runs, what waits, and how many have ended how."""
    running = sum(queue.running for queue in worker.queues.values())
    counts = worker.reporter.counts
    parts = [f"{running} running", f"{max(0, len(worker.executions) - running)} waiting"]
    parts += [f"{number} {word}" for word, number in counts.items() if number or word == "success"]
    state = "database away" if worker.client.database_away else "stopping" if worker.stopping else worker.name
    return f"{state}: {' · '.join(parts)}"
