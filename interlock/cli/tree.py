"""How a tree of units is drawn: lines with branches on a terminal, a row a unit when piped, objects for programs."""

from collections.abc import Sequence

from interlock.cli.output import Cell, on_terminal, say, state_cell, table
from interlock.client.durations import format_rounded
from interlock.client.trees import TreeNode, TreeSnapshot

HEADS = ("ID", "TASK", "STATE", "ATTEMPT", "TOOK", "COST", "WORKER", "WAITS FOR")


def branches(nodes: Sequence[TreeNode]) -> list[str]:
    """What stands before each unit, so that one sees which belongs to which."""
    drawn, open_below = [""] * len(nodes), set[int]()
    for place in range(len(nodes) - 1, -1, -1):
        depth = nodes[place].depth - nodes[0].depth
        if depth:
            through = "".join("│  " if level in open_below else "   " for level in range(1, depth))
            drawn[place] = f"{through}{'├─ ' if depth in open_below else '└─ '}"
        open_below = {level for level in open_below if level < depth} | {depth}
    return drawn


def cells(seen: TreeSnapshot, node: TreeNode) -> list[Cell]:
    """What there is to say of a unit, its name left out."""
    took = seen.duration_us(node)
    return [
        node.task, state_cell(node.state, node.category), str(node.attempt),
        "" if took is None else format_rounded(took),
        f"{node.cost:g}" if node.cost else "", node.worker or "", node.waits_for,
    ]  # fmt: skip


def draw(seen: TreeSnapshot) -> None:
    """The tree is on standard output."""
    if on_terminal():
        drawn = zip(branches(seen.nodes), seen.nodes, strict=True)
        table(HEADS, [[f"{branch}{node.id}", *cells(seen, node)] for branch, node in drawn])
    else:
        table(("DEPTH", *HEADS), [[str(node.depth), node.id, *cells(seen, node)] for node in seen.nodes])
    if seen.cut:
        say(f"\nOnly {len(seen.nodes)} units are shown; there are more: interlock list --parent ID")
