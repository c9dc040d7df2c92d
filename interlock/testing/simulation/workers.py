"""Workers of a simulation: the real worker loop, in processes that crash and start again."""

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from interlock.client.app import App
from interlock.kernel.errors import InterlockError
from interlock.testing.simulation.handlers import Hand, template
from interlock.testing.simulation.net import SimulatedRemote
from interlock.worker.heartbeats import Heartbeats
from interlock.worker.loop import Worker
from interlock.worker.reporter import wait_for_event
from interlock.worker.ticker import WorkerTicker

if TYPE_CHECKING:
    from interlock.testing.simulation.world import World


OVERTAKING = frozenset({"delay", "reorder", "duplicate", "pause"})  # by these the dead may speak after the living


class LoopHeartbeats(Heartbeats):
    """The heartbeats as they are, but on the loop."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.changed_on_loop = asyncio.Event()

    def wake(self) -> None:
        self.changed_on_loop.set()

    async def run(self) -> None:
        while True:
            self.changed_on_loop.clear()
            due_in = self.due_in()
            if due_in is None or due_in > 0:
                await wait_for_event(self.changed_on_loop, due_in)
                continue
            sent_at, beats = self.clock(), self.take_due()
            self.pass_on(self.apply(beats, sent_at, await self.client.send_all([command for command, _ in beats])))


class LoopTicker(WorkerTicker):
    """The ticker as it is, but that it reads the store on the loop."""

    world: "World"

    async def find_due_tenants(self) -> list[int]:
        return self.world.find_due_tenants()


class LoopWorker(Worker):
    """The worker as it is, but for its wake-ups and heartbeats: a simulation has no other threads."""

    def make_heartbeats(self) -> Heartbeats:
        return LoopHeartbeats(self.client, self.executions, self.clock, self.app.tenant, self.name, self.apply_answer)

    async def log_deploy_problems(self) -> None:
        """Logs nothing: a thread reads what waits."""

    def subscribe(self) -> Callable[[], None]:
        door: Any = self.app.engine
        unsubscribe: Callable[[], None] = door.hear(self.wake_up, self.heartbeats.send_soon)
        return unsubscribe


class SimulatedApp(App):
    """The app as it is, but that its tasks are stored as taking anything: some clients submit what no task takes."""

    @property
    def definitions(self) -> list[Any]:
        return [msgspec.structs.replace(task.definition, parameters=None) for task in self.tasks.values()]


class SimulatedWorkers:
    """One place for a worker. Whoever crashes is replaced by another of the same name that remembers nothing."""

    def __init__(self, world: "World", name: str, queues: Mapping[str, int]) -> None:
        self.world, self.name, self.queues = world, name, queues
        self.random = random.Random(f"{name} {world.seed}")
        self.ended, self.boots = False, 0
        self.boot()

    def boot(self) -> None:
        self.boots += 1
        self.process = Hand(self.name, self.world.sink)
        self.process.on_crash = self.fell
        app = SimulatedApp("sqlite://:memory:")
        app.lifecycles, app.tasks = self.world.lifecycles, template().tasks
        door: Any = SimulatedRemote(self.world.net, self.process)
        app.opened = door
        self.worker = self.process.context.run(self.make_worker, app)
        self.running = self.world.loop.create_task(self.worker.run(), context=self.process.context)
        self.running.add_done_callback(self.left, context=self.world.net.context)

    def make_worker(self, app: App) -> LoopWorker:
        worker = LoopWorker(app, self.queues, name=self.name, grace=1.0, token=self.token, clock=self.world.loop.time)
        worker.ticker = ticker = LoopTicker(app, worker.client, self.name)
        ticker.world = self.world
        return worker

    def token(self, size: int) -> str:
        return self.random.randbytes(size).hex()

    def fell(self) -> None:
        self.world.net.forget(self.process)
        self.world.net.later(self.random.choice((0.05, 0.5, 3.0)), self.replace)

    def replace(self) -> None:
        if not self.process.alive and not self.world.over:
            self.boot()

    def left(self, task: "asyncio.Task[None]") -> None:
        """A worker ends when it is told to, or when its process crashes, and never by itself."""
        if task is not self.running or not self.process.alive:
            if not task.cancelled():
                task.exception()
            return
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is not None and not (self.ended and isinstance(error, InterlockError)):
            self.world.add_violation(f"{self.name} broke: {error!r}")
        elif not self.ended and self.boots > 1 and self.world.faults.on & OVERTAKING:
            self.process.crash()  # a late message from its predecessor ended it; it is started again
        elif not self.ended:
            self.world.add_violation(f"{self.name} ended by itself")

    async def end(self, seconds: float) -> None:
        """It has been told to stop, and has stopped."""
        self.ended = True
        if self.process.alive:
            self.worker.stop()
            await asyncio.wait([self.running], timeout=seconds)
            if not self.running.done():
                self.world.add_violation(f"{self.name} did not stop within {seconds} s")
                self.process.crash()
