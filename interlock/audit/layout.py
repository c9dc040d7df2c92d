"""Layout of drawings: positions of boxes and lines. Pure geometry, for lifecycles and graphs.

Boxes stand in columns, each behind those that lead to it. One way through the graph, the *main line*, is straight and
on top; everything else is below it. The graph of a run has none: there, each box is near the middle of those that it
is joined to. A line that passes a column has room of its own there, so no line runs behind a box; all lines to the same
box share that room, which makes them one rail. Lines that lead back run above everything, one rail per target. A box
that has something above it is left and entered from the side, in the gap between columns.

The order within the columns is improved by sweeps over them, and the one with the fewest crossings is kept.

Equal input gives equal output: nothing here depends on the order of a set.
"""

from bisect import bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from statistics import median
from typing import NamedTuple

from interlock.kernel.graph import ranks, successors

RAIL, BETWEEN = 16.0, 18.0  # room of a line that passes a column, and between a box and what is below it
HEIGHT, GAP, EDGE, SIDE = 32.0, 56.0, 14.0, 28.0  # of a box; between columns; above and below all; left and right of it
TIP = 5.0  # a line ends so far before a box: its head has that length
LANE = 18.0  # between two lines that lead back
SWEEPS = 16  # how often the order within columns is improved

Name = str
Edge = tuple[Name, Name]
Slot = tuple[Name, int]  # what stands in a column: a box, or the rail to a box that stands further on


class Box(NamedTuple):
    """A rectangle, by its left upper corner."""

    x: float
    y: float
    width: float
    height: float = HEIGHT

    @property
    def right(self) -> float:
        return self.x + self.width

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


class Point(NamedTuple):
    """A point of a drawing."""

    x: float
    y: float


@dataclass(frozen=True)
class Layout:
    """Boxes by name, and lines by their ends. Lines that lead back have right angles, others are curves in the gaps."""

    width: float
    height: float
    boxes: Mapping[Name, Box]
    lines: Mapping[Edge, Sequence[Point]]
    back: Mapping[Edge, Sequence[Point]]


@dataclass
class Columns:
    """What stands in each column, from top to bottom, and how the lines pass them."""

    column: Mapping[Name, int]
    main: Sequence[Name]
    rank: Mapping[Name, int]  # among what ends in the same column: lower is higher up
    height: float  # of a box
    slots: dict[int, list[Slot]] = field(default_factory=dict)
    routes: dict[Edge, list[Slot]] = field(default_factory=dict)
    above: set[Slot] = field(default_factory=set)  # on the main line
    middle: dict[Slot, float] = field(default_factory=dict)  # from top to bottom

    def is_box(self, slot: Slot) -> bool:
        return self.column[slot[0]] == slot[1]

    def get_size(self, slot: Slot) -> float:
        return self.height + BETWEEN if self.is_box(slot) else RAIL


def lay_out(
    widths: Mapping[Name, float], edges: Sequence[Edge], *, back: Sequence[Edge] = (), main: Sequence[Name] = (),
    last: Mapping[Name, int] | None = None, height: float = HEIGHT,
) -> Layout:  # fmt: skip
    """Lays out boxes of these widths, and of one height.

    `edges` must have no cycle; `back` are the others. `main` is a way along the edges. `last` are the names that stand
    in the last columns, with their rank from top to bottom.
    """
    columns = Columns(find_columns(widths, edges, last or {}), main, last or {}, height)
    fill_columns(columns, widths, edges)
    before, behind = list_neighbours(columns)
    best, fewest = dict(columns.middle), count_crossings(columns)
    for sweep in range(SWEEPS):
        from_left = sweep % 2 == 1
        arrange_columns(columns, before if from_left else behind, from_left=from_left)
        if from_left and (crossings := count_crossings(columns)) <= fewest:
            best, fewest = dict(columns.middle), crossings
    columns.middle = best
    return place(columns, widths, back)


def find_forward(names: Iterable[Name], edges: Iterable[Edge]) -> list[Edge]:
    """The edges without those that lead back to where a walk from these names, in their order, has been."""
    after: dict[Name, list[Edge]] = {}
    for edge in edges:
        if edge[0] != edge[1]:
            after.setdefault(edge[0], []).append(edge)
    forward: list[Edge] = []
    done: set[Name] = set()
    for root in names:
        path = {root: None}  # a dict keeps its order, and is asked fast
        branches = [list(reversed(after.get(root, ())))]
        while branches and root not in done:
            if not branches[-1]:
                branches.pop()
                done.add(path.popitem()[0])
                continue
            edge = branches[-1].pop()
            if edge[1] in path:
                continue
            forward.append(edge)
            if edge[1] not in done:
                path[edge[1]] = None
                branches.append(list(reversed(after.get(edge[1], ()))))
    return forward


def find_columns(widths: Mapping[Name, float], edges: Sequence[Edge], last: Mapping[Name, int]) -> dict[Name, int]:
    """The column of each box: behind all that lead to it; those of `last` behind all others."""
    column = ranks(widths, edges)
    first = max((number for name, number in column.items() if name not in last), default=-1) + 1
    shifted = {name: max(number, first) if name in last else number for name, number in column.items()}
    after = successors(edges)
    for name in sorted(shifted, key=lambda name: column[name]):
        for target in after.get(name, ()):
            shifted[target] = max(shifted[target], shifted[name] + 1)
    return shifted


def fill_columns(columns: Columns, widths: Mapping[Name, float], edges: Sequence[Edge]) -> None:
    """Puts boxes and rails into their columns, and notes how each line goes."""
    column, kept = columns.column, dict.fromkeys((name, columns.column[name]) for name in widths)
    for source, target in edges:
        rail = [(target, number) for number in range(column[source] + 1, column[target])]
        columns.routes[source, target] = [(source, column[source]), *rail, (target, column[target])]
        kept |= dict.fromkeys(rail)
    for pair in pairwise(columns.main):
        columns.above |= set(columns.routes.get(pair, ()))
    columns.above |= {(name, column[name]) for name in columns.main}
    for slot in kept:
        columns.slots.setdefault(slot[1], []).append(slot)
    for number in sorted(columns.slots):
        slots = columns.slots[number]
        slots.sort(key=lambda slot: (slot not in columns.above, columns.rank.get(slot[0], -1)))
        stack(columns, number, dict.fromkeys(slots, 0.0))


def list_neighbours(columns: Columns) -> tuple[dict[Slot, list[Slot]], dict[Slot, list[Slot]]]:
    """What each slot is joined to in the column before it, and in the one behind it."""
    before: dict[Slot, dict[Slot, None]] = {}
    behind: dict[Slot, dict[Slot, None]] = {}
    for route in columns.routes.values():
        for near, far in pairwise(route):
            before.setdefault(far, {})[near] = None
            behind.setdefault(near, {})[far] = None
    return {slot: list(some) for slot, some in before.items()}, {slot: list(some) for slot, some in behind.items()}


def arrange_columns(columns: Columns, joined: Mapping[Slot, Sequence[Slot]], *, from_left: bool) -> None:
    """Moves each slot towards the middle of those that it is joined to in the column before, or in the one behind."""
    for number in sorted(columns.slots, reverse=not from_left):
        wishes = {
            slot: median(columns.middle[other] for other in joined[slot]) if slot in joined else columns.middle[slot]
            for slot in columns.slots[number]
        }
        columns.slots[number].sort(
            key=lambda slot: (
                slot not in columns.above,
                columns.rank[slot[0]] if slot[0] in columns.rank and columns.is_box(slot) else -1,
                wishes[slot],
            )
        )
        stack(columns, number, wishes)


def stack(columns: Columns, number: int, wishes: Mapping[Slot, float]) -> None:
    """Places the slots of a column in their order, together as near as they can be to where they wish to be.

    Slots that would overlap become a group, whose middle is the mean of what its members wish. Nothing stands as high
    as the main line.
    """
    offset, groups = 0.0, list[list[float]]()  # of each group: the sum of wishes for its first member, and its size
    offsets: list[float] = []
    slots = [slot for slot in columns.slots[number] if slot not in columns.above]
    columns.middle |= dict.fromkeys((slot for slot in columns.slots[number] if slot in columns.above), 0.0)
    for place, slot in enumerate(slots):
        half = columns.get_size(slot) / 2
        offset += half if place else 0.0
        offsets.append(offset)
        groups.append([wishes[slot] - offset, 1.0])
        while len(groups) > 1 and groups[-2][0] / groups[-2][1] > groups[-1][0] / groups[-1][1]:
            total, size = groups.pop()
            groups[-1] = [groups[-1][0] + total, groups[-1][1] + size]
        offset += half
    lowest = (columns.height + BETWEEN) / 2 + columns.get_size(slots[0]) / 2 if slots and columns.main else -inf
    starts = [max(total / size, lowest) for total, size in groups for _ in range(int(size))]
    for slot, start, down in zip(slots, starts, offsets, strict=True):
        columns.middle[slot] = start + down


def count_crossings(columns: Columns) -> int:
    """How often two lines cross between two columns."""
    pieces: dict[int, dict[tuple[float, float], None]] = {}
    for route in columns.routes.values():
        for near, far in pairwise(route):
            pieces.setdefault(near[1], {})[columns.middle[near], columns.middle[far]] = None
    crossings = 0
    for between in pieces.values():
        passed: list[float] = []  # where the lines that begin higher up end, in order
        level: list[float] = []  # of lines that begin together: they do not cross each other
        begins = None
        for begin, end in sorted(between):
            if begin != begins:
                for place in level:
                    insort(passed, place)
                begins, level = begin, []
            crossings += len(passed) - bisect_right(passed, end)
            level.append(end)
    return crossings


def place(columns: Columns, widths: Mapping[Name, float], back: Sequence[Edge]) -> Layout:
    """Turns columns and middles into coordinates."""
    lanes = len({target for _, target in back})
    head = EDGE + lanes * LANE + (8 if lanes else 0)
    top = min(columns.middle[slot] - columns.get_size(slot) / 2 for slot in columns.middle) if columns.middle else 0.0
    shift = head - top
    wide = {
        number: max((widths[slot[0]] for slot in slots if columns.is_box(slot)), default=RAIL)
        for number, slots in columns.slots.items()
    }
    left, at = {}, SIDE
    for number in sorted(columns.slots):
        left[number], at = at, at + wide[number] + GAP
    boxes = {
        name: Box(left[number], columns.middle[name, number] + shift - columns.height / 2, wide[number], columns.height)
        for name, number in columns.column.items()
    }
    lines = {edge: follow(columns, route, boxes, left, wide, shift) for edge, route in columns.routes.items()}
    low = max((columns.middle[slot] + columns.get_size(slot) / 2 for slot in columns.middle), default=0.0)
    return Layout(at - GAP + SIDE, low + shift + EDGE, boxes, lines, lead_back(columns, boxes, back, head))


def follow(
    columns: Columns, route: Sequence[Slot], boxes: Mapping[Name, Box], left: Mapping[int, float],
    wide: Mapping[int, float], shift: float,
) -> list[Point]:  # fmt: skip
    """The points of a line: from a box, level through each column that it passes, to the box where it ends."""
    first, end = boxes[route[0][0]], boxes[route[-1][0]]
    points = [Point(first.right, first.middle)]
    for slot in route[1:-1]:
        middle = columns.middle[slot] + shift
        points += [Point(left[slot[1]] - 4, middle), Point(left[slot[1]] + wide[slot[1]] + 4, middle)]
    return [*points, Point(end.x - TIP, end.middle)]


def lead_back(
    columns: Columns, boxes: Mapping[Name, Box], back: Sequence[Edge], head: float
) -> dict[Edge, list[Point]]:  # fmt: skip
    """The points of the lines that lead back: up, along a lane above everything, and down."""
    highest = {number: min(slots, key=lambda slot: columns.middle[slot]) for number, slots in columns.slots.items()}
    is_highest = {name: highest[number] == (name, number) for name, number in columns.column.items()}
    reach: dict[Name, int] = {}
    for source, target in back:
        reach[target] = max(reach.get(target, 0), abs(columns.column[source] - columns.column[target]))
    nearest = sorted(reach, key=lambda name: reach[name])
    lane = {target: head - 14 - LANE * index for index, target in enumerate(nearest)}
    used: dict[tuple[int, str], int] = {}
    lines = {}
    for source, target in back:
        begin, end, across = boxes[source], boxes[target], lane[target]
        if is_highest[source]:
            x = begin.x + begin.width * 0.62
            points = [Point(x, begin.y), Point(x, across)]
        else:
            x = begin.right + count_up(used, columns.column[source], "out")
            points = [Point(begin.right, begin.middle - 8), Point(x, begin.middle - 8), Point(x, across)]
        if is_highest[target]:
            x = end.x + end.width * 0.38
            points += [Point(x, across), Point(x, end.y - TIP)]
        else:
            x = end.x - TIP - count_up(used, columns.column[target], "in")
            points += [Point(x, across), Point(x, end.middle - 8), Point(end.x - TIP, end.middle - 8)]
        lines[source, target] = points
    return lines


def count_up(used: dict[tuple[int, str], int], column: int, side: str) -> float:
    """How far from its column the next upright line on that side is; a gap has room for six beside each other."""
    used[column, side] = used.get((column, side), 0) + 1
    return 4.0 + 3.0 * min(used[column, side], 6)
