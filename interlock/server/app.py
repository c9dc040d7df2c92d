"""The ASGI application: one route per operation, the OpenAPI text, and the page to try it on."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import msgspec
from litestar import Litestar, Response
from litestar.datastructures import State
from litestar.exceptions import HTTPException
from litestar.handlers import HTTPRouteHandler

from interlock.client import responses
from interlock.client.app import App
from interlock.core.engine import Engine
from interlock.core.plugin import Registry, load_part
from interlock.core.tick import Ticker
from interlock.kernel.errors import StoreError
from interlock.server import (
    bulk_cancel,
    command_api,
    dead_letters,
    events,
    history,
    jobs,
    keys,
    leases,
    lifecycles,
    long_poll,
    metrics,
    own_metrics,
    workers,
)
from interlock.server.api_page import PAGE, PAGE_HEADERS
from interlock.server.auth import read_loop_time
from interlock.server.errors import RETRY_SOON, ApiError
from interlock.server.limits import Limits
from interlock.server.logs import write_log
from interlock.server.openapi import build_openapi
from interlock.server.operations import HTML, JSON, Operation, Request, ServerState, make_request_id
from interlock.server.request_pipeline import (
    BODY_MAX,
    HEADERS,
    HttpRequest,
    RequestPipeline,
    log_request,
    make_error_response,
)
from interlock.store import migrate
from interlock.store.connection import Connection

LIMITS = Limits()


def has_current_schema(connection: Connection) -> bool:
    """Whether the database has the schema of this program."""
    return migrate.version(connection) == migrate.numbers()[-1]


async def check_alive(request: Request) -> responses.HealthResponse:
    """Answers that the process runs. It reads nothing, so that nobody restarts a server because a database is away."""
    return responses.HealthResponse("ok")


async def check_ready(request: Request) -> responses.HealthResponse:
    """Answers that the database answers, and has the schema of this program.

    Raises:
        ApiError: 503, with the reason but not the database's own words: the caller has shown no key.
    """
    try:
        current = await request.server.read(has_current_schema, 1)
    except StoreError as error:
        write_log(logging.WARNING, f"not ready: {error}", request=request.request_id)
        raise ApiError(503, "not ready: the database does not answer", headers=RETRY_SOON) from None
    if not current:
        raise ApiError(503, "not ready: the schema of the database is not that of this program", headers=RETRY_SOON)
    return responses.HealthResponse("ok")


HEALTH_ROUTES = (
    Operation(
        method="GET", path="/healthz", scope=None, summary="Whether the server's process answers", call=check_alive,
        response=responses.HealthResponse,
    ),
    Operation(
        method="GET", path="/readyz", scope=None, call=check_ready, response=responses.HealthResponse,
        summary="Whether the server's database answers, and has the schema of this program",
    ),
)  # fmt: skip
CORE_ROUTES: tuple[Operation, ...] = (
    *jobs.ROUTES, *events.ROUTES, *bulk_cancel.ROUTES, *leases.ROUTES, *dead_letters.ROUTES, *workers.ROUTES,
    *lifecycles.ROUTES, *keys.ROUTES, *long_poll.ROUTES, *metrics.ROUTES, *history.ROUTES,
    *own_metrics.ROUTES, *HEALTH_ROUTES,
)  # fmt: skip


def collect_operations(registry: Registry) -> tuple[Operation, ...]:
    """Returns the operations of the core and of these plugins."""
    plugin_routes = [operation for place in registry.routes for operation in load_part(place)]
    return (*CORE_ROUTES, *command_api.make_routes(registry), *plugin_routes)


# Makes the routes of pages: asked with the state of the server, its pipeline and its operations.
MakePages = Callable[[ServerState, RequestPipeline, Sequence[Operation]], Sequence[HTTPRouteHandler]]


def build_app(
    app: App, *, lent: bool = False, ticks: bool = False, limits: Limits = LIMITS, make_pages: MakePages | None = None
) -> Litestar:
    """Builds the server of an app's database. It connects when it starts, and answers what it took before it ends.

    Parameters:
        lent: the app is closed by whoever lent it.
        ticks: the server sends the ticks of every tenant while it serves.
        make_pages: makes the pages that are served beside the API.
    """
    operations, state = collect_operations(app.registry), make_state(app, limits)
    server, pipeline = state.server, state.pipeline

    @asynccontextmanager
    async def run_lifespan(asgi: Litestar) -> AsyncIterator[None]:
        server: ServerState = asgi.state.server
        app = server.app
        app.connect()
        if isinstance(app.engine, Engine):
            app.engine.observe(server.observer)
        ticker = Ticker(app.engine, "server") if ticks else None
        if ticker:
            ticker.start()
        try:
            yield
        finally:
            if ticker:
                await asyncio.to_thread(ticker.stop)
            server.close(lent=lent)

    @cache
    def write_openapi() -> bytes:
        return msgspec.json.encode(build_openapi(operations, app.lifecycles))

    api_page = PAGE.encode
    pages = [make_page("/openapi.json", write_openapi, JSON), make_page("/api", api_page, HTML, PAGE_HEADERS)]
    pages += make_pages(server, pipeline, operations) if make_pages else [make_page("/", api_page, HTML, PAGE_HEADERS)]
    return Litestar(
        [*map(make_route, operations), *pages],
        lifespan=[run_lifespan],
        exception_handlers={HTTPException: answer_unrouted, Exception: answer_unrouted},
        request_max_body_size=BODY_MAX,
        state=state,
        openapi_config=None,
        logging_config=None,
    )


def make_state(app: App, limits: Limits) -> State:
    """What the routes of an app's server share: its state, and the pipeline that all requests go through."""
    server = ServerState(app, limits)
    server.observer = own_metrics.MetricsObserver()
    return State({"server": server, "pipeline": RequestPipeline(server)})


def make_route(operation: Operation) -> HTTPRouteHandler:
    """Makes the route of an operation."""

    async def answer(request: HttpRequest) -> Response[Any]:  # the name by which Litestar knows the argument
        return await request.app.state.pipeline.answer(operation, request)  # type: ignore[no-any-return]

    path = operation.path.replace("}", ":str}")
    return HTTPRouteHandler(
        path, http_method=operation.method, name=operation.name,  # type: ignore[arg-type]
        request_max_body_size=operation.takes_bytes or BODY_MAX,
    )(answer)  # fmt: skip


def make_page(
    path: str, write: Callable[[], bytes], media: str, headers: Mapping[str, str] | None = None
) -> HTTPRouteHandler:
    """Makes the route of a text that is always the same; it is written when somebody asks for it."""

    async def answer() -> Response[bytes]:
        text = await asyncio.to_thread(write)
        return Response(text, media_type=media, headers={**HEADERS, **(headers or {})})

    return HTTPRouteHandler(path, http_method="GET")(answer)


def answer_unrouted(http_request: HttpRequest, error: Exception) -> Response[bytes]:
    """Answers a request to no operation, or one that cannot be read."""
    response, request_id = make_error_response(error), make_request_id()
    response.headers["X-Request-Id"] = request_id
    log_request(http_request.method, "", response.status_code, read_loop_time(), request_id)
    return response
