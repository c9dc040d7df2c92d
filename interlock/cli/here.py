"""A worker that runs for the length of a command: until the workstream that it submitted has ended."""

import asyncio
import os
import sys

import typer

from interlock.cli.output import FINDING, print_line
from interlock.client.app import App
from interlock.client.exceptions import Failed
from interlock.client.workstream_runs import WorkstreamRun
from interlock.kernel.errors import InterlockError
from interlock.plugins.repositories.options import CLEAN
from interlock.store.queries.views import Filter, listing
from interlock.worker.loop import Worker
from interlock.worker.shell import ShellSettings

CLEANED_MAX = 100  # of the newest jobs that remove worktrees, among which that of the workstream is
QUEUES = {"default": 4}  # with how many tasks at a time
PAUSE = 0.2  # seconds between two looks at the tasks
SHOWN_MAX = 500  # tasks of which every change is printed


def make_worker(client: App, sandbox: str, repo: str | None = None) -> Worker:
    """Return a worker that runs commands here. Raises InterlockError if it could not.

    `repo` is the name of the repository that this folder is, for the workstream.
    """
    settings = ShellSettings(directory=os.getcwd(), environment={}, secrets={}, sandbox=sandbox)
    return Worker(client, QUEUES, shell=settings, repositories={} if repo is None else {repo: os.getcwd()})


def run_here(worker: Worker, stream: WorkstreamRun) -> None:
    """Run commands of the workstream here until it has ended. Exits with 1 if it did not succeed."""
    try:
        asyncio.run(work_until_ended(worker, stream))
        stream.wait(0)
    except KeyboardInterrupt:
        raise InterlockError(f"{stream.id} is {stream.state}: other workers go on with it") from None
    except Failed as failed:
        print_line(str(failed))
        raise typer.Exit(FINDING) from None
    print_line(f"{stream.id} is {stream.state}")


async def work_until_ended(worker: Worker, stream: WorkstreamRun) -> None:
    """Run a worker, and print what becomes of the tasks, until the workstream has ended."""
    running = asyncio.create_task(worker.run())
    printed: dict[str, str] = {}
    try:
        while not running.done():
            outcome = (await asyncio.to_thread(stream.look)).outcome
            tasks = await asyncio.to_thread(lambda: stream.tasks)
            for name, state in tasks.items() if len(tasks) <= SHOWN_MAX else ():
                if printed.get(name) != state:
                    print_line(f"{name}\t{state}")
            printed = tasks
            sys.stdout.flush()
            if outcome is not None and not await asyncio.to_thread(has_worktrees, stream):
                break
            await asyncio.sleep(PAUSE)
    finally:
        worker.stop()
        await running


def has_worktrees(stream: WorkstreamRun) -> bool:
    """Whether the job that removes the worktrees of a workstream has not ended."""
    rows = stream.app.read(listing, Filter(task=CLEAN), CLEANED_MAX)
    name = f'"{stream.id}"'
    return any(row.unit.outcome is None and name in (row.body.input or "") for row in rows)
