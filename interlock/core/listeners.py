"""Listeners: one reader polls for news and passes it to everybody who listens."""

import asyncio
from collections.abc import Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Listener(Generic[T]):
    """One who is told what is new: it holds what has come since it last looked.

    One that does not keep up is `behind`: it is told nothing more, and must read by itself.
    """

    def __init__(self, backlog_max: int) -> None:
        """`backlog_max` is how much it may have to take."""
        self.events: list[T] = []
        self.backlog_max = backlog_max
        self.ended = self.behind = False
        self.changed = asyncio.Event()

    def push(self, events: Sequence[T], ended: bool) -> None:
        """Tells it what is new, and whether that was all."""
        if len(self.events) + len(events) > self.backlog_max:
            self.events, self.behind = [], True
        elif not self.behind:
            self.events.extend(events)
        self.ended = ended
        self.changed.set()

    async def wait(self, seconds: float) -> list[T]:
        """What is new, as soon as there is something; nothing after so many seconds, once it has ended or is behind."""
        try:
            async with asyncio.timeout(seconds):
                await self.changed.wait()
        except TimeoutError:
            return []
        self.changed.clear()
        events, self.events = self.events, []
        return events
