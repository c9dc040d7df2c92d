"""An app: a database or a server, the tasks that run with it, and one way to send a command."""

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack, overload

from interlock.client.agents import Agent, AgentRun, define_agent
from interlock.client.async_pairs import AsyncBridge, Call, Sender, verb
from interlock.client.backend import Backend, find_tenant, is_far, open_far, open_here, parse_address
from interlock.client.blobs import has_large_value, pack, pack_apart, pack_values
from interlock.client.budgets import RunBudget
from interlock.client.caller_transaction import CallerTransaction
from interlock.client.ci_runs import CiRun
from interlock.client.durations import Length
from interlock.client.feed import EventFilter, Feed
from interlock.client.inbox import Inbox
from interlock.client.jobs import Job
from interlock.client.pauses import Until, parse_until
from interlock.client.runs import Run
from interlock.client.schedules import Schedules
from interlock.client.selections import JobFilter, Selection
from interlock.client.shell import make_shell_submit
from interlock.client.tasks import Rules, Task, check_options
from interlock.client.why import explain
from interlock.client.workflows import Workflow
from interlock.client.workstream_runs import WorkstreamRun
from interlock.client.workstreams import Workstream
from interlock.core.engine import refuse_fork
from interlock.core.plugin import Plugin, Registry
from interlock.kernel.commands import (
    LOCAL,
    Command,
    DefineContract,
    DefineSchedule,
    DefineTask,
    DefineTemplate,
    PauseStatus,
    PauseWork,
    Planned,
    UnpauseWork,
)
from interlock.kernel.errors import InterlockError, Unknown
from interlock.kernel.ids import parse_id
from interlock.kernel.rows import PauseRow
from interlock.lifecycles import hurried, load, shipped
from interlock.plugins import STANDARD
from interlock.plugins.pauses.queries import pauses_of
from interlock.store.connection import Connection
from interlock.store.url import DEFAULT, check_url

A = TypeVar("A")
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
RUNS: dict[str, type[Run]] = {
    "workstream": WorkstreamRun,
    "agent_run": AgentRun,
    "ci_run": CiRun,
}  # by how their ids begin


class App:
    """Made by `interlock.open`. It connects when it is first used, so a module may define one at its top."""

    def __init__(
        self, url: str, *, tenant: int | None = None, lifecycles: Iterable[str | Path] = (), hurry: int = 1,
        key: str | None = None, redact: Callable[[str], str] | None = None, plugins: Iterable[Plugin] = (),
    ) -> None:  # fmt: skip
        self.registry = Registry((*STANDARD.plugins, *plugins))
        if redact is not None and not callable(redact):
            raise InterlockError(f"redact = {redact!r} is not allowed; allowed is a function of text that returns text")
        self.redact = redact
        own = [load(Path(file)) for file in lifecycles]
        all_lifecycles = self.registry.lifecycles({**shipped(), **{lifecycle.name: lifecycle for lifecycle in own}})
        self.hurry = hurry
        self.lifecycles = hurried(all_lifecycles, hurry) if hurry != 1 else all_lifecycles
        self.tasks: dict[str, Task[Any, Any]] = {}
        self.workflows: dict[str, Workflow] = {}
        self.workstreams: dict[str, Workstream] = {}
        self.schedules = Schedules(self)
        self.every = self.schedules.every
        self.inbox = Inbox(self)
        self.opened: Backend | None = None
        self.process = os.getpid()  # that opened it
        self.last_bridge: AsyncBridge | None = None
        self.opening = Lock()
        # Tests set these: an engine of their own, and what happens while a job is waited for.
        self.opener: Callable[[], Backend]
        self.meanwhile: Callable[[Job, Length | None], None] | None = None
        self.reach(url, key, tenant)

    def add_plugins(self, plugins: Iterable[Plugin]) -> None:
        """Adds plugins, from its next use on; those that it has already are left as they are."""
        new = Registry([plugin for plugin in plugins if plugin not in self.registry.plugins])
        if not new.plugins:
            return
        self.registry = Registry((*self.registry.plugins, *new.plugins))
        brought = new.lifecycles({})
        self.lifecycles = {**self.lifecycles, **(hurried(brought, self.hurry) if self.hurry != 1 else brought)}
        self.reach(self.url, self.key, self.tenant)

    def reach(self, url: str, key: str | None = None, tenant: int | None = None) -> None:
        """Uses this database, or this server with that key, from the next use on.

        Raises:
            InterlockError: the URL or the key is not allowed.
        """
        self.close()
        if not is_far(url):
            if key is not None:
                raise InterlockError("a key is for a server; a database has none")
            self.url, self.tenant, self.key = check_url(url), 1 if tenant is None else tenant, key
            self.opener = partial(open_here, self.url, self.lifecycles, self.registry)
            return
        own = find_tenant(key)
        if tenant not in (None, own):
            raise InterlockError(f"this key is for tenant {own}, and not for {tenant}")
        self.url, self.tenant, self.key = parse_address(url), own, key
        self.opener = partial(open_far, self.url, key or "", self.registry)

    @property
    def far(self) -> tuple[str, str] | None:
        """The URL of the server that it uses, and the key that it sends; None beside a database."""
        return (self.url, self.key or "") if is_far(self.url) else None

    @property
    def engine(self) -> Backend:
        """The engine of the database, or the connection to the server; the first use opens it."""
        if self.opened is not None and self.process == os.getpid():
            return self.opened
        return self.connect()

    def connect(self) -> Backend:
        """Opens the database, creating and migrating a SQLite file,
        or connects to the server; the first use does it."""
        if self.opened is not None:
            refuse_fork(self.process)
        with self.opening:
            if self.opened is None:
                self.opened, self.process = self.opener(), os.getpid()
            return self.opened

    @overload
    def task(self, handler: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(self, /, *, name: str | None = None, **rules: Any) -> Callable[[Callable[P, R]], Task[P, R]]: ...

    def task(self, handler: Callable[..., Any] | None = None, /, *, name: str | None = None, **rules: Any) -> Any:
        """Makes a function a task of this app, under its own name or another; `rules` are the fields of `Rules`."""

        def define(function: Callable[P, R]) -> Task[P, R]:
            return self.define(function, name or function.__name__, rules)

        return define if handler is None else define(handler)

    def agent(
        self, handler: Callable[..., Any] | None = None, /, *, name: str | None = None, model: str | None = None,
        settings: Mapping[str, Any] | None = None, instructions: str | None = None, tools: Iterable[Any] = (),
        version: str | None = None, corrections: int | None = None, optimizations: int | None = None,
        validation: str | None = None, checks: Iterable[Any] | None = None, budget: RunBudget | None = None,
        **rules: Any,
    ) -> Any:  # fmt: skip
        """Makes a function an agent of this app: `.submit()` makes a run that can be resumed.

        Parameters:
            model: with `settings`, `instructions`, `tools` (functions, tools of a library, or `interlock.tool`) and
                `version` what its contract says: a run that was made under another one waits for a worker that has it.
            corrections: how often a run may enter this phase, over all its jobs; without it, as often as it wants.
            optimizations: the same of that phase.
            validation: off (the default), warn or enforce: whether a run may end without `ctx.validate`.
            checks: what validates: tasks, their names, `interlock.shell(…)`, `interlock.approval(…)`. Without it, a
                verdict comes from outside.
            budget: what a run and all below it may use (`interlock.budget`).
            rules: those of a task.
        """
        terms: dict[str, Any] = {
            "model": model, "settings": settings, "instructions": instructions, "tools": tools, "version": version,
            "corrections": corrections, "optimizations": optimizations, "validation": validation, "checks": checks,
        }  # fmt: skip

        def define(function: Callable[..., Any]) -> Agent:
            return define_agent(self, function, name or function.__name__, budget, dict(terms), rules)

        return define if handler is None else define(handler)

    def define(self, handler: Callable[P, R], name: str, rules: dict[str, Any]) -> Task[P, R]:
        if name in self.tasks:
            raise InterlockError(f"this app has a task '{name}' already; give one of them another name")
        unknown = [rule for rule in rules if rule not in Rules.__dataclass_fields__]
        if unknown:
            known = ", ".join(Rules.__dataclass_fields__)
            raise InterlockError(f"task '{name}': there is no rule '{unknown[0]}'; there are {known}")
        self.tasks[name] = task = Task(self, handler, name, Rules(**rules), rules)
        return task

    def find_task(self, name: str) -> Task[Any, Any]:
        """Raises Unknown if this app has no task of that name."""
        if name not in self.tasks:
            raise Unknown(f"this app has no task '{name}'; it has {', '.join(self.tasks) or 'none'}")
        return self.tasks[name]

    def workflow(self, name: str, steps: Sequence[Any]) -> Workflow:
        """Defines a workflow: tasks, approvals and other workflows in their order, under a name."""
        check_options({"name": name})
        if name in self.workflows:
            raise InterlockError(f"this app has a workflow '{name}' already; give one of them another name")
        self.workflows[name] = workflow = Workflow(self, name, steps)
        return workflow

    def workstream(self, name: str, tasks: Iterable[Any], **options: Any) -> Workstream:
        """Defines a workstream: a graph of tasks under a name; `options` are those of `Workstream`."""
        check_options({"name": name})
        if name in self.workstreams:
            raise InterlockError(f"this app has a workstream '{name}' already; give one of them another name")
        self.workstreams[name] = workstream = Workstream(self, name, tasks, **options)
        return workstream

    @property
    def definitions(self) -> list[DefineTask | DefineContract | DefineTemplate | DefineSchedule]:
        """What the database must know of this app: tasks, contracts, workflows (inner ones first) and schedules."""
        tasks = [task.definition for task in self.tasks.values()]
        contracts = [task.agent.definition for task in self.tasks.values() if task.agent is not None]
        workflows = [workflow.definition for workflow in self.workflows.values()]
        return [*tasks, *contracts, *workflows, *self.schedules.definitions.values()]

    def store_definitions(self) -> list[Planned]:
        """Stores the app's tasks, workflows and schedules in the database, as a worker does when it starts.

        Raises:
            InterlockError: one of them was refused; those before it are stored.
        """
        return [future.result() for future in self.put_all(self.definitions)] if self.definitions else []

    def run(self, run: int | str) -> Run:
        """Returns a run by its id; of a workstream or an agent, a handle of one. Nothing is read."""
        prefix = run.rpartition("_")[0] if isinstance(run, str) else ""
        return RUNS.get(prefix, Run)(self, parse_id(run) if isinstance(run, str) else run)

    def rerun(
        self, run: int | str, *, failed: bool = False, from_: str | None = None, by: str = "local", reason: str = ""
    ) -> Run:
        """Makes a new run that does what an ended one did: all of it, what has not succeeded, or from a step on."""
        return self.run(run).rerun(failed=failed, from_=from_, by=by, reason=reason)

    def job(self, job: int | str) -> Job:
        """Returns a job by its id; nothing is read."""
        return Job(self, parse_id(job) if isinstance(job, str) else job)

    @verb
    def shell(self, command: str, /, **options: Any) -> Call[Job]:
        """Submits a job that runs a shell command, on a worker that was started with `--shell`.

        `options` are those of `interlock.shell` and of a submit: `key`, `delay`, `priority`, `labels` and so on.

        Raises:
            InterlockError: the command or an option is wrong; the text names it.
        """
        sender = self.sender(options.pop("tx", None))
        submit = make_shell_submit(self, command, options)
        return Call(sender, submit, lambda made: Job(self, made[0].unit, created=made[0].created, lifecycle="job"))

    def jobs(self, *ids: int | str, **fields: Unpack[JobFilter]) -> Selection:
        """Selects many jobs, by their ids or by a filter, to read, count, cancel or requeue them.

        `app.jobs(task="mail", state="queued")` selects jobs that fit all fields; without fields it selects all jobs.
        """
        return Selection(self, ids, **fields)

    @verb
    def pause(
        self, *, queue: str | None = None, task: str | None = None, reason: str = "", until: Until | None = None,
        by: str = LOCAL,
    ) -> Call[PauseStatus]:  # fmt: skip
        """Pauses a queue or a task: nothing of it starts after the answer; what runs goes on.

        `until` is a time of day (`"18:00"`), a length of time, or a time; without it, it is paused until `unpause`.
        """
        end = parse_until(until)
        return Call(self, PauseWork(tenant=self.tenant, queue=queue, task=task, reason=reason, actor=by, **end))

    @verb
    def unpause(
        self, *, queue: str | None = None, task: str | None = None, outage: str | None = None, reason: str = "",
        by: str = LOCAL,
    ) -> Call[PauseStatus]:  # fmt: skip
        """Lets a queue or a task go on, or all that waits for something that was away (`outage`)."""
        command = UnpauseWork(
            tenant=self.tenant, queue=queue, task=task, outage=outage, reason=reason, actor=by
        )  # fmt: skip
        return Call(self, command)

    def pauses(self, *, ended: bool = False, limit: int = 100) -> list[PauseRow]:
        """Returns what is paused now, or with `ended` also what was, the latest first."""
        return self.read(pauses_of, ended=ended, limit=limit)

    def events(self, *, after: str | None = None, follow: bool = False, **fields: Unpack[EventFilter]) -> Feed:
        """Reads what happened to all jobs, runs and steps, in the order of commits: with `for` or with `async for`.

        `app.events(after=cursor, task="mail", state="failed")` has the events that fit all fields, behind a cursor.

        Parameters:
            after: the `cursor` of an event, or `now`; by default it begins with the first event that there is.
            follow: at the end it waits for what comes next, and never ends by itself.
        """
        return Feed(self, after, follow, **fields)

    # Commands and views.

    def send(self, command: Command[A]) -> A:
        """Carries out a command and returns its answer.

        Raises:
            InterlockError: the command was refused, and nothing has changed.
        """
        if has_large_value(command):
            command = pack_values(self, command)
        return self.engine.send(command)

    async def asend(self, command: Command[A]) -> A:
        """Does the same as `send`, and lets others run meanwhile."""
        if has_large_value(command):
            command = await pack_apart(self, command)
        return await self.bridge.wait_for(self.engine.put(command))

    @property
    def bridge(self) -> AsyncBridge:
        """Brings answers to the running loop."""
        loop = asyncio.get_running_loop()
        if self.last_bridge is None or self.last_bridge.loop is not loop:
            self.last_bridge = AsyncBridge(loop)
        return self.last_bridge

    def put_all(self, commands: Sequence[Command[Any]]) -> "list[Future[Any]]":
        """Starts commands, which are carried out in this order and if possible in one transaction."""
        large = any(map(has_large_value, commands))
        packed = [pack(self, command) for command in commands] if large else commands
        return self.engine.put_all(packed)

    def read(self, view: Callable[Concatenate[Connection, int, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Returns what a view says of this app's tenant; it changes nothing."""
        return self.engine.see(view, self.tenant, *args, **kwargs)

    def why(self, unit: int | str) -> str:
        """Explains why a job, run or step is in its state, and what would move it on."""
        return self.read(explain, self.lifecycles, parse_id(unit) if isinstance(unit, str) else unit).text

    def sender(self, connection: Any) -> Sender:
        """Returns who sends a submit: this app, or the caller's own open transaction on `connection`."""
        return self if connection is None else CallerTransaction(self, connection)

    def close(self) -> None:
        """When it returns,
        what was sent is answered and every connection and thread is gone; a fork leaves the parent's."""
        if self.opened is not None and os.getpid() != self.process:
            self.opened, self.opening = None, Lock()
            return
        with self.opening:
            if self.opened is not None:
                self.opened.close()
                self.opened = None

    def __enter__(self) -> "App":
        self.connect()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def open(  # noqa: A001
    url: str | None = None, *, tenant: int | None = None, lifecycles: Iterable[str | Path] = (), hurry: int = 1,
    key: str | None = None, redact: Callable[[str], str] | None = None, plugins: Iterable[Plugin] = (),
) -> App:  # fmt: skip
    """Makes an app on the database of a URL: `sqlite:///file.db`, `sqlite://:memory:` or `postgresql://…`.

    Without a URL it is the database of INTERLOCK_DB, or `sqlite:///interlock.db`, as for the command line. With
    `http://…` or `https://…` it is the same app over a server.

    Parameters:
        tenant: the tenant that it works for; 1 unless the key of a server says otherwise.
        lifecycles: lifecycle files of your own.
        hurry: divides all leases and heartbeats, for tests alone.
        key: the API key for a server; by default that of INTERLOCK_KEY.
        redact: gets every error and traceback of a handler before it leaves the worker, and returns what may be
            stored, shown and logged.
        plugins: kinds of work besides those that Interlock ships.

    Raises:
        InterlockError: the URL, the key or a lifecycle file is wrong. Nothing is opened yet.
    """
    url = os.environ.get("INTERLOCK_DB", DEFAULT) if url is None else url
    if key is None and is_far(url):
        key = os.environ.get("INTERLOCK_KEY")
    return App(url, tenant=tenant, lifecycles=lifecycles, hurry=hurry, key=key, redact=redact, plugins=plugins)
