"""Workflows as programs write them: `app.workflow("release", steps=[build, interlock.approval("ship"), deploy])`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import msgspec

from interlock.client.async_pairs import Asked, Sender, TwoWays
from interlock.client.durations import Length, length_us
from interlock.client.origin import inherit
from interlock.client.run_arguments import RunArguments, Taken
from interlock.client.runs import Run
from interlock.client.tasks import Task, refuse_strange
from interlock.core.checks import check
from interlock.kernel import when, workflow_graph
from interlock.kernel.commands import Command, DefineTemplate, Submit, Submitted, Work
from interlock.kernel.errors import InterlockError
from interlock.kernel.workflow_graph import APPROVAL, STEP

if TYPE_CHECKING:
    from interlock.client.app import App
    from interlock.client.backend import Backend

RUN = "workflow_run"


class RunOptions(TypedDict, total=False):
    """What a submit of a run may say beside the run's arguments."""

    key: str  # one run a workflow and key
    on_duplicate: str
    priority: int
    labels: Mapping[str, str]
    correlation: str
    trace: str
    by: str  # who submits it
    tx: Any  # the caller's own open transaction


OPTIONS = tuple(RunOptions.__annotations__)


@dataclass(frozen=True)
class Step:
    """A task, a workflow, or the name of a task that is defined elsewhere, with what it is in this workflow."""

    work: "Task[Any, Any] | Workflow | str"
    name: str
    when: str | None = None
    undo: "Task[Any, Any] | str | None" = None
    reclaim_after: Length | None = None


@dataclass(frozen=True)
class Approval:
    """A gate: what comes after it waits for people."""

    name: str
    approvers: tuple[str, ...] = ()
    quorum: int | None = None
    expires: Length | None = None
    on_reject: str | None = None
    not_submitter: bool = False
    when: str | None = None


@dataclass(frozen=True)
class Parallel:
    """Steps that do not wait for each other; what comes after them waits for all."""

    steps: tuple[Any, ...]


def step(
    work: "Task[Any, Any] | Workflow | str", *, name: str | None = None, when: str | None = None,
    undo: "Task[Any, Any] | str | None" = None, reclaim_after: Length | None = None,
) -> Step:  # fmt: skip
    """A step that says more than its task does.

    `when` is a condition on what came before it, such as `test.passed and version != "0"`: if it is false, the step is
    skipped. `undo` is a task that undoes it if the run ends without success. `reclaim_after` is how old it must be
    before another worker may take it over from one that is lost.
    """
    return Step(work, name or (work if isinstance(work, str) else work.name), when, undo, reclaim_after)


def approval(
    name: str, *, approvers: Iterable[str] = (), quorum: int | None = None, expires: Length | None = None,
    on_reject: str | None = None, not_submitter: bool = False, when: str | None = None,
) -> Approval:  # fmt: skip
    """A gate that waits for people: `quorum` of the `approvers` (names or roles; anybody by default).

    If nobody decides until it `expires`, the run fails. A rejection cancels the run, or fails it: `on_reject="fail"`.
    """
    return Approval(name, tuple(approvers), quorum, expires, on_reject, not_submitter, when)


def parallel(*steps: Any) -> Parallel:
    """Steps that do not wait for each other."""
    return Parallel(tuple(steps))


class Workflow:
    """Steps in their order, under a name. `submit` makes a run of them, which keeps these steps for good."""

    def __init__(self, app: "App", name: str, parts: Sequence[Any]) -> None:
        self.app, self.name = app, name
        self.submit, self.submit_many = TwoWays(self.one), TwoWays(self.many)
        self.known: tuple[Backend, int] | None = None  # the database that has this definition, and its version there
        self.below: list[Workflow] = []  # those that are steps of it
        works: list[Work] = []
        taken: list[Taken] = []
        needs: tuple[str, ...] = ()
        for part in parts:
            group = [whole(name, one) for one in (part.steps if isinstance(part, Parallel) else [part])]
            for one in group:
                works.append(work_of(name, one, needs))
                taken += takes(one)
                self.below += [one.work] if isinstance(one, Step) and isinstance(one.work, Workflow) else []
            needs = tuple(one.name for one in group) or needs
        self.definition = DefineTemplate(tenant=app.tenant, name=name, steps=tuple(works))
        self.refuse_impossible()
        self.arguments = RunArguments(name, workflow_graph.above(works), taken, OPTIONS)

    @property
    def definitions(self) -> list[DefineTemplate]:
        """What the database must know before a run: the workflows that are steps of it, then itself."""
        return [one for below in self.below for one in below.definitions] + [self.definition]

    def refuse_impossible(self) -> None:
        """What could never be run is refused where it is written."""
        workflow_graph.refuse_odd(self.name, self.definition.steps)
        for work in self.definition.steps:
            try:
                check(self.app.lifecycles, work, self.app.registry.hooks)
            except InterlockError as wrong:
                raise InterlockError(f"workflow '{self.name}', step '{work.ref}': {wrong}") from None

    def one(self, **given: Any) -> Asked[Run]:
        """One run; its id is known once it and all its steps are durable."""
        options = {name: given.pop(name) for name in OPTIONS if name in given}
        sender, command = self.asked([given], options)
        return sender, command, lambda made: self.run(made[0])

    def many(self, calls: Iterable[Mapping[str, Any]], **options: Unpack[RunOptions]) -> Asked[list[Run]]:
        """A run for each set of arguments, all of them or none."""
        strange = [name for name in options if name not in OPTIONS]
        if strange:
            raise InterlockError(f"submit_many has no option '{strange[0]}'; it has {', '.join(OPTIONS)}")
        sender, command = self.asked(calls, dict(options))
        return sender, command, lambda made: [self.run(one) for one in made]

    def asked(self, calls: Iterable[Mapping[str, Any]], options: dict[str, Any]) -> tuple[Sender, Submit]:
        connection, by = options.pop("tx", None), options.pop("by", None)
        refuse_strange(options)
        if by is not None and not isinstance(by, str):
            raise InterlockError(f"by = {by!r} is not allowed; allowed is text")
        labels = msgspec.json.encode(options.pop("labels", {})).decode()
        plain = inherit(self.app, Work(task=self.name, lifecycle=RUN, template=self.name, labels=labels, **options))
        works = tuple(msgspec.structs.replace(plain, input=self.arguments.packed(given)) for given in calls)
        command = Submit(tenant=self.app.tenant, work=works, actor=by or "local")
        return Defining(self, self.app.sender(connection), connection is None), command

    def run(self, made: Submitted) -> Run:
        return Run(self.app, made.unit, created=made.created, lifecycle=made.lifecycle)


class Defining:
    """Carries the submits of a workflow; before the first one, the database gets the definition."""

    def __init__(self, workflow: Workflow, sender: Sender, lasts: bool) -> None:
        self.workflow, self.sender, self.lasts = workflow, sender, lasts

    def send(self, command: Command[Any]) -> Any:
        if self.version is None:
            self.version = [self.sender.send(one).version for one in self.workflow.definitions][-1]
        return self.sender.send(self.pinned(command))

    async def asend(self, command: Command[Any]) -> Any:
        if self.version is None:
            self.version = [(await self.sender.asend(one)).version for one in self.workflow.definitions][-1]
        return await self.sender.asend(self.pinned(command))

    @property
    def version(self) -> int | None:
        known = self.workflow.known
        return known[1] if known and known[0] is self.workflow.app.engine else None

    @version.setter
    def version(self, version: int) -> None:
        self.said = version
        if self.lasts:  # else it is there only if the caller commits
            self.workflow.known = (self.workflow.app.engine, version)

    def pinned(self, command: Command[Any]) -> Command[Any]:
        """The run is of this program's own definition, even if another one has come since."""
        assert isinstance(command, Submit)
        version = self.version if self.version is not None else self.said
        works = (msgspec.structs.replace(work, template_version=version) for work in command.work)
        return msgspec.structs.replace(command, work=tuple(works))


def whole(workflow: str, part: Any) -> Step | Approval:
    match part:
        case Step() | Approval():
            return part
        case workflow_graph.APPROVAL_STEP:
            return approval(part)
        case Task() | Workflow() | str():
            return step(part)
    raise InterlockError(
        f"workflow '{workflow}': {part!r} is no step; a step is a task, the name of one, another workflow, "
        "interlock.step(…), interlock.approval(…), or interlock.parallel(…) of such"
    )


def work_of(workflow: str, part: Step | Approval, needs: tuple[str, ...]) -> Work:
    """A step as the template keeps it."""
    if part.when is not None:
        when.parsed(part.when)
    if isinstance(part, Approval):
        expires = None if part.expires is None else length_us("expires", part.expires)
        return Work(
            task=part.name, lifecycle=APPROVAL, ref=part.name, needs=needs, approvers=part.approvers, when=part.when,
            quorum=part.quorum, expires_us=expires, on_reject=part.on_reject, not_submitter=part.not_submitter,
        )  # fmt: skip
    if isinstance(part.work, Workflow):
        if part.undo is not None or part.reclaim_after is not None:
            raise InterlockError(f"workflow '{workflow}': step '{part.name}' is a workflow; its own steps say undo")
        child = part.work.name
        return Work(task=child, lifecycle=RUN, template=child, ref=part.name, needs=needs, when=part.when)
    plain = part.work.work("null", {}) if isinstance(part.work, Task) else Work(task=part.work)
    reclaim = None if part.reclaim_after is None else length_us("reclaim_after", part.reclaim_after)
    work = msgspec.structs.replace(
        plain, lifecycle=STEP, ref=part.name, needs=needs, when=part.when, reclaim_after_us=reclaim,
        undo=part.undo.name if isinstance(part.undo, Task) else part.undo,
    )  # fmt: skip
    return workflow_graph.as_gate(work)


def takes(part: Step | Approval) -> list[Taken]:
    """What a step takes by its parameters' names, and asks in its condition."""
    asked = [Taken(part.name, one, Any, required=False) for one in sorted(when.names(part.when or "true"))]
    if isinstance(part, Approval):
        return asked
    undo = part.undo if isinstance(part.undo, Task) else None
    undone = [Taken(part.name, one.name, one.type, one.required, of_any=True) for one in fields_of(undo)]
    if isinstance(part.work, Task):
        return asked + undone + [Taken(part.name, one.name, one.type, one.required) for one in fields_of(part.work)]
    inside = part.work.arguments if isinstance(part.work, Workflow) else None
    taken = [replace(one, step=part.name) for one in inside.taken] if inside else []
    anything = inside is None or inside.anything  # nobody here knows what a task takes that is defined elsewhere
    return asked + undone + taken + ([Taken(part.name, None)] if anything else [])


def fields_of(task: Task[Any, Any] | None) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(task.arguments.kind) if task else ()
