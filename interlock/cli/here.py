"""Run a worker inside a command, until the workstream that the command submitted has ended.

If the workstream has a repository, that is the folder in which the command runs. Then what the workstream names there
is looked up before anything is submitted, and a database in the checkout is hidden from git: the checkout stays clean.
"""

import asyncio
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote

import typer

from interlock.cli.output import FINDING, print_line
from interlock.client.app import App
from interlock.client.exceptions import Failed
from interlock.client.workstream_runs import WorkstreamRun
from interlock.git import GitError, Repository, run_git
from interlock.kernel.errors import InterlockError
from interlock.plugins.repositories.options import CLEAN
from interlock.store.queries.views import Filter, listing
from interlock.worker.loop import Worker
from interlock.worker.shell import ShellSettings

CLEANED_MAX = 100  # of the newest jobs that remove worktrees, among which that of the workstream is
QUEUES = {"default": 4}  # with how many tasks at a time
PAUSE = 0.2  # seconds between two looks at the tasks
SHOWN_MAX = 500  # tasks of which every change is printed
SQLITE = "sqlite:///"
EXCLUDE = "info/exclude"  # the file of a repository that hides files from git, for this clone alone
GLOB = str.maketrans({sign: f"\\{sign}" for sign in "\\*?[ !#"})


def check_folder(ref: str | None, branches: Iterable[str]) -> None:
    """Raise InterlockError unless this folder is in a repository that has a revision (None: HEAD) and branches."""
    repository = Repository(os.getcwd())
    try:
        repository.resolve(ref or "HEAD")
    except GitError as error:
        raise GitError(f"{error}; commit something first" if ref is None else str(error)) from None
    known = repository.git("for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads/").text.splitlines()
    for branch in branches:
        if branch not in known:
            raise GitError(
                f"there is no branch '{branch}' to merge onto in '{repository.folder}'; "
                f"there are {', '.join(known[:10]) or 'none'}"
            )


def hide_database(url: str) -> None:
    """Hide a SQLite file in a checkout from git, for this clone alone; what git knows or ignores stays as it is."""
    path = os.path.realpath(unquote(url.removeprefix(SQLITE)))
    top = run_git(["rev-parse", "--show-toplevel"], directory=os.getcwd(), accepted=(0, 128)).text
    if not url.startswith(SQLITE) or not top or os.path.commonpath((top, path)) != top:
        return
    name = os.path.relpath(path, top)
    if not run_git(["ls-files", "--others", "--exclude-standard", "--", name], directory=top).out:
        return
    file = Path(Repository(top).folder, EXCLUDE)
    try:
        file.parent.mkdir(exist_ok=True)
        before = file.read_bytes() if file.exists() else b""
        end = b"" if before.endswith(b"\n") or not before else b"\n"
        file.write_bytes(before + end + os.fsencode(f"/{name.translate(GLOB)}*\n"))
    except OSError as error:
        raise InterlockError(f"'{file}' cannot be written: {error.strerror}; say --db, for one elsewhere") from None


def make_worker(client: App, sandbox: str, repo: str | None = None) -> Worker:
    """Return a worker that runs commands here.

    `repo` is the name of the repository that this folder is, for the workstream.

    Raises:
        InterlockError: it could not.
    """
    if repo is not None:
        hide_database(client.url)
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
        print_line(f"when it is mended, rerun the rest: interlock workstream rerun {stream.id} --failed --here")
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
