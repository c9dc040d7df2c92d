"""Workstreams in TOML or JSON, in files and in requests.

    name = "site"
    checks = [{run = "make smoke"}]

    [tasks.fetch]
    run = "make fetch"

    [tasks.build]
    task = "build"
    needs = ["fetch"]
    timeout = "20m"

In a file, tasks are a table by name or a list with names. Every key is checked: one that there is not is named by its
path, with the one that is most like it.
"""

import json
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from interlock.client.repositories import merge
from interlock.client.shell import ShellCommand
from interlock.client.tasks import counted, make_resource, rated
from interlock.client.workflows import approval
from interlock.client.workstream_tasks import WorkstreamTask, add_map, check_rules, make_part
from interlock.client.workstreams import Workstream
from interlock.kernel.commands import Resource
from interlock.kernel.errors import InterlockError

if TYPE_CHECKING:
    from interlock.client.app import App

TASKS_MAX = 1_000  # of one request; a file may have more
MODES = ("exclusive", "shared", "counted", "rated")  # of a resource
FILE_MAX = 64 << 20  # bytes
NO_NUL = r"^[^\u0000]*$"
Word = Annotated[str, Meta(min_length=1, max_length=200, pattern=NO_NUL)]
Short = Annotated[str, Meta(max_length=200, pattern=NO_NUL)]
Script = Annotated[str, Meta(min_length=1, max_length=65_536, pattern=NO_NUL)]
Text = Annotated[str, Meta(max_length=2_000, pattern=NO_NUL)]
# A length of time: as in "20m", or a number of seconds.
Time = Annotated[str, Meta(min_length=1, max_length=40, pattern=NO_NUL)] | Annotated[float, Meta(ge=0, le=10**9)]
Number = Annotated[int, Meta(ge=1, le=1_000_000)]
Priority = Annotated[int, Meta(ge=-(2**31) + 1, le=2**31 - 1)]
Words = Annotated[tuple[Word, ...], Meta(max_length=50)]
SpecType = TypeVar("SpecType", bound=msgspec.Struct)
Needs = Annotated[tuple[Word, ...], Meta(max_length=10_000)]


class StrictSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Words that are not known are refused."""


class ResourceSpec(StrictSpec, frozen=True, kw_only=True):
    """What a task needs while it runs, where a word is not enough: `n` of the `of` that there are, or `n` per time."""

    mode: Literal[MODES]  # type: ignore[valid-type]
    n: Number = 1
    of: Number | None = None
    per: Time | None = None


class RunSpec(StrictSpec, frozen=True, kw_only=True):
    """What a task and a check have in common: a task of a program, or a command, with its rules."""

    task: Word | None = None  # a task of a program
    run: Script | None = None  # a command
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)  # of its own; others are the workstream's
    environment: dict[str, Annotated[str, Meta(pattern=NO_NUL)]] = msgspec.field(default_factory=dict)
    directory: Text = ""
    limits: dict[str, Annotated[float, Meta(ge=0, le=2**53)]] = msgspec.field(default_factory=dict)
    queue: Word | None = None
    attempts: Number | None = None
    timeout: Time | None = None
    capabilities: Words = ()
    mutex: Word | None = None
    resources: dict[Word, Literal["exclusive", "shared"] | ResourceSpec] = msgspec.field(default_factory=dict)


class CheckSpec(RunSpec, frozen=True, kw_only=True):
    """A check: a task, a command, a merge, or people who approve."""

    merge: Word | None = None  # the branch onto which the workstream is merged
    approval: Word | None = None  # what people see
    approvers: Words = ()
    quorum: Number | None = None
    expires: Time | None = None
    not_submitter: bool = False


class TaskSpec(RunSpec, frozen=True, kw_only=True):
    """A task of a workstream; without `task` and `run` it is the task of a program that has its name."""

    name: Word
    needs: Needs = ()
    critical: bool = True
    allow_failure: bool = False  # after its last attempt it counts as completed, with the output {"failed": …}
    over: Word | None = None  # of a map: a list in the output of a need, as in fetch.images
    argument: Word | None = None  # of a map: the argument that gets the element
    at_once: Number | None = None  # of a map: how many of its tasks run at a time
    takes: Time | None = None  # how long it will take, for the plan
    repo: Short | None = None  # a repository of its own; "" is none
    priority: Priority | None = None
    labels: dict[str, Text] = msgspec.field(default_factory=dict)
    checks: Annotated[tuple[Word | CheckSpec, ...], Meta(max_length=100)] = ()


class WorkstreamSpec(StrictSpec, frozen=True, kw_only=True):
    """A workstream and its tasks, in any order. A check that is a word is a task of a program."""

    name: Word
    tasks: tuple[TaskSpec, ...] = ()
    expects: Number | None = None  # how many tasks it has when it is planned, if more than these are to come
    checks: Annotated[tuple[Word | CheckSpec, ...], Meta(max_length=100)] = ()
    timeout: Time | None = None
    repo: Word | None = None  # the repository on which its tasks work, by the name that workers know
    ref: Word | None = None  # the revision at which it begins
    at_once: Number | None = None  # how many of its tasks run at a time
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)
    key: Word | None = None
    priority: Priority = 0
    labels: dict[str, Text] = msgspec.field(default_factory=dict)


# Reading.


def read_text(text: str, where: str, *, kind: str = "") -> dict[str, Any]:
    """Reads TOML or JSON. `kind` is "toml" or "json"; by default the text itself tells.

    Raises:
        InterlockError: it is neither, or has a key twice; the text says where.
    """
    if len(text) > FILE_MAX:
        raise InterlockError(f"{where} has {len(text):,} characters; allowed are {FILE_MAX:,}")
    is_json = kind == "json" or (kind != "toml" and text.lstrip().startswith("{"))
    try:
        value = json.loads(text, object_pairs_hook=refuse_twice) if is_json else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise InterlockError(f"{where} is no {'JSON' if is_json else 'TOML'}: {why}") from None
    if not isinstance(value, dict):
        raise InterlockError(f"{where} is no workstream; allowed is a table with a name and tasks")
    return value


def refuse_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns a JSON object.

    Raises:
        ValueError: one that has a key twice.
    """
    value: dict[str, Any] = {}
    for name, item in pairs:
        if name in value:
            raise ValueError(f"'{name}' is there twice")
        value[name] = item
    return value


def read_spec(given: Mapping[str, Any]) -> WorkstreamSpec:
    """Reads a workstream of a file.

    Raises:
        InterlockError: the text names what is wrong by its path.
    """
    check_keys("", given, WorkstreamSpec)
    tasks = given.get("tasks", ())
    if isinstance(tasks, Mapping):
        tasks = [add_name(name, task) for name, task in tasks.items()]
    if not isinstance(tasks, list | tuple):
        raise InterlockError(f"tasks = {tasks!r} is not allowed; allowed is a table by name, or a list")
    specs = [read_task_spec(place, task) for place, task in enumerate(tasks)]
    read_checks("checks", given.get("checks", ()))
    whole = convert("", {**given, "tasks": []}, WorkstreamSpec)
    return msgspec.structs.replace(whole, tasks=tuple(specs))


def read_task_specs(given: Mapping[str, Any]) -> list[TaskSpec]:
    """Reads the tasks of a file that adds them to a workstream.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    return list(read_spec({"name": "added", **{name: given[name] for name in given if name != "name"}}).tasks)


def add_name(name: str, task: Any) -> Any:
    """Returns a task of a table by name as one of a list."""
    if not isinstance(task, Mapping):
        raise InterlockError(f"tasks.{name} = {task!r} is not allowed; allowed is a table")
    if task.get("name", name) != name:
        raise InterlockError(f"tasks.{name}.name is not allowed; its name is that of its table")
    return {**task, "name": name}


def read_task_spec(place: int, given: Any) -> TaskSpec:
    """Reads a task of a file, at this place of its list."""
    if not isinstance(given, Mapping):
        raise InterlockError(f"tasks[{place}] = {given!r} is not allowed; allowed is a table")
    path = f"tasks.{given['name']}" if isinstance(given.get("name"), str) else f"tasks[{place}]"
    check_keys(f"{path}.", given, TaskSpec)
    read_checks(f"{path}.checks", given.get("checks", ()))
    return convert(f"{path}.", given, TaskSpec)


def read_checks(path: str, checks: Any) -> None:
    """Raises InterlockError for checks with a key that there is not."""
    if isinstance(checks, list | tuple):
        for place, check in enumerate(checks):
            if isinstance(check, Mapping):
                check_keys(f"{path}[{place}].", check, CheckSpec)


def check_keys(path: str, given: Mapping[str, Any], kind: type[msgspec.Struct]) -> None:
    """Raises InterlockError for a key that there is not, with the one that is most like it."""
    known = kind.__struct_fields__
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, 1)
            guess = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(known)}"
            raise InterlockError(f"{path}{name}: there is no such key; {guess}")


def convert(path: str, given: Mapping[str, Any], kind: type[SpecType]) -> SpecType:
    """Returns a table as its type.

    Raises:
        InterlockError: the text names the key by its path.
    """
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        why, _, at = str(error).partition(" - at `$.")
        if why.startswith("Invalid enum value"):  # of all that a file says, only resources have words to choose from
            why += f"; allowed are {', '.join(MODES)}"
        raise InterlockError(
            f"{(path + at.rstrip('`')).rstrip('.') or 'the file'}: {why[:1].lower()}{why[1:]}"
        ) from None


# Making.


def make_workstream(app: "App", spec: WorkstreamSpec) -> Workstream:
    """Makes a workstream of what a file or a request says.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    return Workstream(
        app, spec.name, [make_task_part(app, task) for task in spec.tasks],
        checks=[make_check_part(app, check) for check in spec.checks], timeout=spec.timeout,
        expects=spec.expects, repo=spec.repo, ref=spec.ref, at_once=spec.at_once,
    )  # fmt: skip


def make_options(spec: WorkstreamSpec) -> dict[str, Any]:
    """Returns what a file or a request says as options of a submit."""
    given = {"key": spec.key, "priority": spec.priority, "labels": spec.labels}
    return {name: value for name, value in given.items() if value}


def make_task_part(app: "App", spec: TaskSpec) -> WorkstreamTask:
    """Makes the part of a workstream that a file or a request says.

    Raises:
        InterlockError: the text names it.
    """
    try:
        work, rules = make_run(app, spec, spec.name)
        more: dict[str, Any] = {"priority": spec.priority, "labels": spec.labels}
        rules |= {name: value for name, value in more.items() if value}
        part = make_part(
            work, spec.name, needs=spec.needs, arguments=spec.arguments, critical=spec.critical,
            checks=[make_check_part(app, check) for check in spec.checks], rules=check_rules(rules),
            allow_failure=spec.allow_failure, repo=spec.repo, takes=spec.takes,
        )  # fmt: skip
        if spec.over is not None:
            return add_map(part, spec.over, spec.argument, spec.at_once)
        if spec.argument is not None or spec.at_once is not None:
            raise InterlockError("argument and at_once are not allowed without over; they are those of a map")
        return part
    except InterlockError as wrong:
        raise InterlockError(f"task '{spec.name}': {wrong}") from None


def make_run(app: "App", spec: RunSpec, name: str) -> tuple[Any, dict[str, Any]]:
    """Returns what runs, and the rules that it does not hold itself.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    if spec.task is not None and spec.run is not None:
        raise InterlockError("task and run are not allowed together; it is a task of a program, or a command")
    given: dict[str, Any] = {
        "queue": spec.queue, "attempts": spec.attempts, "timeout": spec.timeout, "mutex": spec.mutex,
        "capabilities": list(spec.capabilities), "resources": make_resources(spec.resources),
    }  # fmt: skip
    rules = {rule: value for rule, value in given.items() if value not in (None, [], ())}
    if spec.run is not None:
        limits = {limit: int(value) if value.is_integer() else value for limit, value in spec.limits.items()}
        own = {"environment": spec.environment, "directory": spec.directory, "limits": limits}
        return ShellCommand.check(spec.run, {**rules, **own}), {}
    for field in ("environment", "directory", "limits"):
        if getattr(spec, field):
            raise InterlockError(f"{field} is not allowed for a task of a program; it goes with run")
    task = spec.task or name
    return app.tasks.get(task, task), rules


def make_resources(given: Mapping[str, Any]) -> tuple[Resource, ...]:
    """Makes the resources that a file names."""
    return tuple(make_one_resource(name, spec) for name, spec in given.items())


def make_one_resource(name: str, spec: Any) -> Resource:
    """Raises InterlockError for a resource that could never be had."""
    mode = spec if isinstance(spec, str) else spec.mode
    try:
        refuse_other_numbers(mode, spec)
        if mode == "counted":
            return counted(name, spec.n, of=spec.of or 0)
        return rated(name, spec.n, spec.per or 0) if mode == "rated" else make_resource(name, mode)
    except InterlockError as wrong:
        raise InterlockError(f"resource '{name}': {wrong}") from None


def refuse_other_numbers(mode: str, spec: Any) -> None:
    """Raises InterlockError for numbers that this mode of a resource does not have."""
    allowed = {"counted": ("n", "of"), "rated": ("n", "per")}.get(mode, ())
    for name, without in (("n", 1), ("of", None), ("per", None)):
        if not isinstance(spec, str) and name not in allowed and getattr(spec, name) != without:
            takes = " and ".join(allowed) or "nothing more"
            raise InterlockError(f"{name} is not allowed for mode {mode}, which takes {takes}")


def make_check_part(app: "App", spec: "str | CheckSpec") -> Any:
    """Makes a check that a file or a request says.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    if isinstance(spec, str):
        return app.tasks.get(spec, spec)
    kinds = [name for name in ("task", "run", "merge", "approval") if getattr(spec, name) is not None]
    if len(kinds) != 1:
        raise InterlockError(
            f"a check says one of task, run, merge and approval, and this one says {' and '.join(kinds) or 'none'}"
        )
    if spec.merge is not None:
        if spec != CheckSpec(merge=spec.merge):
            raise InterlockError('a merge says nothing but the branch, as in {merge = "main"}')
        return merge(onto=spec.merge)
    if spec.approval is None:
        for name in ("approvers", "quorum", "expires", "not_submitter"):
            if getattr(spec, name):
                raise InterlockError(f"{name} is not allowed for this check; it goes with approval")
        work, rules = make_run(app, spec, spec.task or "")
        called = spec.task or "command"
        return make_part(
            work, called, needs=(), arguments=spec.arguments, critical=True, checks=(), rules=check_rules(rules)
        )
    return approval(
        spec.approval, approvers=spec.approvers, quorum=spec.quorum, expires=spec.expires,
        not_submitter=spec.not_submitter,
    )  # fmt: skip
