"""Lifecycles are drawn so that they can be read: nothing covers anything, and the way to success is straight."""

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from xml.etree import ElementTree

import pytest

from interlock.audit.draw import (
    AFTER_TEXT,
    BEFORE_TEXT,
    draw_lifecycle,
    find_main_line,
    lay_out_lifecycle,
    list_forward,
    list_transitions,
    measure_text,
)
from interlock.audit.layout import Box, Layout, Point
from interlock.kernel.lifecycle import Category, Lifecycle, Move, Owner, Severity, State
from interlock.kernel.lifecycle_options import Options
from interlock.lifecycles import shipped

UNSETTLED = [category for category in Category if category not in (*Category,)[6:]]
ENDS = [Category.SUCCESS, Category.FAILURE, Category.CANCELLED, Category.DEAD]


def make_lifecycle(seed: int, size: int | None = None) -> Lifecycle:
    """Makes a lifecycle of some states, with moves that lead on, aside and back."""
    chance = random.Random(seed)
    size = size or chance.randint(2, 14)
    ends = chance.randint(1, 4)
    names = [f"s{number}_" + "x" * chance.randint(0, 14) for number in range(size)]
    last = [f"end{number}" for number in range(ends)]
    states = {name: State(name=name, category=chance.choice(UNSETTLED), about='is "this" & <that>') for name in names}
    states |= {name: State(name=name, category=ENDS[number]) for number, name in enumerate(last)}
    moves = [make_move(None, "submit", names[0])]
    for number, name in enumerate(names):
        targets = [names[number + 1] if number + 1 < size else last[0]]
        targets += chance.sample([*names, *last], k=min(chance.randint(0, 3), len(names)))
        for index, target in enumerate(dict.fromkeys(targets)):
            moves.append(make_move(name, f"go{index}", target, opens_attempt=chance.random() < 0.2 and index > 0))
    if chance.random() < 0.3:
        moves.append(make_move(last[-1], "again", names[0], opens_attempt=True))
    return Lifecycle(
        name=f"made{seed}", document="", title="", about="", notes=(), states=states, options=Options(),
        moves={(move.source, move.trigger): move for move in moves},
    )  # fmt: skip


def make_move(source: str | None, trigger: str, target: str, opens_attempt: bool = False) -> Move:
    return Move(
        source=source, trigger=trigger, owner=Owner.ENGINE, opens_attempt=opens_attempt, path=(target,),
        events=(trigger,), severities=(Severity.INFO,), guards=("available",),
    )  # fmt: skip


def every_lifecycle() -> Iterator[Lifecycle]:
    yield from shipped().values()
    yield from (make_lifecycle(seed) for seed in range(200))
    yield make_lifecycle(7, size=40)


def crosses(box: Box, one: Point, other: Point) -> bool:
    """Whether the rectangle around two points overlaps the inside of a box; a line between them stays within it."""
    left, right = sorted((one.x, other.x))
    top, bottom = sorted((one.y, other.y))
    return right > box.x + 0.1 and left < box.right - 0.1 and bottom > box.y + 0.1 and top < box.y + box.height - 0.1


def list_lines(layout: Layout) -> list[Sequence[Point]]:
    return [*layout.lines.values(), *layout.back.values()]


def test_no_box_overlaps_another() -> None:
    for lifecycle in every_lifecycle():
        boxes = lay_out_lifecycle(lifecycle).boxes
        for one, other in combinations(boxes, 2):
            corners = Point(boxes[one].x, boxes[one].y), Point(boxes[one].right, boxes[one].y + boxes[one].height)
            assert not crosses(boxes[other], *corners), (lifecycle.name, one, other)


def test_no_line_runs_behind_a_box() -> None:
    for lifecycle in every_lifecycle():
        layout = lay_out_lifecycle(lifecycle)
        for points in list_lines(layout):
            for one, other in pairwise(points):
                covered = [name for name, box in layout.boxes.items() if crosses(box, one, other)]
                assert not covered, (lifecycle.name, covered, one, other)


def test_everything_is_inside_the_drawing() -> None:
    for lifecycle in every_lifecycle():
        layout = lay_out_lifecycle(lifecycle)
        points = [point for line in list_lines(layout) for point in line]
        points += [Point(box.x, box.y) for box in layout.boxes.values()]
        points += [Point(box.right, box.y + box.height) for box in layout.boxes.values()]
        assert all(0 < point.x < layout.width and 0 < point.y < layout.height for point in points), lifecycle.name


def test_every_text_fits_into_its_box() -> None:
    for lifecycle in every_lifecycle():
        for name, box in lay_out_lifecycle(lifecycle).boxes.items():
            assert BEFORE_TEXT + measure_text(name) + AFTER_TEXT <= box.width, (lifecycle.name, name)


def test_every_transition_is_drawn_from_its_state_to_its_state() -> None:
    for lifecycle in every_lifecycle():
        layout = lay_out_lifecycle(lifecycle)
        lines = {**layout.lines, **layout.back}
        assert set(lines) == set(list_transitions(lifecycle)), lifecycle.name
        for (source, target), points in lines.items():
            begin, end = layout.boxes[source], layout.boxes[target]
            assert begin.x <= points[0].x <= begin.right
            assert begin.y <= points[0].y <= begin.y + begin.height
            assert end.x - 6 <= points[-1].x <= end.right
            assert end.y - 6 <= points[-1].y <= end.y + end.height


def test_the_longest_way_to_success_is_one_straight_line() -> None:
    for lifecycle in every_lifecycle():
        layout = lay_out_lifecycle(lifecycle)
        main = find_main_line(lifecycle, list_forward(lifecycle, list_transitions(lifecycle)))
        heights = {layout.boxes[name].middle for name in main}
        assert len(heights) == 1, (lifecycle.name, main)
        for pair in pairwise(main):
            assert {point.y for point in layout.lines[pair]} == heights
    job = shipped()["job"]
    main = find_main_line(job, list_forward(job, list_transitions(job)))
    assert main == ["queued", "assigned", "running", "succeeded"]


def test_ends_stand_in_one_column_by_category() -> None:
    boxes = lay_out_lifecycle(shipped()["job"]).boxes
    ends = ["succeeded", "failed", "cancelled", "dead_lettered"]
    assert len({boxes[name].x for name in ends}) == 1
    assert [boxes[name].y for name in ends] == sorted(boxes[name].y for name in ends)
    assert all(boxes[name].right < boxes["failed"].x for name in boxes if name not in ends)


def test_moves_that_open_an_attempt_arc_above_everything() -> None:
    layout = lay_out_lifecycle(shipped()["job"])
    top = min(box.y for box in layout.boxes.values())
    assert ("running", "queued") in layout.back
    assert min(point.y for point in layout.back["running", "queued"]) < top


def test_equal_lifecycles_are_equal_drawings() -> None:
    for lifecycle in every_lifecycle():
        assert draw_lifecycle(lifecycle) == draw_lifecycle(lifecycle)
    assert draw_lifecycle(make_lifecycle(3)) == draw_lifecycle(make_lifecycle(3))


@pytest.mark.parametrize("styled", [True, False])
def test_a_drawing_is_xml_and_has_no_style_of_its_own_on_a_page(styled: bool) -> None:
    for lifecycle in every_lifecycle():
        text = draw_lifecycle(lifecycle, lit=lifecycle.initial, taken={}, styled=styled)
        ElementTree.fromstring(text)
        assert ("<style>" in text) == styled
        assert not re.search(r"\bstyle=|<script|javascript:", text)


def test_a_notebook_shows_the_drawing() -> None:
    drawing = draw_lifecycle(shipped()["job"], lit="running")
    assert drawing._repr_svg_() == drawing
    assert drawing.startswith("<svg ")


def test_what_a_file_says_is_text_in_its_drawing() -> None:
    hostile = "<script>alert(1)</script> \u202e\x07 & 'x'"
    states = {"a": State(name="a", category=Category.READY, about=hostile), "b": State(name="b", category=ENDS[0])}
    moves = [make_move(None, "submit", "a"), make_move("a", hostile, "b")]
    made = replace(make_lifecycle(1), states=states, moves={(move.source, move.trigger): move for move in moves})
    text = draw_lifecycle(made)
    titles = [title.text or "" for title in ElementTree.fromstring(text).iter("{http://www.w3.org/2000/svg}title")]
    assert len([title for title in titles if "<script>" in title]) == 2
    assert "\u202e" not in text


def test_the_path_that_was_taken_is_told_with_how_often() -> None:
    taken = {("queued", "assigned"): 2, ("assigned", "running"): 2, ("running", "queued"): 1}
    root = ElementTree.fromstring(draw_lifecycle(shipped()["job"], lit="running", taken=taken, styled=False))
    space = "{http://www.w3.org/2000/svg}"
    titles = {path.findtext(f"{space}title"): path.get("class") for path in root.iter(f"{space}path")}
    lit = [text for text, kind in titles.items() if kind and "taken" in kind]
    assert sorted(str(text).split(":")[0] for text in lit) == sorted(f"{one} → {other}" for one, other in taken)
    assert any(str(text).endswith("taken 2 times") for text in lit)
    claimed = next(text for text in lit if str(text).startswith("queued → assigned"))
    assert "claim (by engine, if available" in str(claimed)
    groups = {group.findtext(f"{space}text"): group.get("class") for group in root.iter(f"{space}g")}
    assert groups["running"] == "state active lit passed"
    assert groups["queued"] == "state ready passed"
    assert groups["failed"] == "state failure"
