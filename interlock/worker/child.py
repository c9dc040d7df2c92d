"""The process that runs handlers: one job after another, until its worker ends."""

import asyncio
import contextvars
import ctypes
import fcntl
import itertools
import logging
import os
import signal
import socket
import sys
from concurrent.futures import Future
from importlib import import_module
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, TypeVar

import msgspec

from interlock.client.app import App
from interlock.client.exceptions import Result
from interlock.client.tasks import RUNNING, Task
from interlock.kernel.commands import AddArtifact, AddTasks, Command, ReadOutput, ReadSteps, Record
from interlock.kernel.errors import InterlockError, PermanentError, ValidationError
from interlock.worker.captured_output import CapturedOutput
from interlock.worker.context import JobContext
from interlock.worker.job_logs import JobLog, split_entry
from interlock.worker.messages import (
    ArtifactMessage,
    Exit,
    LogBytes,
    LogMessage,
    NoteAnswer,
    NoteMessage,
    OutputRequest,
    ProcessMessage,
    Returned,
    RunJob,
    StepsRequest,
    Stop,
    TasksMessage,
    ToChild,
    decode_error,
    encode_error,
    encode_line,
)
from interlock.worker.outcome import encode_result
from interlock.worker.reporter import LOG_SIZE
from interlock.worker.validation import refuse_unvalidated

A = TypeVar("A")
BUFFER = 1 << 18  # bytes
PR_SET_PDEATHSIG = 1  # linux/prctl.h


class WorkerConnection:
    """The connection to the worker: its messages are received in a thread of their own."""

    def __init__(self, end: socket.socket) -> None:
        self.end, self.sending = end, Lock()
        self.jobs: SimpleQueue[tuple[RunJob, JobContext] | None] = SimpleQueue()
        self.context: JobContext | None = None
        self.numbers = itertools.count(1)
        self.pending: dict[int, Future[Any]] = {}

    def receive_all(self) -> None:
        """Receives messages until the worker dismisses this process. If it is gone instead, so is this group."""
        dismissed = False
        try:
            with self.end.makefile("rb", buffering=BUFFER) as lines:
                dismissed = any(self.receive(msgspec.json.decode(line, type=ToChild)) for line in lines)
        except msgspec.ValidationError as error:
            print(
                f"a message of the worker cannot be read: {error}; was Interlock upgraded meanwhile?", file=sys.stderr
            )
        finally:
            if not dismissed:
                end_group()

    def receive(self, message: ToChild) -> bool:
        """True if the worker dismisses this process."""
        match message:
            case RunJob():
                self.context = JobContext(self, message.grant, message.tenant, self.add_note)
                self.context.on_log, self.context.worktree = self.add_log, message.worktree
                self.jobs.put((message, self.context))
            case Stop():
                if self.context:
                    self.context.stopping.set()
            case NoteAnswer():
                future = self.pending.pop(message.number)
                if message.raised:
                    future.set_exception(decode_error(message.raised))
                else:
                    answers = (message.output, message.page, message.evidence, message.made)
                    future.set_result(next(filter(None, answers), message.statuses))
            case Exit():
                self.jobs.put(None)
                return True
        return False

    def send_line(self, line: bytes) -> None:
        with self.sending:
            self.end.sendall(line)

    # What the context of a job calls.

    def add_note(self, record: Record) -> None:
        self.send_line(encode_line(NoteMessage(record=record)))

    def send(self, command: Command[A]) -> A:
        answer: A = self.send_note(command).result()
        return answer

    async def asend(self, command: Command[A]) -> A:
        answer: A = await asyncio.wrap_future(self.send_note(command))
        return answer

    def send_note(self, command: Command[Any]) -> "Future[Any]":
        """The future of the worker's answer."""
        if not isinstance(command, Record | AddArtifact | ReadOutput | ReadSteps | AddTasks):
            raise InterlockError("the process of a handler speaks for its job alone; ask the app for anything else")
        number = next(self.numbers)
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()  # whoever stops waiting leaves it to the receiver
        self.pending[number] = future
        self.send_line(encode_line(make_message(command, number)))
        return future

    def add_log(self, log: JobLog) -> None:
        while entry := log.take(LOG_SIZE):
            unit, fence = entry.held.unit, entry.held.fence
            for data, step in split_entry(entry):
                self.send_line(encode_line(LogBytes(unit=unit, fence=fence, data=data, step=step)))


def make_message(command: Record | AddArtifact | ReadOutput | ReadSteps | AddTasks, number: int) -> ProcessMessage:
    """What the worker is sent for a command of a handler, without the lease, which it has itself."""
    if isinstance(command, Record):
        return NoteMessage(record=command, number=number)
    if isinstance(command, AddTasks):
        lease = command.lease
        return TasksMessage(unit=lease.unit, fence=lease.fence, work=command.work, number=number)
    if isinstance(command, ReadSteps):
        held = command.held
        return StepsRequest(
            unit=held.unit, fence=held.fence, name=command.name, effect=command.effect, number=number
        )  # fmt: skip
    if isinstance(command, ReadOutput):
        held = command.held
        return OutputRequest(unit=held.unit, fence=held.fence, name=command.name, number=number)
    return ArtifactMessage(
        unit=command.held.unit, fence=command.held.fence, name=command.name, digest=command.digest,
        media=command.media, number=number,
    )  # fmt: skip


class LogForwarder(logging.Handler):
    """What a job logs is logged by its worker."""

    def __init__(self, connection: WorkerConnection) -> None:
        super().__init__()
        self.connection = connection

    def emit(self, record: logging.LogRecord) -> None:
        unit, fence = getattr(record, "unit", 0), getattr(record, "fence", 0)
        line = LogMessage(unit=unit, fence=fence, level=record.levelno, text=self.format(record))
        self.connection.send_line(encode_line(line))


class JobRunner:
    """What this process does, on its main thread: job after job."""

    def __init__(self, connection: WorkerConnection) -> None:
        self.connection, self.output = connection, CapturedOutput()
        self.apps: dict[str, App] = {}
        self.log = logging.getLogger("interlock.job")
        self.log.addHandler(LogForwarder(connection))
        self.log.propagate = False  # the worker knows where it goes

    def run(self) -> None:
        """Every job that came has been answered when this ends."""
        with asyncio.Runner() as runner:
            while job := self.connection.jobs.get():
                self.connection.send_line(self.run_job(runner, *job))
        for app in self.apps.values():
            app.close()

    def run_job(self, runner: asyncio.Runner, run: RunJob, context: JobContext) -> bytes:
        """The line that says how it ended."""
        try:
            self.log.setLevel(run.log_level)
            with self.output.capture(context):
                value = self.call_handler(runner, run, context)
            if isinstance(value, Result):
                context.cost(value.cost)
                value = value.value
            return encode_line(Returned(result=msgspec.Raw(encode_result(value).encode()), cost=context.own_cost))
        except (Exception, asyncio.CancelledError) as error:
            return encode_line(encode_error(error, context.own_cost))

    def call_handler(self, runner: asyncio.Runner, run: RunJob, context: JobContext) -> Any:
        """What the handler returns."""
        task = self.find_task(run)
        context.app = task.app
        context.use_task(task)
        try:
            kwargs = task.arguments.decode(run.grant, context, context.read_value)
        except msgspec.MsgspecError as error:
            raise ValidationError(f"the arguments cannot be read: {error}") from None
        RUNNING.set((task.app, run.grant))
        value = task.handler(**kwargs)
        # A runner has a context of its own, made once.
        here = contextvars.copy_context()
        result = runner.run(value, context=here) if task.is_async else value
        refuse_unvalidated(task, context)
        return result

    def find_task(self, run: RunJob) -> Task[Any, Any]:
        """The task by its name.

        Raises:
            PermanentError: this process does not find what its worker has.
        """
        sys.path[:] = run.path
        module, _, attribute = run.app.partition(":")
        try:
            app = getattr(import_module(module), attribute)
            import_module(run.module)
            task: Task[Any, Any] = app.find_task(run.grant.task)
        except (ImportError, AttributeError, InterlockError) as error:
            raise PermanentError(
                f"task '{run.grant.task}' runs in a process of its own, which did not find it by importing {run.app} "
                f"and {run.module}: {error}; define it where a plain import reaches it"
            ) from None
        if run.far and app.far != run.far:
            app.reach(*run.far)
        self.apps[run.app] = app
        return task


def end_group() -> None:
    """Nothing that belongs to this process is left, nor itself."""
    os.killpg(os.getpgrp(), signal.SIGKILL)


def end_with(worker: int, lifeline: int) -> None:
    """When the worker ends, however it does, this process and its group do."""
    if sys.platform == "linux":
        # A lifeline carries nothing: that it can be read means that the worker's end is closed, and the kernel sends
        # the signal to the whole group, even while this process is held up in foreign code.
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
        # The worker's end may have been inherited by others; its death may not. To be killed by that alone would be
        # too soon: the group would lose its lifeline with this process.
        signal.signal(signal.SIGRTMAX, lambda *_: end_group())
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGRTMAX)
    if os.getppid() != worker:
        sys.exit("its worker was gone before it began")


def main() -> None:
    """Runs handlers for a worker until it closes the connection."""
    end, lifeline, worker = map(int, sys.argv[1:])
    for inherited in (end, lifeline):
        os.set_inheritable(inherited, False)
    end_with(worker, lifeline)
    connection = WorkerConnection(socket.socket(fileno=end))
    Thread(target=connection.receive_all, name="interlock messages", daemon=True).start()
    JobRunner(connection).run()


if __name__ == "__main__":
    main()
