"""The graph of a run is drawn so that it can be read: as lifecycles are, and folded if it is large."""

import random
from collections.abc import Iterator
from itertools import combinations, pairwise
from xml.etree import ElementTree

import pytest

import interlock
from interlock.audit.draw import CHARACTER, measure_text
from interlock.audit.layout import Box, Layout
from interlock.client.graphs import (
    GLYPH,
    INSET,
    SMALL,
    draw_svg,
    lay_out_graph,
    make_graph,
    make_lines,
)
from interlock.client.trees import TreeNode, TreeSnapshot, read_tree_snapshot
from interlock.kernel.lifecycle import Category
from tests.docs.test_examples import loaded
from tests.lifecycles.test_drawings import crosses, list_lines

SPACE = "{http://www.w3.org/2000/svg}"
NAMES = ("build", "测试一下这个很长的名字好不好呢", "a" * 60, "x\u202ey\x00", "deploy <b>", "é")
WORKFLOWS = {"release_train": "release", "coding_agents": "site"}


def make_node(unit: int, parent: int | None = 1, needs: tuple[int, ...] = (), **facts: object) -> TreeNode:
    given = {
        "task": f"task {unit}", "lifecycle": "step", "state": "PENDING", "category": "ready", "outcome": None,
        "attempt": 1, "version": 1, "born_at": 0, "began_at": None, "ended_at": None, "cost": 0.0, "worker": None,
        "waits_for": "", "depth": 0 if parent is None else 1, **facts,
    }  # fmt: skip
    return TreeNode(unit=unit, id=f"step_{unit}", parent=parent, needs=needs, **given)  # type: ignore[arg-type]


def make_tree(seed: int, size: int | None = None, tasks: int | None = None) -> TreeSnapshot:
    """Makes a run of some steps that need others before them, or are made by them."""
    chance = random.Random(seed)
    size = size or chance.randint(1, 40)
    nodes = [make_node(1, None, task="run")]
    for unit in range(2, size + 1):
        earlier = [node.unit for node in nodes[1:]]
        needs = chance.sample(earlier, min(len(earlier), chance.choice((0, 0, 1, 1, 1, 2, 3))))
        parent = chance.choice([1, 1, 1, *earlier[-3:]])
        state = chance.choice(list(Category))
        task = f"{chance.choice(NAMES)}{chance.randint(1, 99)}" if tasks is None else f"t{chance.randint(1, tasks)}"
        nodes.append(
            make_node(
                unit,
                parent,
                tuple(needs),
                task=task,
                state=f"{state}_STATE",
                category=state.value,
                began_at=0 if chance.random() < 0.5 else None,
            )
        )
    return TreeSnapshot(chance.randint(1, 10**12), tuple(nodes), chance.random() < 0.1)


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> list[TreeSnapshot]:
    """The trees of the workflows of all examples."""
    trees = []
    for name, workflow in WORKFLOWS.items():
        example = loaded(name)
        url = f"sqlite:///{tmp_path_factory.mktemp(name)}/work.db"
        with interlock.App(url) as app:
            example.app.__dict__.update({key: value for key, value in app.__dict__.items() if key not in ("tasks",)})
            run = getattr(example, workflow).submit(**({"version": "1"} if name == "release_train" else {}))
            trees.append(app.read(read_tree_snapshot, app.lifecycles, run.unit))
    return trees


def every_tree() -> Iterator[TreeSnapshot]:
    yield from (make_tree(seed) for seed in range(200))
    yield make_tree(1, size=120)
    yield make_tree(2, size=400, tasks=30)
    yield make_tree(3, size=400)


def check_geometry(tree: TreeSnapshot) -> Layout:
    graph = make_graph(tree)
    layout = lay_out_graph(graph)
    assert len(layout.boxes) <= 300
    columns: dict[tuple[float, float], list[Box]] = {}
    for box in layout.boxes.values():
        columns.setdefault((box.x, box.right), []).append(box)
    for (_, right), (left, _) in pairwise(sorted(columns)):
        assert right < left
    for boxes in columns.values():
        for upper, lower in pairwise(sorted(boxes, key=lambda box: box.y)):
            assert upper.y + upper.height < lower.y
    for points in list_lines(layout):
        for one, other in pairwise(points):
            near = [column for column in columns if column[0] < max(one.x, other.x) and column[1] > min(one.x, other.x)]
            covered = [box for column in near for box in columns[column] if crosses(box, one, other)]
            assert not covered, (covered, one, other)
        assert all(0 < point.x < layout.width and 0 < point.y < layout.height for point in points)
    for key, box in layout.boxes.items():
        name, state = make_lines(graph.boxes[key])
        assert INSET * 2 + measure_text(name, CHARACTER) <= box.width
        assert INSET * 2 + GLYPH + measure_text(state, SMALL) <= box.width
        assert 0 < box.x < box.right < layout.width
        assert 0 < box.y < box.y + box.height < layout.height
    assert {edge for edge in graph.edges if edge[0] != edge[1]} == {*layout.lines, *layout.back}
    for (source, target), points in layout.lines.items():
        begin, end = layout.boxes[source], layout.boxes[target]
        assert points[0] == (begin.right, begin.middle)
        assert points[-1].y == end.middle
        assert begin.right < points[-1].x < end.x
    return layout


def test_nothing_covers_anything_and_every_text_fits(examples: list[TreeSnapshot]) -> None:
    for tree in (*examples, *every_tree()):
        check_geometry(tree)
    assert [len(tree.nodes) for tree in examples] == [6, 4]


def count_crossings(layout: Layout) -> int:
    """How often two lines cross in the gaps between columns; lines that share a rail are one there."""
    pieces: dict[tuple[float, float], set[tuple[float, float]]] = {}
    for points in layout.lines.values():
        for one, other in pairwise(points):
            if one.y != other.y or other.x - one.x < 60:
                pieces.setdefault((round(one.x / 20), round(other.x / 20)), set()).add((one.y, other.y))
    return sum(
        (one[0] - other[0]) * (one[1] - other[1]) < 0
        for between in pieces.values()
        for one, other in combinations(sorted(between), 2)
    )


def test_few_lines_cross(examples: list[TreeSnapshot]) -> None:
    assert [count_crossings(lay_out_graph(make_graph(tree))) for tree in examples] == [0, 0]
    branches = [make_node(1, None), *(make_node(unit, 1 if unit < 5 else unit // 3) for unit in range(2, 40))]
    assert count_crossings(lay_out_graph(make_graph(TreeSnapshot(0, tuple(branches), False)))) == 0  # a tree has none
    lines = [make_node(1, None), *(make_node(u, 1, (u - 3,) if u > 4 else ()) for u in (4, 2, 3, 6, 5, 7, 10, 8, 9))]
    assert count_crossings(lay_out_graph(make_graph(TreeSnapshot(0, tuple(lines), False)))) == 0  # born in any order


def test_whatever_a_step_follows_is_to_its_left() -> None:
    nodes = make_node(1, None), make_node(2), make_node(3, needs=(2,)), make_node(4, needs=(2, 3)), make_node(5)
    boxes = lay_out_graph(make_graph(TreeSnapshot(0, nodes, False))).boxes
    assert sorted(boxes, key=lambda key: boxes[key].x) == ["1", "2", "5", "3", "4"]


def test_equal_trees_are_equal_drawings() -> None:
    for seed in range(30):
        assert draw_svg(make_tree(seed)) == draw_svg(make_tree(seed))


def test_a_large_run_is_folded_by_task() -> None:
    tree = make_tree(2, size=301, tasks=9)
    graph = make_graph(tree)
    assert len(graph.boxes) == 10  # and the run
    assert graph.folded == 301
    for key, box in graph.boxes.items():
        task = box.name.partition(" ×")[0]
        nodes = [node for node in tree.nodes if node.task == task]
        assert f" ×{len(nodes)}" in f"{box.name} ×1", key
        assert sum(int(word) for word in box.state.replace(",", "").split() if word.isdecimal()) in (len(nodes), 0)
        if [node for node in nodes if node.category == "failure"]:
            assert box.category == "failure"
    assert len(make_graph(make_tree(2, size=300, tasks=9)).boxes) == 300
    assert "301 jobs and steps, folded by task" in draw_svg(tree)
    many = make_graph(TreeSnapshot(0, tuple(make_node(unit, 1 if unit > 1 else None) for unit in range(1, 500)), False))
    assert len(many.boxes) == 300
    assert many.boxes["rest"].name == "other tasks ×200"


@pytest.mark.parametrize("styled", [True, False])
def test_each_box_links_to_its_job_and_tells_its_state_by_a_word(styled: bool) -> None:
    for seed in range(40):
        tree = make_tree(seed)
        text = draw_svg(tree, link="/ui/jobs/", styled=styled)
        root = ElementTree.fromstring(text)
        links = root.findall(f"{SPACE}a")
        assert [link.get("href") for link in links] == [f"/ui/jobs/{node.id}" for node in tree.nodes]
        for link, node in zip(links, tree.nodes, strict=True):
            lines = [line.text or "" for line in link.iter(f"{SPACE}text")]
            assert lines[1].startswith(node.state[:20])
            assert node.id in (link.findtext(f"{SPACE}g/{SPACE}title") or "")
        assert " style=" not in text
        assert ("<style>" in text) is styled
        assert "\u202e" not in text
        assert "\x00" not in text


@pytest.mark.parametrize(
    "planted", ['"><script>alert(1)</script>', "javascript:alert(1)", "\u202e\u2066\x00\ud800", "]]>&lt;"]
)
def test_text_of_strangers_is_text_in_the_graph(planted: str) -> None:
    for count in (3, 301):
        nodes = [make_node(unit, 1 if unit > 1 else None, task=planted, state=planted, waits_for=planted, category="")
                 for unit in range(1, count + 1)]  # fmt: skip
        text = draw_svg(TreeSnapshot(0, tuple(nodes), True), link="/ui/jobs/")
        tags = {element.tag.removeprefix(SPACE) for element in ElementTree.fromstring(text.encode()).iter()}
        assert tags <= {"svg", "style", "defs", "marker", "path", "a", "g", "title", "rect", "text"}
        assert not {"\u202e", "\u2066", "\x00", "\ud800"} & set(text)
