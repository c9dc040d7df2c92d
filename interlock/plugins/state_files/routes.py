"""The archive of a workstream that has ended, over HTTP: what `interlock restore` takes."""

from functools import partial

from interlock.plugins.state_files.archives import read_archive
from interlock.server.operations import Operation, Request

LINES = "application/x-ndjson"
WORKSTREAM = "workstream"


async def show_archive(request: Request) -> str:
    """Returns the archive of a workstream; nothing leaves the database."""
    unit = await request.find_unit(WORKSTREAM)
    app = request.app
    return await request.read(partial(read_archive, lifecycles=app.lifecycles, hooks=app.registry.hooks), unit)


ROUTES = (
    Operation(
        method="GET", path="/v1/workstreams/{id}/archive", scope="read",
        summary="Read the archive of a workstream that has ended", call=show_archive, response=str, media=LINES,
    ),
)  # fmt: skip
