"""`interlock worker`: tasks are run until somebody says stop."""

import asyncio
import gc
import logging
import os
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from interlock.cli.app_loader import find_app, queues_of
from interlock.cli.logs import logged
from interlock.cli.server_options import key_from, server_of
from interlock.client.app import App
from interlock.kernel.errors import InterlockError
from interlock.worker.loop import GRACE, Worker

log = logging.getLogger("interlock.worker")
COLLECT = (50_000, 20, 100)  # a claim makes thousands of objects at once, and few of them live on
ECHO = 0.5  # seconds within which a second signal is the first one, passed on by make or a shell

Queues = Annotated[
    list[str] | None,
    typer.Option(
        "-q", "--queue", envvar="INTERLOCK_QUEUES", metavar="NAME:N,…",
        help="Queues, and how much of each may run at a time; by default those of the app's tasks.",
    ),
]  # fmt: skip
Database = Annotated[
    str | None,
    typer.Option("--db", metavar="URL", help="A database to work on, instead of the app's own."),
]
Capabilities = Annotated[
    list[str] | None, typer.Option("--cap", envvar="INTERLOCK_CAPABILITIES", help="What this worker can do.")
]
Name = Annotated[
    str, typer.Option(envvar="INTERLOCK_WORKER_NAME", help="Its name; by default the machine's and four letters.")
]
Grace = Annotated[
    float, typer.Option(envvar="INTERLOCK_GRACE", min=0, help="Seconds that what runs has to end in, once it stops.")
]
Server = Annotated[
    str, typer.Option(envvar="INTERLOCK_SERVER", metavar="URL", help="A server to work for, instead of the database.")
]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        envvar="INTERLOCK_KEY_FILE", help="A file with the key for it, which only you may read; else INTERLOCK_KEY."
    ),
]
LogFormat = Annotated[str, typer.Option(envvar="INTERLOCK_LOG_FORMAT", help="text or json.")]
LogLevel = Annotated[str, typer.Option(envvar="INTERLOCK_LOG_LEVEL", help="debug, info, warning or error.")]


def worker(
    place: Annotated[str, typer.Argument(metavar="MODULE:APP", envvar="INTERLOCK_APP", help="Such as mail:app.")],
    queue: Queues = None,
    db: Database = None,
    cap: Capabilities = None,
    name: Name = "",
    grace: Grace = GRACE,
    server: Server = "",
    key_file: KeyFile = None,
    log_format: LogFormat = "text",
    log_level: LogLevel = "info",
) -> None:
    """Run the tasks of an app until SIGTERM or Ctrl-C; a second one ends at once. --server needs no database."""
    if db is not None and (server or key_file):
        raise InterlockError("give --db or --server: not both")
    app = find_app(place, db)
    if server or key_file:
        app.reach(server_of(server), key_from(key_file))
    run(
        Worker(app, queues_of(queue or (), app), name=name, capabilities=words(cap), grace=grace), log_format, log_level
    )


def words(given: list[str] | None) -> tuple[str, ...]:
    return tuple(part.strip() for word in given or () for part in word.split(",") if part.strip())


def shown_url(app: App) -> str:
    """The URL without what is secret in it."""
    scheme, _, rest = app.url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"


def run(worker: Worker, log_format: str, log_level: str, beside: ExitStack | None = None) -> None:
    """The worker has run until it was told to stop, and everything that it held is settled; so is what ran beside."""
    gc.freeze()  # what was imported stays, and is not looked at again each time
    gc.set_threshold(*COLLECT)
    with logged(log_format, log_level, lambda: live_line(worker)):
        asyncio.run(until_told(worker, beside or ExitStack()))


async def until_told(worker: Worker, beside: ExitStack) -> None:
    loop = asyncio.get_running_loop()
    ears = Ears(worker)
    for one in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(one, ears.hear, one)
    try:
        await worker.run()
    finally:
        await asyncio.to_thread(beside.close)
        worker.app.close()
    if any(queue.running for queue in worker.queues.values()):
        # A handler that will not stop would keep the process: what it held is given back, and nobody waits for it.
        log.warning("handlers that did not stop end with this process")
        end_at_once(0)
    log.info("stopped: nothing is held any more")


class Ears:
    """Hears the signals of a worker: the first asks it to stop, the second does not ask."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.first: float | None = None

    def hear(self, one: signal.Signals) -> None:
        now = time.monotonic()
        if self.first is None:
            self.first = now
            log.warning("%s: what runs has %g s to end; a second one ends at once", one.name, self.worker.grace)
            self.worker.stop()
        elif now - self.first >= ECHO:
            log.warning("%s again: ending at once; what was held is lost when its leases end", one.name)
            end_at_once(128 + one)


def end_at_once(code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def live_line(worker: Worker) -> str:
    running = sum(queue.running for queue in worker.queues.values())
    counts = worker.reporter.counts
    parts = [f"{running} running", f"{max(0, len(worker.executions) - running)} waiting"]
    parts += [f"{number} {word}" for word, number in counts.items() if number or word == "success"]
    state = "database away" if worker.client.database_away else "stopping" if worker.stopping else worker.name
    return f"{state}: {' · '.join(parts)}"
