"""Handlers in processes of their own: spawned, each the leader of a group, used for one job after another."""

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
from interlock.kernel.errors import InterlockError, PermanentError, Stale, TransientError
from interlock.worker.context import JobContext
from interlock.worker.log_facts import facts_of
from interlock.worker.messages import (
    LINE_MAX,
    Answer,
    Done,
    Fault,
    Leave,
    Message,
    Note,
    Run,
    Said,
    Stop,
    ToWorker,
    error_of,
    fault_of,
    line_of,
)

MAIN = "__main__"  # the script that was started
KILL_AFTER = 5.0  # seconds that a group has to end after it was asked
LOOK = 0.02  # seconds between two looks at a group whose leader has ended


class Child:
    """The process of a handler, as its worker sees it."""

    def __init__(
        self, end: socket.socket, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kill_after: float
    ) -> None:
        """Spawns it. `end` is its end of the line."""
        self.loop = asyncio.get_running_loop()
        self.reader, self.writer, self.kill_after = reader, writer, kill_after
        self.gone: asyncio.Future[int] = self.loop.create_future()
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
        Thread(target=self.attend, name="interlock child", daemon=True).start()

    def attend(self) -> None:
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
            self.loop.call_soon_threadsafe(self.over, code)
        with suppress(
            ChildProcessError
        ):  # what it had started is this process's to reap, if that is the init of a container
            while True:
                os.waitpid(-self.group, 0)

    def over(self, code: int) -> None:
        """Who reads gets what it had said, and then the end, even if others hold its end of the line."""
        if not self.gone.done():
            self.gone.set_result(code)
            with suppress(OSError):
                self.writer.get_extra_info("socket").shutdown(socket.SHUT_RD)

    def tell(self, message: Message) -> None:
        self.writer.write(line_of(message))

    async def carry_out(self, run: bytes, context: JobContext) -> Done | Fault:
        """What the handler came to. Raises TransientError if the process ended before it said so."""
        self.writer.write(run)
        context.stopping.listener = lambda: self.tell(Stop())
        if context.cancelled:
            self.tell(Stop())
        try:
            while (line := await self.heard()).endswith(b"\n"):
                match msgspec.json.decode(line, type=ToWorker):
                    case Done() | Fault() as said:
                        return said
                    case Note() as note:
                        await self.pass_on(note, context)
                    case Said() as said:
                        self.log_for(said, context)
        finally:
            context.stopping.listener = None
        raise TransientError(f"the process of this handler {ending(await asyncio.shield(self.gone))}")

    def log_for(self, said: Said, context: JobContext) -> None:
        """What the handler logged; what it logs after its end, or of nothing, is not said of this job."""
        extra: dict[str, Any] = {"unit": said.unit, "fence": said.fence}
        if (said.unit, said.fence) == (context.unit, context.fence):
            extra["facts"] = facts_of(context.grant)
        context.log.logger.log(said.level, "%s", said.text, extra=extra)

    async def heard(self) -> bytes:
        try:
            return await self.reader.readline()
        except ConnectionError:  # it ended while it was written to
            return b""

    async def pass_on(self, note: Note, context: JobContext) -> None:
        """What the handler asked to be remembered goes the way of all notes, under the lease of its job."""
        one, held = note.record, note.record.held[0]
        record = context.record(one.kind, msgspec.Raw(one.payload.encode()), one.name)
        here = (held.unit, held.fence) == (context.held.unit, context.held.fence)
        if note.number is None:
            if here:
                context.later(record)
            return
        try:
            if not here:
                raise Stale("this job has ended; what it left running cannot speak for it")
            self.tell(Answer(number=note.number, heard=await context.sender.asend(record)))
        except InterlockError as error:
            self.tell(Answer(number=note.number, fault=fault_of(error)))

    def signal(self, number: signal.Signals) -> None:
        """The group gets a signal, if there still is one."""
        with self.signalling:
            if not self.reaped or alive(self.group):
                kill(self.group, number)

    async def leave(self) -> None:
        """It has ended well, or after a time was made to."""
        self.tell(Leave())
        await asyncio.wait([self.gone], timeout=self.kill_after)
        await self.end()

    async def end(self) -> None:
        """The whole group has ended: asked first, and killed if it does not listen or whoever waits cannot."""
        if not self.gone.done():
            self.ending = True
            self.signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(self.kill_after):
                    await self.emptied()
            except TimeoutError:
                pass  # the time is up
            finally:
                self.signal(signal.SIGKILL)
                await asyncio.shield(self.gone)
        self.close()

    async def emptied(self) -> None:
        await asyncio.shield(self.gone)
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
        run = line_of(self.order(task, context))
        async with self.room:
            child = await self.child()
            try:
                context.refuse_late_begin()
                said = await child.carry_out(run, context)
            except BaseException:
                await self.end(child)
                raise
            self.idle.append(child)
        context.spent += said.cost
        if isinstance(said, Fault):
            raise error_of(said)
        return said.result

    def order(self, task: Task[Any, Any], context: JobContext) -> Run:
        """What a process must know of a job. Raises PermanentError for a task that no other process could find."""
        module = task.handler.__module__
        if (task.app, module) not in self.addresses:
            self.addresses[task.app, module] = address(task.app, module)
        app = self.addresses[task.app, module]
        if app is None or module == MAIN:
            what = f"its {'handler' if module == MAIN else 'app'} is defined where none can"
            raise PermanentError(
                f"task '{task.name}' runs in a process of its own, which must import it, and {what}; define the app "
                "and the task at the top of a module, and start a worker with `interlock worker module:app`"
            )
        return Run(
            path=sys.path, app=app, module=module, grant=msgspec.structs.replace(context.grant, lease=""),
            tenant=context.tenant, log_level=context.log.getEffectiveLevel(), far=task.app.far,
        )  # fmt: skip

    async def child(self) -> Child:
        """One that waits for work; the one that worked last, so that few of them are kept warm."""
        while self.idle:
            child = self.idle.pop()
            if not child.gone.done():
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
        await asyncio.gather(*(child.leave() if child in idle else child.end() for child in self.children))
        self.children.clear()


def address(app: App, module: str) -> str | None:
    """An app as `module:attribute`, by the module of its task or by another that was imported."""
    for name, one in [(module, sys.modules.get(module)), *sys.modules.items()]:
        if name != MAIN:
            for attribute, value in list(getattr(one, "__dict__", {}).items()):
                if value is app:
                    return f"{name}:{attribute}"
    return None


def ending(code: int) -> str:
    """How a process ended, in words."""
    if code >= 0:
        return f"ended with exit code {code} and no answer"
    with suppress(ValueError):
        return f"was ended by {signal.Signals(-code).name}"
    return f"was ended by signal {-code}"


def kill(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def alive(group: int) -> bool:
    """Whether a group whose leader was reaped has members."""
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True
