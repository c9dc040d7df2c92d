"""Pages of workers, schedules and lifecycles, the search, and who is signed in."""

from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from interlock.audit.draw import draw_lifecycle
from interlock.dashboard.pages import MovedPage, PageRequest
from interlock.kernel.errors import InterlockError, Unknown
from interlock.server.errors import ApiError


async def show_workers(request: PageRequest) -> dict[str, Any]:
    """Lists workers: what they know, hold and have room for, and when they were heard last."""
    return {"workers": (await request.ask("GET", "/v1/workers", request.pairs))["workers"]}


async def show_lifecycles(request: PageRequest) -> dict[str, Any]:
    """Shows all lifecycles, drawn."""
    lifecycles = request.site.server.app.lifecycles.values()
    return {"lifecycles": [(each, Markup(draw_lifecycle(each, styled=False, hints=False))) for each in lifecycles]}


async def show_lifecycle(request: PageRequest) -> dict[str, Any]:
    """Shows a lifecycle: its drawing, its states and its transitions.

    Raises:
        ApiError: it is not allowed; the text says what is.
    """
    lifecycle = request.site.server.app.lifecycles.get(request.path["name"])
    if lifecycle is None:
        raise ApiError(404, "there is no such lifecycle")
    return {"lifecycle": lifecycle, "drawing": Markup(draw_lifecycle(lifecycle, styled=False))}


async def find(request: PageRequest) -> dict[str, Any]:
    """Leads to the job with an id, or to the list of those with a key, a correlation or a task."""
    typed = request.query.get("q", "")
    text = typed.strip()
    if not text:
        raise MovedPage("/jobs")
    try:
        job = await request.ask("GET", "/v1/jobs/{id}", parameters={"id": text})
        raise MovedPage(f"/jobs/{job['id']}")
    except (Unknown, ApiError, InterlockError):
        pass
    for wanted in dict.fromkeys((text, typed)):
        for field in ("key", "correlation", "task"):
            page = await request.ask("GET", "/v1/jobs", [(field, wanted), ("limit", "1")])
            if page["jobs"]:
                raise MovedPage(f"/jobs?{field}={quote(wanted)}")
    raise ApiError(404, f"nothing has the id, key, correlation or task '{text}'")


async def show_me(request: PageRequest) -> dict[str, Any]:
    """Shows who signed in, and what the key allows."""
    return {"scopes": request.caller.scopes, "roles": request.caller.roles}
