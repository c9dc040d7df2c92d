"""Tasks over HTTP: list them, and show what one takes."""

from interlock.client.responses import TaskResponse, TasksResponse
from interlock.client.task_views import make_task
from interlock.kernel.errors import Unknown
from interlock.plugins.tasks.queries import count_open_tasks, read_task, read_tasks
from interlock.server.operations import Operation, Request
from interlock.server.request_schemas import Count, Strict


class TaskQuery(Strict, frozen=True, kw_only=True):
    """The newest version, unless one is named."""

    version: Count | None = None


async def list_tasks(request: Request) -> TasksResponse:
    """Lists the stored tasks."""
    return TasksResponse([make_task(row) for row in await request.read(read_tasks)])


async def show_task(request: Request) -> TaskResponse:
    """Shows a version of a task, and how many of its jobs wait and run."""
    row = await request.read(read_task, request.path["name"], request.query.version or 0)
    if row is None:
        raise Unknown(request.path["name"])
    task, counts = make_task(row), await request.read(count_open_tasks)
    task.waiting = sum(count.waiting for count in counts if count.task == task.name)
    task.running = sum(count.running for count in counts if count.task == task.name)
    return task


ROUTES = (
    Operation(
        method="GET", path="/v1/tasks", scope="read", summary="List tasks", call=list_tasks, response=TasksResponse,
    ),
    Operation(
        method="GET", path="/v1/tasks/{name}", scope="read", summary="Show what a task takes, and its rules",
        call=show_task, query=TaskQuery, response=TaskResponse,
    ),
)  # fmt: skip
