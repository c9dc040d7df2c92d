"""Answers that come from other threads: a loop is woken once for all that arrive together."""

import asyncio
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from interlock.core.committer import afterwards

A = TypeVar("A")


class Mail:
    """The answers on their way to one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop, self.called = loop, False
        self.arrived: deque[tuple[asyncio.Future[Any], Future[Any]]] = deque()

    async def answer(self, future: "Future[A]") -> A:
        """What a future comes to. Whoever stops waiting takes its command back, if nobody has begun with it."""
        if future.done() and not future.cancelled():
            return future.result()
        waiter: asyncio.Future[A] = self.loop.create_future()
        future.add_done_callback(lambda done: self.arrive(waiter, done))
        try:
            return await waiter
        except asyncio.CancelledError:
            future.cancel()
            raise

    def arrive(self, waiter: "asyncio.Future[Any]", done: "Future[Any]") -> None:
        """From any thread. What arrives before the loop looks is delivered with the first."""
        self.arrived.append((waiter, done))
        if not self.called:
            self.called = True
            afterwards(self.wake)

    def wake(self) -> None:
        with suppress(RuntimeError):  # a loop that has ended waits for nothing
            self.loop.call_soon_threadsafe(self.deliver)

    def deliver(self) -> None:
        self.called = False  # first: what arrives from here on calls again
        while self.arrived:
            waiter, done = self.arrived.popleft()
            if waiter.done():
                continue
            if done.cancelled():
                waiter.cancel()
            elif error := done.exception():
                waiter.set_exception(error)
            else:
                waiter.set_result(done.result())
