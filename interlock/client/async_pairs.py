"""One definition, two spellings: `submit(…)` waits, `await submit.aio(…)` lets others run meanwhile.

A verb that asks one command says which (`TwoWays`). One that asks several times is a generator of steps (`InSteps`): it
yields what it asks next, a question or commands, and gets the answer; whoever runs it chooses how to wait.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from concurrent.futures import Future
from typing import Any, Generic, NamedTuple, ParamSpec, Protocol, TypeVar

from interlock.kernel.commands import Command

P = ParamSpec("P")
A = TypeVar("A")
T = TypeVar("T")


class Sender(Protocol):
    """Whoever carries commands to an engine: one beside it, or one across the network."""

    def send(self, command: Command[A]) -> A: ...
    async def asend(self, command: Command[A]) -> A: ...


class Asker(Protocol):
    """Whoever answers the steps of a verb: an app."""

    def read(self, view: Callable[..., T], *args: Any) -> T: ...
    def put_all(self, commands: Sequence[Command[Any]]) -> "list[Future[Any]]": ...


Asked = tuple[Sender, Command[Any], Callable[[Any], T]]


class TwoWays(Generic[P, T]):
    """A verb that asks one command. `build` says whom to ask, what, and what to make of the answer."""

    def __init__(self, build: Callable[P, Asked[T]]) -> None:
        self.build = build

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        sender, command, read = self.build(*args, **kwargs)
        return read(sender.send(command))

    async def aio(self, *args: P.args, **kwargs: P.kwargs) -> T:
        sender, command, read = self.build(*args, **kwargs)
        return read(await sender.asend(command))


class Read(NamedTuple):
    """A step that asks a view; its answer is what the view says."""

    view: Callable[..., Any]
    args: tuple[Any, ...]


class SendAll(NamedTuple):
    """A step that sends commands together; its answer is a list of what came of each: an answer, or an exception."""

    commands: Sequence[Command[Any]]


Steps = Generator[Read | SendAll, Any, T]


class InSteps(Generic[P, T]):
    """A verb that asks several times. `build` makes its steps."""

    def __init__(self, asker: Asker, build: Callable[P, Steps[T]]) -> None:
        self.asker, self.build = asker, build

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        steps = self.build(*args, **kwargs)
        try:
            step = next(steps)
            while True:
                step = steps.send(self.answer(step))
        except StopIteration as ended:
            result: T = ended.value
            return result

    async def aio(self, *args: P.args, **kwargs: P.kwargs) -> T:
        return await run_steps(self.build(*args, **kwargs), self.read, self.send_all)

    def answer(self, step: Read | SendAll) -> Any:
        if isinstance(step, Read):
            return self.asker.read(step.view, *step.args)
        return [future.exception() or future.result() for future in self.asker.put_all(step.commands)]

    async def read(self, view: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.to_thread(self.asker.read, view, *args)

    async def send_all(self, commands: Sequence[Command[Any]]) -> list[Any]:
        futures = map(asyncio.wrap_future, self.asker.put_all(commands))
        return await asyncio.gather(*futures, return_exceptions=True)


async def run_steps(
    steps: Steps[T],
    read: Callable[..., Awaitable[Any]],
    send_all: Callable[[Sequence[Command[Any]]], Awaitable[list[Any]]],
) -> T:
    """What the steps come to, each of them asked by these two functions."""
    try:
        step = next(steps)
        while True:
            asked = read(step.view, *step.args) if isinstance(step, Read) else send_all(step.commands)
            step = steps.send(await asked)
    except StopIteration as ended:
        result: T = ended.value
        return result
