"""Print a tree of jobs: with branches on a terminal, one row per job when piped."""

from collections.abc import Sequence

from interlock.cli.output import Cell, make_state_cell, on_terminal, print_line, print_table
from interlock.client.durations import format_rounded
from interlock.client.trees import TreeNode, TreeSnapshot

HEADS = ("ID", "TASK", "STATE", "ATTEMPT", "TOOK", "COST", "WORKER", "WAITS FOR")


def draw_branches(nodes: Sequence[TreeNode]) -> list[str]:
    """Return the lines to print before each job, which show whose child it is."""
    drawn, open_below = [""] * len(nodes), set[int]()
    for place in range(len(nodes) - 1, -1, -1):
        depth = nodes[place].depth - nodes[0].depth
        if depth:
            through = "".join("│  " if level in open_below else "   " for level in range(1, depth))
            drawn[place] = f"{through}{'├─ ' if depth in open_below else '└─ '}"
        open_below = {level for level in open_below if level < depth} | {depth}
    return drawn


def make_cells(snapshot: TreeSnapshot, node: TreeNode) -> list[Cell]:
    """Return the cells of a job, all but its id."""
    took = snapshot.duration_us(node)
    return [
        node.task, make_state_cell(node.state, node.category, node.outcome), str(node.attempt),
        "" if took is None else format_rounded(took),
        f"{node.cost:g}" if node.cost else "", node.worker or "", node.waits_for,
    ]  # fmt: skip


def print_tree(snapshot: TreeSnapshot) -> None:
    """Print a job and all below it."""
    if on_terminal():
        drawn = zip(draw_branches(snapshot.nodes), snapshot.nodes, strict=True)
        print_table(HEADS, [[f"{branch}{node.id}", *make_cells(snapshot, node)] for branch, node in drawn])
    else:
        print_table(
            ("DEPTH", *HEADS), [[str(node.depth), node.id, *make_cells(snapshot, node)] for node in snapshot.nodes]
        )
    if snapshot.cut:
        print_line(f"\nOnly {len(snapshot.nodes)} are shown; there are more: interlock list --parent ID")
