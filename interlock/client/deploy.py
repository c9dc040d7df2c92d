"""Check whether a program understands the work that waits: before a deployment, and when a worker starts."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from interlock.kernel.blobs import parse_reference
from interlock.kernel.commands import Work
from interlock.kernel.ids import format_id
from interlock.kernel.lifecycle import Lifecycle
from interlock.kernel.parameters import describe_wrong_argument
from interlock.kernel.workflow_graph import Template
from interlock.plugins.shell.options import SHELL
from interlock.plugins.tasks.queries import (
    OpenTask,
    OpenWork,
    count_open_tasks,
    count_open_work,
    read_edges,
    read_waiting_inputs,
)
from interlock.store.guard import list_edges
from interlock.store.queries.views import read_templates

if TYPE_CHECKING:
    from interlock.client.app import App
    from interlock.client.tasks import Task
    from interlock.client.workflows import Workflow

INPUTS_MAX = 1_000  # jobs of one task whose arguments are looked at
# Reads a query of the database beside which, or of the server through which, the program runs.
Read = Callable[..., Any]


class DeployProblem(msgspec.Struct, frozen=True, kw_only=True):
    """Something that waits or runs, and that the program does not understand."""

    kind: str  # task_unknown, parameter_lacking, parameter_new, argument_wrong, workflow_differs or lifecycle_differs
    name: str  # of the task, the workflow or the lifecycle
    text: str
    waiting: int
    running: int
    jobs: int = 0  # of those whose arguments were looked at: how many have this problem
    example: str | None = None  # the id of one of them


class DeployReport(msgspec.Struct, frozen=True, kw_only=True):
    """What waits and runs, and which of it the program does not understand."""

    ok: bool
    waiting: int
    running: int
    problems: list[DeployProblem]


def check_deploy(app: "App", read: Read | None = None, queues: Collection[str] | None = None) -> DeployReport:
    """Compares a program with what waits and runs.

    Parameters:
        read: how the database is asked; by default as the app asks it, which opens it.
        queues: those that count; by default all.
    """
    read = read or app.read
    tasks: list[OpenTask] = [task for task in read(count_open_tasks) if queues is None or task.queue in queues]
    problems = [
        *find_task_problems(app, read, tasks),
        *find_workflow_problems(app, read),
        *find_lifecycle_problems(app, read),
    ]
    waiting, running = sum(task.waiting for task in tasks), sum(task.running for task in tasks)
    return DeployReport(ok=not problems, waiting=waiting, running=running, problems=problems)


def find_task_problems(app: "App", read: Read, tasks: list[OpenTask]) -> Iterator[DeployProblem]:
    """Finds tasks that the program does not know, and arguments that its tasks do not take."""
    for name in sorted({task.task for task in tasks}):
        waiting = sum(task.waiting for task in tasks if task.task == name)
        running = sum(task.running for task in tasks if task.task == name)
        if name == SHELL and name not in app.tasks:
            continue  # whichever worker is started with --shell runs it
        if name not in app.tasks:
            text = f"task '{name}': this program does not know it"
            yield DeployProblem(kind="task_unknown", name=name, text=text, waiting=waiting, running=running)
        elif waiting:
            yield from find_argument_problems(app.tasks[name], read, waiting, running)


def find_argument_problems(task: "Task[Any, Any]", read: Read, waiting: int, running: int) -> Iterator[DeployProblem]:
    """Finds what is wrong with the arguments of jobs that wait; steps take what they name, and are not looked at."""
    counts: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for job in read(read_waiting_inputs, task.name, INPUTS_MAX):
        if job.of_run or parse_reference(job.input) is not None:
            continue
        try:
            task.arguments.decode_input(job.input)
        except msgspec.MsgspecError as error:
            why = describe_wrong_argument(str(error))
            counts[why] += 1
            examples.setdefault(why, format_id(job.lifecycle, job.unit))
    for why, jobs in counts.most_common():
        yield DeployProblem(
            kind=classify_argument(why), name=task.name, waiting=waiting, running=running, jobs=jobs,
            example=examples[why], text=f"task '{task.name}': {why}; it takes {task.arguments.describe()}",
        )  # fmt: skip


def classify_argument(why: str) -> str:
    """Returns the kind of problem that a wrong argument is."""
    if why.endswith(" is missing"):
        return "parameter_lacking"
    return "parameter_new" if why.startswith("it has no argument ") else "argument_wrong"


def find_workflow_problems(app: "App", read: Read) -> Iterator[DeployProblem]:
    """Finds workflows of which runs are open and whose stored steps are not those of the program."""
    if not app.workflows:
        return
    stored: dict[str, Template] = {template.name: template for template in read(read_templates)}
    differing = [
        workflow for workflow in app.workflows.values()
        if workflow.name in stored and has_other_steps(workflow, stored[workflow.name])
    ]  # fmt: skip
    if not differing:
        return
    open_runs = {work.run: work.count for work in read(count_open_work) if work.run}
    for workflow in differing:
        if count := open_runs.get(workflow.name, 0):
            version = stored[workflow.name].version
            text = f"workflow '{workflow.name}': its steps are not those of version {version}, with which runs began"
            yield DeployProblem(kind="workflow_differs", name=workflow.name, text=text, waiting=0, running=count)


def has_other_steps(workflow: "Workflow", template: Template) -> bool:
    """Whether a workflow has other steps than a template; which version of a workflow inside it is run is no matter."""
    stored = msgspec.json.decode(template.steps, type=tuple[Work, ...])
    return tuple(msgspec.structs.replace(step, template_version=None) for step in stored) != workflow.definition.steps


def find_lifecycle_problems(app: "App", read: Read) -> Iterator[DeployProblem]:
    """Finds lifecycles of which something is open and whose transitions are not those of the program's file."""
    stored: dict[str, set[tuple[Any, ...]]] = {}
    for edge in read(read_edges):
        stored.setdefault(edge.lifecycle, set()).add(msgspec.structs.astuple(edge))
    differing = [
        lifecycle for lifecycle in app.lifecycles.values()
        if lifecycle.name in stored and set(list_edges(lifecycle)) != stored[lifecycle.name]
    ]  # fmt: skip
    unknown = [name for name in stored if name not in app.lifecycles]
    if not differing and not unknown:
        return
    open_work: list[OpenWork] = read(count_open_work)
    for name, difference in (
        *((lifecycle.name, describe_difference(lifecycle, stored[lifecycle.name])) for lifecycle in differing),
        *((name, "this program does not have its file") for name in unknown),
    ):
        if count := sum(work.count for work in open_work if work.lifecycle == name):
            text = f"lifecycle '{name}': {difference}"
            yield DeployProblem(kind="lifecycle_differs", name=name, text=text, waiting=count, running=0)


def describe_difference(lifecycle: Lifecycle, stored: set[tuple[Any, ...]]) -> str:
    """Says in which transitions a lifecycle differs from what is stored."""
    own = set(list_edges(lifecycle))
    named = [f"{edge[1] or 'birth'} → {edge[3]} by {edge[2]}" for edge in sorted(own ^ stored)]
    more = f" and {len(named) - 1} more" if len(named) > 1 else ""
    return f"the program and the database have other transitions: {named[0]}{more}"
