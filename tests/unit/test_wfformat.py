"""Recorded workflows in WfFormat 1.3 to 1.6: the same graph from each, in any order, told by parents or by children."""

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.kernel.errors import InterlockError
from interlock.kernel.wfformat import VERSIONS, RecordedTask, read_wfformat

GRAPH: dict[str, tuple[list[str], float]] = {
    "split": ([], 2.5),
    "left": (["split"], 10),
    "right": (["split"], 0.25),
    "join": (["left", "right"], 1),
}
ENDS = ("parents", "children", "both")


def make_document(version: str, *, ends: str = "both", seed: int = 0, graph: Any = None) -> dict[str, Any]:
    """A file of a version, its tasks in an order of a seed, that tells needs by one end or by both."""
    graph = graph or GRAPH
    names = sorted(graph)
    Random(seed).shuffle(names)
    children = {name: [other for other in names if name in graph[other][0]] for name in names}
    rows = [
        {
            "name": name,
            **({"parents": list(graph[name][0])} if ends != "children" else {}),
            **({"children": children[name]} if ends != "parents" else {}),
        }
        for name in names
    ]
    head = {"name": "demo", "schemaVersion": version}
    if version < "1.5":
        field = "runtime" if version == "1.3" else "runtimeInSeconds"
        return {**head, "workflow": {"tasks": [{**row, field: graph[row["name"]][1]} for row in rows]}}
    specification = {"tasks": [{**row, "name": "program", "id": row["name"]} for row in rows]}
    execution = [{"id": name, "runtimeInSeconds": graph[name][1]} for name in reversed(names)]
    return {**head, "workflow": {"specification": specification, "execution": {"tasks": execution}}}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("ends", ENDS)
def test_every_version_is_the_same_graph(version: str, ends: str) -> None:
    for seed in range(5):
        read = read_wfformat(json.dumps(make_document(version, ends=ends, seed=seed)), scale=0.1)
        assert (read.name, read.version) == ("demo", version)
        assert {task.name: (set(task.needs), task.lasted_us) for task in read.tasks} == {
            name: (set(needs), round(seconds * 100_000)) for name, (needs, seconds) in GRAPH.items()
        }
        behind: set[str] = set()
        for task in read.tasks:
            assert behind.issuperset(task.needs)
            behind.add(task.name)


def test_a_workflow_that_was_never_executed_takes_no_time() -> None:
    document = make_document("1.6")
    del document["workflow"]["execution"]
    assert {task.lasted_us for task in read_wfformat(json.dumps(document)).tasks} == {0}


def test_before_version_1_5_a_task_may_be_named_by_its_id() -> None:
    tasks = [{"name": "b", "id": "2", "parents": ["1"]}, {"name": "a", "id": "1", "runtime": 3}]
    read = read_wfformat(json.dumps({"name": "x", "schemaVersion": "1.3", "workflow": {"tasks": tasks}}))
    assert read.tasks == (RecordedTask("a", (), 3_000_000), RecordedTask("b", ("a",), 0))


def change(version: str, path: str, value: Any) -> str:
    """A file in which one thing is another."""
    document = make_document(version)
    *above, last = path.split("/")
    place: Any = document
    for word in above:
        place = place[int(word) if word.isdecimal() else word]
    if value is ...:
        del place[last]
    else:
        place[int(last) if last.isdecimal() else last] = value
    return json.dumps(document)


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("{", "this is no JSON: "),
        ("[]", "this is no WfFormat: allowed is an object"),
        (change("1.3", "schemaVersion", "1.2"), "schemaVersion = '1.2' is not allowed; allowed are 1.3, 1.4, 1.5, 1.6"),
        (change("1.3", "schemaVersion", ...), "schemaVersion is missing; allowed is text"),
        (change("1.5", "name", ""), "name is ''; allowed is text of 1 to 200 characters"),
        (change("1.5", "workflow", ...), "workflow is missing; allowed is an object"),
        (change("1.5", "workflow/specification", []), r"workflow.specification is a list of 0; allowed is an object"),
        (change("1.3", "workflow/tasks", []), "workflow.tasks is a list of 0; allowed is a list of at least one task"),
        (change("1.4", "workflow/tasks/1", 7), r"workflow.tasks\[1\] is 7; allowed is an object"),
        (change("1.4", "workflow/tasks/1/name", 7), r"workflow.tasks\[1\].name is 7; allowed is text"),
        (
            change("1.3", "workflow/tasks/2/parents", ["nobody"]),
            r"workflow.tasks\[2\].parents\[0\] is 'nobody', and no task is called so; allowed are tasks of this file",
        ),
        (
            change("1.6", "workflow/specification/tasks/0/children", "left"),
            r"workflow.specification.tasks\[0\].children is 'left'; allowed is a list of tasks",
        ),
        (
            change("1.3", "workflow/tasks/0/runtime", -1),
            r"workflow.tasks\[0\].runtime is -1; allowed is a number of sec",
        ),
        (change("1.3", "workflow/tasks/0/runtime", True), r"workflow.tasks\[0\].runtime is True; allowed is a number"),
        (
            change("1.5", "workflow/execution/tasks/0/id", "x"),
            r"workflow.execution.tasks\[0\].id = 'x' is none of work",
        ),
        (
            change("1.5", "workflow/specification/tasks/1/id", "left").replace('"id": "right"', '"id": "left"'),
            r"workflow.specification.tasks\[\d\].id = 'left' is that of workflow.specification.tasks\[\d\] too",
        ),
    ],
)
def test_what_is_wrong_is_told_by_its_path(text: str, refusal: str) -> None:
    with pytest.raises(InterlockError, match=f"^{refusal}"):
        read_wfformat(text)


def test_a_cycle_is_named() -> None:
    graph = {"a": (["c"], 1), "b": (["a"], 1), "c": (["b"], 1)}
    with pytest.raises(
        InterlockError, match=r"^a circle of needs: (a needs c needs b needs a|b .*|c .*); none of them"
    ):
        read_wfformat(json.dumps(make_document("1.5", graph=graph)))


@pytest.mark.parametrize("scale", [-1.0, float("nan"), float("inf"), 1_001.0])
def test_a_scale_is_a_number_from_0_to_1000(scale: float) -> None:
    with pytest.raises(InterlockError, match=r"^scale = .* is not allowed; allowed is a number from 0 to 1000"):
        read_wfformat(json.dumps(make_document("1.5")), scale)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["tasks", "id", "name", "x"]), inner),
    max_leaves=8,
)


@given(st.sampled_from(VERSIONS), st.data())
def test_whatever_is_in_a_file_is_read_or_refused(version: str, data: st.DataObject) -> None:
    """Any value in any place: a graph, or a refusal of one line."""
    document = make_document(version, seed=data.draw(st.integers(0, 3)))
    place: Any = document
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
            place[key] = data.draw(JSON)
            break
        place = place[key]
    try:
        told = str(len(read_wfformat(json.dumps(document)).tasks))
    except InterlockError as refusal:
        told = str(refusal)
    assert told.strip()
    assert "\n" not in told
