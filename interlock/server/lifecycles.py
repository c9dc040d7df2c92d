"""Lifecycles over HTTP, as data and as diagrams."""

from typing import Any

from interlock.audit.docs import export, render
from interlock.client import responses
from interlock.kernel.errors import Unknown
from interlock.kernel.lifecycle import Lifecycle
from interlock.server.operations import TEXT, Operation, Request


async def list_lifecycles(request: Request) -> responses.LifecyclesResponse:
    """Lists lifecycles."""
    return responses.LifecyclesResponse(
        [
            responses.LifecycleSummaryResponse(lifecycle.name, lifecycle.document, lifecycle.about)
            for lifecycle in request.app.lifecycles.values()
        ]
    )


def find_lifecycle(request: Request) -> Lifecycle:
    """Returns the lifecycle that the path names.

    Raises:
        Unknown: there is none.
    """
    lifecycle = request.app.lifecycles.get(request.path["name"])
    if lifecycle is None:
        raise Unknown(request.path["name"])
    return lifecycle


async def show_lifecycle(request: Request) -> dict[str, Any]:
    """Shows a lifecycle as data."""
    return export.describe_lifecycle(find_lifecycle(request))


async def draw_mermaid_text(request: Request) -> str:
    """Draws a lifecycle as Mermaid text."""
    return render.draw_mermaid(find_lifecycle(request), whole=True) + "\n"


ROUTES = (
    Operation(
        method="GET", path="/v1/lifecycles", scope="read", summary="List lifecycles", call=list_lifecycles,
        response=responses.LifecyclesResponse,
    ),
    Operation(
        method="GET", path="/v1/lifecycles/{name}", scope="read", summary="Show a lifecycle as data",
        call=show_lifecycle,
        response=responses.LifecycleResponse,
    ),
    Operation(
        method="GET", path="/v1/lifecycles/{name}/mermaid", scope="read", summary="Draw a lifecycle as Mermaid text",
        call=draw_mermaid_text, response=str, media=TEXT,
    ),
)  # fmt: skip
