"""Render a page once for all people who look at it.

Open pages are told of changes at common instants, `CHANGE_SECONDS` apart. Whoever then asks for a page says which
instant it was told of, and those who look at the same page with the same key share one answer: it was begun after that
instant, so nothing is missing from it that any of them was told of. Whoever asks without an instant, as after an action
of their own, gets an answer of their own.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Hashable

from interlock.server.auth import loop_time

CHANGE_SECONDS = 1.0  # between two words to a page that something has happened
CHANGE_HEADER = "interlock-change"
KEPT = 5  # instants: somebody who was told longer ago gets an answer of their own


class SharedAnswers:
    """The answers to those who were told of a change at the same instant."""

    def __init__(self) -> None:
        self.server = secrets.token_hex(4)  # another server's instants are not ours
        self.instant = 0
        self.answers: dict[Hashable, asyncio.Future[str]] = {}

    async def wait_for_instant(self) -> str:
        """Waits for the next common instant, and returns what stands for it."""
        await asyncio.sleep(CHANGE_SECONDS - loop_time() % CHANGE_SECONDS)
        return f"{self.server}.{count_instants()}"

    async def share(self, change: str, key: Hashable, make: Callable[[], Awaitable[str]]) -> str:
        """Returns the answer for those who were told of this instant; the first of them has it made."""
        server, _, number = change.partition(".")
        now = count_instants()
        if server != self.server or not number.isdecimal() or not now - KEPT <= int(number) <= now:
            return await make()
        if int(number) > self.instant:
            self.instant = int(number)
            self.answers.clear()
        if key not in self.answers:
            self.answers[key] = asyncio.ensure_future(make())
        return await asyncio.shield(self.answers[key])  # whoever leaves does not take it from the others


def count_instants() -> int:
    """Returns the number of the last common instant."""
    return int(loop_time() / CHANGE_SECONDS)
