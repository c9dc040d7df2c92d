"""Workers over HTTP: list and drain."""

from interlock.client import json_views, responses
from interlock.kernel.commands import Drain
from interlock.server.jobs import make_action_response
from interlock.server.operations import Operation, Request
from interlock.server.request_schemas import ReasonRequest, WorkersQuery
from interlock.store.queries.views import workers_seen


async def list_workers(request: Request) -> responses.WorkersResponse:
    """Lists workers."""
    rows = await request.read(workers_seen, request.query.ended)
    return responses.WorkersResponse([json_views.make_worker(*row) for row in rows])


async def drain(request: Request) -> responses.ActionResponse:
    """Tells a worker to take no more work."""
    worker = await request.find_unit(json_views.WORKER)
    return await make_action_response(request, await request.send(Drain(worker=worker, reason=request.body.reason)))


ROUTES = (
    Operation(
        method="GET", path="/v1/workers", scope="read", summary="List workers", call=list_workers, query=WorkersQuery,
        response=responses.WorkersResponse,
    ),
    Operation(
        method="POST", path="/v1/workers/{id}/drain", scope="operate", summary="Drain a worker: it takes no new jobs",
        call=drain, body=ReasonRequest, response=responses.ActionResponse,
    ),
)  # fmt: skip
