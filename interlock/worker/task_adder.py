"""`ctx.add`: add tasks to the workstream of the running task, under its lease."""

from typing import TYPE_CHECKING, Any

import msgspec

from interlock.client.jobs import Job
from interlock.client.tasks import inherit
from interlock.client.workstream_runs import make_added
from interlock.client.workstream_tasks import task
from interlock.client.workstream_works import read_part
from interlock.kernel.commands import AddTasks, Submitted

if TYPE_CHECKING:
    from interlock.worker.context import JobContext


class TaskAdder:
    """`ctx.add(fix, name="fix-1")`: a task is added once under its name, however often this one is tried."""

    def __init__(self, context: "JobContext") -> None:
        self.context = context

    def __call__(self, part: Any, /, **options: Any) -> Job:
        return self.make_job(self.context.sender.send(self.make_command(part, options)))

    async def aio(self, part: Any, /, **options: Any) -> Job:
        return self.make_job(await self.context.sender.asend(self.make_command(part, options)))

    def make_command(self, part: Any, options: dict[str, Any]) -> AddTasks:
        """Makes the command that adds a task.

        Raises:
            InterlockError: one that could never be run.
        """
        context = self.context
        assert context.app, "a worker sets it"
        given = msgspec.json.decode(context.read_value(context.grant.input))
        arguments = given if isinstance(given, dict) else {}
        added = read_part(task(part, **options) if options else part)
        work = inherit(context.app, make_added(context.app, 0, added, arguments, 0))
        return AddTasks(
            tenant=context.tenant, lease=context.held, work=(msgspec.structs.replace(work, parent=None, cause=""),)
        )

    def make_job(self, made: list[Submitted]) -> Job:
        assert self.context.app, "a worker sets it"
        return Job(self.context.app, made[0].unit, created=made[0].created, lifecycle=made[0].lifecycle)
