"""The page of a run: its tree and waterfall at every event, without script, whatever its steps are called."""

import re
from itertools import groupby

import pytest

from interlock.kernel.commands import Tick
from tests.dashboard.visitor import Forms, Visitor
from tests.server.stage import Stage

HOSTILE = "\"><script>alert(1)</script><b onmouseover=x>\u202e'&lt;javascript:x"


def make_run(stage: Stage, *tasks: str) -> tuple[str, list[str]]:
    """A run whose first step has failed once and is done, and the ids of its steps."""
    steps = [{"task": task} for task in tasks]
    run = str(stage.post("/v1/runs", {"task": tasks[0], "steps": steps}, status=201)["id"])
    stage.finish(stage.claim(), ended="failure", error=tasks[0])
    stage.app.send(Tick(tenant=1))
    return run, [step["id"] for step in stage.get(f"/v1/runs/{run}/steps")["steps"]]


def test_a_run_is_shown_as_it_stood_at_every_event(visitor: Visitor, stage: Stage) -> None:
    run, (build, ship) = make_run(stage, "build", "ship")
    last = visitor.open(f"/ui/runs/{run}")
    matched = re.search(r"Event (\d+) of (\d+)", last.text)
    assert matched is not None
    count = int(matched[2])
    assert matched[1] == matched[2]
    states = []
    for event in range(1, count + 1):
        for view in ("graph", "tree"):
            text = visitor.get(f"/ui/runs/{run}?event={event}&view={view}&gaps=cut")
            assert f"Event {event} of {count}" in Forms(text).text
            assert {f"/ui/jobs/{step}" for step in (build, ship)} & set(Forms(text).links) or event == 1
        (row,) = re.findall(rf'jobs/{build}">build</a></td><td>(.*?)</td>', text) or [""]
        states.append(Forms(row).text.split(" ")[-1])
    own = [event["to"] for event in stage.get(f"/v1/jobs/{build}/events")["events"]]
    assert [state for state, _ in groupby(filter(None, states))] == [state for state, _ in groupby(own)]


@pytest.mark.parametrize("wrong", ["event=0", "event=999", "event=x", "view=list", "gaps=no", "row=99", "tab=nothing"])
def test_a_wrong_word_of_the_url_is_told_what_is_allowed(visitor: Visitor, stage: Stage, wrong: str) -> None:
    run, _ = make_run(stage, "build")
    assert "allowed" in visitor.open(f"/ui/runs/{run}?{wrong}", 400).text


def test_names_of_strangers_are_text_in_every_panel(visitor: Visitor, stage: Stage) -> None:
    run, (step, _) = make_run(stage, HOSTILE, HOSTILE)
    tabs = [link.partition("?")[2] for link in visitor.open(f"/ui/jobs/{step}").links if "tab=" in link]
    assert tabs
    for path in (
        f"/ui/runs/{run}", f"/ui/runs/{run}?view=tree", f"/ui/runs/{run}?gaps=cut", f"/ui/runs/{run}?event=3",
        *(f"/ui/jobs/{step}?{tab}" for tab in tabs),
    ):  # fmt: skip
        page = visitor.get(path)
        assert "<script>alert" not in page, path
        assert "\u202e" not in page, path
        for tag, own in Forms(page).tags:
            assert not (tag == "b" and "onmouseover" in own), path
            assert not (tag == "script" and "src" not in own), path
            assert not str(own.get("href") or "").startswith("javascript:"), path
