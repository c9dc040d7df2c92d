"""Children of a job or a run: `run.add(build, "build", needs=["fetch"])`, `run.step("build")`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from interlock.client.arguments import encode_arguments
from interlock.client.async_pairs import Read, SendAll, Steps
from interlock.client.jobs import Job
from interlock.client.tasks import (
    OPTIONS,
    JobId,
    Rules,
    Task,
    check_options,
    inherit,
    make_work,
    parse_ids,
    refuse_unknown_options,
)
from interlock.kernel.commands import Submit, Submitted, Work
from interlock.kernel.errors import InterlockError
from interlock.kernel.lifecycle_options import RollUp
from interlock.store.queries.views import child_named, read_summary

if TYPE_CHECKING:
    from interlock.client.app import App

PAGE = 1_000  # children of one command
NOT_FOR_CHILDREN = ("tx", "after", "after_end")  # options of a submit that a child has in another way, or not at all
# The lifecycle of a child, by the rule by which the children of its parent decide its state.
LIFECYCLES = {RollUp.ALL: "step", RollUp.CRITICAL: "task", RollUp.REQUIRED: "ci_job", RollUp.SINGLE: "agent_job"}


@dataclass(frozen=True)
class ChildWork:
    """A job that is to be a child of another one: its task, its name there, and what it needs."""

    task: "Task[Any, Any] | str"
    name: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    needs_end: tuple[str, ...] = ()
    after: tuple[int, ...] = ()
    after_end: tuple[int, ...] = ()
    decides: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)


def child(
    task: "Task[Any, Any] | str", name: str | None = None, arguments: Mapping[str, Any] | None = None, *,
    needs: Iterable[str] = (), needs_end: Iterable[str] = (), after: Iterable[JobId] = (),
    after_end: Iterable[JobId] = (), decides: bool = True, **options: Any,
) -> ChildWork:  # fmt: skip
    """Describes a child for `add_many`; nothing is sent.

    Parameters:
        name: its name in its parent, which no other child of it has; adding it again adds nothing.
        needs: names of children that must succeed first, also of those that are added later.
        needs_end: names of children that must only have ended, whatever came of them.
        after: jobs that must succeed first, wherever they are.
        after_end: jobs that must only have ended.
        decides: whether its failure may decide that of its parent.
        options: those of `submit`, such as `queue` or `priority`.

    Raises:
        InterlockError: an option is wrong; the text names it.
    """
    if name is not None and not isinstance(name, str):
        raise InterlockError(f"name = {name!r} is not allowed; allowed is text")
    needs, needs_end = parse_names("needs", needs), parse_names("needs_end", needs_end)
    refuse_unknown_options("add", options, tuple(option for option in OPTIONS if option not in NOT_FOR_CHILDREN))
    check_options(options)
    return ChildWork(
        task, name, dict(arguments or {}), needs, needs_end, parse_ids("after", after),
        parse_ids("after_end", after_end), decides, options,
    )  # fmt: skip


def parse_names(word: str, names: Iterable[str]) -> tuple[str, ...]:
    """Returns names of children.

    Raises:
        InterlockError: it is no list of names.
    """
    given: list[Any] = list(names) if isinstance(names, Iterable) and not isinstance(names, str) else [None]
    if not all(isinstance(name, str) for name in given):
        raise InterlockError(f"{word} = {names!r} is not allowed; allowed is a list of names")
    return tuple(given)


def make_child_work(app: "App", parent: int, lifecycle: str, child: ChildWork) -> Work:
    """Makes the work that a submit sends for a child.

    Raises:
        InterlockError: wrong arguments.
    """
    if isinstance(child.task, Task):
        work = child.task.make_work(encode_given(child.task, child), dict(child.options))
    elif isinstance(child.task, str):
        work = make_work(child.task, Rules(), encode_arguments(child.arguments).decode(), child.options)
    else:
        raise InterlockError(f"{child.task!r} is no task; allowed is a task, or the name of one")
    return msgspec.structs.replace(
        inherit(app, work), lifecycle=lifecycle, parent=parent, step=child.name, needs=child.needs,
        needs_end=child.needs_end, after=child.after, after_end=child.after_end, decides=child.decides,
    )  # fmt: skip


def encode_given(task: "Task[Any, Any]", child: ChildWork) -> str:
    """Encodes the arguments of a child; those that it will get from what it needs may be left out."""
    coming = {*child.needs, *child.needs_end} & set(task.arguments.names)
    if not coming - child.arguments.keys():
        return task.arguments.encode((), child.arguments)
    unknown = [name for name in child.arguments if name not in task.arguments.names]
    if unknown:
        raise InterlockError(
            f"task '{task.name}': there is no argument '{unknown[0]}'; it takes {task.arguments.describe()}"
        )
    return encode_arguments(child.arguments).decode()


def add_children(parent: Job, children: Sequence[ChildWork]) -> Steps[list[Job]]:
    """Adds children, in pages of 1,000; each page is added whole or not at all.

    Raises:
        InterlockError: a child was refused. Pages before it stay; adding all again goes on behind them.
    """
    app = parent.app
    if not parent.lifecycle:
        parent.lifecycle = (yield Read(read_summary, (parent.unit,))).lifecycle
    rule = app.lifecycles[parent.lifecycle].options.roll_up if parent.lifecycle in app.lifecycles else RollUp.NONE
    works = [make_child_work(app, parent.unit, LIFECYCLES.get(rule, "job"), child) for child in children]
    made: list[Submitted] = []
    for start in range(0, len(works), PAGE):
        (answer,) = yield SendAll([Submit(tenant=app.tenant, work=tuple(works[start : start + PAGE]))])
        if isinstance(answer, BaseException):
            raise answer
        made += answer
    return [Job(app, each.unit, created=each.created, lifecycle=each.lifecycle) for each in made]


def find_child(parent: Job, name: str) -> Steps[Job]:
    """Finds the child that has this name.

    Raises:
        Unknown: the text says what the names are.
    """
    check_options({"name": name})
    stand = yield Read(child_named, (parent.unit, name))
    return Job(parent.app, stand.unit, lifecycle=stand.lifecycle)
