"""The interface of a handler's context; the worker that runs the job supplies its parts."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar, overload

from interlock.client.durations import Length

T = TypeVar("T")
# Of a handler that runs: takes what it prints, for the log of its job.
TAKES_PRINTED: ContextVar[Callable[[bytes], None] | None] = ContextVar("interlock_takes_printed", default=None)
Usage = Mapping[str, float] | Callable[[Any], Mapping[str, float] | None] | None


class Stepping(Protocol):
    """`ctx.step("name", fn)`: done once, however often the job is tried.

    In an `async def` handler it is awaited, and `fn` may be async: `await ctx.step("name", fn)`; `.aio` is the same. A
    name stands for one step: a second one of that name in an attempt raises PermanentError. A step that raises is not
    recorded, and may be tried again; with `retry=3` it is, up to three times in all. `of` is what is asked for, as
    JSON: if another attempt has asked for something else under this name, Drift is raised, and nothing runs. `usage` is
    what the step of an agent has used, as in `{"usd": 0.02, "tokens": 900}`, or a function that tells it of the result;
    of a try that raised, the exception may have a `usage`.
    """

    @overload
    def __call__(
        self, name: str, fn: Callable[[], Awaitable[T]], *, of: Any = None, usage: Usage = None, retry: int = 1
    ) -> Awaitable[T]: ...
    @overload
    def __call__(
        self, name: str, fn: Callable[[], Any], *, of: Any = None, usage: Usage = None, retry: int = 1
    ) -> Any: ...
    @overload
    async def aio(
        self, name: str, fn: Callable[[], Awaitable[T]], *, of: Any = None, usage: Usage = None, retry: int = 1
    ) -> T: ...
    @overload
    async def aio(
        self, name: str, fn: Callable[[], T], *, of: Any = None, usage: Usage = None, retry: int = 1
    ) -> T: ...


class Keeping(Protocol):
    """`ctx.artifact("report", data)`: kept with this attempt, once under each name.

    Bytes, and the file that a `Path` names, are kept as they are, however many; other data as JSON. `media` is the type
    that whoever downloads it is told, as in `text/plain`.
    """

    def __call__(self, name: str, data: Any, *, media: str | None = None) -> None: ...
    async def aio(self, name: str, data: Any, *, media: str | None = None) -> None: ...


class JobLogger(logging.LoggerAdapter[logging.Logger]):
    """`ctx.log("text")` adds a line to the log of the job; `ctx.log.info("text")` also logs it at the worker."""

    def __init__(self, logger: logging.Logger, extra: dict[str, Any], write: Callable[[bytes], None]) -> None:
        """`write` adds bytes to the log of the job."""
        super().__init__(logger, extra)
        self.write = write

    def __call__(self, *parts: object, sep: str = " ", end: str = "\n") -> None:
        """Adds to the log of the job what `print` would print; bytes are added as they are."""
        if len(parts) == 1 and isinstance(parts[0], bytes | bytearray | memoryview):
            self.write(bytes(parts[0]))
        else:
            self.write((sep.join(map(str, parts)) + end).encode(errors="backslashreplace"))

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Logs a line at the worker, if it wants this level; from INFO on it is in the log of the job in any case."""
        taken = TAKES_PRINTED.set(None)  # a logger may print: its line would be there twice
        super().log(level, msg, *args, **kwargs)
        TAKES_PRINTED.reset(taken)
        if level >= logging.INFO:
            self.write(format_record(level, msg, args))


def format_record(level: int, msg: object, args: tuple[object, ...]) -> bytes:
    """Returns a line of a logger as the log of a job has it."""
    record = logging.LogRecord("", level, "", 0, msg, args, None)
    try:
        text = record.getMessage()
    except Exception:  # the logger itself tells of arguments that do not fit
        text = str(msg)
    return f"{record.levelname} {text}\n".encode(errors="backslashreplace")


class Reading(Protocol):
    """`ctx.output("name")`: what a need came to, also one that was not handed over; `await ctx.output.aio("name")`."""

    def __call__(self, name: str) -> Any: ...
    async def aio(self, name: str) -> Any: ...


class ChildHandle(Protocol):
    """A job below the one that runs, or something that people are asked."""

    name: str

    @property
    def id(self) -> str | None:
        """Its id; None if this attempt has just made it."""

    @property
    def done(self) -> bool:
        """Whether it has ended."""

    def wait(self, timeout: Length | None = None) -> Any:
        """What it came to. Until it has ended nobody works here: the attempt ends, and the handler is called again.

        Raises:
            Failed: it ended without success.
            StillWaiting: it has not ended in time.
        """


class Spawning(Protocol):
    """`ctx.spawn(task, …)` or `ctx.spawn("name", task, …)`: a job below this one, made once under its name.

    It takes the task's arguments and options, or a workflow and its arguments; of an agent a run is made, with a
    `budget` of its own. A child in what the handler returns stands for what it comes to, and is waited for. In an
    `async def` handler it is awaited: `child = await ctx.spawn(task, …)`; `.aio` is the same. If this job ends before
    it, it is stopped.
    """

    def __call__(self, first: Any, /, *args: Any, **kwargs: Any) -> Any: ...
    async def aio(self, first: Any, /, *args: Any, **kwargs: Any) -> ChildHandle: ...


class Adding(Protocol):
    """`ctx.add(fix, name="fix-1", needs=["build"])`: adds a task to the workstream of this one, once under its name.

    It takes what `interlock.task` takes, or `interlock.shell(…)`, and has the arguments of this task beside its own. It
    returns the task, with `created` false if the name was there. It raises InterlockError if this job is no task of a
    workstream, or is another worker's by now. In async handlers: `await ctx.add.aio(…)`.
    """

    def __call__(self, part: Any, /, **options: Any) -> Any: ...
    async def aio(self, part: Any, /, **options: Any) -> Any: ...


class Asking(Protocol):
    """`ctx.ask("delete?", what, approvers=["ops"])`: people approve `what` in the inbox, and may change it.

    It returns what was approved. It raises Rejected if somebody rejects it, and NoAnswer if nobody decides until it
    `expires`. `all({name: what, …})` asks several at once, and returns what was approved of each. In an `async def`
    handler both are awaited, and several may wait side by side, as in `asyncio.gather`.
    """

    def __call__(
        self, name: str, what: Any = None, *, approvers: Iterable[str] = (), quorum: int | None = None,
        expires: Length | None = None, not_submitter: bool = False,
    ) -> Any: ...  # fmt: skip
    async def aio(
        self, name: str, what: Any = None, *, approvers: Iterable[str] = (), quorum: int | None = None,
        expires: Length | None = None, not_submitter: bool = False,
    ) -> Any: ...  # fmt: skip
    def all(self, questions: Mapping[str, Any], **terms: Any) -> Any: ...
    async def all_aio(self, questions: Mapping[str, Any], **terms: Any) -> dict[str, Any]: ...


class Effecting(Protocol):
    """`ctx.effect("charge", call, check=look)`: a call to the outside, never repeated in silence.

    It returns what the call returned, also to later attempts. If a worker was lost in the call, `check` says what the
    call came to, or None if it did not take place. Without `check`, a person is asked in the inbox. A call that surely
    had no effect raises NotDone. `of` is as with a step. In an `async def` handler it is awaited, and both functions
    may be async.
    """

    def __call__(
        self, name: str, call: Callable[[], Any], *, check: Callable[[], Any] | None = None, of: Any = None
    ) -> Any: ...
    async def aio(
        self, name: str, call: Callable[[], Any], *, check: Callable[[], Any] | None = None, of: Any = None
    ) -> Any: ...


class Phasing(Protocol):
    """`ctx.phase("optimizing")`: the run of this job enters a phase, by the name of a state or of a move.

    In an `async def` handler it is awaited. It raises PermanentError if the phase cannot follow the one that the run is
    in, or the run has entered it as often as it may.
    """

    def __call__(self, name: str) -> Any: ...
    async def aio(self, name: str) -> None: ...


class Validating(Protocol):
    """`findings = ctx.validate(result)`: the work is judged by the checks of the agent, or by people.

    The run is validating meanwhile, and nobody works here: the attempt ends, and the handler is called again. It
    returns what was found, as a list of `{"check": …, "error": …}`; an empty one: it has passed. If something was
    found, the run is correcting; if no correction is left, it has failed. In an `async def` handler it is awaited.
    """

    def __call__(self, result: Any = None) -> Any: ...
    async def aio(self, result: Any = None) -> list[dict[str, str]]: ...


class ToolCalling(Protocol):
    """`ctx.tool("search", query="…")`: a tool of the contract is called, as a recorded step.

    With the id that the model gave the call, `ctx.tool("search", call_id, query="…")`, the call has a name of its own;
    without one it has a number. If the contract says who approves it, they are asked first, and may change what it is
    called with. A tool of `interlock.tool(…, effect=True)` is called as with `ctx.effect`. In an `async def` handler it
    is awaited. It raises PermanentError, and nothing runs, for a tool that is not in the contract, and for arguments
    that it does not take.
    """

    def __call__(self, name: str, call: str = "", /, **arguments: Any) -> Any: ...
    async def aio(self, name: str, call: str = "", /, **arguments: Any) -> Any: ...


class Context(Protocol):
    """Handed to the parameter that is annotated with it."""

    step: Stepping
    artifact: Keeping
    output: Reading
    spawn: Spawning
    add: Adding
    ask: Asking
    effect: Effecting
    log: JobLogger

    @property
    def unit(self) -> int:
        """The job, as `app.job(ctx.unit)` takes it."""

    @property
    def attempt(self) -> int:
        """Which try this is; the first is 1."""

    @property
    def correlation(self) -> str:
        """What all work that began with one request has in common. What this handler submits has it too."""

    @property
    def trace(self) -> str:
        """The trace context that the job was submitted with; empty if there was none. What this submits has it too."""

    @property
    def fence(self) -> int:
        """Grows with every grant of this job, and over the jobs of a run: for systems that can refuse an older one."""

    @property
    def cancelled(self) -> bool:
        """Whether the handler should stop: somebody asked for it, or the job is another worker's by now."""

    worktree: str | None = None
    """Where this attempt has the files of its repository, for itself alone; None if the job has no repository."""

    @property
    def saved(self) -> Any:
        """What the last checkpoint of an earlier attempt said; None if there was none."""

    def emit(self, text: str) -> None:
        """Streams text while this runs, such as the words of a model: it is in the log of the job, as it comes.

        If the work is done again, what was emitted outside of recorded steps is followed by a mark that voids it.
        """

    def progress(self, done: float, text: str = "") -> None:
        """How far it is, from 0 to 1; told with the next report, so it costs nothing to say often."""

    def checkpoint(self, data: Any) -> None:
        """What a later attempt finds as `saved`; told with the next report."""

    def cost(self, amount: float) -> None:
        """What this attempt has cost more, whether it succeeds or not, in whatever unit you count."""

    @property
    def outputs(self) -> dict[str, Any]:
        """What the steps of this run, or the jobs that this one needs, have come to, by name.

        Of needs at most 1,000 are handed over, of at most 1 MiB in all; `ctx.output(name)` reads any of them.
        """

    def wait_signal(self, name: str, *, timeout: Length | None = None) -> Any:
        """What came with a signal. Until it comes nobody works here: the attempt ends, and the handler is called again.

        Steps that are recorded are not done again.

        Raises:
            NoSignal: the signal has not come in time.
        """

    def wait_any(self, *names: str, timeout: Length | None = None) -> tuple[str, Any]:
        """The first of several signals that is there, and what came with it.

        Raises:
            NoSignal: as `wait_signal` does.
        """

    def sleep(self, name: str, length: Length) -> None:
        """Waits for so long, once under each name, however often the handler is called. Nobody works here meanwhile."""


class AgentContext(Context, Protocol):
    """The same for the handler of an agent."""

    phase: Phasing
    validate: Validating
    tool: ToolCalling
    corrections: int
    """How often the handler has been told to correct its work, up to where it is: the same when it is called again."""

    @property
    def spent(self) -> dict[str, float]:
        """What the run and all below it have used, by name, as far as this attempt knows: `usd`, `tokens`, `steps` …"""

    def left(self, name: str) -> float | None:
        """How much of something may be used still; None if there is no cap. Ask it how much a call may cost."""
