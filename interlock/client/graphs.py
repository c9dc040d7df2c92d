"""A tree of units as a graph: Mermaid text, or an SVG that any browser shows; pure."""

from collections.abc import Mapping
from html import escape

from interlock.client.durations import roughly
from interlock.client.trees import Node, Picture
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
LETTERS_MAX = 24  # that fit into a box
ODD = frozenset('"#;&<>`\\{}[]()|')  # letters that mean something to Mermaid


def edges(seen: Picture) -> list[tuple[int, int, bool]]:
    """Who comes before whom, and whether as a need: a unit without needs comes after its parent."""
    there = {node.unit for node in seen.nodes}
    drawn = []
    for node in seen.nodes:
        needs = [(need, node.unit, True) for need in node.needs if need in there]
        drawn += needs or ([(node.parent, node.unit, False)] if node.parent in there else [])
    return [(source, target, need) for source, target, need in drawn if source is not None]


def mermaid(seen: Picture) -> str:
    """The graph as Mermaid text: a solid arrow is a need, a dotted one leads from a parent to a child."""
    lines = ["flowchart LR"]
    for node in seen.nodes:
        shape = ("{{", "}}") if node.category == Category.GATE else ("[", "]")
        words = "<br/>".join(mermaid_text(word) for word in labels(seen, node))
        lines.append(f'    u{node.unit}{shape[0]}"{words}"{shape[1]}:::{node.category or "unknown"}')
    for source, target, need in edges(seen):
        lines.append(f"    u{source} {'-->' if need else '-.->'} u{target}")
    for category in dict.fromkeys(node.category for node in seen.nodes):
        ground, line = colours(category)
        lines.append(f"    classDef {category or 'unknown'} fill:{ground},stroke:{line},color:#000")
    if seen.cut:
        lines.append('    more["…"]')
    return "\n".join(lines) + "\n"


def mermaid_text(text: str) -> str:
    """Text that Mermaid takes as text, whatever it says."""
    words = " ".join(plain(text).split())
    return "".join(f"#{ord(letter)};" if letter in ODD else letter for letter in words)


def labels(seen: Picture, node: Node) -> tuple[str, str]:
    """What stands in a box: what it is, and where it stands for how long."""
    took = seen.took(node)
    return node.task, node.state if took is None else f"{node.state} · {roughly(took)}"


def colours(category: str) -> tuple[str, str]:
    return COLOURS[Category(category)] if category else UNKNOWN


# The drawing of our own: each unit in the column after the last one that it follows.


def places(seen: Picture) -> dict[int, tuple[int, int]]:
    """The column and the row of each unit."""
    before: dict[int, list[int]] = {}
    for source, target, _ in edges(seen):
        before.setdefault(target, []).append(source)
    columns: dict[int, int] = {}
    for unit in sorted(node.unit for node in seen.nodes):  # whatever it follows was made before it
        columns[unit] = 1 + max((columns.get(source, 0) for source in before.get(unit, ())), default=-1)
    filled: dict[int, int] = {}
    found = {}
    for node in seen.nodes:
        column = columns[node.unit]
        found[node.unit] = (column, filled.get(column, 0))
        filled[column] = filled.get(column, 0) + 1
    return found


def svg(seen: Picture) -> str:
    """The graph as a picture by itself: it needs no script, no font and no network."""
    where = places(seen)
    width = EDGE * 2 + (max(column for column, _ in where.values()) + 1) * (WIDTH + ACROSS) - ACROSS
    height = EDGE * 2 + (max(row for _, row in where.values()) + 1) * (HEIGHT + DOWN) - DOWN + 18
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="system-ui, sans-serif" font-size="13">',
        f"<title>{escape(plain(seen.nodes[0].task))} {escape(seen.nodes[0].id)}</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#555"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    lines += [arrow(where, source, target, need) for source, target, need in edges(seen)]
    lines += [box(seen, where, node) for node in seen.nodes]
    if seen.cut:
        lines.append(f'<text x="{EDGE}" y="{height - 8}" fill="#555">only {len(seen.nodes)} units are shown</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def corner(place: tuple[int, int]) -> tuple[int, int]:
    return EDGE + place[0] * (WIDTH + ACROSS), EDGE + place[1] * (HEIGHT + DOWN)


def arrow(where: Mapping[int, tuple[int, int]], source: int, target: int, need: bool) -> str:
    (x, y), (end_x, end_y) = corner(where[source]), corner(where[target])
    x, y, end_y = x + WIDTH, y + HEIGHT // 2, end_y + HEIGHT // 2
    middle = (x + end_x) // 2
    dotted = "" if need else ' stroke-dasharray="3 3"'
    path = f"M{x} {y}C{middle} {y} {middle} {end_y} {end_x} {end_y}"
    return f'<path d="{path}" fill="none" stroke="#555"{dotted} marker-end="url(#tip)"/>'


def box(seen: Picture, where: Mapping[int, tuple[int, int]], node: Node) -> str:
    (x, y), (ground, line) = corner(where[node.unit]), colours(node.category)
    task, state = (escape(fitted(word)) for word in labels(seen, node))
    hint = escape(plain(" · ".join(word for word in (node.id, node.task, node.state, node.waits_for) if word)))
    return (
        f'<g><title>{hint}</title><rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="8" fill="{ground}" '
        f'stroke="{line}" stroke-width="1.5"/><text x="{x + 12}" y="{y + 20}" font-weight="600">{task}</text>'
        f'<text x="{x + 12}" y="{y + 37}" fill="{line}">{state}</text>'
        f'<text x="{x + 12}" y="{y + 53}" font-size="11" fill="#555">{escape(node.id)}</text></g>'
    )


def plain(text: str) -> str:
    """Text without what no XML can hold."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def fitted(text: str) -> str:
    """Text that fits into a box."""
    return plain(text) if len(text) <= LETTERS_MAX else plain(text[: LETTERS_MAX - 1]) + "…"
