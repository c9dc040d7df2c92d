"""`ctx.spawn` and `ctx.ask`: make children of the job and wait for them.

A handler that waits raises `Await`, which ends its attempt here: the job is parked, and nothing of it is left in this
process. It is called again from its beginning when what it waits for is there; what it recorded before (steps,
children) is not done again, and the grant of the new attempt says what came of every child.

An async handler may do several things side by side. One of them that waits lets the others come to their end first: the
attempt ends when nothing of it is under way but waits, and the job is parked on all of them together.
"""

import asyncio
from collections.abc import Callable, Generator, Iterable, Mapping
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import msgspec

from interlock.client.agents import OPTIONS as SUBMIT_OPTIONS
from interlock.client.agents import Agent
from interlock.client.async_pairs import Sender
from interlock.client.context import ChildHandle
from interlock.client.durations import Length, length_us
from interlock.client.exceptions import Await, Failed, NoAnswer, Rejected, StillWaiting
from interlock.client.tasks import OPTIONS, Task, check_options
from interlock.client.workflows import Workflow
from interlock.kernel.commands import ChildStatus, Command, Record, Work
from interlock.kernel.errors import InterlockError, PermanentError, Stale
from interlock.kernel.ids import format_id
from interlock.kernel.lifecycle import Category
from interlock.kernel.metrics import STALE
from interlock.worker.requests import check_record_name

if TYPE_CHECKING:
    from interlock.worker.context import JobContext

CHILD = "child:"  # as the engine calls the signal that a child has ended
APPROVAL = "approval"


QUIET = 3  # rounds of the loop in which nothing new begins, before a handler that waits gives its job back
SIGNALS_MAX = 20  # that a unit may wait for at a time

# What a verb of the context does, written once: it yields a command with its sender, a call to user code, or what it
# waits for, and gets the answer. Whoever runs it waits, or lets others run meanwhile.
T = TypeVar("T")
Step = tuple[Sender, Command[Any]] | Callable[[], Any] | Await
Steps = Generator[Step, Any, T]


def run_steps(steps: Steps[T]) -> T:
    """Takes the steps one after another, here and now. Returns what they come to."""
    resume, answer = steps.send, None
    while True:
        try:
            step = resume(answer)
        except StopIteration as end:
            result: T = end.value
            return result
        try:
            if isinstance(step, Await):
                raise step
            answer = check_recorded(step[0].send(step[1])) if isinstance(step, tuple) else step()
            resume = steps.send
        except Exception as error:
            resume, answer = steps.throw, error


async def await_steps(steps: Steps[T], calls: "CallsUnderWay") -> T:
    """The same; what user code returns is awaited if it can be, and others run while an answer is on its way."""
    resume, answer = steps.send, None
    while True:
        try:
            step = resume(answer)
        except StopIteration as end:
            result: T = end.value
            return result
        try:
            if isinstance(step, Await):
                await calls.wait(step)
            calls.count += 1
            try:
                if isinstance(step, tuple):
                    answer = check_recorded(await step[0].asend(step[1]))
                else:
                    value = step()
                    answer = await value if isawaitable(value) else value
            finally:
                calls.end_one()
            resume = steps.send
        except Exception as error:
            resume, answer = steps.throw, error


class CallsUnderWay:
    """What an async handler does side by side: how many calls are under way, and what the others wait for."""

    def __init__(self) -> None:
        self.count = 0
        self.waits: list[Await] = []
        self.none_left = asyncio.Event()

    def end_one(self) -> None:
        """One of the calls has ended."""
        self.count -= 1
        if self.waits and not self.count:
            self.none_left.set()

    async def wait(self, wait: Await) -> NoReturn:
        """Ends the attempt once nothing but waits is under way.

        Raises:
            Await: all of them.
        """
        self.waits.append(wait)
        quiet = 0
        while quiet < QUIET:
            if self.count:
                self.none_left.clear()
                await self.none_left.wait()
                quiet = 0
            await asyncio.sleep(0)  # what was answered may begin something else
            quiet = 0 if self.count else quiet + 1
        if any(each.after_us is not None for each in self.waits):
            raise wait  # a time limit is that of one wait alone
        names = dict.fromkeys(name for each in self.waits for name in each.signals)
        raise Await(*list(names)[:SIGNALS_MAX])


def is_awaited(context: "JobContext") -> bool:
    """Whether what a handler calls is awaited: it is async, and this is its own thread, not one that helps it."""
    if not context.is_async:
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def check_recorded(answer: Any) -> Any:
    """The answer to a command.

    Raises:
        Stale: the job is another worker's by now.
        PermanentError: it was refused.
    """
    if not isinstance(answer, list) or answer[0].accepted:
        return answer
    if answer[0].why in STALE:
        raise Stale(f"this job is no longer held here: {answer[0].why}")
    raise PermanentError(answer[0].why)


class ChildJob(ChildHandle):
    """A child of the job that runs, as its handler sees it."""

    def __init__(self, context: "JobContext", name: str) -> None:
        self.context, self.name = context, name
        self.status: ChildStatus | None = context.children.get(name)  # None: it was made by this attempt

    def __repr__(self) -> str:
        return f"<child '{self.name}' {self.status.state if self.status else 'made just now'}>"

    @property
    def id(self) -> str | None:
        return None if self.status is None else format_id(self.status.lifecycle, self.status.unit)

    @property
    def done(self) -> bool:
        return self.status is not None and self.status.outcome is not None

    def wait(self, timeout: Length | None = None) -> Any:
        status = self.look(timeout)
        if status.outcome != Category.SUCCESS:
            raise Failed(self.id or self.name, status.state, status.error or "")
        return None if status.result is None else msgspec.json.decode(status.result)

    def look(self, timeout: Length | None = None) -> ChildStatus:
        """What came of it.

        Raises:
            Await: it has not ended yet.
            StillWaiting: it has not ended in time.
        """
        if self.status is not None and self.status.outcome is not None:
            return self.status
        if CHILD + self.name in self.context.grant.waited:
            raise StillWaiting(f"the child '{self.name}' has not ended in time")
        raise Await(CHILD + self.name, timeout=timeout)


def encode_child(value: Any) -> Any:
    """What stands for a child in JSON: what it came to.

    Raises:
        Await: it has not ended yet.
    """
    if isinstance(value, ChildJob):
        return value.wait()
    raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")


def encode_settled(name: str, value: Any) -> str:
    """JSON of what a handler has made; a child in it is waited for.

    Raises:
        PermanentError: it is no JSON.
    """
    try:
        return msgspec.json.encode(value, enc_hook=encode_child).decode()
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise PermanentError(f"{name} cannot be kept as JSON: {error}") from None


class Spawner:
    """`ctx.spawn(task, …)`: a job below this one, made once, however often this one is tried."""

    def __init__(self, context: "JobContext") -> None:
        self.context = context

    def __call__(self, first: Any, /, *args: Any, **kwargs: Any) -> Any:
        if is_awaited(self.context):
            return self.aio(first, *args, **kwargs)
        return run_steps(self.spawn(first, args, kwargs))

    async def aio(self, first: Any, /, *args: Any, **kwargs: Any) -> ChildHandle:
        return await await_steps(self.spawn(first, args, kwargs), self.context.calls)

    def spawn(self, first: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Steps[ChildHandle]:
        name, what, args = parse_call(first, args)
        if isinstance(what, Agent):
            if name not in self.context.children:
                yield self.context.sender, make_run_record(self.context, name, what, args, kwargs)
        elif name not in self.context.children:
            work = make_child_work(what, args, kwargs)
            if isinstance(what, Workflow):
                for definition in what.definitions:
                    planned = yield what.app, definition
                work = msgspec.structs.replace(work, template_version=planned.version)
            yield self.context.sender, make_record(self.context, name, work)
        return ChildJob(self.context, name)


def parse_call(first: Any, args: tuple[Any, ...]) -> tuple[str, Any, tuple[Any, ...]]:
    """The name of a child, what it is made of, and its arguments. Without a name it is called as its task is."""
    if isinstance(first, Task | Workflow | Agent):
        return first.name, first, args
    if isinstance(first, str) and args and isinstance(args[0], Task | Workflow | Agent | str):
        return first, args[0], args[1:]
    raise InterlockError(
        f"ctx.spawn({first!r}, …) is not allowed; allowed is ctx.spawn(task, …) or ctx.spawn(name, task, …), with a "
        "task, a workflow, an agent, or the name of a task"
    )


def make_child_work(what: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Work:
    """The work of a child.

    Raises:
        InterlockError: a wrong argument or option.
    """
    if isinstance(what, Workflow):
        if args:
            raise InterlockError(f"workflow '{what.name}' takes arguments by name")
        _, command = what.make_submit([kwargs], {})
        return command.work[0]
    options = {name: kwargs.pop(name) for name in OPTIONS if name in kwargs}
    if refused := [name for name in ("key", "on_duplicate", "tx") if name in options]:
        raise InterlockError(f"ctx.spawn has no option '{refused[0]}': a child is made once under its name")
    if isinstance(what, Task):
        return what.make_submit([(args, kwargs)], options).work[0]
    check_options(options)
    if args or options:
        raise InterlockError(f"task '{what}' is not defined here, so it takes arguments by name, and no options")
    return Work(task=what, input=msgspec.json.encode(kwargs).decode())


def make_record(context: "JobContext", name: str, work: Work) -> Record:
    """The record by which a child is made; what work does not say is left out."""
    return context.record("child", drop_defaults(work), name)


def drop_defaults(work: Work) -> dict[str, Any]:
    """What work says, without what it leaves as it is."""
    defaults = Work(task=work.task)
    given = {key: value for key, value in msgspec.structs.asdict(work).items() if value != getattr(defaults, key)}
    return {**given, "task": work.task}


def make_run_record(
    context: "JobContext", name: str, agent: Agent, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Record:  # fmt: skip
    """The record by which the run of an agent is made below a job.

    Raises:
        InterlockError: a wrong argument.
    """
    options = {option: kwargs.pop(option) for option in SUBMIT_OPTIONS if option in kwargs}
    if refused := [option for option in ("key", "on_duplicate") if option in options]:
        raise InterlockError(f"ctx.spawn has no option '{refused[0]}': a child is made once under its name")
    run, job = agent.make_works(args, kwargs, options)
    works = {"run": msgspec.structs.replace(run, ref=""), "job": msgspec.structs.replace(job, parent=None)}
    return context.record("child_run", {part: drop_defaults(work) for part, work in works.items()}, name)


class Asker:
    """`ctx.ask("delete?", what, …)`: people approve it, in the inbox, and may change it."""

    def __init__(self, context: "JobContext") -> None:
        self.context = context

    def __call__(self, name: str, what: Any = None, **terms: Any) -> Any:
        if is_awaited(self.context):
            return self.aio(name, what, **terms)
        return run_steps(self.ask({name: what}, terms))[name]

    async def aio(self, name: str, what: Any = None, **terms: Any) -> Any:
        return (await await_steps(self.ask({name: what}, terms), self.context.calls))[name]

    def all(self, questions: Mapping[str, Any], **terms: Any) -> Any:
        """Asks several at once. Returns what was approved of each, by name, once all are decided."""
        if is_awaited(self.context):
            return self.all_aio(questions, **terms)
        return run_steps(self.ask(questions, terms))

    async def all_aio(self, questions: Mapping[str, Any], **terms: Any) -> dict[str, Any]:
        return await await_steps(self.ask(questions, terms), self.context.calls)

    def ask(self, questions: Mapping[str, Any], terms: dict[str, Any], title: str = "") -> Steps[dict[str, Any]]:
        """What was approved of each question, by name; `title` is what people see instead of the name of one."""
        for name, what in questions.items():
            check_record_name("a question", name)
            if name not in self.context.children:
                shown = self.context.clean(name, what)
                yield self.context.sender, make_record(self.context, name, make_approval(title or name, shown, **terms))
        answers = {}
        for name, what in questions.items():
            child = ChildJob(self.context, name)
            if not child.done:
                yield Await(CHILD + name)
            answers[name] = self.read(child.look(), title or name, what)
        return answers

    def read(self, status: ChildStatus, name: str, what: Any) -> Any:
        """What was approved: as it was asked for, or as somebody changed it.

        Raises:
            Rejected: somebody has rejected it.
            NoAnswer: nobody has decided in time, or it was cancelled.
        """
        if status.outcome == Category.SUCCESS:
            answer = {} if status.result is None else msgspec.json.decode(status.result)
            return answer.get("arguments", what)
        if status.trigger == "reject":
            raise Rejected(name, status.by, status.reason)
        raise NoAnswer(f"'{name}' was not decided in time" if status.by == "clock" else f"'{name}' was cancelled")


def make_approval(
    name: str, what: Any, *, approvers: Iterable[str] = (), quorum: int | None = None, expires: Length | None = None,
    not_submitter: bool = False,
) -> Work:  # fmt: skip
    """The work of an approval below a job. A rejection is for the handler to answer: it ends nothing by itself."""
    return Work(
        task=name, lifecycle=APPROVAL, input=msgspec.json.encode(what).decode(), quorum=quorum, on_reject="fail",
        approvers=tuple([approvers] if isinstance(approvers, str) else approvers), not_submitter=not_submitter,
        expires_us=None if expires is None else length_us("expires", expires),
    )  # fmt: skip
