"""The page of a run: that of a job, and everything below the run.

It has the graph or the tree, a waterfall, what it cost, and a slider over the events of the whole tree.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from interlock.client.durations import format_time
from interlock.client.graphs import BOXES_MAX, draw_svg
from interlock.client.tree_history import TreeHistory, build_past_tree, cut_history, read_tree_history
from interlock.client.trees import TreeSnapshot
from interlock.dashboard.decisions import read_refusal
from interlock.dashboard.job_pages import (
    NOTES_MAX,
    JobRows,
    Slider,
    ask_why,
    describe_job,
    find_job,
    find_lifecycle,
    read_number,
)
from interlock.dashboard.pages import PageRequest
from interlock.dashboard.panels import count_outcomes, make_waterfall
from interlock.dashboard.values import read_folded_detail
from interlock.kernel.lifecycle import Lifecycle
from interlock.plugins.evidence.queries import list_artifacts
from interlock.server.auth import Caller
from interlock.server.errors import ApiError
from interlock.store.connection import Connection
from interlock.store.queries.views import read_newest_notes, read_template

VIEWS = ("graph", "tree")
GRAPH_MAX = 60  # jobs and steps of a run whose graph is drawn without being asked for
ROWS = 40  # of the tree and of the waterfall on one page


def read_run_rows(
    connection: Connection, tenant: int, unit: int, lifecycles: Mapping[str, Lifecycle], caller: Caller
) -> tuple[TreeHistory, JobRows]:  # fmt: skip
    """Reads a run with all below it, and what its own panels show."""
    history = read_tree_history(connection, tenant, unit)
    notes = read_newest_notes(connection, tenant, unit, NOTES_MAX)
    own = JobRows(
        *read_folded_detail(connection, tenant, unit, notes), list(history.rows.events[unit]), notes,
        list_artifacts(connection, tenant, unit), [], history.rows.now,
        read_refusal(connection, tenant, lifecycles, unit, caller),
    )  # fmt: skip
    return history, own


async def show_run(request: PageRequest) -> dict[str, Any]:
    """Shows a run as it is, or as it was after some of the events of its tree."""
    unit = await find_job(request)
    lifecycles = request.site.server.app.lifecycles
    why, (history, own) = await asyncio.gather(
        ask_why(request, unit), request.read(read_run_rows, unit, lifecycles, request.caller)
    )
    lifecycle, slider = find_lifecycle(request, own.detail), find_place(request, history)
    past = [event for event in history.events[: slider.value] if event.unit == unit]
    tree = build_past_tree(history, slider.value, lifecycles)
    return {
        **describe_job(request, why, lifecycle, own, past, slider),
        **describe_tree(request, history, tree, slider.value),
        "made_from": await describe_template(request, own.detail),
    }  # fmt: skip


def find_place(request: PageRequest, history: TreeHistory) -> Slider:
    """Returns where the URL says to look: at an event of the tree, or a version of the run itself.

    Raises:
        ApiError: it is not allowed; the text says what is.
    """
    most = len(history.events)
    if "version" in request.query and "event" not in request.query:
        own = [place for place, event in enumerate(history.events, 1) if event.unit == history.top]
        version = read_number(request, "version", 1, len(own))
        place = most if version == len(own) else own[version - 1]
        return Slider("event", place, history.first, most, "event")
    return Slider("event", read_number(request, "event", history.first, most), history.first, most, "event")


def describe_tree(request: PageRequest, history: TreeHistory, tree: TreeSnapshot, count: int) -> dict[str, Any]:
    """Returns the panels that show all below a run.

    Raises:
        ApiError: a wrong word of the URL.
    """
    view = request.query.get("view", "graph" if len(tree.nodes) <= GRAPH_MAX else "tree")
    gaps = request.query.get("gaps", "shown")
    if view not in VIEWS:
        raise ApiError(400, f"view = {view} is not allowed; allowed are {', '.join(VIEWS)}")
    if gaps not in ("shown", "cut"):
        raise ApiError(400, f"gaps = {gaps} is not allowed; allowed are shown, cut")
    first = read_number(request, "row", 1, len(tree.nodes)) if "row" in request.query else 1
    shown = slice(first - 1, first - 1 + ROWS)
    base = f"{request.site.prefix}/ui/jobs/"
    fall = make_waterfall(
        tree, cut_history(history, count), request.site.server.app.lifecycles, shown, cut_idle=gaps == "cut"
    )
    event = history.events[count - 1]
    return {
        "tree": tree, "view": view, "gaps": gaps, "fall": fall, "row": first, "rows_count": len(tree.nodes),
        "graph": Markup(draw_svg(tree, link=base, styled=False)) if view == "graph" else "",
        "is_folded": len(tree.nodes) > BOXES_MAX, "before": max(1, first - ROWS) if first > 1 else None,
        "after": first + ROWS if first + ROWS <= len(tree.nodes) else None, "cut": tree.cut,
        "outcomes": count_outcomes(tree), "cost": tree.nodes[0].cost, "last_event": event,
        "at_event": format_time(event.at),
        "last_id": next((node.id for node in tree.nodes if node.unit == event.unit), ""),
    }  # fmt: skip


async def describe_template(request: PageRequest, detail: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the template of a run, with its version and the newest one; None if it is of none."""
    policy = detail["policy"] if isinstance(detail["policy"], dict) else {}
    if not policy.get("template"):
        return None
    newest = await request.read(read_template, policy["template"], None)
    return {
        "name": policy["template"], "version": policy.get("template_version"),
        "newest": newest.version if newest else None,
    }  # fmt: skip
