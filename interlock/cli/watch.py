"""`interlock watch`: what happens, as it happens."""

import sys
import time
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from interlock.cli import tree
from interlock.cli.options import DEFAULT, Tenant, Url, app_on, length, unit_of
from interlock.cli.output import FINDING, Json, console, dump_line, on_terminal, say, state_cell
from interlock.client import json_views, trees
from interlock.client.app import App
from interlock.client.durations import format_rounded
from interlock.client.inbox import format_view_id
from interlock.kernel.lifecycle import Category, Lifecycle
from interlock.kernel.policy import LEASED
from interlock.kernel.rows import Event
from interlock.store.connection import Connection
from interlock.store.queries.snapshots import read_cursor, read_events_after
from interlock.store.queries.trees import read_notes_in, read_tree
from interlock.store.queries.views import Filter, View, count_by, events_of, listing, view

PAUSE = 0.25  # seconds between two looks
EVENTS = 1_000  # read together
SHOWN = 20  # units on a screen
TREE_SHOWN = 40
BAR_WIDTH = 24


class Picture(msgspec.Struct, frozen=True):
    """What one look saw: units, how far each of them is, and how many there are in all."""

    units: list[View]
    progress: dict[int, tuple[float, str]]
    counts: list[tuple[Any, ...]]
    tree: trees.TreeSnapshot | None = None  # of one unit and all below it


def watch(
    unit: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="A unit and all below it; else everything.")
    ] = None,
    within: Annotated[
        str | None, typer.Option("--for", metavar="DURATION", help="End after so long, as in 30s.")
    ] = None,
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Watch a unit until it has ended, or everything: live on a terminal, one line a change when piped.

    Exits with 1 if the unit ended without success, or had not ended in time.
    """
    until = None if within is None else time.monotonic() + length("for", within) / 1_000_000
    with app_on(db, tenant) as app:
        one = None if unit is None else unit_of(app, unit)
        try:
            if on_terminal() and not json:
                with Live(console=console(), auto_refresh=False) as screen:
                    for picture in pictures(app, one, until, draw=True):
                        screen.update(drawn(picture), refresh=True)
            else:
                for told in every_change(app, until) if one is None else changes(app, one, until):
                    tell(told, json)
        except KeyboardInterrupt:
            pass
        if one is None:
            return
        found = app.read(view, one)
    if found.unit.outcome != Category.SUCCESS:
        if found.unit.outcome is None and not json:
            say(f"{format_view_id(found)} has not ended: interlock why {format_view_id(found)}")
        raise typer.Exit(FINDING)


def pictures(app: App, unit: int | None, until: float | None, *, draw: bool = False) -> Iterator[Picture]:
    """A look every so often: until the unit has ended, or the time is over. What happened last is always seen."""
    while True:
        picture = app.read(look, unit, app.lifecycles if draw else None)
        yield picture
        if (unit is not None and picture.units[0].unit.outcome is not None) or not paused(until):
            return


def paused(until: float | None) -> bool:
    """Whether there is time for another look; if so, it is time for it now."""
    left = PAUSE if until is None else until - time.monotonic()
    time.sleep(min(PAUSE, max(left, 0)))
    return left > 0


def look(connection: Connection, tenant: int, unit: int | None, lifecycles: Mapping[str, Lifecycle] | None) -> Picture:
    if unit is None:
        busy = listing(connection, tenant, Filter(categories=tuple(LEASED)), SHOWN)
        newest = listing(connection, tenant, Filter(), SHOWN)
        units = list({one.unit.id: one for one in [*busy, *newest] if one.unit.lifecycle != json_views.WORKER}.values())
    else:
        units = [one for _, one in read_tree(connection, tenant, unit).units]
    held = [one.unit.id for one in units if one.unit.holder is not None]
    said = read_notes_in(connection, tenant, held, "progress")
    progress = {one: step for one in held if (step := trees.parse_progress(said[one]))}
    if unit is not None and lifecycles is not None:
        return Picture(units, progress, [], trees.read_tree_snapshot(connection, tenant, lifecycles, unit))
    return Picture(units, progress, count_by(connection, tenant, ("lifecycle", "state", "category")))


# On a terminal.


def drawn(picture: Picture) -> RenderableType:
    """The screen: how many there are of each kind, and the units with their progress."""
    if picture.tree is not None:
        return grown(picture.tree)
    counts = [
        Text.assemble(f"{count} {lifecycle} ", state_cell(state, category))
        for lifecycle, state, category, count in picture.counts
        if lifecycle != json_views.WORKER
    ]
    units = Table("ID", "TASK", "STATE", "WORKER", "PROGRESS", "", box=None, pad_edge=False)
    for one in picture.units[:SHOWN]:
        done, text = picture.progress.get(one.unit.id, (None, ""))
        bar = ProgressBar(total=1.0, completed=done, width=BAR_WIDTH) if done is not None else ""
        state = state_cell(one.unit.state, one.unit.category)
        units.add_row(format_view_id(one), one.body.task, state, one.holder or "", bar, text)
    more = len(picture.units) - SHOWN
    return Group(Text("   ").join(counts), Text(""), units, Text(f"and {more} more" if more > 0 else ""))


def grown(seen: trees.TreeSnapshot) -> RenderableType:
    """The screen for one unit: the tree below it, each with its progress, of a parent the share of ended children."""
    drawn = Table("ID", "TASK", "STATE", "TOOK", "PROGRESS", "", "WAITS FOR", box=None, pad_edge=False)
    for branch, node in list(zip(tree.branches(seen.nodes), seen.nodes, strict=True))[:TREE_SHOWN]:
        done, text = progress_of(seen, node)
        took = seen.duration_us(node)
        bar = ProgressBar(total=1.0, completed=done, width=BAR_WIDTH) if done is not None else ""
        state = state_cell(node.state, node.category)
        drawn.add_row(
            f"{branch}{node.id}",
            node.task,
            state,
            "" if took is None else format_rounded(took),
            bar,
            text,
            node.waits_for,
        )
    more = len(seen.nodes) - TREE_SHOWN
    cut = "and many more" if seen.cut else f"and {more} more" if more > 0 else ""
    return Group(drawn, Text(cut))


def progress_of(seen: trees.TreeSnapshot, node: trees.TreeNode) -> tuple[float | None, str]:
    """How far a unit is: as it says, or of a parent that has not ended as its children are."""
    children = [one for one in seen.nodes if one.parent == node.unit]
    if node.progress or not children or node.settled:
        return node.progress or (None, "")
    ended = sum(child.settled for child in children)
    return ended / len(children), f"{ended} of {len(children)}"


# For programs, and where the output is piped.


def every_change(app: App, until: float | None) -> Iterator[dict[str, Any]]:
    """Every move of every unit, from now on."""
    at = app.engine.read(read_cursor, app.tenant)
    while True:
        found = app.engine.read(lambda connection, at=at: read_events_after(connection, at, EVENTS), app.tenant)  # type: ignore[misc]
        yield from (change_of(one) for _, one in found if one.tenant == app.tenant)
        at = found[-1][0] if found else at
        if len(found) < EVENTS and not paused(until):
            return


def changes(app: App, unit: int, until: float | None) -> Iterator[dict[str, Any]]:
    """Every move of a unit and of those below it, from their births on, and how far they say that they are."""
    reached: dict[int, int] = {}
    steps: dict[int, tuple[float, str]] = {}
    for picture in pictures(app, unit, until):
        for one in picture.units:
            number = one.unit.id
            events = app.read(events_of, number, reached.get(number, 0))
            yield from map(change_of, events)
            reached[number] = max([reached.get(number, 0), *(event.version for event in events)])
            step = picture.progress.get(number)
            if step is not None and step != steps.get(number):
                steps[number] = step
                yield {"change": "progress", "unit": format_view_id(one), "done": step[0], "text": step[1]}


def change_of(event: Event) -> dict[str, Any]:
    return {"change": "event", **msgspec.to_builtins(json_views.make_event(event))}


def tell(one: dict[str, Any], json: bool) -> None:
    if json:
        dump_line(one)
    elif one["change"] == "progress":
        say(f"{one['unit']}\tprogress\t{one['done']:.0%}\t{one['text']}")
    else:
        say(f"{one['unit']}\t{one['at']}\t{one['name']}\t{one['from'] or ''}\t{one['to']}\t{one['actor']}")
    sys.stdout.flush()
