"""The network of a simulation: it delivers commands and answers late, twice or not at all."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from interlock.kernel.commands import Command, Heartbeat
from interlock.kernel.errors import Unavailable
from interlock.testing.simulation.virtual_loop import Process

if TYPE_CHECKING:
    from interlock.testing.simulation.world import World

A = TypeVar("A")
PATIENCE = 2.5  # seconds that a sender waits for an answer
QUICK = 0.002  # seconds that a message takes at most when nothing is wrong


class Op(msgspec.Struct):
    """What one client asked once, and what it was told. Without an answer nobody knows what came of it."""

    command: Command[Any]
    invoked: int
    returned: int | None = None
    answer: Any = None


class Packet:
    """Commands on their way together, and those who wait for the answers."""

    def __init__(self, commands: Sequence[Command[Any]], ops: list[Op]) -> None:
        self.commands, self.ops = tuple(commands), ops
        self.futures: list[Future[Any]] = [Future() for _ in commands]
        for future in self.futures:
            future.set_running_or_notify_cancel()


class Net:
    """Everything that is said in a simulation goes through here, and is remembered."""

    def __init__(self, world: "World") -> None:
        self.world, self.faults, self.loop = world, world.faults, world.loop
        self.random, self.context = world.faults.random, copy_context()
        self.history: list[Op] = []
        self.clock = 0  # counts what was invoked and returned
        self.subscribers: dict[Process, Callable[[], None]] = {}  # workers that want to know when there is work
        self.calls: dict[Process, Callable[[], None]] = {}  # or when somebody stops what they do

    def later(self, seconds: float, call: Callable[..., None], *args: Any) -> None:
        """Done by the network itself: no pause or crash of a process keeps it."""
        self.loop.call_later(seconds, call, *args, context=self.context)

    def put_all(self, sender: Process | None, commands: Sequence[Command[Any]]) -> "list[Future[Any]]":
        """The answers will come, or word that none has come."""
        if sender is not None and not sender.alive:
            raise Unavailable("this process is gone")
        self.clock += 1
        ops = [Op(command, self.clock) for command in commands]
        self.history += ops
        packet = Packet(commands, ops)
        self.later(self.delay(commands), self.deliver, packet)
        if self.faults.strikes("duplicate", 0.05):
            self.later(self.delay(commands) + self.random.random(), self.deliver, packet)
        self.later(PATIENCE, self.give_up, packet)
        return packet.futures

    def delay(self, commands: Sequence[Command[Any]]) -> float:
        """How long one message is on its way."""
        if self.faults.strikes("delay", 0.03):
            return self.random.choice((0.3, 1.0, 4.0))
        if isinstance(commands[0], Heartbeat) and self.faults.strikes("slow_beats", 0.3):
            return self.random.choice((0.5, 1.5, 5.0))
        if self.faults.strikes("reorder", 0.2):
            return self.random.random() * 0.2
        return QUICK

    def deliver(self, packet: Packet) -> None:
        if self.faults.strikes("loss", 0.03):
            return
        server = self.random.choice(self.world.servers)
        if server.process.alive:
            self.loop.call_soon(self.arrive, server, packet, context=server.process.context)

    def arrive(self, server: Any, packet: Packet) -> None:
        if not server.process.alive:
            return
        futures, process = server.arrive(packet.commands), server.process

        def answered(_: "Future[Any]") -> None:
            if process.alive and not self.faults.strikes("loss", 0.03):
                self.later(self.delay(packet.commands), self.reply, packet, futures)

        futures[-1].add_done_callback(answered)

    def reply(self, packet: Packet, futures: "list[Future[Any]]") -> None:
        self.clock += 1
        for future, waiting, op in zip(futures, packet.futures, packet.ops, strict=True):
            if waiting.done() or not future.done():
                continue
            error = future.exception()
            if not isinstance(error, Unavailable):
                op.returned, op.answer = self.clock, error or future.result()
            if error:
                waiting.set_exception(error)
            else:
                waiting.set_result(future.result())

    def give_up(self, packet: Packet) -> None:
        for waiting in packet.futures:
            if not waiting.done():
                waiting.set_exception(Unavailable("no answer came (simulated)"))

    def wake_up(self) -> None:
        """There is work: whoever listens is told, if the word is not lost."""
        for process, wake_up in list(self.subscribers.items()):
            self.tell(process, wake_up)

    def call_up(self, name: str) -> None:
        """Somebody has stopped what a worker does."""
        for process, call_up in list(self.calls.items()):
            if process.name == name:
                self.tell(process, call_up)

    def tell(self, process: Process, call: Callable[[], None]) -> None:
        if process.alive and not self.faults.strikes("loss", 0.1):
            self.loop.call_soon(call, context=process.context)

    def forget(self, process: Process) -> None:
        self.subscribers.pop(process, None)
        self.calls.pop(process, None)


class SimulatedRemote:
    """The door as a process sees it from far away; its workers let time pass themselves."""

    far = False

    def __init__(self, net: Net, process: Process) -> None:
        self.net, self.process = net, process

    def put_all(self, commands: Sequence[Command[Any]]) -> "list[Future[Any]]":
        return self.net.put_all(self.process, commands)

    def put(self, command: Command[A]) -> "Future[A]":
        return self.put_all([command])[0]

    def hear(self, wake_up: Callable[[], None], call_up: Callable[[], None]) -> Callable[[], None]:
        """These are called when there is something to know, until what is answered here is called."""
        self.net.subscribers[self.process], self.net.calls[self.process] = wake_up, call_up
        return lambda: self.net.forget(self.process)
