"""Tasks: functions that a worker runs later, at least once.

What a handler submits belongs to the job that it runs for. The worker sets `RUNNING` where it calls a handler. It is a
context variable, so it goes with coroutines, tasks and `asyncio.to_thread`,
and each of several jobs that run at the same
time has its own. A thread that a handler starts itself has it if it is started with `contextvars.copy_context().run`.
"""

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypedDict, TypeVar, Unpack

import msgspec

from interlock.client.arguments import Arguments
from interlock.client.async_pairs import Call, verb
from interlock.client.durations import Length, instant_us, length_us
from interlock.client.jobs import Job
from interlock.core.validation import check_work
from interlock.kernel.commands import DefineTask, LeaseGrant, Resource, Submit, Submitted, Work
from interlock.kernel.errors import InterlockError
from interlock.kernel.ids import format_id, parse_id
from interlock.plugins.concurrency.resources import check_resource
from interlock.plugins.tasks.definitions import DEFAULTS

if TYPE_CHECKING:
    from interlock.client.agents import Agent
    from interlock.client.app import App

P = ParamSpec("P")
R = TypeVar("R")
MODES = ("exclusive", "shared")  # of a resource that is given as in {"repo": "exclusive"}
RUNNING: "ContextVar[tuple[App, LeaseGrant] | None]" = ContextVar("interlock_running", default=None)


@dataclass(frozen=True)
class Limit:
    """At most `n` jobs that name `key` run at a time."""

    key: str
    n: int

    def __post_init__(self) -> None:
        check_options({"limit.key": self.key, "limit.n": self.n})


@dataclass(frozen=True)
class Rate:
    """At most `n` jobs that name `key` begin in any stretch of time that is `per` long."""

    key: str
    n: int
    per: Length

    def __post_init__(self) -> None:
        check_options({"rate.key": self.key, "rate.n": self.n})


def limit(key: str, n: int) -> Limit:
    """At most `n` jobs that name `key` run at a time."""
    return Limit(key, n)


def rate(key: str, n: int, per: Length) -> Rate:
    """At most `n` jobs that name `key` begin in any stretch of time that is `per` long."""
    return Rate(key, n, per)


JobId = Job | int | str


def parse_ids(name: str, jobs: Iterable[JobId]) -> tuple[int, ...]:
    """Returns the numbers of jobs that are given as handles, ids or numbers.

    Raises:
        InterlockError: it is no list of such, or one of them is no id.
    """
    given: list[Any] = list(jobs) if isinstance(jobs, Iterable) and not isinstance(jobs, str) else [None]
    if not all(isinstance(job, Job | int | str) for job in given):
        raise InterlockError(f"{name} = {jobs!r} is not allowed; allowed is a list of jobs or of their ids")
    ids = (job.unit if isinstance(job, Job) else job for job in given)
    return tuple(parse_id(job) if isinstance(job, str) else job for job in ids)


def exclusive(name: str) -> Resource:
    """A resource that nobody else uses while a job that names it runs."""
    return make_resource(name, "exclusive")


def shared(name: str) -> Resource:
    """A resource that nobody uses exclusively while a job that names it runs; many may share it."""
    return make_resource(name, "shared")


def counted(name: str, n: int, *, of: int) -> Resource:
    """`n` of the `of` that there are of a resource, such as 2 of 8 graphics cards."""
    return make_resource(name, "counted", n, of=of)


def rated(name: str, n: int, per: Length) -> Resource:
    """A resource that at most `n` jobs begin to use in any stretch of time that is `per` long."""
    return make_resource(name, "rated", n, per_us=length_us("per", per))


def make_resource(name: str, mode: str, n: int = 1, **numbers: int) -> Resource:
    """Raises InterlockError for one that could never be had."""
    check_options({"resource.name": name, "resource.n": n, **{f"resource.{key}": numbers[key] for key in numbers}})
    resource = Resource(name, mode, n, **numbers)
    check_resource(resource)
    return resource


def parse_list(word: str, values: Any) -> tuple[Any, ...]:
    """Returns a list that somebody gave.

    Raises:
        InterlockError: it is none, text among it.
    """
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise InterlockError(f"{word} = {values!r} is not allowed; allowed is a list")
    return tuple(values)


def parse_resources(resources: Any) -> tuple[Resource, ...]:
    """Returns resources that are given as a list, or as in `{"repo": "exclusive"}`.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    if not isinstance(resources, Mapping):
        return parse_list("resources", resources)
    for name, mode in resources.items():
        if mode not in MODES:
            raise InterlockError(
                f"resources: '{name}' = {mode!r} is not allowed; allowed are {' and '.join(MODES)}, or a list of "
                "interlock.exclusive(name), shared, counted or rated"
            )
    return tuple(make_resource(name, mode) for name, mode in resources.items())


class SubmitOptions(TypedDict, total=False):
    """What a submit may say besides the arguments of its task."""

    key: str  # idempotency key: the same task and key returns the existing job
    on_duplicate: str  # if the key is taken: return, reject or replace
    delay: Length
    at: datetime
    priority: int
    queue: str
    mutex: str
    limit: Limit
    rate: Rate
    resources: Iterable[Resource]
    capabilities: Iterable[str]
    labels: Mapping[str, str]
    correlation: str
    trace: str
    after: Iterable[JobId]  # jobs that must succeed first
    after_end: Iterable[JobId]  # jobs that must only have ended, whatever came of them
    tx: Any  # the caller's own open transaction


OPTIONS = tuple(SubmitOptions.__annotations__)


class RunSubmitOptions(TypedDict, total=False):
    """What a submit of a run or of a workstream may say besides its arguments."""

    key: str  # idempotency key: the same workflow or workstream and key returns the existing one
    on_duplicate: str
    priority: int
    labels: Mapping[str, str]
    correlation: str
    trace: str
    by: str  # who submits it


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What a task sets for all its jobs; None leaves it to the lifecycle."""

    queue: str = "default"
    priority: int = 0
    attempts: int | None = None
    timeout: Length | None = None
    queue_timeout: Length | None = None
    cancel_timeout: Length | None = None
    losses: int | None = None
    depends: str | Iterable[str] = ()
    backoff: Length | None = None
    backoff_cap: Length | None = None
    exhausted: str | None = None
    lease: Length | None = None
    beat: Length | None = None
    silent: bool = False
    sla: Length | None = None
    capabilities: Iterable[str] = ()
    process: bool = False
    mutex: str | None = None
    limit: Limit | None = None
    rate: Rate | None = None
    resources: Iterable[Resource] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    keep: Length | None = None
    redact: Callable[[Any], Any] | None = None  # takes out what may not be recorded of steps, effects and questions


# Lengths of time in the rules, and the fields of `Work` that they become.
LENGTHS = {
    "timeout": "timeout_us", "queue_timeout": "queue_timeout_us", "cancel_timeout": "cancel_timeout_us",
    "backoff": "backoff_us", "backoff_cap": "backoff_cap_us", "lease": "ttl_us", "beat": "beat_us", "sla": "sla_us",
    "keep": "keep_us",
}  # fmt: skip


TEXT = (str, "text")
TYPES: dict[str, tuple[Any, str]] = {  # of each option its type, and how a message names that type
    **dict.fromkeys(
        ("name", "key", "on_duplicate", "queue", "mutex", "correlation", "trace", "exhausted", "limit.key", "rate.key"),
        TEXT,
    ),
    "settle": TEXT,
    **dict.fromkeys(("priority", "attempts", "losses", "limit.n", "rate.n"), (int, "a whole number")),
    "retry_of": (int | str, "the id of a run"),
    "limit": (Limit, "interlock.limit(key, n)"),
    "rate": (Rate, "interlock.rate(key, n, per)"),
    "capabilities": (list[str], "a list of words"),
    "resources": (list[Resource], "a list of interlock.exclusive(name), shared, counted or rated"),
    "resource.name": TEXT,
    **dict.fromkeys(("resource.n", "resource.of", "resource.per_us"), (int, "a whole number")),
    "depends": (str | list[str], "a name or a list of names"),
    "labels": (dict[str, str], "a mapping of text to text"),
}
OPTIONAL = ("key", "mutex", "limit", "rate", "exhausted", "attempts", "losses", "settle", "retry_of")


def take_by(options: dict[str, Any]) -> str | None:
    """Takes out of options who submits.

    Raises:
        InterlockError: that is no text.
    """
    by = options.pop("by", None)
    if by is not None and not isinstance(by, str):
        raise InterlockError(f"by = {by!r} is not allowed; allowed is text")
    return by


def check_options(options: Mapping[str, Any]) -> None:
    """Checks the types of rules or options.

    Raises:
        InterlockError: one has a wrong type; the text says what is allowed.
    """
    for name, value in options.items():
        kind, allowed = TYPES.get(name, (Any, ""))
        if value is None and name in OPTIONAL:
            continue
        try:
            if not isinstance(value, Limit | Rate) or type(value) is not kind:
                msgspec.convert(value, kind, strict=True)
        except (msgspec.ValidationError, TypeError):
            raise InterlockError(f"{name} = {value!r} is not allowed; allowed is {allowed}") from None


def refuse_unknown_options(verb: str, options: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """Raises InterlockError for an option that a verb does not have."""
    unknown = [name for name in options if name not in known]
    if unknown:
        raise InterlockError(f"{verb} has no option '{unknown[0]}'; it has {', '.join(known)}")


def name_rules(text: str) -> str:
    """Returns an error text of the engine with the names that the rules have here."""
    for name, us in LENGTHS.items():
        text = text.replace(us, name)
    return text


def list_explicit(work: Work, named: Collection[str]) -> tuple[str, ...]:
    """Returns the fields of work that rules or options of these names set to what they are anyway."""
    fields = {LENGTHS.get(name, name) for name in named}
    return tuple(sorted(field for field in fields if field in DEFAULTS and getattr(work, field) == DEFAULTS[field]))


def inherit(app: "App", work: Work) -> Work:
    """Returns work with the correlation and the trace of the job whose handler submits it, unless it has its own.

    It also names its cause, the event by which that job was handed to its worker,
    if the job is of the same app: another
    database does not know it. Outside of a handler the work stays as it is.
    """
    running = RUNNING.get()
    if running is None:
        return work
    own_app, grant = running
    return msgspec.structs.replace(
        work,
        correlation=work.correlation or grant.correlation,
        trace=work.trace or grant.trace,
        cause=f"{format_id(grant.lifecycle, grant.unit)}:{grant.version}" if own_app is app else "",
    )


def make_work(name: str, rules: Rules, text: str, options: Mapping[str, Any]) -> Work:
    """Makes the work that a submit of a task sends: by the task's rules, and by the options of this submit."""
    get = options.get
    limit, rate, at = get("limit", rules.limit), get("rate", rules.rate), get("at")
    lengths: dict[str, Any] = {
        us: length_us(rule, getattr(rules, rule)) for rule, us in LENGTHS.items() if getattr(rules, rule) is not None
    }
    labels = {**rules.labels, **get("labels", {})}
    return Work(
        task=name, input=text, queue=get("queue", rules.queue), priority=get("priority", rules.priority),
        capabilities=tuple(get("capabilities", rules.capabilities)), key=get("key"),
        on_duplicate=get("on_duplicate", "return"), mutex=get("mutex", rules.mutex),
        limit_key=limit.key if limit else None, limit=limit.n if limit else None,
        rate_key=rate.key if rate else None, rate=rate.n if rate else None,
        rate_per_us=length_us("rate", rate.per) if rate else None,
        delay_us=length_us("delay", get("delay", 0)), at_us=None if at is None else instant_us("at", at),
        labels=msgspec.json.encode(labels).decode(), correlation=get("correlation", ""), trace=get("trace", ""),
        after=parse_ids("after", get("after", ())), after_end=parse_ids("after_end", get("after_end", ())),
        resources=tuple(get("resources", rules.resources)),
        depends=(rules.depends,) if isinstance(rules.depends, str) else tuple(rules.depends),
        attempts=rules.attempts, losses=rules.losses, exhausted=rules.exhausted, silent=rules.silent,
        **lengths,
    )  # fmt: skip


class Task(Generic[P, R]):
    """A handler under a name. Called like the function that it is, it runs here and now."""

    agent: "Agent | None" = None  # that it is the handler of

    def __init__(self, app: "App", handler: Callable[P, R], name: str, rules: Rules, named: Iterable[str] = ()) -> None:
        """`named` are the rules that the program names.

        Raises:
            InterlockError: rules that could never hold.
        """
        self.app, self.handler, self.name, self.rules, self.named = app, handler, name, rules, frozenset(named)
        self.arguments = Arguments(name, handler, OPTIONS)
        # Where a worker runs it: in a process of its own, on the worker's loop, or in a thread.
        self.is_async = inspect.iscoroutinefunction(handler)
        self.place = "process" if rules.process else "loop" if self.is_async else "thread"
        self.__name__, self.__doc__ = name, handler.__doc__
        try:
            check_options(vars(rules))
            self.plain_work = self.make_work("null", {})
            check_work(app.lifecycles, self.plain_work, app.registry.hooks)
        except InterlockError as wrong:
            raise InterlockError(f"task '{name}': {name_rules(str(wrong))}") from None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.handler(*args, **kwargs)

    @property
    def definition(self) -> DefineTask:
        """What the database must know of this task."""
        work = msgspec.structs.replace(self.plain_work, explicit=())
        return DefineTask(tenant=self.app.tenant, work=work, parameters=self.arguments.parameters)

    @verb
    def submit(self, *args: Any, **kwargs: Any) -> Call[Job]:
        """Submits one job with these arguments and options (`SubmitOptions`); when it returns, the job is durable.

        Raises:
            InterlockError: an argument or an option is wrong; the text names it.
        """
        options = {name: kwargs.pop(name) for name in OPTIONS if name in kwargs}
        sender = self.app.sender(options.pop("tx", None)) if options else self.app
        return Call(sender, self.make_submit([(args, kwargs)], options), lambda made: self.make_job(made[0]))

    @verb
    def submit_many(self, calls: Iterable[Mapping[str, Any]], **options: Unpack[SubmitOptions]) -> Call[list[Job]]:
        """Submits one job per set of arguments, all of them or none.

        Raises:
            InterlockError: an argument or an option is wrong; the text names it.
        """
        refuse_unknown_options("submit_many", options, OPTIONS)
        others = dict(options)
        sender = self.app.sender(others.pop("tx", None))
        command = self.make_submit([((), call) for call in calls], others)
        return Call(sender, command, lambda made: [self.make_job(each) for each in made])

    def make_submit(self, calls: list[tuple[tuple[Any, ...], Mapping[str, Any]]], options: dict[str, Any]) -> Submit:
        work = self.plain_work
        if options:
            check_options(options)
            work = self.make_work("null", options)
        if RUNNING.get() is not None:
            work = inherit(self.app, work)
        inputs = [self.arguments.encode(args, kwargs) for args, kwargs in calls]
        return Submit(tenant=self.app.tenant, work=tuple(msgspec.structs.replace(work, input=text) for text in inputs))

    def make_work(self, text: str, options: dict[str, Any]) -> Work:
        """Makes the work that a submit sends: by the task's rules, and by the options of this submit."""
        work = make_work(self.name, self.rules, text, options)
        return msgspec.structs.replace(work, explicit=list_explicit(work, {*self.named, *options}))

    def make_job(self, made: Submitted) -> Job:
        return Job(self.app, made.unit, created=made.created, lifecycle=made.lifecycle)
