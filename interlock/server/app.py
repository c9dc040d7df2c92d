"""The server as an ASGI application: a route for every operation, and one way to answer for everything else."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec
from litestar import Litestar, Response
from litestar.datastructures import State
from litestar.exceptions import HTTPException
from litestar.handlers import HTTPRouteHandler

from interlock.client import responses
from interlock.client.app import App
from interlock.core.plugin import Registry, load_part
from interlock.core.ticker import Ticker
from interlock.kernel.errors import StoreError
from interlock.server import command_api, dead_letters, jobs, keys, leases, lifecycles, long_poll, metrics, workers
from interlock.server.api_page import PAGE, PAGE_HEADERS
from interlock.server.auth import moment
from interlock.server.errors import AGAIN, Refusal
from interlock.server.limits import Limits
from interlock.server.openapi import described
from interlock.server.operations import HTML, JSON, Operation, Request, ServerState, make_request_id
from interlock.server.request_pipeline import BODY_MAX, HEADERS, HttpRequest, RequestPipeline, refused, told
from interlock.store import migrate
from interlock.store.connection import Connection

log = logging.getLogger("interlock.server")
LIMITS = Limits()


def present(connection: Connection) -> bool:
    return migrate.version(connection) == migrate.numbers()[-1]


async def alive(request: Request) -> responses.Health:
    """The process answers; it asks nothing else, so that nobody restarts a server because a database is away."""
    return responses.Health("ok")


async def ready(request: Request) -> responses.Health:
    """The database answers, and has the schema that this program knows. Raises Refusal."""
    try:
        right = await request.hall.look(present, 1)
    except StoreError as error:
        log.warning("not ready: %s", error)  # whoever asks has shown no key, and is not told where the database is
        raise Refusal(503, "not ready: the database does not answer", headers=AGAIN) from None
    if not right:
        raise Refusal(503, "not ready: the database has not the schema of this program", headers=AGAIN)
    return responses.Health("ok")


OPEN = (
    Operation(
        method="GET", path="/healthz", scope=None, summary="Whether the server's process answers", call=alive,
        answer=responses.Health,
    ),
    Operation(
        method="GET", path="/readyz", scope=None, call=ready, answer=responses.Health,
        summary="Whether the server's database answers, and has the schema of this program",
    ),
)  # fmt: skip
CORE_ROUTES: tuple[Operation, ...] = (
    *jobs.ROUTES, *leases.ROUTES, *dead_letters.ROUTES, *workers.ROUTES, *lifecycles.ROUTES, *keys.ROUTES,
    *long_poll.ROUTES, *metrics.ROUTES, *OPEN,
)  # fmt: skip


def operations_of(registry: Registry) -> tuple[Operation, ...]:
    """Everything that a server with these plugins can be asked."""
    of_plugins = [operation for place in registry.routes for operation in load_part(place)]
    return (*CORE_ROUTES, *command_api.program_operations(registry), *of_plugins)


def built(app: App, *, lent: bool = False, ticks: bool = False, limits: Limits = LIMITS) -> Litestar:
    """The server of an app's database. It connects when it starts, and what was sent is answered before it ends.

    An app that is lent is closed by whoever lent it. If it `ticks`, time passes for every tenant while it serves.
    """
    operations = operations_of(app.registry)
    hall = ServerState(app, limits)
    desk = RequestPipeline(hall)

    @asynccontextmanager
    async def open_and_closed(server: Litestar) -> AsyncIterator[None]:
        app.connect()
        ticker = Ticker(app.engine, "server") if ticks else None
        if ticker:
            ticker.start()
        try:
            yield
        finally:
            if ticker:
                await asyncio.to_thread(ticker.stop)
            hall.close(lent=lent)

    text = msgspec.json.encode(described(operations, app.lifecycles))
    pages = [page("/openapi.json", text, JSON), page("/", PAGE.encode(), HTML, PAGE_HEADERS)]
    return Litestar(
        [*map(partial(route, desk), operations), *pages],
        lifespan=[open_and_closed],
        exception_handlers={HTTPException: outside, Exception: outside},
        request_max_body_size=BODY_MAX,
        state=State({"hall": hall}),
        openapi_config=None,
        logging_config=None,
    )


def route(desk: RequestPipeline, operation: Operation) -> HTTPRouteHandler:
    async def answer(request: HttpRequest) -> Response[Any]:  # the name by which Litestar knows the argument
        return await desk.answer(operation, request)

    path = operation.path.replace("}", ":str}")
    return HTTPRouteHandler(path, http_method=operation.method, name=operation.name)(answer)  # type: ignore[arg-type]


def page(path: str, text: bytes, media: str, more: Mapping[str, str] | None = None) -> HTTPRouteHandler:
    async def answer() -> Response[bytes]:
        return Response(text, media_type=media, headers={**HEADERS, **(more or {})})

    return HTTPRouteHandler(path, http_method="GET")(answer)


def outside(http_request: HttpRequest, error: Exception) -> Response[bytes]:
    """What is answered where no operation was found, or the request could not be read."""
    answer, named = refused(error), make_request_id()
    answer.headers["X-Request-Id"] = named
    told(http_request.method, "", answer.status_code, moment(), named)
    return answer
