"""A worker that does one thing at a time, here and now: the same grants, contexts and outcomes as the real one."""

import asyncio
import contextvars
import inspect
import logging
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn, TypeVar

import msgspec

from interlock.client.app import App
from interlock.client.origin import RUNNING
from interlock.client.outcomes import Snooze
from interlock.client.tasks import Task
from interlock.kernel.commands import (
    Claim,
    Command,
    Finish,
    Grant,
    Heard,
    Heartbeat,
    Outcome,
    Record,
    Register,
    Start,
)
from interlock.kernel.errors import InterlockError
from interlock.kernel.names import shown
from interlock.worker.context import JobContext
from interlock.worker.executors import with_context
from interlock.worker.tracebacks import redact_end
from interlock.worker.verdicts import failure, given_back, priced, success, unreadable

log = logging.getLogger("interlock.testing")
A = TypeVar("A")
CAPACITY = 10_000


class Vanished(BaseException):
    """The worker is gone in the middle of a handler; nothing that the handler catches can hold it."""


class Nobody:
    """What a handler of a worker that is gone speaks to."""

    def send(self, command: Command[Any]) -> NoReturn:
        raise Vanished

    async def asend(self, command: Command[Any]) -> NoReturn:
        raise Vanished


class Doomed:
    """Carries commands to the app, until a step of a certain name is recorded: that is the last that is heard."""

    def __init__(self, worker: "StillWorker", step: str) -> None:
        self.worker, self.step = worker, step

    def send(self, command: Command[A]) -> A:
        answer = self.worker.app.send(command)
        if isinstance(command, Record) and command.kind == "step" and command.name == self.step:
            self.worker.vanish()
        return answer

    async def asend(self, command: Command[A]) -> A:
        return self.send(command)


class StillContext(JobContext):
    """The context of a handler; asked whether it should stop, it beats first, so the answer is never late."""

    def __init__(self, worker: "StillWorker", grant: Grant) -> None:
        self.worker = worker
        sender = Doomed(worker, worker.last_step) if worker.last_step else worker.app
        super().__init__(sender, grant, worker.app.tenant, self.at_once)

    @property
    def cancelled(self) -> bool:
        self.worker.beat([self])
        return self.stopping.is_set()

    def at_once(self, note: Record) -> None:
        self.sender.send(note)


class StillWorker:
    """One worker of a stage, under a name of its own."""

    def __init__(self, app: App, number: int, capabilities: tuple[str, ...]) -> None:
        self.app, self.name, self.capabilities = app, f"worker-{number}", capabilities
        self.id = self.incarnation = self.claims = 0
        self.running: list[StillContext] = []  # a handler that waits for another job has that one's above it
        self.last_step = ""  # it vanishes once a step of that name is recorded

    def register(self) -> None:
        self.incarnation += 1
        self.id = self.app.send(
            Register(
                tenant=self.app.tenant, actor=self.name, name=self.name, incarnation=str(self.incarnation),
                capabilities=self.capabilities, capacity=CAPACITY,
            )
        )  # fmt: skip

    def claim(self, queues: Sequence[str], limit: int = 1) -> list[Grant]:
        """What is most urgent in these queues now, at most so many."""
        if not self.id:
            self.register()
        self.claims += 1
        word = f"{self.name}.{self.claims}"
        command = Claim(
            tenant=self.app.tenant, actor=self.name, worker=self.id, key=word, nonce=f"{word:0>16}", limit=limit,
            queues=tuple(queues),
        )  # fmt: skip
        try:
            return self.app.send(command)
        except InterlockError:  # silent for too long, it counts as gone: it begins anew, as a real one does
            self.register()
            return self.app.send(msgspec.structs.replace(command, worker=self.id))

    def begin(self, grants: Sequence[Grant]) -> list[StillContext]:
        contexts = [StillContext(self, grant) for grant in grants]
        if contexts:
            held = tuple(context.held for context in contexts)
            self.app.send(Start(tenant=self.app.tenant, actor=self.name, held=held))
        return contexts

    def run(self, grant: Grant) -> None:
        """The handler has run and its outcome is reported. Raises Vanished."""
        (context,) = self.begin([grant])
        self.running.append(context)
        try:
            end = redact_end(priced(self.outcome(context), context.spent), self.app.redact)
        finally:
            self.running.pop()
        self.report(context, end)

    def outcome(self, context: StillContext) -> Outcome | Snooze | None:
        grant = context.grant
        try:
            task = self.app.find_task(grant.task)
            kwargs = with_context(task, task.arguments.of(grant), context)
        except msgspec.MsgspecError as error:
            return unreadable(context.held, error)
        except InterlockError as error:
            return failure(context.held, error)
        before = RUNNING.set((self.app, grant))
        try:
            return success(context.held, called(task, kwargs))
        except (Exception, asyncio.CancelledError) as error:
            name = shown(grant.lifecycle, grant.unit)
            log.info("attempt %s of %s ended so:", grant.attempt, name, exc_info=error)
            return failure(context.held, error)
        finally:
            RUNNING.reset(before)  # a handler that waits for another job goes on after it

    def report(self, context: StillContext, end: Outcome | Snooze | None) -> None:
        says: dict[str, Any] = {"tenant": self.app.tenant, "actor": self.name}
        match end:
            case Outcome():
                heard = self.app.send(Finish(outcomes=(end,), **says))
            case Snooze():
                heard = self.app.send(given_back(end, context.held, **says))
            case None:
                return
        if not heard[0].accepted:
            log.warning("refused: the outcome of unit %s: %s", heard[0].unit, heard[0].why)

    def beat(self, contexts: Sequence[StillContext]) -> None:
        """The leases are renewed; a handler whose lease is lost, or who is asked to stop, can see it."""
        if not contexts:
            return
        held = tuple(context.held for context in contexts)
        answers: list[Heard] = self.app.send(Heartbeat(tenant=self.app.tenant, actor=self.name, held=held))
        for context, heard in zip(contexts, answers, strict=True):
            if heard.cancel or not heard.accepted:
                context.stopping.set()

    def vanish(self) -> NoReturn:
        """From here on nobody hears of it."""
        for context in self.running:
            context.sender = Nobody()
        raise Vanished


def called(task: Task[Any, Any], kwargs: dict[str, Any]) -> Any:
    """What the handler returns, whatever kind it is."""
    result = task.handler(**kwargs)
    return finished(result) if inspect.iscoroutine(result) else result


def finished(handler: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine comes to, on a loop of its own; a test that has one running is not disturbed."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(handler)
    here = contextvars.copy_context()
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(here.run, asyncio.run, handler).result()
