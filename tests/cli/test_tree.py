"""A tree by the command line: drawn now and as it was, watched, and as a graph."""

import os
import pty
import re
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from interlock.cli.tree import draw_branches
from interlock.client.graphs import draw_mermaid, draw_svg
from interlock.client.trees import TreeNode, TreeSnapshot
from interlock.kernel.commands import Submit, Work
from interlock.kernel.ids import format_id
from tests.cli.places import Place
from tests.conftest import COMMAND
from tests.engine.world import SECOND

GOLDEN = Path(__file__).parent / "tree.txt"
RELEASE = (
    Work(task="release", lifecycle="workflow_run", ref="run"),
    Work(task="build", lifecycle="step", parent="run", ref="build"),
    Work(task="test", lifecycle="step", parent="run", ref="test", needs=("build",)),
    Work(task="lint", lifecycle="step", parent="run", ref="lint", needs=("build",)),
    Work(task="ship", lifecycle="approval", parent="run", ref="ship", needs=("test", "lint"), approvers=("ops",)),
    Work(task="deploy", lifecycle="step", parent="run", needs=("ship",)),
)


def release(place: Place) -> tuple[str, list[int]]:
    """A run that waits for an approval, ten seconds after each of its steps began; and the instants between."""
    world, instants = place.world, []
    run = format_id("workflow_run", world.send(Submit(work=RELEASE))[0].unit)
    worker = world.worker("w")
    for _ in range(3):
        instants.append(world.now_us)
        world.pass_time(1)
        (grant,) = world.claim(worker)
        instants.append(world.now_us)
        world.pass_time(10)
        world.finish(grant)
    return run, [*instants, world.now_us]


def named(text: str) -> str:
    """The same text with ids that are counted from one."""
    names: dict[str, str] = {}
    for name in re.findall(r"\b(?:approval|workflow_run|step)_[0-9a-z]+\b", text):
        names.setdefault(name, f"{name.rpartition('_')[0]}_{len(names) + 1}")
    return re.sub(r"\b(?:approval|workflow_run|step)_[0-9a-z]+\b", lambda found: names[found[0]], text)


def test_a_tree_is_drawn_as_it_was(place: Place) -> None:
    run, instants = release(place)
    told = ""
    for at in instants:
        seconds = (at - instants[0]) // SECOND
        done = place.ask("show", run, "--at", f"2023-11-14T22:13:{20 + seconds:02}Z")
        assert done.code == 0, done.err
        told += f"after {seconds} s\n{done.out}\n"
    assert named(told) == GOLDEN.read_text(encoding="utf-8")


def test_a_program_is_told_the_same(place: Place) -> None:
    run, _ = release(place)
    then = place.ask("show", run, "--at", "2023-11-14T22:13:31Z", "--json").json
    assert (then["at"], then["cut"]) == ("2023-11-14T22:13:31.000Z", False)
    assert {**then["tree"][1], "id": "", "version": 0} == {
        "id": "", "depth": 1, "task": "build", "lifecycle": "step", "state": "SUCCEEDED", "status": "SUCCEEDED",
            "category": "success",
        "outcome": "success", "attempt": 1, "version": 0, "created_at": "2023-11-14T22:13:20.000Z",
        "began_at": "2023-11-14T22:13:21.000Z", "ended_at": "2023-11-14T22:13:31.000Z", "took_ms": 10_000,
        "cost": 0.0, "worker": None, "waits_for": None,
    }  # fmt: skip
    now = place.ask("show", run, "--json").json
    assert [one["task"] for one in now["tree"]] == ["release", "build", "test", "lint", "ship", "deploy"]
    assert now["tree"][4]["waits_for"] == "ops to say approve or reject"
    assert [one["state"] for one in now["children"]] == [one["state"] for one in now["tree"][1:]]


@pytest.mark.parametrize("time", ["yesterday", "2023-11-14", "", "10 parsecs"])
def test_a_wrong_time_is_told_what_a_right_one_is(time: str, place: Place) -> None:
    run, _ = release(place)
    done = place.ask("show", run, "--at", time)
    assert done.code == 2
    assert "allowed is" in done.err or "one looks like 2030-01-31T08:00:00Z, or 10m for so long ago" in done.err


def test_what_was_not_born_is_not_shown(place: Place) -> None:
    run, _ = release(place)
    done = place.ask("show", run, "--at", "2001-01-01T00:00:00Z")
    assert (done.code, done.err) == (2, f"{run} did not exist at 2001-01-01T00:00:00.000Z")
    assert place.ask("show", run, "--at", "1s").code == 0


def on_a_terminal(url: str, *words: str) -> str:
    """What a command draws on a terminal."""
    here, there = pty.openpty()
    env = {**os.environ, "INTERLOCK_DB": url, "COLUMNS": "150", "LINES": "50", "TERM": "xterm", "NO_COLOR": "1"}
    with subprocess.Popen([str(COMMAND), *words], stdout=there, stderr=there, env=env) as run:
        os.close(there)
        drawn = b""
        try:
            while more := os.read(here, 65536):
                drawn += more
        except OSError:
            pass  # the other end is closed
        os.close(here)
    assert run.returncode in (0, 1), drawn
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn.decode().replace("\r\n", "\n"))


def test_a_terminal_gets_branches_and_bars(place: Place) -> None:
    run, _ = release(place)
    drawn = on_a_terminal(place.url, "show", run)
    assert re.search(r"^workflow_run_\w+ +release +WAITING_APPROVAL", drawn, re.M)
    assert re.search(r"^├─ step_\w+ +build +SUCCEEDED +1 +10s", drawn, re.M)
    assert re.search(r"^└─ step_\w+ +deploy +PENDING", drawn, re.M)
    drawn = on_a_terminal(place.url, "watch", run, "--for", "1ms")
    assert "3 of 5" in drawn
    assert re.search(r"├─ approval_\w+ +ship +WAITING_APPROVAL .* ops to say approve or reject", drawn)


# Graphs.


def test_a_graph_is_mermaid_or_an_svg(place: Place, tmp_path: Path) -> None:
    run, _ = release(place)
    text = place.ask("graph", run).out
    assert text.startswith("flowchart LR\n")
    assert len(re.findall(r" --> ", text)) == 5
    assert len(re.findall(r" -\.-> ", text)) == 1
    assert "classDef gate fill:" in text
    file = tmp_path / "release.svg"
    assert place.ask("graph", run, "--output", file).out == f"{file}: 6 jobs and steps\n"
    root = ET.fromstring(file.read_text(encoding="utf-8"))
    assert len(root.findall("{*}g")) == 6
    assert place.ask("graph", run, "--format", "svg").out == file.read_text(encoding="utf-8")
    assert place.ask("graph", run, "--format", "png").err == "there is no format 'png'; there are mermaid, svg"
    done = place.ask("graph", run, "--output", tmp_path / "no" / "where.svg")
    assert (done.code, "cannot be written: No such file" in done.err) == (2, True)


def node(unit: int, depth: int = 1, needs: tuple[int, ...] = (), **facts: object) -> TreeNode:
    given = {
        "task": f"t{unit}", "lifecycle": "step", "state": "PENDING", "category": "ready", "outcome": None, "attempt": 1,
        "version": 1, "born_at": 0, "began_at": None, "ended_at": None, "cost": 0.0, "worker": None, "waits_for": "",
        "parent": 1 if unit > 1 else None, **facts,
    }  # fmt: skip
    return TreeNode(unit=unit, id=f"step_{unit}", depth=depth, needs=needs, **given)  # type: ignore[arg-type]


def test_branches_show_which_belongs_to_which() -> None:
    depths = [0, 1, 2, 2, 1, 2, 3, 1]
    assert draw_branches([node(place, depth) for place, depth in enumerate(depths)]) == [
        "", "├─ ", "│  ├─ ", "│  └─ ", "├─ ", "│  └─ ", "│     └─ ", "└─ ",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "task", ['"]; click u1 "x"', "<script>alert(1)</script>", "a & b -->", "\x00\x1b[31mred", "…" * 90]
)
def test_no_name_breaks_out_of_a_graph(task: str) -> None:
    seen = TreeSnapshot(0, (node(1, 0, task=task), node(2, state=task, category="")), True)
    root = ET.fromstring(draw_svg(seen))
    assert [found.tag.rpartition("}")[2] for found in root.iter()].count("script") == 0
    lines = draw_mermaid(seen).splitlines()
    assert re.fullmatch(r'    u1\["[^"<>\[\]]*<br/>[^"<>\[\]]*"\]:::ready', lines[1])
    assert len(lines) == 7
