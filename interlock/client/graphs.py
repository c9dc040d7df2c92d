"""A tree as a graph: Mermaid text, or an SVG that any browser shows."""

from collections.abc import Mapping
from html import escape

from interlock.client.durations import format_rounded
from interlock.client.trees import TreeNode, TreeSnapshot
from interlock.kernel.graph import ranks
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
WIDTH, HEIGHT, ACROSS, DOWN, EDGE = 190, 62, 44, 22, 16  # of a box, between boxes, and around all
TEXT_MAX = 24  # characters that fit into a box
MERMAID_SPECIAL = frozenset('"#;&<>`\\{}[]()|')  # letters that mean something to Mermaid


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
    return node.task, node.state if took is None else f"{node.state} · {format_rounded(took)}"


def get_colours(category: str) -> tuple[str, str]:
    return COLOURS[Category(category)] if category else UNKNOWN


# The SVG: each node is in the column after the last one that it follows.


def place_nodes(tree: TreeSnapshot) -> dict[int, tuple[int, int]]:
    """Returns the column and the row of each node."""
    columns = ranks([node.unit for node in tree.nodes], [edge[:2] for edge in list_edges(tree)])
    filled: dict[int, int] = {}
    places = {}
    for node in tree.nodes:
        column = columns[node.unit]
        places[node.unit] = (column, filled.get(column, 0))
        filled[column] = filled.get(column, 0) + 1
    return places


def draw_svg(tree: TreeSnapshot) -> str:
    """Draws the graph as an SVG that needs no script, no font and no network."""
    where = place_nodes(tree)
    width = EDGE * 2 + (max(column for column, _ in where.values()) + 1) * (WIDTH + ACROSS) - ACROSS
    height = EDGE * 2 + (max(row for _, row in where.values()) + 1) * (HEIGHT + DOWN) - DOWN + 18
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="system-ui, sans-serif" font-size="13">',
        f"<title>{escape(make_printable(tree.nodes[0].task))} {escape(tree.nodes[0].id)}</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#555"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    lines += [draw_arrow(where, source, target, need) for source, target, need in list_edges(tree)]
    lines += [draw_box(tree, where, node) for node in tree.nodes]
    if tree.cut:
        lines.append(f'<text x="{EDGE}" y="{height - 8}" fill="#555">only {len(tree.nodes)} units are shown</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def get_corner(place: tuple[int, int]) -> tuple[int, int]:
    return EDGE + place[0] * (WIDTH + ACROSS), EDGE + place[1] * (HEIGHT + DOWN)


def draw_arrow(where: Mapping[int, tuple[int, int]], source: int, target: int, need: bool) -> str:
    (x, y), (end_x, end_y) = get_corner(where[source]), get_corner(where[target])
    x, y, end_y = x + WIDTH, y + HEIGHT // 2, end_y + HEIGHT // 2
    middle = (x + end_x) // 2
    dotted = "" if need else ' stroke-dasharray="3 3"'
    path = f"M{x} {y}C{middle} {y} {middle} {end_y} {end_x} {end_y}"
    return f'<path d="{path}" fill="none" stroke="#555"{dotted} marker-end="url(#tip)"/>'


def draw_box(tree: TreeSnapshot, where: Mapping[int, tuple[int, int]], node: TreeNode) -> str:
    (x, y), (ground, line) = get_corner(where[node.unit]), get_colours(node.category)
    task, state = (escape(cut_to_fit(word)) for word in make_labels(tree, node))
    hint = escape(make_printable(" · ".join(word for word in (node.id, node.task, node.state, node.waits_for) if word)))
    return (
        f'<g><title>{hint}</title><rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="8" fill="{ground}" '
        f'stroke="{line}" stroke-width="1.5"/><text x="{x + 12}" y="{y + 20}" font-weight="600">{task}</text>'
        f'<text x="{x + 12}" y="{y + 37}" fill="{line}">{state}</text>'
        f'<text x="{x + 12}" y="{y + 53}" font-size="11" fill="#555">{escape(node.id)}</text></g>'
    )


def make_printable(text: str) -> str:
    """Returns text without what no XML can hold."""
    return "".join(character if character.isprintable() else " " for character in text)


def cut_to_fit(text: str) -> str:
    """Cuts text to what fits into a box."""
    return make_printable(text) if len(text) <= TEXT_MAX else make_printable(text[: TEXT_MAX - 1]) + "…"
