"""A worker for tests that runs one job at a time when told to, through the same pipe as the real worker."""

import asyncio
import contextvars
import inspect
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

import msgspec

from interlock.client.agents import offer_contracts
from interlock.client.app import App
from interlock.client.exceptions import Snooze
from interlock.client.tasks import Task
from interlock.kernel.commands import (
    AppendLog,
    Claim,
    Command,
    Finish,
    Heartbeat,
    LeaseGrant,
    LeaseStatus,
    Outcome,
    Record,
    Register,
    Release,
    Start,
)
from interlock.kernel.errors import InterlockError
from interlock.worker.context import JobContext
from interlock.worker.execution import Execution, log_end, may_be_refused, replace_refused_outcome, run
from interlock.worker.job_logs import JobLog
from interlock.worker.leases import LocalLease
from interlock.worker.outcome import GiveBack, make_release
from interlock.worker.reporter import LOG_SIZE

A = TypeVar("A")
CAPACITY = 10_000


class WorkerLost(BaseException):
    """The worker is lost in the middle of a handler; an `except Exception` of the handler does not catch it."""


class LostWorkerSender:
    """What a handler of a lost worker sends to: nothing arrives."""

    def send(self, command: Command[Any]) -> NoReturn:
        raise WorkerLost

    async def asend(self, command: Command[Any]) -> NoReturn:
        raise WorkerLost


class SenderUntilStep:
    """Sends to the app, until a step of a certain name is recorded: then the worker is lost."""

    def __init__(self, worker: "StageWorker", step: str) -> None:
        self.worker, self.step = worker, step

    def send(self, command: Command[A]) -> A:
        answer = self.worker.app.send(command)
        if isinstance(command, Record) and command.kind == "step" and command.name == self.step:
            self.worker.lose()
        return answer

    async def asend(self, command: Command[A]) -> A:
        return self.send(command)


class StageContext(JobContext):
    """The context of a handler; `cancelled` sends a heartbeat first, so the answer is never late."""

    def __init__(self, worker: "StageWorker", grant: LeaseGrant) -> None:
        self.worker = worker
        sender = SenderUntilStep(worker, worker.lost_after_step) if worker.lost_after_step else worker.app
        super().__init__(sender, grant, worker.app.tenant, self.send_note)
        self.app, self.on_log = worker.app, self.send_log

    @property
    def cancelled(self) -> bool:
        self.worker.send_heartbeats([self])
        return self.stopping.is_set()

    def send_note(self, note: Record) -> None:
        self.sender.send(note)

    def send_log(self, log: JobLog) -> None:
        while entry := log.take(LOG_SIZE):
            self.sender.send(AppendLog(tenant=self.tenant, entries=(entry,)))


class StageWorker:
    """One worker of a stage, under a name of its own."""

    user_errors: tuple[type[BaseException], ...] = (Exception, asyncio.CancelledError)  # a test can be interrupted

    def __init__(self, app: App, number: int, capabilities: tuple[str, ...]) -> None:
        self.app, self.name, self.capabilities = app, f"worker-{number}", capabilities
        self.id = self.incarnation = self.claims = 0
        self.tasks: tuple[str, ...] = ()  # that it has told of
        self.running: list[StageContext] = []  # a handler that waits for another job has that one's above it
        self.lost_after_step = ""  # it is lost once a step of that name is recorded

    def register(self) -> None:
        self.incarnation += 1
        self.send_tasks()

    def send_tasks(self) -> None:
        """Registers, or says under the same registration which tasks there are now."""
        self.tasks = tuple(self.app.tasks)
        self.id = self.app.send(
            Register(
                tenant=self.app.tenant, actor=self.name, name=self.name, incarnation=str(self.incarnation),
                capabilities=offer_contracts(self.app, self.capabilities), capacity=CAPACITY, tasks=self.tasks,
            )
        )  # fmt: skip

    def claim(self, queues: Sequence[str], limit: int = 1) -> list[LeaseGrant]:
        """What is most urgent in these queues now, at most so many."""
        if not self.id:
            self.register()
        elif len(self.tasks) < len(self.app.tasks):
            self.send_tasks()
        self.claims += 1
        key = f"{self.name}.{self.claims}"
        command = Claim(
            tenant=self.app.tenant, actor=self.name, worker=self.id, key=key, nonce=f"{key:0>16}", limit=limit,
            queues=tuple(queues),
        )  # fmt: skip
        try:
            return self.app.send(command)
        except InterlockError:  # silent for too long, it counts as gone: it registers again, as a real one does
            self.register()
            return self.app.send(msgspec.structs.replace(command, worker=self.id))

    def start_all(self, grants: Sequence[LeaseGrant]) -> None:
        """All of them have started, as far as the engine knows."""
        if grants:
            held = tuple(StageContext(self, grant).held for grant in grants)
            self.app.send(Start(tenant=self.app.tenant, actor=self.name, held=held))

    def run(self, grant: LeaseGrant) -> None:
        """The handler has run and its outcome is reported.

        Raises:
            WorkerLost: the worker was lost meanwhile.
        """
        context = StageContext(self, grant)
        execution = Execution(grant, context.held, LocalLease(grant, stand_still, 0.0), lambda _: context)
        self.running.append(context)
        try:
            # The pipe has a context of its own, so a handler that waits for another job goes on as itself after it.
            contextvars.copy_context().run(finish_at_once, run(execution, self))
        finally:
            self.running.pop()

    # What the pipe of an execution asks for.

    def may_start(self, execution: Execution) -> bool:
        return True

    async def call_handler(self, execution: Execution) -> Any:
        assert execution.task
        return call_here(execution.task, execution.arguments)

    def report_start(self, execution: Execution) -> None:
        command = Start(tenant=self.app.tenant, actor=self.name, held=(execution.held,))
        execution.context.sender.send(command)

    def report_end(self, execution: Execution) -> None:
        if execution.outcome is None:
            return
        (answer,) = execution.context.sender.send(self.make_end(execution, execution.outcome))
        if not answer.accepted and may_be_refused(execution):
            replace_refused_outcome(execution, answer.why)
            self.report_end(execution)
        else:
            log_end(execution, answer)

    def make_end(self, execution: Execution, outcome: Outcome | Snooze | GiveBack) -> Finish | Release:
        fields: dict[str, Any] = {"tenant": self.app.tenant, "actor": self.name}
        match outcome:
            case Outcome():
                return Finish(outcomes=(outcome,), **fields)
            case Snooze():
                return make_release(outcome, execution.held, **fields, reason=str(outcome))
            case GiveBack():
                return Release(held=(execution.held,), **fields)

    def send_heartbeats(self, contexts: Sequence[StageContext]) -> None:
        """The leases are renewed; a handler whose lease is lost, or who is asked to stop, can see it."""
        if not contexts:
            return
        held = tuple(context.held for context in contexts)
        answers: list[LeaseStatus] = self.app.send(Heartbeat(tenant=self.app.tenant, actor=self.name, held=held))
        for context, answer in zip(contexts, answers, strict=True):
            if answer.cancel or not answer.accepted:
                context.stopping.set()

    def lose(self) -> NoReturn:
        """From here on nothing that it sends arrives."""
        for context in self.running:
            context.sender = LostWorkerSender()
        raise WorkerLost


def stand_still() -> float:
    """The clock of this worker's leases: what a handler does takes no time."""
    return 0.0


def finish_at_once(pipe: Coroutine[Any, Any, None]) -> None:
    """Runs a coroutine to its end that waits for nothing: handlers are called here and now, on no loop."""
    with suppress(StopIteration):
        pipe.send(None)
        raise AssertionError("a step of the pipe waited, and nobody is there to wake it")


def call_here(task: Task[Any, Any], arguments: dict[str, Any]) -> Any:
    """What the handler returns, whatever kind it is."""
    result = task.handler(**arguments)
    return await_here(result) if inspect.iscoroutine(result) else result


def await_here(handler: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine comes to, on a loop of its own; a test that has one running is not disturbed."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(handler)
    here = contextvars.copy_context()
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(here.run, asyncio.run, handler).result()
