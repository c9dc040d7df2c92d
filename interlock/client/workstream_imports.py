"""Import a recorded workflow as a workstream whose tasks only take their recorded time."""

from typing import TYPE_CHECKING

import msgspec

from interlock.client.async_pairs import Steps, verb_of_steps
from interlock.client.workstream_runs import WorkstreamRun
from interlock.client.workstream_tasks import TOP
from interlock.client.workstream_works import TASK, WORKSTREAM, check_part
from interlock.client.workstreams import send_workstream
from interlock.kernel.commands import LOCAL, Work
from interlock.kernel.wfformat import RecordedTask, RecordedWorkflow

if TYPE_CHECKING:
    from interlock.client.app import App

SLEEP = "sleep"  # the task that `interlock up` has for it
MILLION = 1_000_000
NO_CHECKS: dict[str, list[str]] = {"jobs": []}
TIMES_LONGER = 10  # than it once took may a task run, and an hour besides
HOUR_US = 3_600 * MILLION


class RecordedWorkstream:
    """A recorded workflow that can be submitted as a workstream."""

    def __init__(self, app: "App", recorded: RecordedWorkflow, task: str = SLEEP) -> None:
        """`task` is run for each task of it, with the argument `seconds`.

        Raises:
            InterlockError: it is not allowed; the text says what is.
        """
        self.app, self.recorded = app, recorded
        own = {"workstreams": {"expects": len(recorded.tasks)}, "checks": NO_CHECKS}
        top = Work(task=recorded.name, lifecycle=WORKSTREAM, ref=TOP, options=encode_json(own))
        self.top = check_part(app, f"workstream '{recorded.name}'", lambda: top)
        self.tasks = [make_recorded_work(each, task) for each in recorded.tasks]
        check_part(app, f"task '{recorded.tasks[0].name}'", lambda: self.tasks[0])

    @verb_of_steps
    def submit(self, *, key: str | None = None, by: str = LOCAL) -> Steps[WorkstreamRun]:
        """Submits it with all its tasks. Under a key that is taken, the workstream that has it is returned.

        Raises:
            InterlockError: something was refused; the text names it.
        """
        made = yield from send_workstream(self.app, msgspec.structs.replace(self.top, key=key), self.tasks, by)
        return WorkstreamRun(self.app, made.unit, created=made.created, lifecycle=WORKSTREAM)


def make_recorded_work(recorded: RecordedTask, task: str) -> Work:
    """Makes the work of a recorded task."""
    options = {"workstreams": {"takes_us": recorded.lasted_us}, "checks": NO_CHECKS}
    return Work(
        task=task, lifecycle=TASK, parent=TOP, step=recorded.name, needs=recorded.needs,
        input=encode_json({"seconds": recorded.lasted_us / MILLION}), options=encode_json(options),
        timeout_us=recorded.lasted_us * TIMES_LONGER + HOUR_US,
    )  # fmt: skip


def encode_json(value: object) -> str:
    """Returns a value as JSON text."""
    return msgspec.json.encode(value).decode()
