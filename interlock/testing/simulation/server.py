"""An engine as one process of a simulation: its committers take a step when the virtual loop says so."""

import random
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from interlock.core.committer import Committer
from interlock.core.pending import PendingCommand
from interlock.core.tick import TICK, Ticker
from interlock.kernel.commands import Command
from interlock.kernel.errors import Unavailable
from interlock.plugins import make_engine
from interlock.store.connection import Connection
from interlock.testing.simulation.faulty_store import Crash
from interlock.testing.simulation.virtual_loop import Process

if TYPE_CHECKING:
    from interlock.testing.simulation.world import World

A = TypeVar("A")
T = TypeVar("T")
WORKERS = ("worker 0", "worker 1", "janitor")
QUEUES = ("default", "raw")
GATHER = (0.0, 0.001, 0.02)  # seconds in which commands gather to one group


class SimulatedServer:
    """Started again after a crash, it knows nothing but what the store says."""

    def __init__(self, world: "World", name: str, committers: int) -> None:
        self.world, self.name, self.count = world, name, committers
        self.random = random.Random(f"{name} {world.seed}")
        self.boot()

    def boot(self) -> None:
        """It is up, and remembers nothing."""
        self.process = Process(self.name)
        self.process.on_crash = self.fell
        self.sessions = [self.world.disk.connection(self.world.now_us, self.plan) for _ in range(self.count)]
        self.engine = make_engine(
            self.sessions[0], self.world.lifecycles, *self.sessions[1:], registry=self.world.registry
        )
        self.watch = self.engine.watch(QUEUES)
        self.calls = {name: self.engine.watch_worker(name) for name in WORKERS}
        self.due: list[Committer] = []
        self.stepping = False
        self.planned: list[str] = []  # what went wrong in this step, place by place
        self.ticker = Ticker(self, self.name)
        if self.world.server_ticks:
            self.world.loop.call_later(TICK, self.tick, context=self.process.context)

    def tick(self) -> None:
        """Time passes for all tenants, while this server is up and is the one that lets it pass."""
        if self.process.alive and not self.world.over:
            self.ticker.tick_all()
            self.world.loop.call_later(TICK, self.tick, context=self.process.context)

    def send(self, command: Command[A]) -> A:
        """One command, carried out at once. Raises what it is answered with."""
        (future,) = self.arrive([command])
        self.step(self.engine.committer_for(command))
        if not future.done():
            raise Unavailable("there was no answer")
        answer: A = future.result()
        return answer

    def read(self, question: Callable[[Connection], T], tenant: int | None = 1, seconds: float | None = None) -> T:
        return self.engine.read(question, tenant, seconds)

    def fell(self) -> None:
        """Its memory is gone; it starts again after a while."""
        self.world.look()  # what it committed is seen before its connections are closed
        for connection in self.sessions:
            connection.rollback()
            connection.close()
        self.world.net.later(self.random.choice((0.05, 0.5, 2.0)), self.restart)

    def restart(self) -> None:
        if not self.process.alive and not self.world.over:
            self.boot()
            self.world.record.restart(self.name)

    def arrive(self, commands: Sequence[Command[Any]]) -> "list[Future[Any]]":
        """The commands wait for the next step of their committer."""
        committer = self.engine.committer_for(commands[0])
        futures = [committer.put(command) for command in commands]
        if committer not in self.due:
            self.due.append(committer)
            self.world.loop.call_later(self.random.choice(GATHER), self.step, committer, context=self.process.context)
        return futures

    def step(self, committer: Committer) -> None:
        """One group is carried out, and all laws are asked of what it did."""
        if committer not in self.due or not self.process.alive:
            return
        self.due.remove(committer)
        waiting: list[PendingCommand] = list(committer.queue)
        self.stepping, self.planned, at = True, [], self.world.now_us()
        fell = False
        try:
            count = committer.step()
        except Crash:
            fell, count = True, len(waiting) - len(committer.queue)
        self.stepping = False
        self.world.check_group(self, at, waiting[:count], fell)
        if fell:
            self.process.crash()
            return
        if self.watch.event.is_set():
            self.watch.event.clear()
            self.world.net.wake_up()
        for name, call in self.calls.items():
            if call.event.is_set():
                call.event.clear()
                self.world.net.call_up(name)
        if committer.queue:
            self.due.append(committer)
            self.world.loop.call_soon(self.step, committer, context=self.process.context)

    def plan(self, place: str) -> str:
        """What goes wrong at this place of a transaction; empty: nothing."""
        if not self.stepping:
            return ""
        what = self.draw(place)
        self.planned.append(what)
        return what

    def draw(self, place: str) -> str:
        faults = self.world.faults
        if place == "begin":
            return "locked" if faults.strikes("store", 0.01) else ""
        if place == "write":
            if faults.strikes("deadlock", 0.01):
                return "deadlock"
            return "away" if faults.strikes("store", 0.005) else ""
        if faults.strikes("crash_commit", 0.01):
            return self.random.choice(("crash before", "crash after"))
        if faults.strikes("lost_commit", 0.05):
            return self.random.choice(("lost", "applied"))
        return ""

    def close(self) -> None:
        for connection in self.sessions:
            connection.close()
