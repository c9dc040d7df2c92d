"""Run handlers in processes of their own: spawned, each the leader of a group, reused for many jobs."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from threading import Lock, Thread
from typing import Any

import msgspec

from interlock.client.app import App
from interlock.client.tasks import Task
from interlock.kernel.commands import AddArtifact, AddTasks, ReadSteps
from interlock.kernel.errors import InterlockError, PermanentError, Stale, TransientError
from interlock.worker.context import JobContext
from interlock.worker.log_lines import describe_job
from interlock.worker.messages import (
    LINE_MAX,
    ArtifactMessage,
    Exit,
    LogBytes,
    LogMessage,
    NoteAnswer,
    NoteMessage,
    OutputRequest,
    ProcessMessage,
    Raised,
    Returned,
    RunJob,
    StepsRequest,
    Stop,
    TasksMessage,
    ToWorker,
    decode_error,
    encode_error,
    encode_line,
)

MAIN = "__main__"  # the script that was started
KILL_AFTER = 5.0  # seconds that a group has to end after it was asked
ENDED = "this job has ended; what it left running cannot speak for it"
LOOK = 0.02  # seconds between two looks at a group whose leader has ended


class Child:
    """The process of a handler, as its worker sees it."""

    def __init__(
        self, end: socket.socket, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kill_after: float
    ) -> None:
        """Spawns it. `end` is its end of the line."""
        self.loop = asyncio.get_running_loop()
        self.reader, self.writer, self.kill_after = reader, writer, kill_after
        self.exited: asyncio.Future[int] = self.loop.create_future()
        self.ending = self.reaped = False
        self.signalling = Lock()
        theirs, self.lifeline = os.pipe()
        try:
            words = [sys.executable, "-m", "interlock.worker.child", *map(str, (end.fileno(), theirs, os.getpid()))]
            self.process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, pass_fds=(end.fileno(), theirs), start_new_session=True
            )
        except BaseException:
            os.close(self.lifeline)
            self.writer.close()
            raise
        finally:
            os.close(theirs)
        self.group = self.process.pid
        Thread(target=self.wait_for_exit, name="interlock child", daemon=True).start()

    def wait_for_exit(self) -> None:
        """In a thread of its own: when the process ends by itself, its group ends with it."""
        if hasattr(os, "waitid"):  # until it is reaped, its number is no other group's
            os.waitid(os.P_PID, self.group, os.WEXITED | os.WNOWAIT)
        else:
            self.process.wait()
        with self.signalling:
            if not self.ending:
                kill(self.group, signal.SIGKILL)
            code = self.process.wait()
            self.reaped = True
        with suppress(RuntimeError):  # the loop is closed: nobody wants to know
            self.loop.call_soon_threadsafe(self.on_exit, code)
        with suppress(
            ChildProcessError
        ):  # what it had started is this process's to reap, if that is the init of a container
            while True:
                os.waitpid(-self.group, 0)

    def on_exit(self, code: int) -> None:
        """A reader gets what it had sent, and then the end, even if others hold its end of the connection."""
        if not self.exited.done():
            self.exited.set_result(code)
            with suppress(OSError):
                self.writer.get_extra_info("socket").shutdown(socket.SHUT_RD)

    def send(self, message: ProcessMessage) -> None:
        self.writer.write(encode_line(message))

    async def run(self, run: bytes, context: JobContext) -> Returned | Raised:
        """How the handler ended.

        Raises:
            TransientError: the process ended before it had sent that.
        """
        self.writer.write(run)
        context.stopping.listener = lambda: self.send(Stop())
        if context.cancelled:
            self.send(Stop())
        try:
            while (line := await self.read_line()).endswith(b"\n"):
                match msgspec.json.decode(line, type=ToWorker):
                    case Returned() | Raised() as ended:
                        return ended
                    case NoteMessage() as note:
                        await self.record_note(note, context)
                    case ArtifactMessage() | OutputRequest() | StepsRequest() | TasksMessage() as request:
                        await self.answer(request, context)
                    case LogBytes() as written:
                        if (written.unit, written.fence) == (context.unit, context.held.fence):
                            context.write_log(written.data, written.step)
                    case LogMessage() as logged:
                        self.log_for(logged, context)
        finally:
            context.stopping.listener = None
        raise TransientError(f"the process of this handler {describe_exit(await asyncio.shield(self.exited))}")

    def log_for(self, line: LogMessage, context: JobContext) -> None:
        """What the handler logged; what it logs after its end, or without its context, has no facts of this job."""
        extra: dict[str, Any] = {"unit": line.unit, "fence": line.fence}
        if (line.unit, line.fence) == (context.unit, context.held.fence):
            extra["facts"] = describe_job(context.grant)
        context.log.logger.log(line.level, "%s", line.text, extra=extra)

    async def read_line(self) -> bytes:
        try:
            return await self.reader.readline()
        except ConnectionError:  # it ended while it was written to
            return b""

    async def record_note(self, note: NoteMessage, context: JobContext) -> None:
        """A note of the handler goes the way of all notes, under the lease of its job."""
        sent, held = note.record, note.record.held[0]
        record = msgspec.structs.replace(sent, tenant=context.tenant, held=(context.held,))
        here = (held.unit, held.fence) == (context.held.unit, context.held.fence)
        if note.number is None:
            if here:
                context.later(record)
            return
        try:
            if not here:
                raise Stale(ENDED)
            self.send(NoteAnswer(number=note.number, statuses=await context.sender.asend(record)))
        except InterlockError as error:
            self.send(NoteAnswer(number=note.number, raised=encode_error(error)))

    async def answer(
        self, request: ArtifactMessage | OutputRequest | StepsRequest | TasksMessage, context: JobContext
    ) -> None:
        """What the handler asks for is done under the lease of its job: an artifact, an output, or more tasks."""
        tenant, held = context.tenant, context.held
        try:
            if (request.unit, request.fence) != (held.unit, held.fence):
                raise Stale(ENDED)
            match request:
                case ArtifactMessage(name=name, digest=digest, media=media):
                    add = AddArtifact(tenant=tenant, held=held, name=name, digest=digest, media=media)
                    status = await context.sender.asend(add)
                    answer = NoteAnswer(number=request.number, evidence=status)
                case OutputRequest(name=name):
                    output = await context.sender.asend(context.output.make_command(name))
                    answer = NoteAnswer(number=request.number, output=output)
                case StepsRequest(name=name, effect=effect):
                    read = ReadSteps(tenant=tenant, held=held, name=name, effect=effect)
                    page = await context.sender.asend(read)
                    answer = NoteAnswer(number=request.number, page=page)
                case TasksMessage(work=work):
                    made = await context.sender.asend(AddTasks(tenant=tenant, lease=held, work=work))
                    answer = NoteAnswer(number=request.number, made=made)
        except InterlockError as error:
            answer = NoteAnswer(number=request.number, raised=encode_error(error))
        self.send(answer)

    def signal(self, number: signal.Signals) -> None:
        """The group gets a signal, if there still is one."""
        with self.signalling:
            if not self.reaped or alive(self.group):
                kill(self.group, number)

    async def dismiss(self) -> None:
        """It has ended by itself, or after a time was made to."""
        self.send(Exit())
        await asyncio.wait([self.exited], timeout=self.kill_after)
        await self.end()

    async def end(self) -> None:
        """The whole group has ended: asked first, and killed if it does not listen or whoever waits is cancelled."""
        if not self.exited.done():
            self.ending = True
            self.signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(self.kill_after):
                    await self.wait_for_empty_group()
            except TimeoutError:
                pass  # the time is up
            finally:
                self.signal(signal.SIGKILL)
                await asyncio.shield(self.exited)
        self.close()

    async def wait_for_empty_group(self) -> None:
        await asyncio.shield(self.exited)
        while alive(self.group):
            await asyncio.sleep(LOOK)

    def close(self) -> None:
        if not self.writer.is_closing():
            self.writer.close()
            os.close(self.lifeline)


class InProcess:
    """At most so many processes, started when they are needed. One that had to be stopped is replaced."""

    def __init__(self, processes: int, kill_after: float = KILL_AFTER) -> None:
        self.room, self.kill_after = asyncio.Semaphore(processes), kill_after
        self.addresses: dict[tuple[App, str], str | None] = {}
        self.children: set[Child] = set()
        self.idle: list[Child] = []

    async def run(self, task: Task[Any, Any], kwargs: dict[str, Any], context: JobContext) -> Any:
        run = encode_line(self.make_run(task, context))
        async with self.room:
            child = await self.take_child()
            try:
                context.refuse_late_start()
                ended = await child.run(run, context)
            except BaseException:
                await self.end(child)
                raise
            self.idle.append(child)
        context.own_cost += ended.cost
        if isinstance(ended, Raised):
            raise decode_error(ended)
        return ended.result

    def make_run(self, task: Task[Any, Any], context: JobContext) -> RunJob:
        """What a process must know of a job.

        Raises:
            PermanentError: a task that no other process could find.
        """
        module = task.handler.__module__
        if (task.app, module) not in self.addresses:
            self.addresses[task.app, module] = find_address(task.app, module)
        app = self.addresses[task.app, module]
        if app is None or module == MAIN:
            what = f"its {'handler' if module == MAIN else 'app'} is defined where none can"
            raise PermanentError(
                f"task '{task.name}' runs in a process of its own, which must import it, and {what}; define the app "
                "and the task at the top of a module, and start a worker with `interlock worker module:app`"
            )
        return RunJob(
            path=sys.path, app=app, module=module, grant=msgspec.structs.replace(context.grant, lease=""),
            tenant=context.tenant, log_level=context.log.getEffectiveLevel(), far=task.app.far,
            worktree=context.worktree,
        )  # fmt: skip

    async def take_child(self) -> Child:
        """One that waits for work; the one that worked last, so that few of them are kept warm."""
        while self.idle:
            child = self.idle.pop()
            if not child.exited.done():
                return child
            await self.end(child)
        return await self.start()

    async def start(self) -> Child:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                reader, writer = await asyncio.open_connection(sock=ours, limit=LINE_MAX)
            except BaseException:
                ours.close()
                raise
            child = Child(theirs, reader, writer, self.kill_after)
        self.children.add(child)
        return child

    async def end(self, child: Child) -> None:
        await child.end()
        self.children.discard(child)

    async def close(self) -> None:
        """Every process has ended, and nothing that they started is left in their groups."""
        idle, self.idle = self.idle, []
        await asyncio.gather(*(child.dismiss() if child in idle else child.end() for child in self.children))
        self.children.clear()


def find_address(app: App, module: str) -> str | None:
    """An app as `module:attribute`, by the module of its task or by another that was imported."""
    for name, imported in [(module, sys.modules.get(module)), *sys.modules.items()]:
        if name != MAIN:
            for attribute, value in list(getattr(imported, "__dict__", {}).items()):
                if value is app:
                    return f"{name}:{attribute}"
    return None


def describe_exit(code: int) -> str:
    """How a process ended, in words."""
    if code >= 0:
        return f"ended with exit code {code} and no answer"
    with suppress(ValueError):
        return f"was ended by {signal.Signals(-code).name}"
    return f"was ended by signal {-code}"


def kill(group: int, number: signal.Signals) -> None:
    """Sends a signal to the processes of a group, if there are any that may get it."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def alive(group: int) -> bool:
    """Whether a group whose leader was reaped has members."""
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True
