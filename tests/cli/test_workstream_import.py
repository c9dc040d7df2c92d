"""`interlock workstream import`: a recorded workflow becomes a workstream that takes its recorded time."""

import asyncio
import json
from contextlib import suppress
from pathlib import Path

import pytest

from interlock.client.app import App
from interlock.worker.demo_tasks import make_app
from interlock.worker.loop import Worker
from tests.cli.inside import Ask, inside
from tests.unit.test_wfformat import GRAPH, make_document


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'work.db'}"


@pytest.fixture
def ask(url: str) -> Ask:
    return inside(url)


def write(folder: Path, version: str = "1.5") -> Path:
    file = folder / "demo.json"
    file.write_text(json.dumps(make_document(version, ends="children", seed=3)))
    return file


@pytest.mark.parametrize("version", ["1.3", "1.6"])
def test_a_dry_run_prints_the_plan_and_makes_nothing(ask: Ask, tmp_path: Path, version: str) -> None:
    told = ask("workstream", "import", write(tmp_path, version), "--scale", "2", "--dry-run", "--json").json
    assert told == {
        "name": "demo", "version": version, "tasks": 4, "stages": 3, "width": 2,
        "critical_path": ["split", "left", "join"], "length_seconds": 27.0,
    }  # fmt: skip
    text = ask("workstream", "import", tmp_path / "demo.json", "--dry-run").out
    assert text == (
        f"'demo' (WfFormat {version}): 4 tasks in 3 stages\n"
        "at most 2 at the same time; the critical path has 3, 13.5 s\n"
    )
    assert not (tmp_path / "work.db").exists()


def test_an_imported_workstream_runs_for_its_recorded_time(ask: Ask, tmp_path: Path, url: str) -> None:
    file = write(tmp_path)
    done = ask("workstream", "import", file, "--scale", "0.01", "--key", "k", "--json").json
    assert (done["created"], done["state"], done["tasks"]) == (True, "ready", 4)
    assert ask("workstream", "import", file, "--scale", "0.01", "--key", "k").out.strip() == done["id"]
    plan = ask("workstream", "plan", done["id"], "--json").json
    assert {task["name"]: task["seconds"] for task in plan["tasks"]} == {
        name: seconds / 100 for name, (_, seconds) in GRAPH.items()
    }
    assert (plan["critical_path"], plan["length_seconds"]) == (["split", "left", "join"], 0.135)
    with make_app(url) as app:
        asyncio.run(run_until_ended(app, done["id"]))
    shown = ask("show", done["id"], "--json").json
    assert (shown["state"], shown["progress"]["done"], shown["progress"]["elapsed_seconds"] >= 0.135) == (
        "completed",
        4,
        True,
    )


async def run_until_ended(app: App, unit: str) -> None:
    """A worker with the tasks of `interlock up` works until a workstream has ended."""
    working = asyncio.create_task(Worker(app, {"default": 4}).run())
    await app.run(unit).wait.aio(timeout=30)
    working.cancel()
    with suppress(asyncio.CancelledError):
        await working


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("{", "is no JSON"),
        (
            '{"name": "x", "schemaVersion": "1.1", "workflow": {}}',
            "schemaVersion = '1.1' is not allowed; allowed are 1.3",
        ),
        ('{"name": "x", "schemaVersion": "1.3", "workflow": {"tasks": [{}]}}', "workflow.tasks[0].name is missing"),
    ],
)
def test_a_wrong_file_is_refused_with_its_name_and_the_path(ask: Ask, tmp_path: Path, text: str, refusal: str) -> None:
    file = tmp_path / "wrong.json"
    file.write_text(text)
    done = ask("workstream", "import", file)
    assert done.code == 2
    assert done.err.startswith(f"'{file}': ")
    assert refusal in done.err
    assert not (tmp_path / "work.db").exists()
    assert "cannot be read" in ask("workstream", "import", tmp_path / "none.json").err
    assert "scale = -1.0 is not allowed" in ask("workstream", "import", file, "--scale", "-1").err
