"""The inbox by the command line: what waits, whose it is, and what is said when it is answered."""

import re
from pathlib import Path
from typing import Any

import pytest

from interlock.kernel.commands import Submit, Work
from interlock.kernel.ids import format_id
from tests.cli.inside import Done
from tests.cli.places import Place

GOLDEN = Path(__file__).parent / "inbox.txt"


def release(place: Place, *approvals: str, **facts: Any) -> list[str]:
    run = Work(task="release", lifecycle="workflow_run", ref="run")
    gates = [Work(task=name, lifecycle="approval", parent="run", ref=name, **facts) for name in approvals]
    made = [one.unit for one in place.world.send(Submit(work=(run, *gates), actor="sue"))]
    return [format_id("approval" if place else "workflow_run", unit) for place, unit in enumerate(made)]


def story(place: Place) -> list[tuple[str, Done]]:
    """Everything that can be asked of an inbox, and what it answers."""
    run, ship = release(place, "ship", approvers=("ann", "ops"), quorum=2, expires_us=3_600_000_000)
    two, first, _ = release(place, "docs", "legal")
    place.world.send(Submit(work=(Work(task="stream", lifecycle="workstream"),)))
    stream = place.ask("inbox", "--json").json["items"][-1]["id"]
    asked = [
        ("inbox",),
        ("inbox", "--mine", "--by", "bob"),
        ("inbox", "--role", "ops", "--limit", "1"),
        ("approve", run, "--by", "eve"),
        ("approve", run, "--comment", "looks good"),
        ("approve", run),
        ("reject", run),
        ("inbox", "--mine"),
        ("approve", ship, "--by", "bob", "--role", "ops"),
        ("approve", ship, "--by", "bob", "--role", "ops"),
        ("approve", run, "--by", "bob"),
        ("reject", two),
        ("reject", first, "--comment", "not now"),
        ("approve", stream),
        ("decide", stream, "approve"),
        ("inbox", "--after", stream),
    ]
    return [(" ".join(("$ interlock", *words)), place.ask(*words)) for words in asked]


def test_the_inbox_answers_as_it_should(place: Place) -> None:
    told = ""
    names: dict[str, str] = {}
    for command, done in story(place):
        printed = f"{command}\n{done.out}{done.err}[{done.code}]\n\n"
        for name in re.findall(r"\b(?:approval|workflow_run|workstream)_[0-9a-z]+\b", printed):
            names.setdefault(name, f"{name.rpartition('_')[0]}_{len(names) + 1}")
        told += re.sub(r"\b[a-z_]+_[0-9a-z]+\b", lambda found: names.get(found[0], found[0]), printed)
    assert told == GOLDEN.read_text(encoding="utf-8")


def test_a_program_is_told_the_same(place: Place) -> None:
    run, ship = release(place, "ship", quorum=2, input='{"version":"1.2"}')
    done = place.ask("approve", run, "--comment", "fine", "--role", "ops", "--json")
    assert (done.code, done.json) == (
        0, {"id": ship, "state": "WAITING_APPROVAL", "applied": True, "refused": None},
    )  # fmt: skip
    told = place.ask("inbox", "--json").json
    (item,) = told["items"]
    assert item.pop("since") < item["votes"][0].pop("at")
    assert told["more"] is False
    assert item == {
        "id": ship, "task": "ship", "lifecycle": "approval", "state": "WAITING_APPROVAL", "run": run,
        "run_task": "release", "words": ["approve", "reject"], "approvers": [], "quorum": 2, "submitter": "sue",
        "not_submitter": False, "expires_at": None, "input": {"version": "1.2"},
        "votes": [{"voter": "ann", "approve": True, "roles": ["ops"], "comment": "fine", "vouched_by": ""}],
    }  # fmt: skip
    place.ask("approve", run, "--by", "bob")
    done = place.ask("approve", run, "--by", "eve", "--json")
    assert (done.code, done.json["applied"], done.json["state"]) == (1, False, "SUCCEEDED")
    assert done.json["refused"] == f"nothing there waits for 'approve'; {run} is SUCCEEDED"


@pytest.mark.parametrize("verb", ["approve", "reject"])
def test_what_does_not_exist_is_a_wrong_word(verb: str, place: Place) -> None:
    done = place.ask(verb, "approval_zzz")
    assert (done.code, done.err) == (2, "no job, run or step 'approval_zzz'")
