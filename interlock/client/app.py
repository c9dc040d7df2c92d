"""An app: a database, the tasks that are run with it, and one way to send a command."""

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack, overload

from interlock.client.async_bridge import Mail
from interlock.client.async_pairs import Sender
from interlock.client.backend import Backend, address, is_far, open_far, open_here, tenant_of
from interlock.client.caller_transaction import Borrowed
from interlock.client.durations import Length
from interlock.client.inbox import Inbox
from interlock.client.jobs import Job
from interlock.client.runs import Run
from interlock.client.schedules import Schedules
from interlock.client.selections import JobWords, Selection
from interlock.client.tasks import Rules, Task
from interlock.client.why.explain import explain
from interlock.client.workflows import Workflow
from interlock.core.engine import refuse_fork
from interlock.core.plugin import Plugin, Registry
from interlock.kernel.commands import Command, DefineSchedule, DefineTemplate
from interlock.kernel.errors import InterlockError, Unknown
from interlock.kernel.ids import parse_id
from interlock.lifecycles import hurried, load, shipped
from interlock.plugins import STANDARD
from interlock.store.connection import Connection
from interlock.store.url import DEFAULT, checked

A = TypeVar("A")
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


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
        self.schedules = Schedules(self)
        self.every = self.schedules.every
        self.inbox = Inbox(self)
        self.opened: Backend | None = None
        self.process = os.getpid()  # that opened it
        self.last_mail: Mail | None = None
        self.opening = Lock()
        # A test puts the app on a stage with these: an engine of its own, and what happens while a job is waited for.
        self.opener: Callable[[], Backend]
        self.meanwhile: Callable[[Job, Length | None], None] | None = None
        self.reach(url, key, tenant)

    def add_plugins(self, plugins: Iterable[Plugin]) -> None:
        """It has these plugins too, from its next use on; those that it has already are left as they are."""
        new = Registry([plugin for plugin in plugins if plugin not in self.registry.plugins])
        if not new.plugins:
            return
        self.registry = Registry((*self.registry.plugins, *new.plugins))
        brought = new.lifecycles({})
        self.lifecycles = {**self.lifecycles, **(hurried(brought, self.hurry) if self.hurry != 1 else brought)}
        self.reach(self.url, self.key, self.tenant)

    def reach(self, url: str, key: str | None = None, tenant: int | None = None) -> None:
        """From the next use on it speaks to this database, or to this server with that key."""
        self.close()
        if not is_far(url):
            if key is not None:
                raise InterlockError("a key is for a server; a database has none")
            self.url, self.tenant, self.key = checked(url), 1 if tenant is None else tenant, key
            self.opener = partial(open_here, self.url, self.lifecycles, self.registry)
            return
        whose = tenant_of(key)
        if tenant not in (None, whose):
            raise InterlockError(f"this key speaks for tenant {whose}, and not for {tenant}")
        self.url, self.tenant, self.key = address(url), whose, key
        self.opener = partial(open_far, self.url, key or "", self.registry)

    @property
    def far(self) -> tuple[str, str] | None:
        """The server that it speaks to, and the key that it shows there."""
        return (self.url, self.key or "") if is_far(self.url) else None

    @property
    def engine(self) -> Backend:
        return self.connect()

    def connect(self) -> Backend:
        """It is connected: a SQLite file is there and migrated. Nobody needs to ask; the first use does."""
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
        """A function becomes a task of this app, under its own name or another."""

        def define(function: Callable[P, R]) -> Task[P, R]:
            return self.define(function, name or function.__name__, rules)

        return define if handler is None else define(handler)

    def define(self, handler: Callable[P, R], name: str, rules: dict[str, Any]) -> Task[P, R]:
        if name in self.tasks:
            raise InterlockError(f"this app has a task '{name}' already; give one of them another name")
        strange = [rule for rule in rules if rule not in Rules.__dataclass_fields__]
        if strange:
            known = ", ".join(Rules.__dataclass_fields__)
            raise InterlockError(f"task '{name}': there is no rule '{strange[0]}'; there are {known}")
        self.tasks[name] = task = Task(self, handler, name, Rules(**rules))
        return task

    def find_task(self, name: str) -> Task[Any, Any]:
        if name not in self.tasks:
            raise Unknown(f"this app has no task '{name}'; it has {', '.join(self.tasks) or 'none'}")
        return self.tasks[name]

    def workflow(self, name: str, steps: Sequence[Any]) -> Workflow:
        """Steps under a name, of which runs are made: tasks, approvals, other workflows, in their order."""
        if name in self.workflows:
            raise InterlockError(f"this app has a workflow '{name}' already; give one of them another name")
        made = Workflow(self, name, steps)
        self.workflows[name] = made
        return made

    @property
    def definitions(self) -> list[DefineSchedule | DefineTemplate]:
        """What the database must know of this app: its workflows, those inside others first, and its schedules."""
        workflows = [workflow.definition for workflow in self.workflows.values()]
        return [*workflows, *self.schedules.definitions.values()]

    def run(self, one: int | str) -> Run:
        """A run of a workflow by its id."""
        return Run(self, parse_id(one) if isinstance(one, str) else one)

    def rerun(self, one: int | str, *, from_: str | None = None, by: str = "local", reason: str = "") -> Run:
        """A new run of the steps of another one, from a step on; what came before it is taken over."""
        return self.run(one).rerun(from_=from_, by=by, reason=reason)

    def job(self, one: int | str) -> Job:
        """A job by its id."""
        return Job(self, parse_id(one) if isinstance(one, str) else one)

    def jobs(self, *ids: int | str, **words: Unpack[JobWords]) -> Selection:
        """Many jobs at once, by their ids or by a filter, to look at, count, cancel or requeue.

        `app.jobs(task="mail", state="queued")`: units that fit all that is said; nothing said is all of them.
        """
        return Selection(self, ids, **words)

    # Asking.

    def send(self, command: Command[A]) -> A:
        """The command is carried out whole and its answer given, or nothing has changed and the reason is raised."""
        return self.engine.send(command)

    async def asend(self, command: Command[A]) -> A:
        """The same, while others run."""
        return await self.mail.answer(self.engine.put(command))

    @property
    def mail(self) -> Mail:
        """Where the running loop gets its answers."""
        loop = asyncio.get_running_loop()
        if self.last_mail is None or self.last_mail.loop is not loop:
            self.last_mail = Mail(loop)
        return self.last_mail

    def put_all(self, commands: Sequence[Command[Any]]) -> "list[Future[Any]]":
        """Commands that are carried out in this order, and if nothing speaks against it in one transaction."""
        return self.engine.put_all(commands)

    def read(self, view: Callable[Concatenate[Connection, int, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What a view says of this app's tenant; nothing is changed by it."""
        return self.engine.see(view, self.tenant, *args, **kwargs)

    def why(self, one: int | str) -> str:
        """Why a unit is where it is, and what would move it on; by its id."""
        return self.read(explain, self.lifecycles, parse_id(one) if isinstance(one, str) else one).text

    def sender(self, connection: Any) -> Sender:
        """Whom a submit asks: the engine, or the caller's own open transaction."""
        return self if connection is None else Borrowed(self, connection)

    def close(self) -> None:
        """What was sent is answered, and every connection and thread is gone; after a fork the parent's stay."""
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
    """An app on the database that a URL names: `sqlite:///file.db`, `sqlite://:memory:` or `postgresql://…`.

    Without one it is the database that the commands use: that of INTERLOCK_DB, or `sqlite:///interlock.db`. With
    `http://…` or `https://…` it is the same app over a server, and `key`, or INTERLOCK_KEY, says for which tenant.
    `lifecycles` are files of your own. `hurry` divides all leases and beats, for tests alone. `redact` is given every
    error and traceback of a handler before it leaves the worker, and returns what may be stored, shown and logged.
    `plugins` are kinds of work beside those that Interlock ships.
    """
    url = os.environ.get("INTERLOCK_DB", DEFAULT) if url is None else url
    if key is None and is_far(url):
        key = os.environ.get("INTERLOCK_KEY")
    return App(url, tenant=tenant, lifecycles=lifecycles, hurry=hurry, key=key, redact=redact, plugins=plugins)
