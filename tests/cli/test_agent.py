"""`interlock agent` as an operator runs it."""

import json
from pathlib import Path

from interlock.kernel.commands import Record, Submit, Work
from interlock.kernel.ids import format_id, parse_id
from tests.cli.places import Place
from tests.engine.world import held


def test_steps_are_listed_and_a_run_is_resumed(place: Place) -> None:
    world = place.world
    work = (Work(task="goal", lifecycle="agent_run", ref="run"), Work(task="goal", lifecycle="agent_job", parent="run"))
    unit = world.send(Submit(work=work))[0].unit
    run, worker = format_id("agent_run", unit), world.worker()
    (grant,) = world.claim(worker)
    world.send(Record(held=(held(grant),), kind="step", name="plan", payload='{"a": 1}'))
    refused = place.ask("agent", "resume", run, "--reason", "why")
    assert (refused.code, "no 'resume' from 'running'" in refused.err) == (2, True)
    world.finish(grant, ended="failure", error_class="PermanentError")
    nameless = place.ask("agent", "resume", run, "--reason", " ")
    assert (nameless.code, "a reason is missing" in nameless.err) == (2, True)
    for wrong, why in (
        ("usd", "allowed is NAME=AMOUNT"),
        ("steps=-1", "steps = -1.0 is not allowed"),
        ("usd=x", "usd"),
    ):
        no = place.ask("agent", "resume", run, "--reason", "more", "--budget", wrong)
        assert (no.code, why in no.err) == (2, True), no.err
    resumed = place.ask(
        "agent", "resume", run, "--reason", "the disk has room again", "--budget", "usd=10", "--budget", "active=30m"
    )  # fmt: skip
    assert (resumed.code, resumed.out) == (0, f"{run} was resumed; it is queued\n")
    (row,) = place.ask("agent", "steps", run).rows
    assert (row[0], row[2]) == ("plan", '{"a":1}')
    spent = place.ask("agent", "budget", run, "--json")
    meters = {meter["name"]: meter for meter in json.loads(spent.out)["meters"]}
    assert meters["steps"] == {"name": "steps", "used": 1, "soft": None, "hard": None}
    assert ["steps", "1", "", ""] in place.ask("agent", "budget", run).rows
    told = json.loads(place.ask("agent", "steps", run, "--json").out)
    assert (told["id"], [step["result"] for step in told["steps"]]) == (run, [{"a": 1}])
    forked = place.ask("agent", "fork", run, "--at", "plan", "--replace", 'plan={"a": 2}', "--json")
    new = json.loads(forked.out)["id"]
    assert [step["result"] for step in json.loads(place.ask("agent", "steps", new, "--json").out)["steps"]] == [
        {"a": 2}
    ]
    assert f"goes on from step 'plan' of {run}" in place.ask("agent", "fork", run, "--at", "plan").out
    for wrong, why in (
        ("plan", "allowed is NAME=JSON"),
        ("plan={", "NAME=JSON"),
        ("act=1", "no step 'act' is recorded"),
    ):
        no = place.ask("agent", "fork", run, "--at", "plan", "--replace", wrong)
        assert (no.code, why in no.err) == (2, True)
    other = format_id("job", world.submit())
    no = place.ask("agent", "steps", other)
    assert (no.code, "is no agent run; it is a job" in no.err) == (2, True)


def test_a_transcript_a_decision_and_a_test_of_a_run(place: Place, tmp_path: Path) -> None:
    world = place.world
    work = (Work(task="goal", lifecycle="agent_run", ref="run"), Work(task="goal", lifecycle="agent_job", parent="run"))
    run = format_id("agent_run", world.send(Submit(work=work))[0].unit)
    (grant,) = world.claim(world.worker("maker"))
    world.send(Record(held=(held(grant),), kind="step", name="plan", payload='{"a": 1}', usage={"usd": 0.5}))
    early = place.ask("agent", "decision", run)
    assert (early.code, early.out.splitlines()[:2]) == (1, [f"FAIL {run}", "  RUN_NOT_COMPLETE"])
    world.finish(grant, result="2")
    (row,) = [row for row in place.ask("agent", "transcript", run).rows if row[1] == "step"]
    assert row[2:] == ["plan", "", '{"a":1}', "usd 0.5"]
    told = json.loads(place.ask("agent", "transcript", run, "--json").out)
    assert (told["id"], told["entries"][-1]["name"]) == (run, "complete")
    written = place.ask("agent", "transcript", run, "--out", str(tmp_path / "t.jsonl"))
    assert (written.code, f"entries of {run} are in" in written.out) == (0, True)
    assert [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()] == told["entries"]
    strict = place.ask("agent", "decision", run, "--strict", "--json")
    assert (strict.code, json.loads(strict.out)["reasons"][-1]) == (1, "RUN_V1_READY_UNPROVEN")
    missing = place.ask("capture", run)
    assert (missing.code, "--app" in missing.err) == (2, True)
    same = place.ask("agent", "capture", run, "--app", "agents:app", "--out", str(tmp_path))
    assert (same.code, f"replays {run} from" in same.out) == (0, True)
    captured = place.ask("capture", run, "--app", "agents:app", "--out", str(tmp_path), "--json")
    files = json.loads(captured.out)
    assert (captured.code, files["lines"]) == (0, 1)
    lines = [json.loads(line) for line in Path(files["cassette"]).read_text().splitlines()]
    assert (lines[0]["agent"], lines[0]["result"], lines[1]["result"]) == ("goal", 2, {"a": 1})
    assert "from agents import app" in Path(files["test"]).read_text()
    for wrong, why in (
        (("--app", "agents"), "allowed is MODULE:NAME"),
        (("--app", "a:b", "--out", "none"), "no folder"),
    ):
        no = place.ask("agent", "capture", run, *wrong)
        assert (no.code, why in no.err) == (2, True), no.err


def test_a_run_is_submitted_once_under_its_key(place: Place) -> None:
    terms = ("--arg", "goal=mend", "--key", "k", "--budget", "usd=5", "--budget", "active=90m", "--label", "team=a")
    made = place.ask("agent", "submit", "goal", *terms, "--queue", "slow", "--priority", "3", "--actor", "ann")
    run = made.out.strip()
    assert (made.code, run.startswith("agent_run_")) == (0, True), made.err
    again = json.loads(place.ask("agent", "submit", "goal", *terms, "--json").out)
    assert again == {"id": run, "created": False, "replaced": False, "state": "queued"}
    assert {meter["name"] for meter in json.loads(place.ask("agent", "budget", run, "--json").out)["meters"]} == {
        "usd",
        "active",
    }
    world, unit = place.world, parse_id(run)
    (job,) = world.connection.rows("SELECT id FROM unit WHERE parent = :run", {"run": unit})[0]
    assert (world.unit(job).lifecycle, world.body(job).task, world.body(job).input) == (
        "agent_job", "goal", '{"goal":"mend"}',
    )  # fmt: skip
    assert next(event.actor for event in world.events(unit)) == "ann"
    for wrong, why in (
        (("--budget", "usd"), "allowed is NAME=AMOUNT"),
        (("--budget", "usd=-1"), "usd = -1.0 is not allowed"),
        (("--contract", "0" * 64), "no contract '000000000000' is stored"),
        (("--arg", "x"), "allowed is NAME=VALUE"),
        (("--timeout", "soon"), "'soon' is not"),
        (("--label", "x"), "allowed is NAME=VALUE"),
    ):
        no = place.ask("agent", "submit", "goal", *wrong)
        assert (no.code, why in no.err) == (2, True), no.err
