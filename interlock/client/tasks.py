"""Tasks: functions that are run later, by a worker, at least once."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypedDict, TypeVar, Unpack

import msgspec

from interlock.client.arguments import Arguments
from interlock.client.async_pairs import Asked, TwoWays
from interlock.client.durations import Length, instant_us, length_us
from interlock.client.jobs import Job
from interlock.client.origin import inherit
from interlock.core.checks import check
from interlock.kernel.commands import Submit, Submitted, Work
from interlock.kernel.errors import InterlockError

if TYPE_CHECKING:
    from interlock.client.app import App

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Limit:
    """At most `n` jobs that name `key` run at a time."""

    key: str
    n: int

    def __post_init__(self) -> None:
        refuse_strange({"limit.key": self.key, "limit.n": self.n})


@dataclass(frozen=True)
class Rate:
    """At most `n` jobs that name `key` begin in any stretch of time that is `per` long."""

    key: str
    n: int
    per: Length

    def __post_init__(self) -> None:
        refuse_strange({"rate.key": self.key, "rate.n": self.n})


def limit(key: str, n: int) -> Limit:
    """At most `n` jobs that name `key` run at a time."""
    return Limit(key, n)


def rate(key: str, n: int, per: Length) -> Rate:
    """At most `n` jobs that name `key` begin in any stretch of time that is `per` long."""
    return Rate(key, n, per)


class Options(TypedDict, total=False):
    """What a submit may say beside the arguments of its task."""

    key: str  # one job a task and key
    on_duplicate: str  # of a key that is taken: return, reject or replace
    delay: Length
    at: datetime
    priority: int
    queue: str
    mutex: str
    limit: Limit
    rate: Rate
    capabilities: Iterable[str]
    labels: Mapping[str, str]
    correlation: str
    trace: str
    tx: Any  # the caller's own open transaction


OPTIONS = tuple(Options.__annotations__)


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What a task says of all its jobs; nothing said is what the lifecycle says."""

    queue: str = "default"
    priority: int = 0
    attempts: int | None = None
    timeout: Length | None = None
    queue_timeout: Length | None = None
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
    labels: Mapping[str, str] = field(default_factory=dict)


# Lengths of time in the rules, and what a unit of work calls them.
LENGTHS = {
    "timeout": "timeout_us", "queue_timeout": "queue_timeout_us", "backoff": "backoff_us",
    "backoff_cap": "backoff_cap_us", "lease": "ttl_us", "beat": "beat_us", "sla": "sla_us",
}  # fmt: skip


WORDS = (str, "text")
KINDS: dict[str, tuple[Any, str]] = {
    **dict.fromkeys(
        ("key", "on_duplicate", "queue", "mutex", "correlation", "trace", "exhausted", "limit.key", "rate.key"), WORDS
    ),
    **dict.fromkeys(("priority", "attempts", "limit.n", "rate.n"), (int, "a whole number")),
    "limit": (Limit, "interlock.limit(key, n)"),
    "rate": (Rate, "interlock.rate(key, n, per)"),
    "capabilities": (list[str], "a list of words"),
    "labels": (dict[str, str], "a mapping of text to text"),
}
OPTIONAL = ("key", "mutex", "limit", "rate", "exhausted", "attempts")


def refuse_strange(said: Mapping[str, Any]) -> None:
    """What a task or a submit says is of the right kind. Raises InterlockError, which says what is allowed."""
    for name, value in said.items():
        kind, allowed = KINDS.get(name, (Any, ""))
        if value is None and name in OPTIONAL:
            continue
        try:
            if not isinstance(value, Limit | Rate) or type(value) is not kind:
                msgspec.convert(value, kind, strict=True)
        except (msgspec.ValidationError, TypeError):
            raise InterlockError(f"{name} = {value!r} is not allowed; allowed is {allowed}") from None


def as_written(text: str) -> str:
    """What the engine says of a rule, under the name that the rule has here."""
    for name, us in LENGTHS.items():
        text = text.replace(us, name)
    return text


class Task(Generic[P, R]):
    """A handler under a name. Called like the function that it is, it runs here and now."""

    def __init__(self, app: "App", handler: Callable[P, R], name: str, rules: Rules) -> None:
        self.app, self.handler, self.name, self.rules = app, handler, name, rules
        self.arguments = Arguments(name, handler, OPTIONS)
        # Where a worker runs it: in a process of its own, on the worker's loop, or in a thread.
        self.place = "process" if rules.process else "loop" if inspect.iscoroutinefunction(handler) else "thread"
        self.submit = TwoWays(self.one)
        self.submit_many = TwoWays(self.many)
        self.__name__, self.__doc__ = name, handler.__doc__
        # Rules that could never hold are refused where they are written.
        try:
            refuse_strange(vars(rules))
            self.plain = self.work("null", {})
            check(app.lifecycles, self.plain, app.registry.hooks)
        except InterlockError as wrong:
            raise InterlockError(f"task '{name}': {as_written(str(wrong))}") from None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.handler(*args, **kwargs)

    def one(self, *args: Any, **given: Any) -> Asked[Job]:
        """One job; its id is known once it is durable."""
        options = {name: given.pop(name) for name in OPTIONS if name in given}
        tx, command = options.pop("tx", None), self.command([(args, given)], options)
        return self.app.sender(tx), command, lambda answer: self.job(answer[0])

    def many(self, calls: Iterable[Mapping[str, Any]], **options: Unpack[Options]) -> Asked[list[Job]]:
        """A job for each set of arguments, all of them or none."""
        strange = [name for name in options if name not in OPTIONS]
        if strange:
            raise InterlockError(f"submit_many has no option '{strange[0]}'; it has {', '.join(OPTIONS)}")
        rest = dict(options)
        tx, command = rest.pop("tx", None), self.command([((), call) for call in calls], rest)
        return self.app.sender(tx), command, lambda found: [self.job(one) for one in found]

    def command(self, calls: list[tuple[tuple[Any, ...], Mapping[str, Any]]], options: dict[str, Any]) -> Submit:
        refuse_strange(options)
        work = inherit(self.app, self.work("null", options) if options else self.plain)
        packed = (self.arguments.packed(args, kwargs) for args, kwargs in calls)
        return Submit(tenant=self.app.tenant, work=tuple(msgspec.structs.replace(work, input=text) for text in packed))

    def work(self, text: str, options: dict[str, Any]) -> Work:
        """The unit that a submit makes: by the task's rules, and by what this submit says."""
        rules, said = self.rules, options.get
        limit, rate, at = said("limit", rules.limit), said("rate", rules.rate), said("at")
        lengths: dict[str, Any] = {
            us: length_us(name, getattr(rules, name))
            for name, us in LENGTHS.items()
            if getattr(rules, name) is not None
        }
        labels = {**rules.labels, **said("labels", {})}
        return Work(
            task=self.name, input=text, queue=said("queue", rules.queue), priority=said("priority", rules.priority),
            capabilities=tuple(said("capabilities", rules.capabilities)), key=said("key"),
            on_duplicate=said("on_duplicate", "return"), mutex=said("mutex", rules.mutex),
            limit_key=limit.key if limit else None, limit=limit.n if limit else None,
            rate_key=rate.key if rate else None, rate=rate.n if rate else None,
            rate_per_us=length_us("rate", rate.per) if rate else None,
            delay_us=length_us("delay", said("delay", 0)), at_us=None if at is None else instant_us("at", at),
            labels=msgspec.json.encode(labels).decode(), correlation=said("correlation", ""), trace=said("trace", ""),
            attempts=rules.attempts, exhausted=rules.exhausted, silent=rules.silent,
            **lengths,
        )  # fmt: skip

    def job(self, made: Submitted) -> Job:
        return Job(self.app, made.unit, created=made.created, lifecycle=made.lifecycle)
