"""How a worker asks: until there is an answer, however long the database is away."""

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import Future
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, TypeVar

from interlock.kernel.commands import Command
from interlock.kernel.errors import Contended, Denied, InterlockError, Unavailable

if TYPE_CHECKING:
    from interlock.client.app import App

A = TypeVar("A")
log = logging.getLogger("interlock.worker")
PAUSES = (0.05, 0.2, 0.5, 1.0, 2.0)  # seconds between two tries while the database is away


class Asking:
    """What is asked twice is answered twice and done once, so whatever got no answer is asked again."""

    def __init__(self, app: "App") -> None:
        self.app, self.away = app, False
        self.patience: float | None = None  # the loop's time after which a database that is away is given up

    async def open(self) -> None:
        """There is an engine. A database that is not there is told at once; one that others lock is waited for."""
        for pause in PAUSES:
            try:
                await asyncio.to_thread(getattr, self.app, "engine")
                return
            except Contended as error:
                log.warning("the database is locked, waiting for it: %s", error)
                await asyncio.sleep(pause)
        await asyncio.to_thread(getattr, self.app, "engine")

    async def define(self) -> None:
        """The app's workflows and schedules are known, as far as this worker may tell of them."""
        for definition in self.app.definitions:
            try:
                await self.one(definition)
            except Denied as error:
                log.warning("'%s' stays as it was defined before: %s", definition.name, error)

    async def one(self, command: Command[A]) -> A:
        """The answer. Raises what the engine refuses with."""
        (answer,) = await self.all([command])
        if isinstance(answer, InterlockError):
            raise answer
        return answer  # type: ignore[no-any-return]

    async def all(self, commands: Sequence[Command[Any]]) -> list[Any]:
        """For each command its answer or its refusal. Raises Unavailable only once patience is at its end."""
        if not commands:
            return []
        answers: list[Any] = []
        for pause in chain(PAUSES, repeat(PAUSES[-1])):
            answers += await self.tried(commands[len(answers) :])
            if len(answers) == len(commands):
                if self.away:
                    log.warning("the database is back")
                self.away = False
                return answers
            await asyncio.sleep(pause)
        raise AssertionError

    async def tried(self, commands: Sequence[Command[Any]]) -> list[Any]:
        """The answers up to the first command that got none: those after it may build on it."""
        try:
            futures = self.app.put_all(commands)
        except Unavailable as error:
            self.missed(error)
            return []
        answers: list[Any] = []
        for answer in await self.heard(futures):
            if isinstance(answer, Unavailable | Contended):
                self.missed(answer)
                return answers
            answers.append(answer)
        return answers

    async def heard(self, futures: "Sequence[Future[Any]]") -> list[Any]:
        """The answer or the refusal of each, once all are there. Whoever stops waiting takes back what can be."""
        mail, heard = self.app.mail, list[Any]()
        try:
            for future in futures:
                try:
                    heard.append(await mail.answer(future))
                except InterlockError as refusal:
                    heard.append(refusal)
        except asyncio.CancelledError:
            for future in futures:
                future.cancel()
            raise
        return heard

    def missed(self, error: InterlockError) -> None:
        """Told once each time the database goes away. Raises it when patience is at its end."""
        if self.patience is not None and asyncio.get_running_loop().time() > self.patience:
            raise error
        self.note_away(error)

    def note_away(self, error: InterlockError) -> None:
        """Told once each time the database goes away."""
        if isinstance(error, Unavailable) and not self.away:
            log.warning("the database is away, waiting for it: %s", error)
            self.away = True

    def ask_here(self, commands: Sequence[Command[Any]]) -> list[Any]:
        """From a thread that is not the loop's: for each command its answer or its refusal, after one try."""
        try:
            futures = self.app.put_all(commands) if commands else []
        except Unavailable as error:
            return [error] * len(commands)
        answers: list[Any] = []
        for future in futures:
            try:
                answers.append(future.result())
            except InterlockError as refusal:
                answers.append(refusal)
        return answers


async def wait_for(event: asyncio.Event, seconds: float | None) -> bool:
    """Whether something happened within so many seconds."""
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False
