"""`interlock watch`: print what happens, as it happens."""

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
from interlock.cli.options import DEFAULT, Tenant, Url, find_unit, open_app, parse_length
from interlock.cli.output import FINDING, Json, make_console, make_state_cell, on_terminal, print_json_line, print_line
from interlock.cli.progress import describe_blocked, describe_progress
from interlock.client import agent_watch, json_views, trees
from interlock.client.agent_records import describe_meter
from interlock.client.app import App
from interlock.client.durations import format_rounded
from interlock.client.evidence import LogCursor, render_part
from interlock.client.inbox import format_view_id
from interlock.client.progress import WORKSTREAM, Progress, read_progress
from interlock.kernel.lifecycle import Category, Lifecycle
from interlock.kernel.policy import LEASED
from interlock.kernel.rows import Event
from interlock.plugins.agents.options import RUN
from interlock.plugins.evidence.queries import LogPart, has_emitted
from interlock.store.connection import Connection
from interlock.store.queries.feed import NOW
from interlock.store.queries.trees import read_notes_in, read_tree
from interlock.store.queries.views import Filter, View, count_by, events_of, listing, view

PAUSE = 0.25  # seconds between two looks
REST = 4  # times as long as a look took, at least: a large workstream takes a second to read
SHOWN = 20  # jobs on a screen
TREE_SHOWN = 40
BAR_WIDTH = 24
BLOCKED_SHOWN = 5
STREAM_SHOWN = 2_000  # characters of what an agent emits that are on the screen


class Snapshot(msgspec.Struct, frozen=True):
    """One look at the database: units, the progress of each, and how many there are in which state."""

    units: list[View]
    progress: dict[int, tuple[float, str]]
    counts: list[tuple[Any, ...]]
    tree: trees.TreeSnapshot | None = None  # of one job and all below it
    workstream: Progress | None = None  # of one workstream
    agent: agent_watch.AgentProgress | None = None  # of one agent run
    has_stream: bool = False  # one job has emitted text, or is an agent run


def watch(
    unit: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="A job or run and all below it (default: everything).")
    ] = None,
    within: Annotated[
        str | None, typer.Option("--for", metavar="DURATION", help="Stop after this long, such as 30s.")
    ] = None,
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Watch a job until it has ended, or everything: live on a terminal, one line per change when piped.

    Exits with 1 if the job did not succeed, or had not ended in time.
    """
    until = None if within is None else time.monotonic() + parse_length("for", within) / 1_000_000
    with open_app(db, tenant) as app:
        number = None if unit is None else find_unit(app, unit)
        try:
            if on_terminal() and not json:
                with Live(console=make_console(), auto_refresh=False) as screen:
                    stream = StreamTail(app, number)
                    for snapshot in take_snapshots(app, number, until, draw=True):
                        screen.update(draw(snapshot, stream.read() if snapshot.has_stream else ""), refresh=True)
            else:
                for change in follow_all(app, until) if number is None else follow_job(app, number, until):
                    print_change(change, json)
        except KeyboardInterrupt:
            pass
        if number is None:
            return
        job = app.read(view, number)
    if job.unit.outcome != Category.SUCCESS:
        if job.unit.outcome is None and not json:
            print_line(f"{format_view_id(job)} has not ended: interlock why {format_view_id(job)}")
        raise typer.Exit(FINDING)


def take_snapshots(app: App, unit: int | None, until: float | None, *, draw: bool = False) -> Iterator[Snapshot]:
    """Yield a snapshot every so often until the job has ended or the time is over; the last change is always in one."""
    while True:
        began = time.monotonic()
        snapshot = app.read(take_snapshot, unit, app.lifecycles if draw else None)
        took = time.monotonic() - began
        yield snapshot
        if (unit is not None and snapshot.units[0].unit.outcome is not None) or not wait_for_next(until, took):
            return


def wait_for_next(until: float | None, took: float) -> bool:
    """Wait until the next snapshot is due, which is later if the last one took long; return False if time is over."""
    pause = max(PAUSE, REST * took)
    left = pause if until is None else until - time.monotonic()
    time.sleep(min(pause, max(left, 0)))
    return left > 0


def take_snapshot(
    connection: Connection, tenant: int, unit: int | None, lifecycles: Mapping[str, Lifecycle] | None
) -> Snapshot:
    """Read what is shown now: one job with all below it, or everything that runs."""
    if unit is None:
        busy = listing(connection, tenant, Filter(categories=tuple(LEASED)), SHOWN)
        newest = listing(connection, tenant, Filter(), SHOWN)
        units = list({row.unit.id: row for row in [*busy, *newest] if row.unit.lifecycle != json_views.WORKER}.values())
    else:
        units = [row for _, row in read_tree(connection, tenant, unit).units]
    held = [row.unit.id for row in units if row.unit.holder is not None]
    notes = read_notes_in(connection, tenant, held, "progress")
    progress = {number: step for number in held if (step := trees.parse_progress(notes[number]))}
    if unit is None:
        return Snapshot(units, progress, count_by(connection, tenant, ("lifecycle", "state", "category")))
    below = None if lifecycles is None else trees.read_tree_snapshot(connection, tenant, lifecycles, unit)
    whole = read_progress(connection, tenant, unit) if units[0].unit.lifecycle == WORKSTREAM else None
    is_agent = units[0].unit.lifecycle == RUN
    agent = agent_watch.read_agent_progress(connection, tenant, units[0]) if is_agent else None
    return Snapshot(units, progress, [], below, whole, agent, is_agent or has_emitted(connection, tenant, unit))


# On a terminal.


class StreamTail:
    """The end of what an agent run has emitted and logged, as far as it was read."""

    def __init__(self, app: App, unit: int | None) -> None:
        self.cursor, self.text = None if unit is None else LogCursor(app, unit), ""

    def read(self) -> str:
        while self.cursor and (part := self.cursor.read()):
            self.text = (self.text + render_part(part).decode(errors="replace"))[-STREAM_SHOWN:]
        return self.text


def draw(snapshot: Snapshot, stream: str = "") -> RenderableType:
    """Return the screen: how many there are in which state, and the jobs with their progress."""
    if snapshot.tree is not None:
        below = draw_tree(snapshot.tree)
        if snapshot.has_stream:
            head = [Text(agent_watch.describe_progress(snapshot.agent)), Text("")] if snapshot.agent else []
            return Group(*head, below, Text(stream))
        return below if snapshot.workstream is None else Group(draw_workstream(snapshot.workstream), Text(""), below)
    counts = [
        Text.assemble(f"{count} {lifecycle} ", make_state_cell(state, category))
        for lifecycle, state, category, count in snapshot.counts
        if lifecycle != json_views.WORKER
    ]
    jobs = Table("ID", "TASK", "STATE", "WORKER", "PROGRESS", "", box=None, pad_edge=False)
    for job in snapshot.units[:SHOWN]:
        done, text = snapshot.progress.get(job.unit.id, (None, ""))
        bar = ProgressBar(total=1.0, completed=done, width=BAR_WIDTH) if done is not None else ""
        state = make_state_cell(job.unit.state, job.unit.category, job.unit.outcome)
        jobs.add_row(format_view_id(job), job.body.task, state, job.holder or "", bar, text)
    more = len(snapshot.units) - SHOWN
    return Group(Text("   ").join(counts), Text(""), jobs, Text(f"and {more} more" if more > 0 else ""))


def draw_workstream(progress: Progress) -> RenderableType:
    """Return how far a workstream is: a bar, counts, critical path and ETA, and what is blocked."""
    bar = ProgressBar(total=1.0, completed=progress.done / progress.of if progress.of else 0.0, width=BAR_WIDTH)
    blocked = [Text(f"blocked: {describe_blocked(task)}") for task in progress.blocked_tasks[:BLOCKED_SHOWN]]
    whole = Table.grid(padding=(0, 2))
    whole.add_row(bar, Text(describe_progress(progress)))
    return Group(whole, *blocked)


def draw_tree(below: trees.TreeSnapshot) -> RenderableType:
    """Return the screen for one job: the tree below it with progress; of a parent, the share of ended children."""
    table = Table("ID", "TASK", "STATE", "TOOK", "PROGRESS", "", "WAITS FOR", box=None, pad_edge=False)
    for branch, node in list(zip(tree.draw_branches(below.nodes), below.nodes, strict=True))[:TREE_SHOWN]:
        done, text = find_progress(below, node)
        took = below.duration_us(node)
        bar = ProgressBar(total=1.0, completed=done, width=BAR_WIDTH) if done is not None else ""
        state = make_state_cell(node.state, node.category, node.outcome)
        table.add_row(
            f"{branch}{node.id}",
            node.task,
            state,
            "" if took is None else format_rounded(took),
            bar,
            text,
            node.waits_for,
        )
    more = len(below.nodes) - TREE_SHOWN
    cut = "and many more" if below.cut else f"and {more} more" if more > 0 else ""
    return Group(table, Text(cut))


def find_progress(below: trees.TreeSnapshot, node: trees.TreeNode) -> tuple[float | None, str]:
    """Return the progress of a job, as its handler reports it or else by its ended children."""
    children = [child for child in below.nodes if child.parent == node.unit]
    if node.progress or not children or node.settled:
        return node.progress or (None, "")
    ended = sum(child.settled for child in children)
    return ended / len(children), f"{ended} of {len(children)}"


# For programs, and where the output is piped.


def follow_all(app: App, until: float | None) -> Iterator[dict[str, Any]]:
    """Yield every event from now on."""
    feed = app.events(after=NOW, follow=True)
    for events in feed.pages():
        yield from ({"change": "event", **msgspec.to_builtins(event)} for event in events)
        if until is not None and time.monotonic() >= until:
            return


def follow_job(app: App, unit: int, until: float | None) -> Iterator[dict[str, Any]]:
    """Yield every event of a job and of those below it, from the first on, and the progress that they report."""
    reached: dict[int, int] = {}
    steps: dict[int, tuple[float, str]] = {}
    counts = agent = None
    cursor = LogCursor(app, unit)
    for snapshot in take_snapshots(app, unit, until):
        for row in snapshot.units:
            number = row.unit.id
            events = app.read(events_of, number, reached.get(number, 0))
            yield from map(describe_event, events)
            reached[number] = max([reached.get(number, 0), *(event.version for event in events)])
            step = snapshot.progress.get(number)
            if step is not None and step != steps.get(number):
                steps[number] = step
                yield {"change": "progress", "unit": format_view_id(row), "done": step[0], "text": step[1]}
        whole = snapshot.workstream
        if whole is not None and (whole.done, whole.of, whole.running, whole.blocked) != counts:
            counts = (whole.done, whole.of, whole.running, whole.blocked)
            text, share = describe_progress(whole), whole.done / whole.of if whole.of else 0.0
            change = {"change": "progress", "unit": whole.id, "done": share, "text": text}
            yield {**change, "workstream": msgspec.to_builtins(whole)}
        while snapshot.has_stream and (part := cursor.read()):
            yield describe_part(format_view_id(snapshot.units[0]), part)
        if snapshot.agent is not None and snapshot.agent != agent:
            agent = snapshot.agent
            yield describe_agent(agent)


def describe_part(unit: str, part: LogPart) -> dict[str, Any]:
    """What a handler has emitted or logged, or the mark that some of it is void."""
    change = {"change": "void" if part.void else "log", "unit": unit, "attempt": part.attempt, "start": part.start}
    return {**change, "text": render_part(part).decode(errors="replace"), "void": part.void}


def describe_agent(progress: agent_watch.AgentProgress) -> dict[str, Any]:
    """The phase of an agent run, what is spent and left, and the questions that are open."""
    meters = [describe_meter(meter) for meter in progress.meters]
    return {
        "change": "agent", "unit": progress.id, "phase": progress.phase, "meters": msgspec.to_builtins(meters),
        "questions": msgspec.to_builtins(progress.questions), "text": agent_watch.describe_progress(progress),
    }  # fmt: skip


def describe_event(event: Event) -> dict[str, Any]:
    """Return an event as `--json` prints it."""
    return {"change": "event", **msgspec.to_builtins(json_views.make_event(event))}


def print_change(change: dict[str, Any], json: bool) -> None:
    """Print an event, or progress that a handler has reported."""
    if json:
        print_json_line(change)
    elif change["change"] == "progress":
        print_line(f"{change['unit']}\tprogress\t{change['done']:.0%}\t{change['text']}")
    elif change["change"] in ("log", "void", "agent"):
        text = change["text"] if change["change"] == "agent" else msgspec.json.encode(change["text"]).decode()
        print_line(f"{change['unit']}\t{change['change']}\t{text}")
    else:
        print_line("\t".join(change[field] or "" for field in ("unit", "at", "name", "from", "to", "actor")))
    sys.stdout.flush()
