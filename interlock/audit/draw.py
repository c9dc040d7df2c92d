"""Draw a lifecycle as an SVG, with the path that a job took highlighted.

The longest way to success is one straight line. What leads to the same end shares a rail below it; moves that open
the next attempt, or lead back, arc above it. Ends stand in one column, by category. The title of each line has its
triggers, who may fire them, and what is asked before. A state that was passed has a filled dot, and a line that was
taken is thick, so that the drawing is read without colours too.
"""

import re
from collections.abc import Mapping, Sequence
from html import escape
from unicodedata import east_asian_width

from interlock.audit.layout import HEIGHT, Box, Edge, Layout, Point, find_forward, lay_out
from interlock.kernel.lifecycle import Category, Lifecycle

CHARACTER = 7.6  # width of a letter of the font, which is monospaced
BEFORE_TEXT, AFTER_TEXT = 25, 12
HINT = re.compile("<title>[^<]*</title>")
ROUND = 8.0  # radius of a corner
ENDS = (Category.SUCCESS, Category.FAILURE, Category.CANCELLED, Category.DEAD, Category.CLOSED)

# For a file of its own. A page has these rules in its style sheet.
STYLE = """<style>
.lifecycle{font:500 12.5px ui-monospace,"DejaVu Sans Mono",monospace;background:#fff}
.lifecycle text{fill:#1c2230}.lifecycle .count{font-size:10px;fill:#3b5bdb}
.edge{fill:none;stroke:#a9b0be;stroke-width:1.3}.edge.attempt{stroke-dasharray:5 3}.edge.back{stroke-dasharray:1.5 3}
.edge.taken{stroke:#3b5bdb;stroke-width:2.6}
.state rect{fill:#fff;stroke:#c3c9d5}.state.passed rect{stroke:#3b5bdb}
.state.lit rect{fill:#e7ecff;stroke:#3b5bdb;stroke-width:2.4}
.state circle{fill:#fff;stroke:#69707f;stroke-width:2}.state.passed circle,.state.lit circle{fill:#69707f}
.state.success circle{stroke:#2b8a3e}.state.success.passed circle,.state.success.lit circle{fill:#2b8a3e}
.state.failure circle{stroke:#e03131}.state.failure.passed circle,.state.failure.lit circle{fill:#e03131}
.state.dead circle{stroke:#862e9c}.state.dead.passed circle,.state.dead.lit circle{fill:#862e9c}
.state.ready circle{stroke:#1098ad}.state.ready.passed circle,.state.ready.lit circle{fill:#1098ad}
.state.active circle{stroke:#3b5bdb}.state.active.passed circle,.state.active.lit circle{fill:#3b5bdb}
.state.gate circle{stroke:#e67700}.state.gate.passed circle,.state.gate.lit circle{fill:#e67700}
</style>"""


class Drawing(str):
    """The text of an SVG, which a notebook shows as a drawing."""

    __slots__ = ()

    def _repr_svg_(self) -> str:
        return str(self)


def make_tip(name: str) -> str:
    """The head of a line, by which `marker-end` knows it."""
    return (
        f'<defs><marker id="{name}" viewBox="0 0 6 6" refX="1" refY="3" markerWidth="6" markerHeight="6" orient="auto" '
        'markerUnits="userSpaceOnUse"><path d="M0 0L6 3L0 6z" fill="context-stroke"/></marker></defs>'
    )


def draw_lifecycle(
    lifecycle: Lifecycle, *, lit: str | None = None, taken: Mapping[tuple[str, str], int] | None = None,
    styled: bool = True, hints: bool = True,
) -> Drawing:  # fmt: skip
    """Draws a lifecycle.

    `lit` is the state in which something is now; `taken` are the transitions that it has made, with how often each.
    A drawing that is not `styled` takes its colours from the style sheet of its page. Without `hints` nothing tells
    what a state or a transition is about: for a page with many drawings.
    """
    passed = dict(taken or {})
    layout = lay_out_lifecycle(lifecycle)
    label = f"Lifecycle {lifecycle.name}" + (f", now {lit}" if lit else "")
    width, height = f"{layout.width:.0f}", f"{layout.height:.0f}"
    parts = [
        f'<svg class="lifecycle" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-label="{escape(label)}">',
        *([STYLE] if styled else []),
        make_tip("tip"),
        *draw_edges(lifecycle, layout, passed),
    ]
    visited = {state for pair in passed for state in pair}
    for name, state in lifecycle.states.items():
        marks = [state.category.value, *(["lit"] if name == lit else []), *(["passed"] if name in visited else [])]
        parts.append(draw_state(name, state.about, " ".join(marks), layout.boxes[name]))
    drawing = "\n".join([*parts, "</svg>"]) + "\n"
    return Drawing(drawing if hints else HINT.sub("", drawing))


def lay_out_lifecycle(lifecycle: Lifecycle) -> Layout:
    """Where the states and transitions of a lifecycle are drawn."""
    edges = list_transitions(lifecycle)
    forward = list_forward(lifecycle, edges)
    ends = {name: ENDS.index(state.category) for name, state in lifecycle.states.items() if state.settled}
    widths = {name: measure_text(name) + BEFORE_TEXT + AFTER_TEXT for name in lifecycle.states}
    back = [edge for edge in edges if edge not in forward]
    return lay_out(widths, forward, back=back, main=find_main_line(lifecycle, forward), last=ends)


def measure_text(text: str, character: float = CHARACTER) -> float:
    """How wide a text of the drawing is; some letters, as those of Chinese, take the room of two."""
    return (len(text) + sum(east_asian_width(each) in "WF" for each in text)) * character


def replace_unprintable(text: str) -> str:
    """Returns text without what no XML can hold, and what would turn the text around it."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def cut_to_fit(text: str, room: int) -> str:
    """A text on one line, without what no drawing can show, cut to the room of so many letters."""
    words = replace_unprintable(text[: room + 1])
    if measure_text(words, 1) <= room:
        return words
    while measure_text(words, 1) > room - 1:
        words = words[:-1]
    return f"{words}…"


def list_transitions(lifecycle: Lifecycle) -> dict[Edge, bool]:
    """The transitions between two states, and whether all that a transition stands for open the next attempt."""
    edges: dict[Edge, bool] = {}
    for hop in lifecycle.hops:
        if hop.source is not None:
            edge = (hop.source, hop.target)
            edges[edge] = edges.get(edge, True) and hop.opens_attempt
    return edges


def list_forward(lifecycle: Lifecycle, edges: Mapping[Edge, bool]) -> list[Edge]:
    """The transitions without those that open an attempt, and without those that lead back to where it has been."""
    return find_forward((lifecycle.initial, *lifecycle.states), [edge for edge, opens in edges.items() if not opens])


def find_main_line(lifecycle: Lifecycle, forward: list[Edge]) -> list[str]:
    """The longest way from birth to success; without one, to some other end, or anywhere."""
    before: dict[str, list[str]] = {}
    for source, target in forward:
        before.setdefault(target, []).append(source)
    ways: dict[str, list[str]] = {lifecycle.initial: [lifecycle.initial]}

    def find_way(name: str) -> list[str]:
        if name not in ways:
            longest = max((find_way(source) for source in before.get(name, ())), key=len, default=[])
            ways[name] = [*longest, name] if longest else []
        return ways[name]

    reached = [way for name in lifecycle.states if (way := find_way(name))]
    for wanted in (lambda name: lifecycle.category(name) is Category.SUCCESS, lifecycle.settled, lambda name: True):
        fitting = [way for way in reached if wanted(way[-1])]
        if fitting:
            return max(fitting, key=len)
    return [lifecycle.initial]


def draw_edges(lifecycle: Lifecycle, layout: Layout, taken: Mapping[tuple[str, str], int]) -> list[str]:
    """Draws all transitions; those that were taken lie on top."""
    opens = list_transitions(lifecycle)
    paths = {edge: draw_curve(points) for edge, points in layout.lines.items()}
    paths |= {edge: draw_corners(points) for edge, points in layout.back.items()}
    starts = {edge: points[0] for edge, points in (*layout.lines.items(), *layout.back.items())}
    parts = []
    for edge in sorted(paths, key=lambda edge: edge in taken):
        count = taken.get(edge, 0)
        kind = "" if edge in layout.lines else " attempt" if opens[edge] else " back"
        title = escape(replace_unprintable(describe_edge(lifecycle, edge, count)))
        mark = " taken" if count else ""
        parts.append(
            f'<path class="edge{kind}{mark}" d="{paths[edge]}" marker-end="url(#tip)"><title>{title}</title></path>'
        )
        if count > 1:
            x, y = starts[edge]
            parts.append(f'<text class="count" x="{x + 3:.0f}" y="{y - 4:.0f}">×{count}</text>')
    return parts


def describe_edge(lifecycle: Lifecycle, edge: Edge, count: int) -> str:
    """What is known of a transition: its triggers, who may fire each, and what is asked before."""
    hops = [hop for hop in lifecycle.hops if (hop.source, hop.target) == edge]
    words = [f"{hop.trigger} (by {hop.owner.value}{''.join(f', if {guard}' for guard in hop.guards)})" for hop in hops]
    often = f"; taken {count} times" if count > 1 else "; taken once" if count else ""
    return f"{edge[0]} → {edge[1]}: {', '.join(words)}{often}"


def draw_state(name: str, about: str, marks: str, box: Box) -> str:
    """Draws the box of a state, with what it means as a hint."""
    hint = f"<title>{escape(replace_unprintable(f'{name}: {about}' if about else name))}</title>"
    return (
        f'<g class="state {marks}">{hint}<rect x="{box.x:.0f}" y="{box.y:.0f}" width="{box.width:.0f}" '
        f'height="{HEIGHT:.0f}" rx="8"/><circle cx="{box.x + 14:.0f}" cy="{box.middle:.0f}" r="4"/>'
        f'<text x="{box.x + BEFORE_TEXT:.0f}" y="{box.middle + 4.5:.1f}">{escape(name)}</text></g>'
    )


def draw_curve(points: Sequence[Point]) -> str:
    """A line that is level in columns and bends in the gaps between them."""
    text, at = f"M{points[0].x:.0f} {points[0].y:.0f}", points[0]
    for point in points[1:]:
        middle = (at.x + point.x) / 2
        is_level = abs(at.y - point.y) < 0.5
        bend = f"C{middle:.0f} {at.y:.0f} {middle:.0f} {point.y:.0f} {point.x:.0f} {point.y:.0f}"
        text += f"H{point.x:.0f}" if is_level else bend
        at = point
    return text


def draw_corners(points: Sequence[Point]) -> str:
    """A line of right angles, with round corners where there is room for them."""
    text = f"M{points[0].x:.0f} {points[0].y:.0f}"
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        near, far = move_towards(corner, before), move_towards(corner, after)
        text += f"L{near.x:.0f} {near.y:.0f}Q{corner.x:.0f} {corner.y:.0f} {far.x:.0f} {far.y:.0f}"
    return text + f"L{points[-1].x:.0f} {points[-1].y:.0f}"


def move_towards(corner: Point, other: Point) -> Point:
    """The point where the round corner begins on the way to another point: at most half of that way."""
    length = abs(other.x - corner.x) + abs(other.y - corner.y)
    share = min(ROUND, length / 2) / length if length else 0.0
    return Point(corner.x + (other.x - corner.x) * share, corner.y + (other.y - corner.y) * share)
