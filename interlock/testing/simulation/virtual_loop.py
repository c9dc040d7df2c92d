"""An event loop with virtual time and a fixed order of execution, and the processes that run on it."""

import asyncio
import heapq
from asyncio.base_events import BaseEventLoop
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextvars import Context, ContextVar, copy_context
from typing import Any

RESOLUTION = 1e-6  # seconds


class Stuck(Exception):
    """Nothing will ever happen again."""


class Process:
    """What crashes, pauses and starts together: everything that was begun in its context."""

    def __init__(self, name: str) -> None:
        self.name, self.alive, self.frozen = name, True, False
        self.kept: list[asyncio.Handle] = []  # what waits for the end of a pause
        self.steps, self.dies_at = 0, 0  # how often it was resumed, and at which of these it crashes
        self.on_crash: Callable[[], None] = lambda: None
        self.tasks: list[asyncio.Task[Any]] = []
        self.context: Context = copy_context()
        self.context.run(HERE.set, self)

    def crash(self) -> None:
        """Nothing that it does from now on is heard, and all that it did in memory is lost."""
        if self.alive:
            self.alive = False
            self.kept.clear()
            for task in self.tasks:
                task.cancel()
            self.on_crash()


HERE: ContextVar[Process | None] = ContextVar("interlock_simulated_process", default=None)


class VirtualLoop(BaseEventLoop):
    """Time stands still while something is ready, and jumps to the next timer when nothing is."""

    _ready: Any
    _scheduled: list[Any]
    _debug: bool

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.set_debug(False)
        self.set_task_factory(make_process_task)  # type: ignore[arg-type]
        self.broken: list[BaseException] = []
        self.set_exception_handler(self.note)

    def note(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        raised = "handle" in context  # by a callback; that nobody asks for an answer is no fault
        if raised and isinstance(error := context.get("exception"), BaseException):
            self.broken.append(error)

    def time(self) -> float:
        return self.now

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:  # type: ignore[override]
        """There are no threads here: it is done at once."""
        done: Future[Any] = Future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return asyncio.wrap_future(done, loop=self)

    def _write_to_self(self) -> None:
        """Nobody sleeps who would have to be woken."""

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is left out when its time comes."""

    def _run_once(self) -> None:
        timers, ready = self._scheduled, self._ready
        while timers and timers[0]._cancelled:
            heapq.heappop(timers)._scheduled = False
        if not ready and not self._stopping:  # type: ignore[attr-defined]
            if not timers:
                raise Stuck("nobody waits for anything that will happen")
            self.now = max(self.now, timers[0]._when)
        end = self.now + RESOLUTION
        while timers and timers[0]._when < end:
            handle = heapq.heappop(timers)
            handle._scheduled = False
            # Whoever looks at the time finds that its own has come: else it might wait for the rest for ever.
            self.now = max(self.now, handle._when)
            ready.append(handle)
        for _ in range(len(ready)):
            self.resume(ready.popleft())

    def resume(self, handle: Any) -> None:
        """One thing happens, unless its process is gone or paused, or crashes right here."""
        if handle._cancelled:
            return
        process: Process | None = handle._context.get(HERE)
        if process is None:
            handle._run()
        elif process.frozen and process.alive:
            process.kept.append(handle)
        else:
            process.steps += 1
            if process.steps == process.dies_at:
                process.crash()
            handle._run()

    def thaw(self, process: Process) -> None:
        """A pause is over, and everything happens at once that waited for its end."""
        process.frozen = False
        self._ready.extend(process.kept)
        process.kept = []


def make_process_task(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any) -> Any:
    """A task belongs to the process that began it."""
    task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **options)
    context = options.get("context")
    process = context.get(HERE) if context is not None else HERE.get()
    if process is not None:
        process.tasks = (
            [task for task in process.tasks if not task.done()] if len(process.tasks) > 64 else process.tasks
        )
        process.tasks.append(task)
        if not process.alive:
            task.cancel()
    return task
