"""How far a workstream is, by the command line: shown, watched, and drawn by stage if it is large."""

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

from interlock.kernel.commands import Decide, Submit, Work
from interlock.kernel.ids import format_id
from tests.cli.places import Place
from tests.cli.test_tree import on_a_terminal
from tests.engine.test_progress import run, submit

INSTANT = r"\d{4}-\d\d-\d\dT[\d:.]+Z"


def half_done(place: Place) -> str:
    """A workstream with a task that is done, one that failed, two that this blocks, and one that is ready."""
    graph = {"fetch": (), "docs": (), "pages": ("docs",), "publish": ("pages",), "lint": ()}
    units, worker = submit(place.world, graph), place.world.worker("w", concurrency=1)
    assert [run(place.world, worker, 10), run(place.world, worker, 1, ended="failure")] == ["fetch", "docs"]
    return format_id("workstream", units["site"])


def test_show_tells_progress_blocked_tasks_critical_path_and_eta(place: Place) -> None:
    site = half_done(place)
    rows = place.ask("show", site).out.partition("PROGRESS\t\n")[2].partition("\n\n")[0].splitlines()
    rows = [re.sub(r"task_\w+", "task_N", re.sub(INSTANT, "AT", row)) for row in rows]
    assert rows == [
        "done\t1 of 5",
        "now\t1 ready, 2 blocked, 1 failed",
        "blocked\t'pages' (task_N) by 'docs'",
        "blocked\t'publish' (task_N) by 'pages'",
        "critical path\tlint",
        rows[-2],  # since its first task was started; the command has the clock of this machine
        "eta\tAT (in 10s)",
    ]
    assert rows[-2].startswith("elapsed\t")
    told = place.ask("show", site, "--json").json["progress"]
    assert (told["done"], told["of"], told["blocked"], told["critical_path"]) == (1, 5, 2, ["lint"])
    assert "progress" not in place.ask("show", format_id("job", place.world.submit()), "--json").json


def test_watch_tells_progress_when_it_changes(place: Place) -> None:
    site = half_done(place)
    text = "1 of 5 done; 1 ready, 2 blocked, 1 failed; critical path lint; eta AT (in 10s)"
    told = place.ask("watch", site, "--for", "1ms")
    assert told.code == 1
    assert f"{site}\tprogress\t20%\t{text}\n" in re.sub(INSTANT, "AT", told.out)
    changes = [json.loads(line) for line in place.ask("watch", site, "--for", "600ms", "--json").out.splitlines()]
    (change,) = [change for change in changes if change["change"] == "progress"]
    assert (change["unit"], change["done"], change["workstream"]["blocked"]) == (site, 0.2, 2)
    drawn = on_a_terminal(place.url, "watch", site, "--for", "1ms")
    assert re.search(r"[━╸] +1 of 5 done; .* critical path lint; eta ", drawn)
    assert re.search(r"^blocked: 'pages' \(task_\w+\) by 'docs'", drawn, re.M)


def test_a_workstream_of_more_than_a_thousand_tasks_is_drawn_by_stage(place: Place, tmp_path: Path) -> None:
    tasks = [
        Work(task="t", lifecycle="task", parent="site", step=f"t{number}", ref=f"t{number}",
             needs=(f"t{number - 250}",) if number >= 250 else ())
        for number in range(1_100)
    ]  # fmt: skip
    work = (Work(task="site", lifecycle="workstream", ref="site"), *tasks)
    engine = place.world.engine
    site = engine.send(Submit(work=work))[0].unit
    engine.send(Decide(unit=site, trigger="plan"))
    text = place.ask("graph", format_id("workstream", site)).out
    assert 'u1["stage 1: 250 tasks<br/>250 queued"]:::ready' in text.replace("#58;", ":")
    assert 'u5["stage 5: 100 tasks<br/>100 pending"]:::waiting' in text.replace("#58;", ":")
    assert re.findall(r"u\d -.*> u\d", text) == ["u0 -.-> u1", "u1 --> u2", "u2 --> u3", "u3 --> u4", "u4 --> u5"]
    file = tmp_path / "site.svg"
    assert place.ask("graph", format_id("workstream", site), "-o", file).out == f"{file}: 6 boxes, by stage\n"
    assert len(ET.fromstring(file.read_text(encoding="utf-8")).findall("{*}g")) == 6
