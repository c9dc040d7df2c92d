"""Render a page once for all people who look at it.

Open pages are shown anew at common instants, `CHANGE_SECONDS` apart, if something has happened. Those who look at the
same page with the same key get one answer: it is begun after that instant, so nothing is missing from it that had
happened before. Whoever loads a page gets an answer of their own.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable

from interlock.server.auth import read_loop_time

CHANGE_SECONDS = 1.0  # between two answers to a page that is open


class SharedAnswers:
    """The answers that are begun at the same instant."""

    def __init__(self) -> None:
        self.instant = 0
        self.answers: dict[Hashable, asyncio.Future[str]] = {}

    async def wait_for_instant(self) -> int:
        """Waits for the next common instant, and returns its number."""
        number = int(read_loop_time() / CHANGE_SECONDS) + 1
        await asyncio.sleep(number * CHANGE_SECONDS - read_loop_time())
        return number

    async def share(self, instant: int, key: Hashable, make: Callable[[], Awaitable[str]]) -> str:
        """Returns the answer of an instant; the first who asks has it made."""
        if instant < self.instant:
            return await make()
        if instant > self.instant:
            self.instant = instant
            self.answers.clear()
        if key not in self.answers:
            self.answers[key] = asyncio.ensure_future(make())
        return await asyncio.shield(self.answers[key])  # whoever leaves does not take it from the others
