"""Define workstreams: `app.workstream("site", tasks=[fetch, interlock.task(build, needs=[fetch])])`.

A workstream is a graph of tasks. `submit` makes it with all its tasks: one command for up to 1,000 of them, so that
they are there together or not at all, and pages of 1,000 for more. Every way to declare one (Python, a file, HTTP)
ends in the same parts, `WorkstreamTask`, and in the same works.
"""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any

import msgspec

from interlock.client.arguments import RunArguments, StepParameter
from interlock.client.async_pairs import Read, Steps, verb_of_steps
from interlock.client.durations import Length, length_us
from interlock.client.repositories import begin_at, make_repository, take_ref
from interlock.client.tasks import RunSubmitOptions, Task, check_options, inherit, parse_list, take_by
from interlock.client.workstream_runs import WorkstreamRun
from interlock.client.workstream_tasks import TOP, WorkstreamTask
from interlock.client.workstream_works import (
    TASK,
    WORKSTREAM,
    check_part,
    encode_checks,
    encode_input,
    encode_options,
    make_check,
    make_task_work,
    read_part,
    send_one,
    send_pages,
    split_pages,
)
from interlock.kernel.commands import LOCAL, Submit, Submitted, Work
from interlock.kernel.errors import InterlockError
from interlock.store.queries.views import Filter, listing

if TYPE_CHECKING:
    from interlock.client.app import App

SHOWN_MAX = 20  # names in a message


# And `ref`, of one with a repository: the revision at which it begins, by default what is checked out there.
OPTIONS = tuple(RunSubmitOptions.__annotations__)


# The definition.


class Workstream:
    """A graph of tasks under a name. `submit` makes a workstream of them."""

    def __init__(
        self, app: "App", name: str, tasks: Iterable[Any], *, checks: Iterable[Any] = (),
        timeout: Length | None = None, repo: str | None = None, ref: str | None = None, at_once: int | None = None,
        expects: int | None = None,
    ) -> None:  # fmt: skip
        """`at_once` is how many of its tasks run at a time.

        `expects` is how many tasks it has when it is planned, if more than these are to come.

        Raises:
            InterlockError: a task could never be run.
        """
        self.app, self.name, self.repo = app, name, repo
        self.tasks = [self.read_part(part) for part in parse_list("tasks", tasks)]
        whole = expects in (None, len(self.tasks))
        order_tasks(name, self.tasks, whole=whole)
        self.checks = [make_check(check) for check in parse_list("checks", checks)]
        self.timeout_us = None if timeout is None else length_us("timeout", timeout)
        parameters = [parameter for part in self.tasks for parameter in list_parameters(part)]
        parameters += [] if whole else [StepParameter(name, None)]  # nobody knows what those take that are to come
        before = {part.name: set(part.needs) for part in self.tasks}
        self.arguments = RunArguments(name, before, parameters, OPTIONS, kind=WORKSTREAM, part=TASK)
        called = f"workstream '{name}'"
        self.works = {
            part.name: check_part(app, f"{called}, task '{part.name}'", partial(make_task_work, part))
            for part in self.tasks
        }
        for word, number in (("at_once", at_once), ("expects", expects)):
            if number is not None and (not isinstance(number, int) or isinstance(number, bool)):
                raise InterlockError(f"{called}: {word} = {number!r} is not allowed; allowed is a whole number")
        if expects is not None and expects < len(self.tasks):
            raise InterlockError(
                f"{called}: expects = {expects} is not allowed; there are {len(self.tasks)} tasks already"
            )
        own = {"expects": len(self.tasks) if expects is None else expects}
        own |= {} if at_once is None else {"at_once": at_once}
        options = encode_options(
            {"workstreams": own, "checks": encode_checks(self.checks), **make_repository(repo, ref)}
        )
        top = Work(task=name, lifecycle=WORKSTREAM, ref=TOP, timeout_us=self.timeout_us, options=options)
        self.top = check_part(app, called, lambda: top)

    def read_part(self, part: Any) -> WorkstreamTask:
        try:
            return read_part(part)
        except InterlockError as wrong:
            raise InterlockError(f"workstream '{self.name}': {wrong}") from None

    @verb_of_steps
    def submit(self, /, **kwargs: Any) -> Steps[WorkstreamRun]:
        """Submits a workstream with these arguments and options (`RunSubmitOptions`).

        When it returns, all of it is durable, and its tasks may be claimed.

        Raises:
            InterlockError: an argument or an option is wrong; the text names it.
        """
        options = {name: kwargs.pop(name) for name in OPTIONS if name in kwargs}
        by = take_by(options)
        check_options(options)
        top, tasks = self.make_works(kwargs, options)
        made = yield from send_workstream(self.app, top, tasks, by or LOCAL)
        return WorkstreamRun(self.app, made.unit, created=made.created, lifecycle=WORKSTREAM)

    def make_works(self, arguments: Mapping[str, Any], options: Mapping[str, Any]) -> tuple[Work, list[Work]]:
        """Makes the works of a workstream and of its tasks with these arguments.

        Raises:
            InterlockError: it is not allowed; the text says what is.
        """
        fields, arguments = dict(options), dict(arguments)
        ref = take_ref(self, arguments)
        fields["labels"] = msgspec.json.encode(fields.get("labels", {})).decode()
        top = inherit(self.app, msgspec.structs.replace(self.top, input=self.arguments.encode(arguments), **fields))
        return begin_at(top, ref), [self.make_task_of(top, part, arguments) for part in self.tasks]

    def make_task_of(self, top: Work, part: WorkstreamTask, arguments: Mapping[str, Any]) -> Work:
        """Makes the work of a task of one workstream."""
        work = self.works[part.name]
        return msgspec.structs.replace(
            work, input=encode_input(part, arguments), correlation=top.correlation, trace=top.trace, cause=top.cause,
            priority=work.priority or top.priority,
        )  # fmt: skip


def order_tasks(workstream: str, tasks: Sequence[WorkstreamTask], *, whole: bool = True) -> list[str]:
    """Returns the names of tasks, each behind those that it needs; unless they are the `whole`, some may be to come.

    Raises:
        InterlockError: there is none, two have one name, one needs what is not there, or they need each other in a
            circle; the text names them.
    """
    if not tasks and whole:
        raise InterlockError(f"workstream '{workstream}' has no tasks; it takes at least one")
    needs: dict[str, tuple[str, ...]] = {}
    for part in tasks:
        if part.name in needs:
            raise InterlockError(
                f"workstream '{workstream}': two tasks are called '{part.name}'; give one of them another name"
            )
        needs[part.name] = part.needs
    for name, some in needs.items():
        for need in some:
            if need not in needs and whole:
                raise InterlockError(
                    f"workstream '{workstream}': task '{name}' needs '{need}', which is no task of it"
                    f"{guess_name(need, needs)}"
                )
    for part in tasks:
        taken = [name for name in needs if part.map and is_element(name, part.name)]
        if taken:
            raise InterlockError(
                f"workstream '{workstream}': a task is called '{taken[0]}', as an element of the map '{part.name}' is; "
                "give it another name"
            )
    try:
        return list(TopologicalSorter(needs).static_order())
    except CycleError as error:
        circle = " needs ".join(reversed(error.args[1]))
        raise InterlockError(
            f"workstream '{workstream}': a circle of needs: {circle}; none of them could ever begin"
        ) from None


def is_element(name: str, of: str) -> bool:
    """Whether a name is that of an element of a map of this name, as in resize[0]."""
    return name.startswith(f"{of}[") and name.endswith("]") and name[len(of) + 1 : -1].isdecimal()


def guess_name(name: str, known: Iterable[str]) -> str:
    """Returns how a message goes on after a name that there is not: which one is like it, or which there are."""
    names = list(known)
    if near := get_close_matches(name, names, 1):
        return f"; did you mean '{near[0]}'?"
    shown = ", ".join(names[:SHOWN_MAX]) + (", …" if len(names) > SHOWN_MAX else "")
    return f"; there are {shown}" if names else ""


def list_parameters(part: WorkstreamTask) -> list[StepParameter]:
    """Lists what a task takes by the names of its parameters, but for its own arguments."""
    if not isinstance(part.work, Task):
        return [StepParameter(part.name, None)]  # nobody here knows what it takes
    fields = msgspec.structs.fields(part.work.arguments.kind)
    return [
        StepParameter(part.name, field.name, field.type, field.required)
        for field in fields
        if field.name not in part.arguments and field.name != part.map.get("argument")
    ]


# Sending.


def send_workstream(app: "App", top: Work, tasks: Sequence[Work], actor: str) -> Steps[Submitted]:
    """Makes a workstream and its tasks; the last of them plans it. Returns the answer for the workstream.

    Under a key that is taken, it is the workstream that has it; if not all of its tasks came then, they come now.

    Raises:
        InterlockError: something was refused. Of more than 1,000 tasks, the pages before it stay, and the workstream
            stays planned: the same key goes on behind them.
    """
    pages = split_pages(tasks)
    if top.key is not None and top.on_duplicate == "return":
        taken = Filter(task=top.task, key=top.key, lifecycle=WORKSTREAM)
        if (yield Read(listing, (taken, 1))):
            there: Submitted = (yield from send_one(Submit(tenant=app.tenant, work=(top,), actor=actor)))[0]
            if app.lifecycles[WORKSTREAM].allows(there.state, "plan"):
                yield from send_pages(app, there.unit, pages, actor)
            return there
    made: Submitted = (yield from send_one(Submit(tenant=app.tenant, work=(top, *pages[0]), actor=actor)))[0]
    yield from send_pages(app, made.unit, pages[1:], actor)
    return made
