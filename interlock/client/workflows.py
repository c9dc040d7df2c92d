"""Define workflows: `app.workflow("release", steps=[build, interlock.approval("ship"), deploy])`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from interlock.client.arguments import RunArguments, StepParameter
from interlock.client.async_pairs import Call, Sender, verb
from interlock.client.durations import Length, length_us
from interlock.client.runs import Run
from interlock.client.shell import ShellCommand
from interlock.client.tasks import (
    RunSubmitOptions,
    Task,
    check_options,
    inherit,
    parse_list,
    refuse_unknown_options,
    take_by,
)
from interlock.client.workstream_tasks import WorkstreamTask, make_part
from interlock.core.validation import check_work
from interlock.kernel import when, workflow_graph
from interlock.kernel.commands import Command, DefineTemplate, Submit, Submitted, Work
from interlock.kernel.errors import InterlockError
from interlock.kernel.ids import parse_id
from interlock.kernel.workflow_graph import APPROVAL, STEP

if TYPE_CHECKING:
    from interlock.client.app import App
    from interlock.client.backend import Backend

RUN = "workflow_run"


class RunOptions(RunSubmitOptions, total=False):
    """What a submit of a run may say besides the run's arguments."""

    settle: str  # whether the first lost step ends it (first, by default), or it fails when all have ended (all)
    retry_of: int | str  # the id of an ended run that this one does again
    tx: Any  # the caller's own open transaction


OPTIONS = tuple(RunOptions.__annotations__)


@dataclass(frozen=True)
class WorkflowStep:
    """A task, a workflow, a command, or the name of a task elsewhere, with what it is in this workflow."""

    work: "Task[Any, Any] | Workflow | ShellCommand | str"
    name: str
    when: str | None = None
    undo: "Task[Any, Any] | str | None" = None
    reclaim_after: Length | None = None
    in_workstream: WorkstreamTask | None = None  # what it says as a task of a workstream


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
) -> WorkflowStep:  # fmt: skip
    """A step that says more than its task does.

    `when` is a condition on what came before it, such as `test.passed and version != "0"`: if it is false, the step is
    skipped. `undo` is a task that undoes it if the run ends without success. `reclaim_after` is how old it must be
    before another worker may take it over from one that is lost.
    """
    return WorkflowStep(work, name or (work if isinstance(work, str) else work.name), when, undo, reclaim_after)


def approval(
    name: str, *, approvers: Iterable[str] = (), quorum: int | None = None, expires: Length | None = None,
    on_reject: str | None = None, not_submitter: bool = False, when: str | None = None,
) -> Approval:  # fmt: skip
    """A gate that waits for people: `quorum` of the `approvers` (names or roles; anybody by default).

    If nobody decides until it `expires`, the run fails. A rejection cancels the run, or fails it: `on_reject="fail"`.

    Raises:
        InterlockError: the name is no text, the approvers no list, or the quorum no number.
    """
    if not isinstance(name, str) or not name:
        raise InterlockError(f"name = {name!r} is not allowed; allowed is any other text")
    if quorum is not None and (not isinstance(quorum, int) or isinstance(quorum, bool)):
        raise InterlockError(f"quorum = {quorum!r} is not allowed; allowed is a whole number from 1 on")
    people = (approvers,) if isinstance(approvers, str) else parse_list("approvers", approvers)
    return Approval(name, people, quorum, expires, on_reject, not_submitter, when)


def shell(
    name: str, command: str, *, when: str | None = None, undo: "Task[Any, Any] | str | None" = None,
    reclaim_after: Length | None = None, needs: Iterable[Any] = (), arguments: Mapping[str, Any] | None = None,
    critical: bool = True, allow_failure: bool = False, checks: Iterable[Any] = (), repo: str | None = None,
    takes: Length | None = None, **rules: Any,
) -> WorkflowStep:  # fmt: skip
    """A step, a task of a workstream or a check that runs a shell command, on workers started with `--shell`.

    `rules` are `environment`, `directory`, `limits`, `queue`, `attempts`, `timeout`, `capabilities`, `mutex` and
    `resources`. The command finds the arguments of its run as JSON in `INTERLOCK_INPUT`, and the outputs of earlier
    steps, or of what it needs, in `INTERLOCK_OUTPUTS`; they are never a part of its text. `needs`, `arguments`,
    `critical`, `allow_failure`, `checks`, `repo` and `takes` are those of `interlock.task`, for workstreams; `when`,
    `undo` and `reclaim_after` those of `interlock.step`, for workflows.

    Raises:
        InterlockError: the command or a rule is not allowed.
    """
    work = ShellCommand.check(command, rules)
    part = make_part(
        work, name, needs=needs, arguments=arguments, critical=critical, checks=checks,
        allow_failure=allow_failure, repo=repo, takes=takes,
    )  # fmt: skip
    return WorkflowStep(work, name, when, undo, reclaim_after, part)


def parallel(*steps: Any) -> Parallel:
    """Steps that do not wait for each other."""
    return Parallel(tuple(steps))


class Workflow:
    """Steps in their order, under a name. `submit` makes a run of them, which keeps these steps for good."""

    def __init__(self, app: "App", name: str, parts: Sequence[Any]) -> None:
        """Raises InterlockError for steps that could never be run."""
        self.app, self.name = app, name
        self.known: tuple[Backend, int] | None = None  # the database that has this definition, and its version there
        self.inner: list[Workflow] = []  # those that are steps of it
        works: list[Work] = []
        parameters: list[StepParameter] = []
        needs: tuple[str, ...] = ()
        for part in parts:
            group = [make_step(name, item) for item in (part.steps if isinstance(part, Parallel) else [part])]
            for item in group:
                works.append(make_work(name, item, needs))
                parameters += list_parameters(item)
                if isinstance(item, WorkflowStep) and isinstance(item.work, Workflow):
                    self.inner.append(item.work)
            needs = tuple(item.name for item in group) or needs
        self.definition = DefineTemplate(tenant=app.tenant, name=name, steps=tuple(works))
        self.refuse_impossible()
        taken = {parameter.name for parameter in parameters if parameter.name is not None}
        self.arguments = RunArguments(name, workflow_graph.above(works, taken), parameters, OPTIONS)

    @property
    def definitions(self) -> list[DefineTemplate]:
        """What the database must know before a run: the workflows that are steps of it, then itself."""
        return [definition for workflow in self.inner for definition in workflow.definitions] + [self.definition]

    def refuse_impossible(self) -> None:
        """Raises InterlockError for steps that could never be run."""
        workflow_graph.refuse_odd(self.name, self.definition.steps)
        for work in self.definition.steps:
            try:
                check_work(self.app.lifecycles, work, self.app.registry.hooks)
            except InterlockError as wrong:
                raise InterlockError(f"workflow '{self.name}', step '{work.ref}': {wrong}") from None

    @verb
    def submit(self, /, **kwargs: Any) -> Call[Run]:
        """Submits one run with these arguments and options (`RunOptions`); when it returns, run and steps are durable.

        Raises:
            InterlockError: an argument or an option is wrong; the text names it.
        """
        options = {name: kwargs.pop(name) for name in OPTIONS if name in kwargs}
        sender, command = self.make_submit([kwargs], options)
        return Call(sender, command, lambda made: self.make_run(made[0]))

    @verb
    def submit_many(self, calls: Iterable[Mapping[str, Any]], **options: Unpack[RunOptions]) -> Call[list[Run]]:
        """Submits one run per set of arguments, all of them or none.

        Raises:
            InterlockError: an argument or an option is wrong; the text names it.
        """
        refuse_unknown_options("submit_many", options, OPTIONS)
        sender, command = self.make_submit(calls, dict(options))
        return Call(sender, command, lambda made: [self.make_run(each) for each in made])

    def make_submit(self, calls: Iterable[Mapping[str, Any]], options: dict[str, Any]) -> tuple[Sender, Submit]:
        connection, by = options.pop("tx", None), take_by(options)
        check_options(options)
        labels = msgspec.json.encode(options.pop("labels", {})).decode()
        if isinstance(options.get("retry_of"), str):
            options["retry_of"] = parse_id(options["retry_of"])
        plain = inherit(self.app, Work(task=self.name, lifecycle=RUN, template=self.name, labels=labels, **options))
        works = tuple(msgspec.structs.replace(plain, input=self.arguments.encode(call)) for call in calls)
        command = Submit(tenant=self.app.tenant, work=works, actor=by or "local")
        return DefiningSender(self, self.app.sender(connection), connection is None), command

    def make_run(self, made: Submitted) -> Run:
        return Run(self.app, made.unit, created=made.created, lifecycle=made.lifecycle)


class DefiningSender:
    """Sends the submits of a workflow; before the first one, it sends the definition."""

    def __init__(self, workflow: Workflow, sender: Sender, lasts: bool) -> None:
        """`lasts`: what is sent stays, because no caller's transaction can take it back."""
        self.workflow, self.sender, self.lasts = workflow, sender, lasts

    def send(self, command: Command[Any]) -> Any:
        version = self.known_version
        if version is None:
            version = [self.sender.send(definition).version for definition in self.workflow.definitions][-1]
        return self.sender.send(self.pin(command, version))

    async def asend(self, command: Command[Any]) -> Any:
        version = self.known_version
        if version is None:
            answers = [await self.sender.asend(definition) for definition in self.workflow.definitions]
            version = answers[-1].version
        return await self.sender.asend(self.pin(command, version))

    @property
    def known_version(self) -> int | None:
        known = self.workflow.known
        return known[1] if known and known[0] is self.workflow.app.engine else None

    def pin(self, command: Command[Any], version: int) -> Command[Any]:
        """Returns a submit of this program's own definition, even if another one was sent since."""
        assert isinstance(command, Submit)
        if self.lasts:
            self.workflow.known = (self.workflow.app.engine, version)
        works = (msgspec.structs.replace(work, template_version=version) for work in command.work)
        return msgspec.structs.replace(command, work=tuple(works))


def make_step(workflow: str, part: Any) -> WorkflowStep | Approval:
    """Makes a step of a workflow of what a program gave."""
    match part:
        case WorkflowStep(in_workstream=WorkstreamTask() as task) if not task.is_plain:
            raise InterlockError(
                f"workflow '{workflow}': step '{part.name}': needs, arguments, critical and checks are for "
                "workstreams; the steps of a workflow follow each other"
            )
        case WorkflowStep() | Approval():
            return part
        case workflow_graph.APPROVAL_STEP:
            return approval(part)
        case Task() | Workflow() | str():
            return step(part)
    raise InterlockError(
        f"workflow '{workflow}': {part!r} is no step; a step is a task, the name of one, another workflow, "
        "interlock.step(…), interlock.shell(…), interlock.approval(…), or interlock.parallel(…) of such"
    )


def make_work(workflow: str, part: WorkflowStep | Approval, needs: tuple[str, ...]) -> Work:
    """Makes the work that a template keeps of a step."""
    if part.when is not None:
        when.parse_condition(part.when)
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
    plain = Work(task=part.work) if isinstance(part.work, str) else part.work.make_work("null", {})
    reclaim = None if part.reclaim_after is None else length_us("reclaim_after", part.reclaim_after)
    work = msgspec.structs.replace(
        plain, lifecycle=STEP, ref=part.name, needs=needs, when=part.when, reclaim_after_us=reclaim,
        undo=part.undo.name if isinstance(part.undo, Task) else part.undo,
    )  # fmt: skip
    return workflow_graph.as_gate(work)


def list_parameters(part: WorkflowStep | Approval) -> list[StepParameter]:
    """Lists what a step takes by the names of its parameters, and by the names in its condition."""
    parameters = [
        StepParameter(part.name, name, Any, required=False) for name in sorted(when.names(part.when or "true"))
    ]
    if isinstance(part, Approval):
        return parameters
    if isinstance(part.undo, Task):
        parameters += list_task_parameters(part.name, part.undo, of_any_step=True)
    if isinstance(part.work, Task):
        return parameters + list_task_parameters(part.name, part.work)
    if isinstance(part.work, Workflow):
        inner = part.work.arguments
        parameters += [replace(parameter, step=part.name) for parameter in inner.parameters]
        return parameters + ([StepParameter(part.name, None)] if inner.takes_anything else [])
    return [
        *parameters,
        StepParameter(part.name, None),
    ]  # nobody here knows what a task takes that is defined elsewhere


def list_task_parameters(step: str, task: Task[Any, Any], *, of_any_step: bool = False) -> list[StepParameter]:
    """Lists the parameters of a step's task."""
    fields = msgspec.structs.fields(task.arguments.kind)
    return [StepParameter(step, field.name, field.type, field.required, of_any_step) for field in fields]
