"""A workstream as its submitter sees it: tasks, outputs, and what people do to it."""

from collections import Counter
from collections.abc import Iterable, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any

import msgspec

from interlock.client.async_pairs import Read, Steps, verb_of_steps
from interlock.client.blobs import unpack
from interlock.client.children import find_child
from interlock.client.jobs import Job
from interlock.client.progress import ExecutionPlan, Progress, read_plan, read_progress
from interlock.client.runs import Run
from interlock.client.steps import get_step_name
from interlock.client.tasks import inherit, parse_list
from interlock.client.workstream_tasks import WorkstreamTask, task
from interlock.client.workstream_works import (
    TASK,
    check_part,
    encode_input,
    make_task_work,
    read_part,
    send_one,
    send_pages,
    split_pages,
)
from interlock.kernel.commands import LOCAL, ReassignTask, RetryTask, SkipTask, Standing, Submitted
from interlock.kernel.errors import InterlockError
from interlock.kernel.lifecycle import Category
from interlock.store.queries.views import View, view

if TYPE_CHECKING:
    from interlock.client.app import App
    from interlock.kernel.commands import Work


class WorkstreamRun(Run):
    """A workstream that was submitted. `app.run(id)` finds it again."""

    @property
    def tasks(self) -> dict[str, str]:
        """The state of each task, by name."""
        return self.steps

    @verb_of_steps
    def task(self, name: str) -> Steps[Job]:
        """Finds the task that has this name in the workstream.

        Raises:
            Unknown: there is none.
        """
        return (yield from find_child(self, name))

    @property
    def progress(self) -> Progress:
        """How far it is: what is done, runs and is blocked, the critical path that is left, and when it ends."""
        return self.app.read(read_progress, self.unit)

    @property
    def plan(self) -> ExecutionPlan:
        """The execution plan: stages, critical path, and all tasks in an order in which they can be done."""
        page = plan = self.app.read(read_plan, self.unit)
        while page.next is not None:
            page = self.app.read(read_plan, self.unit, page.next)
            plan = msgspec.structs.replace(plan, tasks=plan.tasks + page.tasks, next=page.next)
        return plan

    @property
    def outputs(self) -> dict[str, Any]:
        """The outputs of the tasks that are completed, by name."""
        outputs: dict[str, Any] = {}
        for row in self.read_steps():
            if row.unit.outcome == Category.SUCCESS:
                result = row.body.result
                outputs[get_step_name(row)] = None if result is None else msgspec.json.decode(unpack(self.app, result))
        return outputs

    def read_steps(self) -> list[View]:
        """Reads its tasks; checks, which are below it too, are none."""
        return [child for child in super().read_steps() if child.unit.lifecycle == TASK]

    @property
    def waiting_on(self) -> list[str]:
        """What waits for a verdict now: the tasks in their gates, and the approvals of the whole."""
        return [get_step_name(child) for child in super().read_steps() if child.unit.category == Category.GATE]

    def describe_failure(self) -> str:
        """Says which task ended the workstream, and why; or which check of the whole did."""
        for row in self.read_steps():
            if row.unit.outcome == Category.FAILURE:
                return f"task '{get_step_name(row)}' is {row.unit.state}: {row.body.error or ''}"
        return self.look().error or ""

    @verb_of_steps
    def add(self, part: Any, /, *, by: str = LOCAL, **options: Any) -> Steps[Job]:  # type: ignore[override]
        """Adds a task while the workstream is planned, ready or executing.

        `part` is what a workstream is declared with: a task or the name of one, for which `options` are those of
        `interlock.task`, or `interlock.shell(…)`. It takes arguments of the workstream and what its needs came to, as
        the others do. A name that is there already is that task: nothing is added, and `created` is false.

        Raises:
            InterlockError: it is not allowed, or no task is added any more.
        """
        (job,) = yield from add_parts(self, [task(part, **options) if options else part], by)
        return job

    @verb_of_steps
    def add_many(self, parts: Iterable[Any], *, by: str = LOCAL) -> Steps[list[Job]]:  # type: ignore[override]
        """Adds tasks in any order, in pages of 1,000; adding all of them again adds what lacks."""
        return (yield from add_parts(self, parse_list("tasks", parts), by))

    @verb_of_steps
    def retry(self, task: str, *, by: str = LOCAL, reason: str = "") -> Steps[Job]:
        """Does a task again that failed or was cancelled, while the workstream goes on: a new task in its place.

        What needed the old one needs the new one. A critical task ends its workstream, which is rerun as a whole.
        """
        job = yield from find_child(self, task)
        made: Submitted = yield from self.send(RetryTask, job, by, reason)
        return Job(self.app, made.unit, created=made.created, lifecycle=made.lifecycle)

    @verb_of_steps
    def skip(self, task: str, *, by: str = LOCAL, reason: str = "") -> Steps[Standing]:
        """Completes a task without having run it; it has not started, and what it needs is completed."""
        job = yield from find_child(self, task)
        standing: Standing = yield from self.send(SkipTask, job, by, reason)
        return standing

    @verb_of_steps
    def reassign(self, task: str, *, by: str = LOCAL, reason: str = "") -> Steps[Standing]:
        """Takes a running task from its worker, so that another one takes it; no attempt is used up."""
        job = yield from find_child(self, task)
        standing: Standing = yield from self.send(ReassignTask, job, by, reason)
        return standing

    def send(self, command: type[Any], task: Job, by: str, reason: str) -> Steps[Any]:
        """Sends what an operator asks of a task, and returns the answer.

        Raises:
            InterlockError: it was refused.
        """
        return (yield from send_one(command(tenant=self.app.tenant, unit=task.unit, actor=by, reason=reason)))


def add_parts(stream: Job, given: Iterable[Any], by: str) -> Steps[list[Job]]:
    """Adds tasks to a workstream.

    Raises:
        InterlockError: one is refused, and with it its page.
    """
    app, parts = stream.app, [read_part(part) for part in given]
    refuse_same_names(stream.id, [part.name for part in parts])
    top: View = yield Read(view, (stream.unit,))
    arguments = msgspec.json.decode(unpack(app, top.body.input), type=dict[str, Any] | None) or {}
    works = [inherit(app, make_added(app, stream.unit, part, arguments, top.unit.priority)) for part in parts]
    order = order_parts(parts)
    pages = split_pages([works[place] for place in order])
    made = dict(zip(order, (yield from send_pages(app, stream.unit, pages, by)), strict=True))
    answers = [made[place] for place in range(len(parts))]
    return [Job(app, each.unit, created=each.created, lifecycle=each.lifecycle) for each in answers]


def refuse_same_names(workstream: str, names: Sequence[str]) -> None:
    """Raises InterlockError if two of some tasks have one name; one that is there already is no second one."""
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise InterlockError(f"{workstream}: two tasks are called '{twice[0]}'; give one of them another name")


def order_parts(parts: Sequence[WorkstreamTask]) -> list[int]:
    """Returns the places of tasks, each behind those that it needs: a page needs what is there, or comes with it."""
    needs = {part.name: part.needs for part in parts}
    try:
        order = {name: place for place, name in enumerate(TopologicalSorter(needs).static_order())}
    except CycleError:
        return list(range(len(parts)))  # the engine names the circle
    return sorted(range(len(parts)), key=lambda place: order[parts[place].name])


def make_added(app: "App", unit: int, part: WorkstreamTask, arguments: dict[str, Any], priority: int) -> "Work":
    """Makes the work of a task that is added to a workstream with these arguments.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    work = check_part(app, f"task '{part.name}'", lambda: make_task_work(part))
    return msgspec.structs.replace(
        work, input=encode_input(part, arguments), parent=unit, priority=work.priority or priority
    )
