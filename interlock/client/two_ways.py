"""One definition, two spellings: `submit(…)` waits, `await submit.aio(…)` lets others run meanwhile."""

from collections.abc import Callable
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

from interlock.kernel.commands import Command

P = ParamSpec("P")
A = TypeVar("A")
T = TypeVar("T")


class Sender(Protocol):
    """Whoever carries commands to an engine: one beside it, or one across the network."""

    def send(self, command: Command[A]) -> A: ...
    async def asend(self, command: Command[A]) -> A: ...


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
