"""Methods in two forms: `job.cancel()` blocks, `await job.cancel.aio()` does not.

A verb is written once, as a method that returns a `Call`: the command, who sends it, and how its answer is read.

    @verb
    def cancel(self, *, hard: bool = False, reason: str = "") -> Call[Standing]:
        return Call(self.app, Cancel(tenant=self.app.tenant, unit=self.unit, hard=hard, reason=reason))

A verb that needs several requests is a generator (`@verb_of_steps`): it yields what it needs next, a view or commands,
and gets the answer. Whoever runs it chooses how to wait: the SDK with and without `.aio`, and the server.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from functools import partial, update_wrapper
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, Protocol, Self, TypeVar, overload

from interlock.core.pending import call_after_answers
from interlock.kernel.commands import Command

P = ParamSpec("P")
A = TypeVar("A")
S = TypeVar("S")
T = TypeVar("T")


class Sender(Protocol):
    """Sends commands to an engine: to one beside it, or to one across the network."""

    def send(self, command: Command[A]) -> A: ...
    async def asend(self, command: Command[A]) -> A: ...


class AsyncBridge:
    """Brings the results of futures that other threads complete to one event loop.

    The loop is woken once for all that complete together.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop, self.woken = loop, False
        self.completed: deque[tuple[asyncio.Future[Any], Future[Any]]] = deque()

    async def wait_for(self, future: "Future[A]") -> A:
        """Returns the result of a future, or raises its exception.

        A caller that is cancelled takes its command back, if nobody has begun with it.
        """
        if future.done() and not future.cancelled():
            return future.result()
        waiter: asyncio.Future[A] = self.loop.create_future()
        future.add_done_callback(partial(self.add, waiter))
        try:
            return await waiter
        except asyncio.CancelledError:
            future.cancel()
            raise

    def add(self, waiter: "asyncio.Future[Any]", done: "Future[Any]") -> None:
        """From any thread. What completes before the loop runs is delivered together."""
        self.completed.append((waiter, done))
        if not self.woken:
            self.woken = True
            call_after_answers(self.wake)

    def wake(self) -> None:
        with suppress(RuntimeError):  # a loop that has ended waits for nothing
            self.loop.call_soon_threadsafe(self.deliver)

    def deliver(self) -> None:
        self.woken = False  # first: what completes from here on wakes the loop again
        while self.completed:
            waiter, done = self.completed.popleft()
            if waiter.done():
                continue
            try:
                waiter.set_result(done.result())
            except CancelledError:
                waiter.cancel()
            except BaseException as error:
                waiter.set_exception(error)


# Verbs that send one command.


class Call(NamedTuple, Generic[T]):
    """What a verb does: it sends the command, and `read_answer` makes of the answer what the verb returns."""

    sender: Sender
    command: Command[Any]
    read_answer: Callable[[Any], T] = lambda answer: answer


class BoundVerb(Generic[P, T]):
    """A verb of one object: called it waits, and with `.aio` it can be awaited."""

    def __init__(self, make_call: Callable[P, Call[T]]) -> None:
        self.make_call = make_call

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        sender, command, read_answer = self.make_call(*args, **kwargs)
        return read_answer(sender.send(command))

    async def aio(self, *args: P.args, **kwargs: P.kwargs) -> T:
        sender, command, read_answer = self.make_call(*args, **kwargs)
        return read_answer(await sender.asend(command))


class verb(Generic[S, P, T]):  # noqa: N801 - a decorator
    """Makes a verb of a method that returns a `Call`."""

    def __init__(self, method: Callable[Concatenate[S, P], Call[T]]) -> None:
        self.method = method
        update_wrapper(self, method)  # type: ignore[arg-type]

    @overload
    def __get__(self, owner: None, kind: type) -> Self: ...
    @overload
    def __get__(self, owner: Any, kind: type) -> BoundVerb[P, T]: ...

    def __get__(self, owner: Any, kind: type) -> Self | BoundVerb[P, T]:
        return self if owner is None else BoundVerb(partial(self.method, owner))


# Verbs that need several requests.


class Read(NamedTuple):
    """A step that reads a view; its answer is what the view returns."""

    view: Callable[..., Any]
    args: tuple[Any, ...]


class SendAll(NamedTuple):
    """A step that sends commands together; its answer is a list with the answer to each, or its exception."""

    commands: Sequence[Command[Any]]


Steps = Generator[Read | SendAll, Any, T]


class StepRunner(Protocol):
    """Answers the steps of a verb: an app."""

    def read(self, view: Callable[..., T], *args: Any) -> T: ...
    def put_all(self, commands: Sequence[Command[Any]]) -> "list[Future[Any]]": ...


class BoundVerbOfSteps(Generic[P, T]):
    """A verb of one object whose steps an app answers."""

    def __init__(self, app: StepRunner, make_steps: Callable[P, Steps[T]]) -> None:
        self.app, self.make_steps = app, make_steps

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        steps = self.make_steps(*args, **kwargs)
        try:
            step = next(steps)
            while True:
                step = steps.send(self.answer(step))
        except StopIteration as ended:
            result: T = ended.value
            return result

    async def aio(self, *args: P.args, **kwargs: P.kwargs) -> T:
        return await run_steps(self.make_steps(*args, **kwargs), self.read, self.send_all)

    def answer(self, step: Read | SendAll) -> Any:
        if isinstance(step, Read):
            return self.app.read(step.view, *step.args)
        return [future.exception() or future.result() for future in self.app.put_all(step.commands)]

    async def read(self, view: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.to_thread(self.app.read, view, *args)

    async def send_all(self, commands: Sequence[Command[Any]]) -> list[Any]:
        futures = map(asyncio.wrap_future, self.app.put_all(commands))
        return await asyncio.gather(*futures, return_exceptions=True)


class verb_of_steps(Generic[S, P, T]):  # noqa: N801 - a decorator
    """Makes a verb of a method that generates steps; `app` of its object answers them."""

    def __init__(self, method: Callable[Concatenate[S, P], Steps[T]]) -> None:
        self.method = method
        update_wrapper(self, method)  # type: ignore[arg-type]

    @overload
    def __get__(self, owner: None, kind: type) -> Self: ...
    @overload
    def __get__(self, owner: Any, kind: type) -> BoundVerbOfSteps[P, T]: ...

    def __get__(self, owner: Any, kind: type) -> Self | BoundVerbOfSteps[P, T]:
        return self if owner is None else BoundVerbOfSteps(owner.app, partial(self.method, owner))


async def run_steps(
    steps: Steps[T],
    read: Callable[..., Awaitable[Any]],
    send_all: Callable[[Sequence[Command[Any]]], Awaitable[list[Any]]],
) -> T:
    """Returns the result of the steps, each of them answered by one of these two functions."""
    try:
        step = next(steps)
        while True:
            awaitable = read(step.view, *step.args) if isinstance(step, Read) else send_all(step.commands)
            step = steps.send(await awaitable)
    except StopIteration as ended:
        result: T = ended.value
        return result
