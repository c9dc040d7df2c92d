"""`interlock ci run`: run the jobs that the working tree needs, on this machine."""

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import msgspec

from interlock.cli.ci_gates import Gates
from interlock.cli.ci_local import LocalCi, end_plan_jobs, end_run, revoke_attempts, send, take_slot
from interlock.cli.ci_screen import Screen
from interlock.cli.ci_words import describe_run
from interlock.cli.options import get_actor
from interlock.cli.output import print_json, print_line
from interlock.kernel.commands import Cancel, Plan, Submit
from interlock.kernel.errors import InterlockError
from interlock.kernel.ids import format_id
from interlock.plugins.ci.checkout import find_ignored, find_notices, read_config_files, take_snapshot
from interlock.plugins.ci.config import CiTerms
from interlock.plugins.ci.options import RUN
from interlock.plugins.ci.orders import PlanOrder, make_plan_job, make_run
from interlock.plugins.ci.queries import CiJobRow, CiRunRow, list_ci_jobs, list_ci_runs, read_ci_run
from interlock.plugins.ci.requests import find_config
from interlock.worker.ci import CiRunner
from interlock.worker.ci_worktrees import CiSettings
from interlock.worker.loop import Worker

LOOK_EVERY = 0.1  # seconds
STOP_WITHIN = 1.0  # seconds for handlers when the run has ended
AWAY_SECONDS = 10.0  # for how long the database may be away, which is a file beside the repository
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
RUN_ENDED = "its run has ended"
INTERRUPTED, FORCED = "interrupted", "interrupted twice"
# What of the caller's environment a step gets, beside what its job says.
HANDED_ON = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "SSL_CERT_FILE",
    "SSL_CERT_DIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LocalOptions:
    """What somebody says of a run."""

    order: PlanOrder
    at_once: int
    sandbox: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    terms: CiTerms = field(default_factory=CiTerms)
    retry_of: int | None = None
    json: bool = False


def snapshot_tree(
    local: LocalCi, *, branch: str | None, event: str, tracked: bool, quiet: bool
) -> tuple[str, CiTerms, dict[str, str]]:
    """Return the working tree as a commit, what its config says of runs, and the labels of a run of it.

    What is wrong with the config is told by the plan, so nothing of it is refused here.
    """
    snapshot = take_snapshot(local.checkout, tracked=tracked)
    terms = CiTerms()
    with suppress(InterlockError):
        files, ignored = read_config_files(local.checkout, snapshot), find_ignored(local.checkout, snapshot)
        terms = find_config(files, snapshot.tree, ignored)[0].run
    for notice in [] if quiet else find_notices(local.checkout, snapshot):
        print_line(f"note: {notice}")
    return snapshot.commit, terms, {"commit": snapshot.commit, "branch": branch or "", "event": event}


def run_locally(local: LocalCi, options: LocalOptions) -> int:
    """Run the jobs of a plan, and return the exit code: 0 green, 1 red, 2 plan failed, 130 cancelled.

    Raises:
        InterlockError: the commit is not there, or cannot be kept.
    """
    signals = EarlySignals()
    with take_slot(local) as queue, log_nothing(), take_signals(signals.note):
        local.checkout.repository.resolve(options.order.commit)
        run = submit_run(local, options, queue)
        runner = CiRunner(
            CiSettings(
                checkout=local.checkout, folder=local.worktrees, queue=queue, secrets=os.environ,
                environment={name: os.environ[name] for name in HANDED_ON if name in os.environ},
                sandbox=options.sandbox,
            )
        )  # fmt: skip
        runner.offer(local.app)
        worker = Worker(local.app, {queue: options.at_once}, name=f"{queue}-{os.getpid()}", grace=STOP_WITHIN)
        screen = Screen(local, run, runner, quiet=options.json)
        playing = LocalRun(local, run, worker, runner, screen)
        signals.hand_on(playing.note_signal)
        asyncio.run(playing.drive())
        end_plan_jobs(local, queue, FORCED if playing.forced else RUN_ENDED)  # one that took too long is tried again
        code = screen.finish(interrupted=playing.interrupts > 0)
        if options.json:
            print_json(describe_run(local, local.app.read(read_ci_run, run)))
        return code


class EarlySignals:
    """Signals that come while a run is made: it is cancelled once it is there, so that nobody finds half of it."""

    def __init__(self) -> None:
        self.number = 0
        self.call: Callable[[], None] | None = None

    def note(self) -> None:
        """Take note of a signal.

        Raises:
            KeyboardInterrupt: it is the second one, and nobody takes them yet: something hangs.
        """
        self.number += 1
        if self.call is not None:
            self.call()
        elif self.number > 1:
            raise KeyboardInterrupt

    def hand_on(self, call: Callable[[], None]) -> None:
        """Have a function called for each signal that comes from now on, and for those that came before."""
        self.call = call
        for _ in range(self.number):
            call()


@contextmanager
def log_nothing() -> Iterator[None]:
    """Keep the worker from writing its log to the screen, which shows the same."""
    log = logging.getLogger("interlock")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)


@contextmanager
def take_signals(call: Callable[[], None]) -> Iterator[None]:
    """Have a function called for each signal that wants a command to stop, for as long as this lasts.

    A signal that whoever started the command has it ignore stays ignored: `nohup` does that, and a shell without job
    control does it for what it puts into the background.
    """
    taken = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, lambda *_: call()) for number in taken}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def submit_run(local: LocalCi, options: LocalOptions, queue: str) -> int:
    """Make a run, a reference that keeps its commit, and the job that plans it. Returns the run."""
    actor = get_actor(None)
    work = make_run(queue, options.terms, options.labels, options.retry_of)
    (made,) = local.app.send(Submit(work=(work,), actor=actor))
    try:
        local.checkout.repository.keep(f"ci/{format_id(RUN, made.unit)}", options.order.commit)
    except InterlockError as error:
        end_run(local, local.app.read(read_ci_run, made.unit), str(error))
        raise
    order = msgspec.structs.replace(options.order, run=made.unit)
    local.app.send(Submit(work=(make_plan_job(queue, order, options.terms),), actor=actor))
    cancel_superseded(local, options, made.unit)
    return made.unit


def cancel_superseded(local: LocalCi, options: LocalOptions, run: int) -> None:
    """Cancel the older runs of the same branch and event that the config says this one supersedes."""
    order, which = options.order, options.terms.supersede
    if order.again is not None or order.branch is None or which not in ("always", order.event):
        return
    for older in local.app.read(list_ci_runs, open_only=True):
        if older.unit < run and (older.labels.get("branch"), older.labels.get("event")) == (order.branch, order.event):
            send(local, Cancel(unit=older.unit, reason=f"SUPERSEDED by {format_id(RUN, run)}", actor=get_actor(None)))


class LocalRun:
    """A run while its jobs run in this process."""

    def __init__(self, local: LocalCi, run: int, worker: Worker, runner: CiRunner, screen: Screen) -> None:
        self.local, self.run, self.worker, self.runner, self.screen = local, run, worker, runner, screen
        self.gates = Gates(local, screen)
        self.loop: asyncio.AbstractEventLoop | None = None
        self.signals = self.interrupts = 0  # that came, and that were obeyed
        self.away_since: float | None = None  # since when the database cannot be written
        self.failures, self.failed_at = 0, float("-inf")  # how often it could not be, and when that was last
        self.lost_database = False  # whether nobody waits for it any more

    @property
    def forced(self) -> bool:
        """Whether nobody waits for anything any more."""
        return self.interrupts > 1

    async def drive(self) -> None:
        """Work until the run and all its jobs have ended. The first signal cancels it, the second forces that.

        Raises:
            InterlockError: the database cannot be written, so nothing can be recorded any more.
        """
        self.loop = asyncio.get_running_loop()
        working = asyncio.create_task(self.worker.run())
        try:
            with self.screen:
                while not working.done():
                    self.obey_signals()
                    self.refuse_lost_database()
                    row, jobs = await asyncio.to_thread(self.look)
                    self.screen.update(jobs)
                    if row.outcome is not None and all(job.outcome is not None for job in jobs):
                        break
                    await asyncio.to_thread(self.gates.look, jobs)
                    await asyncio.sleep(LOOK_EVERY)
        finally:
            self.gates.close()
            self.worker.stop()
            if self.lost_database:
                self.worker.client.give_up_at = self.worker.now
                await asyncio.gather(working, return_exceptions=True)
            else:
                await working

    def refuse_lost_database(self) -> None:
        """Ends the run if its database cannot be written: a worker waits for that, and a person shall not.

        On a full disk some writes find room and others do not, so a success in between does not count.

        Raises:
            InterlockError: that was so for too long, or somebody has interrupted twice.
        """
        now, client = time.monotonic(), self.worker.client
        if client.failures != self.failures:
            self.failures, self.failed_at = client.failures, now
        if now - self.failed_at > AWAY_SECONDS:
            self.away_since = None
            return
        self.away_since = self.away_since or now
        if self.forced or now - self.away_since >= AWAY_SECONDS:
            self.lost_database = True
            self.runner.no_grace.set()
            raise InterlockError(
                f"the run has ended, because its database in '{self.local.folder}' cannot be written: "
                f"{client.last_failure}; the next `interlock ci` that can write there cleans up"
            )

    def look(self) -> tuple[CiRunRow, list[CiJobRow]]:
        app = self.local.app
        return app.read(read_ci_run, self.run), app.read(list_ci_jobs, self.run)

    def note_signal(self) -> None:
        """Count a signal. It is obeyed on the loop, at once if there is one already."""
        self.signals += 1
        if self.loop is not None:
            with suppress(RuntimeError):  # the run has ended, and nothing is left to stop
                self.loop.call_soon_threadsafe(self.obey_signals)

    def obey_signals(self) -> None:
        while self.interrupts < self.signals:
            self.interrupt()

    def interrupt(self) -> None:
        """Somebody wants it to stop: first in time, then at once."""
        self.interrupts += 1
        if self.forced:
            self.runner.no_grace.set()
        self.screen.say("stopping immediately" if self.forced else "stopping; press Ctrl-C again to stop immediately")
        task = asyncio.get_running_loop().run_in_executor(None, self.cancel)
        task.add_done_callback(lambda done: done.exception())

    def cancel(self) -> None:
        """Cancel the run. A forced cancel waits for nobody: it fails a plan that is made, and takes the leases."""
        send(self.local, Cancel(unit=self.run, actor=get_actor(None), reason=INTERRUPTED))
        if self.forced:
            send(self.local, Plan(unit=self.run, failed=FORCED, actor=get_actor(None)))
            revoke_attempts(self.local, self.run, FORCED)
