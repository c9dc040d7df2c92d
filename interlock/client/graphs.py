"""Draw a tree of jobs as a graph: Mermaid text or SVG.

A solid line is a need, a dotted one leads from what made a job to it. The state of each box is told by a word, and on a
page by a glyph too, so that no colour is needed. A large tree is folded: all that have one task are one box, which says
how many are in which state.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

from interlock.audit.draw import CHARACTER, cut_to_fit, draw_corners, draw_curve, make_tip, measure_text
from interlock.audit.layout import Box, Edge, Layout, find_forward, lay_out
from interlock.client.durations import format_brief
from interlock.client.trees import TreeNode, TreeSnapshot
from interlock.kernel.lifecycle import Category

# What a state means, as a colour: the ground, and the line around it.
COLOURS = {
    Category.WAITING: ("#fff7d6", "#b38f00"), Category.READY: ("#e0f7fa", "#00838f"),
    Category.HELD: ("#e3f0ff", "#1565c0"), Category.ACTIVE: ("#bbdefb", "#0d47a1"),
    Category.GATE: ("#f3e5f5", "#8e24aa"), Category.CLOSING: ("#fff3e0", "#ef6c00"),
    Category.SUCCESS: ("#e0f2e1", "#2e7d32"), Category.FAILURE: ("#fde0df", "#c62828"),
    Category.CANCELLED: ("#eeeeee", "#757575"), Category.DEAD: ("#f8bbd0", "#880e4f"),
    Category.CLOSED: ("#f5f5f5", "#9e9e9e"),
}  # fmt: skip
UNKNOWN = ("#ffffff", "#000000")
# What one looks at first among those that are folded into one box.
URGENT = (
    Category.FAILURE, Category.DEAD, Category.GATE, Category.ACTIVE, Category.HELD, Category.CLOSING, Category.READY,
    Category.WAITING, Category.CANCELLED, Category.SUCCESS, Category.CLOSED,
)  # fmt: skip
BOXES_MAX = 300  # of a drawing: larger trees are folded
HEIGHT, INSET, GLYPH = 50.0, 12.0, 17.0  # of a box; before and after its text; of a glyph and the room behind it
SMALL = 6.7  # width of a letter of the second line
NAME_MAX, STATE_MAX = 24, 26  # letters that fit into a line of a box
MERMAID_SPECIAL = frozenset('"#;&<>`\\{}[]()|')  # letters that mean something to Mermaid
# For a file of its own. A page has these rules in its style sheet.
STYLE = """<style>
.dag{font:500 12.5px ui-monospace,"DejaVu Sans Mono",monospace;background:#fff}
.dag .edge{fill:none;stroke:#8a92a3;stroke-width:1.3}.dag .made{stroke-dasharray:2 3}.dag .back{stroke-dasharray:6 3}
.dag text{fill:#171b24}.dag .s{font-size:11px}.dag .n{font-weight:700}
"""


class GraphBox(NamedTuple):
    """What a box of the graph says."""

    name: str
    state: str
    category: str
    hint: str
    id: str  # of the job that it stands for, or of the one to look at first


class Graph(NamedTuple):
    """Boxes by their keys, and whether a line between two of them is a need."""

    boxes: Mapping[str, GraphBox]
    edges: Mapping[Edge, bool]
    folded: int = 0  # how many jobs are folded into boxes


def list_edges(tree: TreeSnapshot) -> list[tuple[int, int, bool]]:
    """Lists (before, after, whether it is a need); a node without needs comes after its parent."""
    there = {node.unit for node in tree.nodes}
    drawn = []
    for node in tree.nodes:
        needs = [(need, node.unit, True) for need in node.needs if need in there]
        drawn += needs or ([(node.parent, node.unit, False)] if node.parent in there else [])
    return [(source, target, need) for source, target, need in drawn if source is not None]


def draw_mermaid(tree: TreeSnapshot) -> str:
    """Draws the graph as Mermaid text: a solid arrow is a need, a dotted one leads from a parent to a child."""
    lines = ["flowchart LR"]
    for node in tree.nodes:
        shape = ("{{", "}}") if node.category == Category.GATE else ("[", "]")
        words = "<br/>".join(escape_mermaid(word) for word in make_labels(tree, node))
        lines.append(f'    u{node.unit}{shape[0]}"{words}"{shape[1]}:::{node.category or "unknown"}')
    for source, target, need in list_edges(tree):
        lines.append(f"    u{source} {'-->' if need else '-.->'} u{target}")
    for category in dict.fromkeys(node.category for node in tree.nodes):
        ground, line = get_colours(category)
        lines.append(f"    classDef {category or 'unknown'} fill:{ground},stroke:{line},color:#000")
    if tree.cut:
        lines.append('    more["…"]')
    return "\n".join(lines) + "\n"


def escape_mermaid(text: str) -> str:
    """Escapes text for Mermaid."""
    words = " ".join(make_printable(text).split())
    return "".join(f"#{ord(character)};" if character in MERMAID_SPECIAL else character for character in words)


def make_labels(tree: TreeSnapshot, node: TreeNode) -> tuple[str, str]:
    """Returns the two lines of a box: the name, and the state with how long it took."""
    took = tree.duration_us(node)
    return node.task, node.state if took is None else f"{node.state} · {format_brief(took)}"


def get_colours(category: str) -> tuple[str, str]:
    """Returns the line and the fill of a box, by the category of its state."""
    return COLOURS[Category(category)] if category else UNKNOWN


def make_printable(text: str) -> str:
    """Returns text without what no XML can hold, and what would turn the text around it."""
    return "".join(character if character.isprintable() else " " for character in text)


# The SVG.


def make_graph(tree: TreeSnapshot, boxes_max: int = BOXES_MAX) -> Graph:
    """Makes the graph of a tree; one that is too large is folded by task."""
    edges = list_edges(tree)
    if len(tree.nodes) > boxes_max:
        return fold_by_task(tree, edges, boxes_max)
    boxes = {}
    for node in tree.nodes:
        name, state = make_labels(tree, node)
        hint = " · ".join(word for word in (node.id, node.task, node.state, node.waits_for) if word)
        boxes[str(node.unit)] = GraphBox(name, state, node.shown_category, hint, node.id)
    return Graph(boxes, {(str(source), str(target)): need for source, target, need in edges})


def fold_by_task(tree: TreeSnapshot, edges: Sequence[tuple[int, int, bool]], boxes_max: int) -> Graph:
    """Makes one box of all that have one task; if there are too many tasks, the last ones share a box."""
    tasks = list(dict.fromkeys((node.lifecycle, node.task) for node in tree.nodes))
    shown = {task: str(place) for place, task in enumerate(tasks[: boxes_max - 1])}
    keys = {node.unit: shown.get((node.lifecycle, node.task), "rest") for node in tree.nodes}
    members: dict[str, list[TreeNode]] = {}
    for node in tree.nodes:
        members.setdefault(keys[node.unit], []).append(node)
    joined: dict[Edge, bool] = {}
    for source, target, need in edges:
        edge = keys[source], keys[target]
        joined[edge] = joined.get(edge, False) or need
    boxes = {
        key: fold_nodes(nodes, "other tasks" if key == "rest" else nodes[0].task) for key, nodes in members.items()
    }
    return Graph(boxes, joined, len(tree.nodes))


def fold_nodes(nodes: Sequence[TreeNode], name: str) -> GraphBox:
    """Makes one box of several: how many are in which state, and the colour of the one to look at first."""
    first = min(nodes, key=lambda node: URGENT.index(Category(node.category)) if node.category else len(URGENT))
    counts = ", ".join(f"{count} {state}" for state, count in Counter(node.state for node in nodes).most_common())
    if len(nodes) == 1:
        return GraphBox(name, first.state, first.category, f"{first.id} · {name} · {first.state}", first.id)
    named = f"{cut_to_fit(name, NAME_MAX - 6)} ×{len(nodes)}"
    return GraphBox(named, counts, first.category, f"{len(nodes)} of {name}: {counts}", first.id)


def lay_out_graph(graph: Graph) -> Layout:
    """Where the boxes and lines of a graph are drawn."""
    forward = find_forward(graph.boxes, graph.edges)
    kept = set(forward)
    widths = {key: INSET * 2 + max(measure_lines(box)) for key, box in graph.boxes.items()}
    back = [edge for edge in graph.edges if edge not in kept and edge[0] != edge[1]]
    return lay_out(widths, forward, back=back, height=HEIGHT)


def measure_lines(box: GraphBox) -> tuple[float, float]:
    """How wide the two lines of a box are."""
    name, state = make_lines(box)
    return measure_text(name, CHARACTER), GLYPH + measure_text(state, SMALL)


def make_lines(box: GraphBox) -> tuple[str, str]:
    """The two lines of a box, cut to what fits."""
    return cut_to_fit(box.name, NAME_MAX), cut_to_fit(box.state, STATE_MAX)


def draw_svg(tree: TreeSnapshot, *, link: str = "", styled: bool = True, boxes_max: int = BOXES_MAX) -> str:
    """Draws the graph as an SVG that needs no script, no font and no network.

    Parameters:
        link: what stands before the id of a job in the link of its box; without it boxes are no links.
        styled: with colours of its own; else they come from the style sheet of the page, which has the glyphs too.
        boxes_max: a tree with more jobs and steps than this is folded by task.
    """
    graph = make_graph(tree, boxes_max)
    layout = lay_out_graph(graph)
    top = tree.nodes[0]
    notes = [f"only {len(tree.nodes)} are shown"] if tree.cut else []
    notes += [f"{graph.folded} jobs and steps, folded by task"] if graph.folded else []
    width, height = f"{layout.width:.0f}", f"{layout.height + (18 if notes else 0):.0f}"
    label = make_printable(f"Graph of {top.task} {top.id}")
    parts = [
        f'<svg class="dag" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="group" aria-label="{escape(label)}">',
        *([make_style(graph)] if styled else []),
        make_tip("tip-graph"),
        *draw_lines(graph, layout),
        *(draw_box(box, layout.boxes[key], link, styled) for key, box in graph.boxes.items()),
    ]
    if notes:
        parts.append(f'<text class="s" x="12" y="{layout.height + 8:.0f}">{escape("; ".join(notes))}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def make_style(graph: Graph) -> str:
    """The style of a file of its own."""
    colours = {box.category: get_colours(box.category) for box in graph.boxes.values()}
    rules = [
        f".dag .{category or 'unknown'} rect{{fill:{ground};stroke:{line};stroke-width:1.5}}"
        for category, (ground, line) in colours.items()
    ]
    return STYLE + "\n".join(rules) + "\n</style>"


def draw_lines(graph: Graph, layout: Layout) -> list[str]:
    """Draws the lines: needs solid, others dotted or dashed."""
    parts = []
    for need, kind in ((True, "edge"), (False, "edge made")):
        paths = [draw_curve(points) for edge, points in layout.lines.items() if graph.edges[edge] is need]
        parts += [f'<path class="{kind}" d="{path}" marker-end="url(#tip-graph)"/>' for path in paths]
    parts += [
        f'<path class="edge back" d="{draw_corners(points)}" marker-end="url(#tip-graph)"/>'
        for points in layout.back.values()
    ]
    return parts


def draw_box(box: GraphBox, place: Box, link: str, styled: bool) -> str:
    """Draws a box with its two lines, as a link if `link` is not empty."""
    name, state = (escape(line) for line in make_lines(box))
    x, y = place.x + INSET, place.y
    glyph = "" if styled or not box.category else (
        f'<use href="#c-{box.category}" x="{x:.0f}" y="{y + 29:.0f}" width="12" height="12" class="pill"/>'
    )  # fmt: skip
    drawn = (
        f'<g class="{box.category or "unknown"}"><title>{escape(make_printable(box.hint))}</title>'
        f'<rect x="{place.x:.0f}" y="{y:.0f}" width="{place.width:.0f}" height="{place.height:.0f}" rx="8"/>'
        f'<text class="n" x="{x:.0f}" y="{y + 20:.0f}">{name}</text>{glyph}'
        f'<text class="s" x="{x + GLYPH:.0f}" y="{y + 39:.0f}">{state}</text></g>'
    )
    return f'<a href="{escape(link + box.id)}">{drawn}</a>' if link else drawn
