"""The stage for tests of users: an app on its own database, a clock that the test moves, workers that can be lost."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interlock.client.app import App
from interlock.client.durations import Length, length_us
from interlock.client.jobs import Job
from interlock.kernel.commands import Tick
from interlock.kernel.errors import InterlockError
from interlock.store.queries.snapshots import read_next_wake, read_queues
from interlock.store.queries.views import events_of
from interlock.testing.engine import still
from interlock.testing.replay import replay
from interlock.testing.worker import StageWorker, WorkerLost

if TYPE_CHECKING:
    from interlock.client.agents import AgentRun
    from interlock.plugins.agents.cassettes import Cassette

MEMORY = "sqlite://:memory:"
START = datetime(2030, 1, 1, tzinfo=UTC)
SERVER_START = datetime(2020, 1, 1, tzinfo=UTC)  # PostgreSQL takes no act that is later than its own clock
ENOUGH = 10_000  # attempts of one drain: more is a circle
INSTANTS = 1_000  # of one wait without a limit: a schedule goes on for ever
ALL = 10_000  # units that a worker takes with it when it is lost


class Stage:
    """What a test plays on. Nothing happens by itself: work is done by `drain`, and time passes by `advance`."""

    def __init__(
        self, app: App, url: str = MEMORY, *, start: datetime | None = None, capabilities: Sequence[str] = ()
    ) -> None:
        self.app, self.capabilities = app, tuple(capabilities)
        begin = start or (START if url.startswith("sqlite") else SERVER_START)
        self.now_us = round(begin.timestamp() * 1_000_000)
        self.workers = self.defined = 0
        self.engine = still(url, app.lifecycles, lambda: self.now_us)
        self.before = app.opened, app.opener, app.meanwhile
        app.opened, app.opener, app.meanwhile = self.engine, lambda: self.engine, self.wait
        self.worker = self.make_worker()

    def end(self) -> None:
        """The app is as it was before, and the stage's database is closed."""
        self.app.opened, self.app.opener, self.app.meanwhile = self.before
        self.engine.end()

    @property
    def now(self) -> datetime:
        """What the clock of the database says."""
        return datetime.fromtimestamp(self.now_us / 1_000_000, UTC)

    def transitions(self, job: Job) -> list[str]:
        """The states that a job has gone through, the first one first."""
        events = self.app.read(events_of, job.unit)
        return [event.target for event in events if event.source != event.target]

    # Work.

    def drain(self) -> int:
        """All that is available now has been run to its end; answers how many attempts that took."""
        self.define()
        for done in range(ENOUGH):
            grants = self.worker.claim(self.queues())
            if not grants:
                return done
            try:
                self.worker.run(grants[0])
            except WorkerLost:
                if self.worker.running:
                    raise  # out of the handler that waited, too: it was the same worker's
                self.worker = self.make_worker()
        raise InterlockError(f"{ENOUGH} attempts, and there is still work; does a task submit itself again?")

    def lose_worker(self, *, after_step: str | None = None) -> None:
        """The worker is lost with its leases, and another one takes its place.

        Inside a handler, it ends right there. Outside, it has just begun all that is available now; or, with
        `after_step`, it works until a step of that name is recorded, and ends there.
        """
        if self.worker.running:
            self.worker.lose()
        if after_step is None:
            self.worker.start_all(self.worker.claim(self.queues(), ALL))
            self.worker = self.make_worker()
            return
        worker = self.worker
        worker.lost_after_step = after_step
        self.drain()
        worker.lost_after_step = ""
        if self.worker is worker:
            raise InterlockError(f"no job came to a step '{after_step}', so the worker was not lost")

    def replay(self, run: "AgentRun | Cassette | Path | str") -> Any:
        """Runs the handler of an agent on what a run has recorded, or on a file that was captured of one.

        No model, no tool and no money: a step that is new or another one fails the test (`ReplayDiffers`).
        """
        return replay(self.app, run)

    def define(self) -> None:
        """The schedules and workflows of the app are known, as they are once a worker has started."""
        if len(self.app.definitions) != self.defined:
            self.defined = len([future.result() for future in self.app.put_all(self.app.definitions)])

    def make_worker(self) -> StageWorker:
        self.workers += 1
        return StageWorker(self.app, self.workers, self.capabilities)

    def queues(self) -> list[str]:
        return self.engine.see(read_queues, self.app.tenant) or ["default"]

    # Time.

    def advance(self, length: Length | None = None, **parts: float) -> None:
        """Time has passed, `advance("2h")` or `advance(hours=2)`, and everything has happened that it brings.

        What a handler does takes no time, unless it calls this itself; its lease is renewed meanwhile.
        """
        if (length is None) == (not parts):
            raise InterlockError("advance takes one length of time: advance('2h'), or advance(hours=2)")
        us = length_us("advance", timedelta(**parts) if length is None else length)
        self.define()
        end = self.now_us + us
        while self.now_us < end:
            self.now_us = self.next_instant(end)
            self.worker.send_heartbeats(self.worker.running)
            self.tick()

    def next_instant(self, end: int) -> int:
        """When something happens next by itself, at the latest at the end."""
        beats = [self.now_us + context.grant.beat_us // 2 for context in self.worker.running if context.grant.beat_us]
        wake = self.engine.see(read_next_wake, self.app.tenant)
        return min([end, *beats, *([wake] if wake is not None and wake > self.now_us else [])])

    def tick(self) -> None:
        for _ in range(ENOUGH):
            if not self.engine.send(Tick(tenant=self.app.tenant, actor="stage")):
                return

    def wait(self, job: Job, timeout: Length | None) -> None:
        """While a job is waited for, work is done and time passes, until it ends or nothing more would happen."""
        limit = None if timeout is None else self.now_us + length_us("timeout", timeout)
        for _ in range(INSTANTS):
            self.drain()
            if job.look().outcome is not None:
                return
            wake = self.engine.see(read_next_wake, self.app.tenant)
            if wake is None or (limit is not None and wake > limit):
                break
            self.advance(timedelta(microseconds=max(0, wake - self.now_us)) or timedelta(microseconds=1))
        if limit is not None and limit > self.now_us:
            self.advance(timedelta(microseconds=limit - self.now_us))


@contextmanager
def staged(
    app: App, url: str = MEMORY, *, start: datetime | None = None, capabilities: Sequence[str] = ()
) -> Iterator[Stage]:
    """The app is on a stage until the block ends."""
    stage = Stage(app, url, start=start, capabilities=capabilities)
    try:
        yield stage
    finally:
        stage.end()
