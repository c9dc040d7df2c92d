"""Panels of a job or run, made from rows: state at a version, timeline, tabs, waterfall.

Everything here is a function of what was read, so that a page shows of the past exactly what events tell of it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from interlock.client.durations import format_brief, format_rounded, format_time
from interlock.client.event_views import decode_json
from interlock.client.timelines import (
    BUSY,
    WIDTH,
    Attempt,
    LeaseSpan,
    Scale,
    Span,
    StepSpan,
    list_attempts,
    list_leases,
    list_spans,
    list_step_spans,
    make_scale,
)
from interlock.client.trees import TreeNode, TreeRows, TreeSnapshot
from interlock.kernel.lifecycle import SETTLED, Category, Lifecycle
from interlock.kernel.policy import LIVE
from interlock.kernel.rows import Event, Note

# The class of a bar, how far below the upper edge of its row it begins, and how high it is.
BARS = {
    "waits": ("f-ready", 11, 9), "backoff": ("f-waiting", 13, 5), "held": ("f-held", 9, 13),
    "runs": ("f-active", 8, 15), "done": ("f-success", 8, 15), "broke": ("f-failure", 8, 15),
    "person": ("f-gate", 10, 11), "stops": ("f-closing", 9, 13), "lease": ("f-held", 12, 7),
    "step": ("f-success", 10, 11),
}  # fmt: skip
WORDS = {
    "waits": "waits", "backoff": "waits to be tried again", "held": "is held", "runs": "runs",
    "done": "ran, and succeeded", "broke": "ran, and failed",
    "person": "waits for a decision", "stops": "is asked to stop",
}  # fmt: skip
THIN = 2.0  # the least width of a bar


class JobStanding(NamedTuple):
    """How a job stood after some of its events."""

    state: str
    category: str
    version: int
    attempt: int
    fence: int
    at: int
    taken: Mapping[tuple[str, str], int]  # the transitions that it had made, with how often each


class Bar(NamedTuple):
    """A bar of a timeline."""

    kind: str
    x: float
    y: int
    width: float
    height: int
    title: str
    crossed: bool = False  # it failed, which is told without colour too


class TimelineRow(NamedTuple):
    """A row of a timeline."""

    label: str
    bars: Sequence[Bar]
    took: str
    about: str = ""  # for those who do not see the bars
    is_part: bool = False  # of the attempt above it


def find_standing(events: Sequence[Event], lifecycle: Lifecycle) -> JobStanding:
    """Returns how a job stood after these events."""
    last = events[-1]
    state = lifecycle.states.get(last.target)
    taken = Counter((event.source, event.target) for event in events if event.source not in (None, event.target))
    return JobStanding(
        last.target, state.category.value if state else "", last.version, last.attempt, last.fence, last.at,
        {(source, target): count for (source, target), count in taken.items() if source is not None},
    )  # fmt: skip


def find_shown_category(events: Sequence[Event], lifecycle: Lifecycle) -> str:
    """Returns the category that a job is shown with: of what is closed, that in which it had ended."""
    categories = [find_category(lifecycle, event.target) for event in events]
    ends = [each for each in categories if each in SETTLED and each != Category.CLOSED]
    return ends[-1] if categories[-1] == Category.CLOSED and ends else categories[-1]


def list_live_states(lifecycles: Mapping[str, Lifecycle]) -> list[str]:
    """Lists the states of a lease that has not ended."""
    return [name for name, state in lifecycles["lease"].states.items() if state.category in LIVE]


# The timeline of one job.


def make_timeline(
    events: Sequence[Event], lifecycle: Lifecycle, live: Sequence[str], notes: Sequence[Note], until: int
) -> list[TimelineRow]:
    """Makes the timeline of a job: a row for each attempt, and below it those of its leases and durable steps."""
    spans = list_spans(events, lifecycle, until)
    scale = make_scale(events[0].at, find_last_instant(events, lifecycle, until))
    leases, steps = list_leases(events, live), list_step_spans(notes, events)
    attempt_of = {lease.fence: lease.attempt for lease in leases}
    rows = []
    for attempt in list_attempts(events, lifecycle):
        bars = [make_bar(span, scale) for span in spans if span.attempt == attempt.number]
        took = format_brief((attempt.ended_at or until) - attempt.began_at)
        rows.append(TimelineRow(f"attempt {attempt.number}", bars, took, describe(bars)))
        rows += [make_lease_row(lease, scale, until) for lease in leases if lease.attempt == attempt.number]
        rows += [make_step_row(step, scale) for step in steps if attempt_of.get(step.fence) == attempt.number]
    return rows + [make_step_row(step, scale) for step in steps if step.fence not in attempt_of]


def find_last_instant(events: Sequence[Event], lifecycle: Lifecycle | None, until: int) -> int:
    """Returns when a job ended; if it has not, `until`."""
    state = lifecycle.states.get(events[-1].target) if lifecycle else None
    if state is None or state.category not in SETTLED:
        return max(until, events[-1].at)
    return events[-1].at


def make_bar(span: Span, scale: Scale) -> Bar:
    """Makes the bar of a stretch of time."""
    title = f"{span.state}: {WORDS[span.kind]}, {format_rounded(span.end - span.begin)}, from {format_time(span.begin)}"
    return place_bar(span.kind, span.begin, span.end, title, scale)


def place_bar(kind: str, begin: int, end: int, title: str, scale: Scale) -> Bar:
    """Places a bar on the scale; one that is too short to be seen is made wider."""
    name, y, height = BARS[kind]
    x = scale.place(begin)
    width = max(THIN, scale.place(end) - x)
    return Bar(name, round(min(x, WIDTH - width), 1), y, round(width, 1), height, title, kind == "broke")


def describe(bars: Sequence[Bar]) -> str:
    """Describes bars in words."""
    return "; ".join(bar.title for bar in bars[:20])


def make_lease_row(lease: LeaseSpan, scale: Scale, until: int) -> TimelineRow:
    """Makes the row of a lease in a timeline."""
    end = lease.ended_at or until
    took = format_brief(end - lease.granted_at)
    title = f"lease {lease.fence} of {lease.worker}: {lease.state}, {took}, from {format_time(lease.granted_at)}"
    bar = place_bar("lease", lease.granted_at, end, title, scale)
    return TimelineRow(f"lease {lease.fence}, {lease.worker}", [bar], took, title, is_part=True)


def make_step_row(step: StepSpan, scale: Scale) -> TimelineRow:
    """Makes the row of a recorded step in a timeline."""
    took = format_brief(step.end - step.begin)
    title = f"step {step.name}: remembered at {format_time(step.end)}"
    bar = place_bar("step", step.begin, step.end, title, scale)
    return TimelineRow(f"step {step.name}", [bar], took, title, is_part=True)


# Tabs.


def make_tabs(
    events: Sequence[Event], lifecycle: Lifecycle, live: Sequence[str], notes: Sequence[Note],
    artifacts: Sequence[Any], children: Sequence[Any], until: int,
) -> dict[str, Sequence[Any]]:  # fmt: skip
    """Makes what each tab shows of the time up to an instant; a tab without content is left out."""
    known = [note for note in notes if note.at <= until]
    steps = [format_note(note) for note in known if note.kind == "step"]
    tabs: dict[str, Sequence[Any]] = {
        "events": [
            format_event(event, lifecycle, before)
            for before, event in reversed(list(zip([None, *events[:-1]], events, strict=True)))
        ],
        "attempts": [format_attempt(attempt) for attempt in list_attempts(events, lifecycle)],
        "steps": [*steps, *children],
        "leases": [format_lease(lease) for lease in list_leases(events, live)],
        "notes": [format_note(note) for note in reversed(known) if note.kind not in ("step", "traceback", "beat")],
        "artifacts": [artifact for artifact in artifacts if artifact.at <= until],
    }
    return {name: rows for name, rows in tabs.items() if rows}


def format_event(event: Event, lifecycle: Lifecycle | None, before: Event | None = None) -> dict[str, Any]:
    """Returns what is shown of an event; with the one before it also how long after that it was."""
    return {
        "version": event.version, "at": format_time(event.at), "name": event.name, "from": event.source or "",
        "to": event.target, "trigger": event.trigger, "actor": event.actor, "attempt": event.attempt,
        "reason": "" if event.reason == event.trigger else event.reason,
        "from_category": find_category(lifecycle, event.source), "category": find_category(lifecycle, event.target),
        "after": f"+{format_brief(event.at - before.at)}" if before else "",
    }  # fmt: skip


def find_category(lifecycle: Lifecycle | None, state: str | None) -> str:
    """Returns what a state means; nothing for one that is not known here."""
    return lifecycle.category(state).value if lifecycle and state and state in lifecycle.states else ""


def format_attempt(attempt: Attempt) -> dict[str, Any]:
    """Formats an attempt for its table."""
    end = attempt.ended_at
    return {
        "number": attempt.number, "began": format_time(attempt.began_at), "started": format_time(attempt.started_at),
        "ended": format_time(end), "end": attempt.end, "worker": attempt.worker, "fence": attempt.fence,
        "error": attempt.error, "error_class": attempt.error_class, "cost": attempt.cost,
        "ran": None if attempt.started_at is None or end is None else format_brief(end - attempt.started_at),
    }  # fmt: skip


def format_lease(lease: LeaseSpan) -> dict[str, Any]:
    """Formats a lease for its table."""
    return {
        "fence": lease.fence, "worker": lease.worker, "granted": format_time(lease.granted_at), "state": lease.state,
        "ended": format_time(lease.ended_at), "attempt": lease.attempt,
    }  # fmt: skip


def format_note(note: Note) -> dict[str, Any]:
    """Formats a note for its table."""
    return {
        "at": format_time(note.at), "kind": note.kind, "name": note.name, "fence": note.fence,
        "payload": decode_json(note.payload),
    }  # fmt: skip


# The waterfall of a run.


class FallRow(NamedTuple):
    """A row of the waterfall: a job or step with its bars."""

    node: TreeNode
    bars: Sequence[Bar]
    took: str


class Waterfall(NamedTuple):
    """The rows that are shown, and where idle time was cut out."""

    rows: Sequence[FallRow]
    cuts: Sequence[tuple[float, str]]
    ticks: Sequence[tuple[int, str]]


def make_waterfall(
    tree: TreeSnapshot, rows: TreeRows, lifecycles: Mapping[str, Lifecycle], shown: slice, *, cut_idle: bool
) -> Waterfall:
    """Makes the waterfall of a tree; of the rows those that are shown, on the scale of all."""
    spans = {
        node.unit: list_spans(rows.events[node.unit], lifecycles.get(node.lifecycle), tree.at) for node in tree.nodes
    }
    first = min(node.born_at for node in tree.nodes)
    last = max(tree.at if not node.settled else (node.ended_at or node.born_at) for node in tree.nodes)
    scale = make_scale(first, last, list_busy(tree, spans) if cut_idle else None)
    fall = [
        FallRow(node, [make_bar(span, scale) for span in spans[node.unit]], describe_took(tree, node))
        for node in tree.nodes[shown]
    ]
    cuts = [(round(place, 1), format_brief(length)) for place, length in scale.cuts]
    return Waterfall(fall, cuts, make_ticks(first, last, scale))


def make_ticks(first: int, last: int, scale: Scale) -> list[tuple[int, str]]:
    """Makes the ticks of the axis; where time was cut out there are none, since they would not be even."""
    if scale.cuts:
        return []
    return [(WIDTH * share // 5, format_brief((last - first) * share // 5)) for share in range(1, 5)]


def list_busy(tree: TreeSnapshot, spans: Mapping[int, Sequence[Span]]) -> list[tuple[int, int]]:
    """Lists when something was worked on; a run is active as long as anything below it is open, and does not count."""
    parents = {node.parent for node in tree.nodes}
    return [
        (span.begin, max(span.end, span.begin + 1))
        for node in tree.nodes
        if node.unit not in parents
        for span in spans[node.unit]
        if span.kind in BUSY
    ]


def describe_took(tree: TreeSnapshot, node: TreeNode) -> str:
    """Says how long a node of a tree ran, or that it waits."""
    took = tree.duration_us(node)
    return "waits" if took is None and not node.settled else "" if took is None else format_brief(took)


def count_outcomes(tree: TreeSnapshot) -> list[tuple[str, int]]:
    """Counts what is below the topmost of a tree, by what it means: done, in work, or waiting, say."""
    words = {
        Category.SUCCESS: "done", Category.FAILURE: "with a failure", Category.DEAD: "dead letters",
        Category.CANCELLED: "stopped before the end", Category.CLOSED: "closed", Category.GATE: "wait for a decision",
        Category.ACTIVE: "in work", Category.HELD: "in work", Category.CLOSING: "stopping",
    }  # fmt: skip
    counts = Counter(
        words.get(Category(node.category), "waiting") if node.category else "unknown" for node in tree.nodes[1:]
    )
    return counts.most_common()
