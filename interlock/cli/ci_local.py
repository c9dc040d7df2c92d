"""CI on one machine: the place of its database and worktrees, and cleaning up after a run that was killed.

All of it is in the common folder of the repository (`.git/interlock`), so that every worktree of it has the same runs.
Each process that runs jobs takes a *slot*: a file that it locks for as long as it lives, and a queue of that name. The
kernel gives a lock back when its process ends, however that ended. So a run that is open, and whose slot nobody has
locked, is nobody's: whichever `interlock ci` comes next ends it by its listed moves, and removes its worktrees.
"""

import fcntl
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import interlock
from interlock.cli.archive import read_back, write_trees
from interlock.cli.options import open_connection
from interlock.client.app import App
from interlock.kernel.commands import Archive, Cancel, Command, Plan, Revoke
from interlock.kernel.errors import InterlockError, Unknown
from interlock.kernel.ids import format_id, parse_id
from interlock.plugins.ci.checkout import Checkout, find_checkout
from interlock.plugins.ci.options import RUN
from interlock.plugins.ci.orders import PLAN_TASK, PlanOrder, Reuse
from interlock.plugins.ci.planner import CiPlan
from interlock.plugins.ci.queries import CiRunRow, list_ci_attempts, list_ci_jobs, list_ci_runs
from interlock.process.leftovers import kill_leftovers
from interlock.store.queries.views import Filter, listing
from interlock.worker.ci_planning import find_reused
from interlock.worker.ci_worktrees import WORKSPACE, remove_worktree

RUNS_KEPT, ARCHIVED_AT_ONCE = 50, 10
SLOTS = 64  # processes that run jobs of one repository at a time
DIED = "the process that ran it has ended"
ENDER = "interlock ci"
OPEN_MAX = 1_000  # jobs that plan runs and have not ended
JOB_LIFECYCLE = "job"  # of the jobs that plan runs
STATE_FOLDER, DATABASE = "interlock", "ci.db"  # in the common folder of a repository


@dataclass(frozen=True)
class LocalCi:
    """The runs of a repository on this machine."""

    checkout: Checkout
    folder: str  # of the database and the locks
    app: App

    @property
    def worktrees(self) -> str:
        """The folder in which worktrees of jobs are made, which belongs to this user alone."""
        user = os.getuid()
        base = os.path.join(tempfile.gettempdir(), f"interlock-ci-{user}")
        name = hashlib.sha256(self.checkout.repository.folder.encode(errors="surrogateescape")).hexdigest()[:16]
        for path in (base, os.path.join(base, name)):
            with suppress(FileExistsError):
                os.mkdir(path, 0o711 if user == 0 else 0o700)  # a sandbox of root becomes another user
            status = os.lstat(path)
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != user or status.st_mode & 0o022:
                raise InterlockError(f"'{path}' is not a folder of this user alone; remove it, or set TMPDIR")
        return os.path.join(base, name)


def has_runs(checkout: Checkout) -> bool:
    """Return whether there is a database of the runs of a repository."""
    return os.path.exists(os.path.join(checkout.repository.folder, STATE_FOLDER, DATABASE))


def clean_up(checkout: Checkout) -> None:
    """End the runs of a repository that nobody runs any more, as every command does that opens them."""
    if has_runs(checkout):
        with suppress(InterlockError), open_local(checkout.root):
            pass


@contextmanager
def open_local(folder: str | Path) -> Iterator[LocalCi]:
    """Open the runs of the repository to which a folder belongs, and ends those that nobody runs any more.

    Raises:
        InterlockError: there is no repository, or nothing can be written to it.
    """
    checkout = find_checkout(folder)
    place = os.path.join(checkout.repository.folder, STATE_FOLDER)
    try:
        os.makedirs(os.path.join(place, "slots"), mode=0o700, exist_ok=True)
    except OSError as error:
        raise InterlockError(f"'{place}' cannot be made: {error.strerror}") from None
    with interlock.open(f"sqlite:///{place}/{DATABASE}") as app:
        local = LocalCi(checkout, place, app)
        end_dead_runs(local)
        archive_old_runs(local)
        yield local


@contextmanager
def take_slot(local: LocalCi) -> Iterator[str]:
    """Lock a slot while this lasts, and return the name of its queue.

    Raises:
        InterlockError: all are taken.
    """
    for number in range(1, SLOTS + 1):
        queue = f"ci-{number}"
        if (lock := try_lock(local, queue)) is not None:
            try:
                end_dead_runs_of(local, queue)  # whoever had it may have died since this command began
                yield queue
            finally:
                os.close(lock)
            return
    raise InterlockError(f"{SLOTS} processes run jobs of this repository already, and there may be no more")


def try_lock(local: LocalCi, queue: str) -> int | None:
    """Lock a slot. Returns its open file, which keeps the lock; None if another process has it."""
    lock = os.open(os.path.join(local.folder, "slots", f"{queue}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock


# What the dead left.


def end_dead_runs(local: LocalCi) -> None:
    """End the runs whose process is gone, and remove their worktrees."""
    for queue in {run.queue for run in local.app.read(list_ci_runs, open_only=True)}:
        lock = try_lock(local, queue)
        if lock is not None:
            try:
                end_dead_runs_of(local, queue)
            finally:
                os.close(lock)
    remove_left_worktrees(local)


def end_dead_runs_of(local: LocalCi, queue: str) -> None:
    """End the open runs of a slot that is locked here: nobody works for them any more."""
    for run in local.app.read(list_ci_runs, open_only=True):
        if run.queue == queue:
            kill_left_processes(local, queue)
            end_run(local, run, DIED)
    end_plan_jobs(local, queue, DIED)


def kill_left_processes(local: LocalCi, queue: str) -> None:
    """Kill what is left of the steps of a slot that is locked here: with a supervisor that was killed, nobody does."""
    kill_leftovers(WORKSPACE, os.path.join(local.worktrees, f"{queue}-"))


def end_run(local: LocalCi, run: CiRunRow, reason: str) -> None:
    """End a run that nobody works for: a failed plan, or a cancel and a revoked lease for each attempt that is held."""
    if local.app.lifecycles[RUN].allows(run.state, "plan"):
        send(local, Plan(unit=run.unit, failed=reason, actor=ENDER))
        return
    send(local, Cancel(unit=run.unit, reason=reason, actor=ENDER))
    revoke_attempts(local, run.unit, reason)


def end_plan_jobs(local: LocalCi, queue: str, reason: str) -> None:
    """End the jobs of a slot that plan runs, and have not ended."""
    open_states = tuple(sorted(local.app.lifecycles[JOB_LIFECYCLE].unsettled))
    for job in local.app.read(listing, Filter(task=PLAN_TASK, queue=queue, states=open_states), OPEN_MAX):
        send(local, Cancel(unit=job.unit.id, hard=True, reason=reason, actor=ENDER))


def revoke_attempts(local: LocalCi, run: int, reason: str) -> None:
    """Take the leases of all attempts of a run that somebody holds; those that are to stop have stopped then."""
    for job in local.app.read(list_ci_jobs, run):
        for attempt in local.app.read(list_ci_attempts, job.unit):
            if attempt.held:
                send(local, Revoke(unit=attempt.unit, reason=reason, actor=ENDER))


def send(local: LocalCi, command: Command[Any]) -> None:
    """Send a command; one that comes too late is not needed any more."""
    with suppress(InterlockError):
        local.app.send(command)


def remove_left_worktrees(local: LocalCi) -> None:
    """Remove worktrees of slots that nobody has."""
    left: dict[str, list[str]] = {}
    for name in os.listdir(local.worktrees):
        left.setdefault(name.rpartition("-")[0], []).append(name)
    for queue, names in left.items():
        lock = try_lock(local, queue) if queue else None
        if lock is not None:
            try:
                kill_left_processes(local, queue)
                local.checkout.repository.remove_half_made(local.worktrees)
                for name in names:
                    remove_worktree(local.checkout.repository, os.path.join(local.worktrees, name))
            finally:
                os.close(lock)


# Runs that are old.


def archive_old_runs(local: LocalCi) -> None:
    """Move all but the newest runs to a file beside the database, several at a time."""
    runs = [run for run in local.app.read(list_ci_runs)[RUNS_KEPT:] if run.outcome is not None]
    if len(runs) < ARCHIVED_AT_ONCE:
        return
    newest = max(run.unit for run in runs)
    planned = local.app.read(listing, Filter(task=PLAN_TASK), OPEN_MAX)
    roots = [run.unit for run in runs]
    roots += [job.unit.id for job in planned if job.unit.outcome is not None and job.unit.id < newest]
    folder = Path(local.folder, "old")
    folder.mkdir(mode=0o700, exist_ok=True)
    out = folder / f"{format_id(RUN, newest)}.jsonl"
    if out.exists():  # another command is at it, or was ended in the middle: what it left is moved with later ones
        return
    with open_connection(local.app.url) as connection:
        write_trees(connection, local.app, sorted(roots), out)
    for kept in read_back(out):
        send(local, Archive(unit=kept.unit, file=str(out), digest=kept.digest, actor=ENDER, reason="it is old"))
    names = "".join(f"delete refs/interlock/ci/{format_id(RUN, run.unit)}\n" for run in runs)
    with suppress(InterlockError):
        local.checkout.repository.git("update-ref", "--stdin", stdin=names.encode(), finishes=True)


# Which run, and which job.


def find_reused_jobs(checkout: Checkout, plan: CiPlan) -> Mapping[str, Reuse]:
    """Return the results of earlier runs that a run of a plan would take over, by job."""
    if has_runs(checkout):
        with suppress(InterlockError), open_local(checkout.root) as local:
            return find_reused(local.app, PlanOrder(run=0, commit=""), plan)
    return {}


def find_run(local: LocalCi, text: str | None) -> CiRunRow:
    """Return the run that an id names; the newest one by default.

    Raises:
        Unknown: there is none.
    """
    runs = local.app.read(list_ci_runs)
    if not runs:
        raise Unknown("there is no run in this repository yet; `interlock ci run` makes one")
    if text is None:
        return runs[0]
    number = parse_id(text)
    named = next((run for run in runs if run.unit == number), None)
    if named is None:
        raise Unknown(f"there is no run '{text}' in this repository; the newest is {format_id(RUN, runs[0].unit)}")
    return named
