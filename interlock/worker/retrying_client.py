"""Send commands of a worker until each has an answer, however long the database is away.

A worker's command that is sent twice is done once and answered twice, so whatever got no answer is sent again.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from itertools import chain, repeat
from logging import INFO, WARNING
from typing import TYPE_CHECKING, Any, TypeVar

from interlock.client.blobs import has_large_value, pack_apart
from interlock.kernel.commands import Command
from interlock.kernel.errors import Contended, Denied, InterlockError, Unavailable
from interlock.worker.log_lines import log_event

if TYPE_CHECKING:
    from interlock.client.app import App

A = TypeVar("A")
PAUSES = (0.05, 0.2, 0.5, 1.0, 2.0)  # seconds between two tries while the database is away


class RetryingClient:
    """Sends the commands of one worker, and knows whether its database is away."""

    def __init__(self, app: "App") -> None:
        self.app, self.database_away = app, False
        self.failures, self.last_failure = 0, ""  # how often it was away, and what was said of the last time
        self.give_up_at: float | None = None  # the loop's time after which a database that is away is not waited for

    async def connect(self) -> None:
        """Opens the engine. A database that is not there is an error at once; one that others lock is waited for."""
        for pause in PAUSES:
            try:
                await asyncio.to_thread(getattr, self.app, "engine")
                return
            except Contended as error:
                log_event(WARNING, "database locked, waiting for it", error)
                await asyncio.sleep(pause)
        await asyncio.to_thread(getattr, self.app, "engine")

    async def send_definitions(self) -> None:
        """Sends the app's tasks, workflows and schedules, as far as this worker may define them."""
        definitions = self.app.definitions
        for definition, answer in zip(definitions, await self.send_all(definitions), strict=True):
            if isinstance(answer, Denied):
                log_event(WARNING, "definition not sent, the stored one stays", answer, name=definition.name)
            elif isinstance(answer, InterlockError):
                raise answer

    async def send(self, command: Command[A]) -> A:
        """Returns the answer. Raises what the engine refuses with."""
        (answer,) = await self.send_all([command])
        if isinstance(answer, InterlockError):
            raise answer
        return answer  # type: ignore[no-any-return]

    async def send_all(self, commands: Sequence[Command[Any]]) -> list[Any]:
        """Returns for each command its answer or its refusal.

        Raises:
            Unavailable: nothing answered until `give_up_at`.
        """
        if not commands:
            return []
        answers: list[Any] = []
        for pause in chain(PAUSES, repeat(PAUSES[-1])):
            answers += await self.try_all(commands[len(answers) :])
            if len(answers) == len(commands):
                if self.database_away:
                    log_event(INFO, "database available again")
                self.database_away = False
                return answers
            await asyncio.sleep(pause)
        raise AssertionError

    async def try_all(self, commands: Sequence[Command[Any]]) -> list[Any]:
        """Returns the answers up to the first command that got none: those after it may build on it.

        A caller that is cancelled takes back what it can.
        """
        futures: Sequence[Future[Any]] = ()
        answers: list[Any] = []
        try:
            futures = self.app.put_all(
                [await pack_apart(self.app, command) if has_large_value(command) else command for command in commands]
            )
            for future in futures:
                try:
                    answers.append(await self.app.bridge.wait_for(future))
                except InterlockError as refusal:
                    answers.append(refusal)
        except Unavailable as error:
            self.check_patience(error)
        except asyncio.CancelledError:
            for future in futures:
                future.cancel()
            raise
        for count, answer in enumerate(answers):
            if isinstance(answer, Unavailable | Contended):
                self.check_patience(answer)
                return answers[:count]
        return answers

    def check_patience(self, error: InterlockError) -> None:
        """Called when a command got no answer. Raises the error once `give_up_at` has passed."""
        if self.give_up_at is not None and asyncio.get_running_loop().time() > self.give_up_at:
            raise error
        self.log_away(error)

    def log_away(self, error: InterlockError) -> None:
        """Logs once each time that the database goes away."""
        if isinstance(error, Unavailable):
            self.failures, self.last_failure = self.failures + 1, str(error)
        if isinstance(error, Unavailable) and not self.database_away:
            log_event(WARNING, "database unavailable, waiting for it", error)
            self.database_away = True

    def send_once(self, commands: Sequence[Command[Any]]) -> list[Any]:
        """Returns for each command its answer or its refusal, after one try; for threads other than the loop's."""
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
