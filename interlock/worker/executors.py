"""Where handlers run: on the event loop, in a thread, or in a process."""

import contextvars
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from interlock.client.context import TAKES_PRINTED
from interlock.client.tasks import Task
from interlock.worker.context import JobContext
from interlock.worker.execution import Execution
from interlock.worker.process import InProcess


class Executor(Protocol):
    """Runs one handler to its end. Cancelling the call stops the handler, as far as that is possible."""

    def run(self, task: Task[Any, Any], kwargs: dict[str, Any], context: JobContext) -> Awaitable[Any]: ...
    async def close(self) -> None: ...


class InThread:
    """Plain handlers run in threads. A thread cannot be stopped: one that was cancelled runs on, its result ignored."""

    def __init__(self, threads: int) -> None:
        self.pool = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="interlock handler")

    async def run(self, task: Task[Any, Any], kwargs: dict[str, Any], context: JobContext) -> Any:
        def call() -> Any:
            context.refuse_late_start()
            try:
                return task.handler(**kwargs)
            except StopIteration as error:  # no future can hand it on; a coroutine's becomes the same
                raise RuntimeError("the handler raised StopIteration") from error

        context.thread = self.pool.submit(contextvars.copy_context().run, call)
        return await task.app.bridge.wait_for(context.thread)

    async def close(self) -> None:
        self.pool.shutdown(wait=False, cancel_futures=True)


class Executors:
    """Async handlers share the worker's loop; threads and processes are made when they are first needed.

    Of either there are at most `room` at a time.
    """

    def __init__(self, room: int) -> None:
        self.room = room
        self.made: dict[str, Executor] = {}

    def call_handler(self, execution: Execution) -> Awaitable[Any]:
        """Calls the handler of a job where its task says: on the loop, in a thread or in a process."""
        task = execution.task
        assert task
        TAKES_PRINTED.set(execution.take_printed)
        if task.place == "loop":
            handled: Awaitable[Any] = task.handler(**execution.arguments)
            return handled
        if task.place not in self.made:
            self.made[task.place] = self.make(task.place)
        return self.made[task.place].run(task, execution.arguments, execution.context)

    def make(self, kind: str) -> Executor:
        return InThread(self.room) if kind == "thread" else InProcess(self.room)

    async def close(self) -> None:
        for executor in self.made.values():
            await executor.close()
