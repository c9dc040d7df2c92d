"""`interlock workstream`, as a user runs it."""

import json
import subprocess
from pathlib import Path

import pytest

import interlock
from interlock.kernel.commands import Claim, Finish, LeaseRef, Outcome, Register
from interlock.kernel.ids import format_id
from tests.cli.inside import Ask, inside
from tests.conftest import COMMAND

SITE = """
name = "site"
checks = [{run = "test -f bundle"}]

[tasks.fetch]
run = 'echo "$INTERLOCK_INPUT" > fetched'

[tasks.bundle]
run = "cat fetched > bundle; echo $INTERLOCK_OUTPUTS"
needs = ["fetch"]
resources = {repo = "exclusive"}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "site.toml").write_text(SITE)
    return tmp_path


@pytest.fixture
def ask(folder: Path) -> Ask:
    return inside(f"sqlite:///{folder / 'work.db'}")


def test_a_file_is_submitted_once_under_its_key(ask: Ask, folder: Path) -> None:
    done = ask(
        "workstream", "submit", folder / "site.toml", "--key", "k", "--arg", "ref=v1", "--label", "a=b", "--json"
    )
    assert (done.code, done.json["created"], done.json["state"], done.json["tasks"]) == (0, True, "ready", 2)
    again = ask("workstream", "submit", folder / "site.toml", "--key", "k", "--arg", "ref=v1")
    assert again.out.strip() == done.json["id"]
    shown = ask("show", done.json["id"], "--json").json
    assert (shown["input"], shown["labels"], shown["task"]) == ({"ref": "v1"}, {"a": "b"}, "site")
    tasks = ask("list", "--parent", done.json["id"], "--json").json["units"]
    assert sorted((task["task"], task["state"]) for task in tasks) == [("shell", "pending"), ("shell", "queued")]
    assert ask("events", done.json["id"], "--json").json["events"][0]["actor"] == "ann"


def test_a_dry_run_makes_nothing(ask: Ask, folder: Path) -> None:
    done = ask("workstream", "submit", folder / "site.toml", "--dry-run")
    assert (done.code, done.out) == (0, "workstream 'site' with 2 tasks can be submitted\n")
    assert not (folder / "work.db").exists()


def test_the_plan_is_printed_by_stage(ask: Ask, folder: Path) -> None:
    stream = ask("workstream", "submit", folder / "site.toml").out.strip()
    assert ask("workstream", "plan", stream).rows == [
        ["1", "fetch", "queued", "", "", "yes"], ["2", "bundle", "pending", "fetch", "", "yes"],
    ]  # fmt: skip
    assert [task["name"] for task in ask("workstream", "plan", stream, "--json").json["tasks"]] == ["fetch", "bundle"]
    assert ask("workstream", "plan", f"{stream}/fetch").code == 2


def test_tasks_are_added_from_a_file(ask: Ask, folder: Path) -> None:
    stream = ask("workstream", "submit", folder / "site.toml").out.strip()
    (folder / "more.json").write_text(json.dumps({"tasks": [{"name": "docs", "run": "true", "needs": ["bundle"]}]}))
    done = ask("workstream", "add", stream, folder / "more.json", "--json")
    assert [(task["name"], task["created"]) for task in done.json["tasks"]] == [("docs", True)]
    assert "there already" in ask("workstream", "add", stream, folder / "more.json").out
    task = done.json["tasks"][0]["id"]
    wrong = ask("workstream", "add", task, folder / "more.json")
    assert (wrong.code, wrong.err) == (2, f"'{task}' is no workstream; it is a task")


def test_tasks_are_skipped_retried_and_reassigned_with_a_reason(ask: Ask, folder: Path) -> None:
    (folder / "a.toml").write_text('name = "a"\n[tasks.x]\nrun = "a"\ncritical = false\n[tasks.y]\nrun = "b"\n')
    stream = ask("workstream", "submit", folder / "a.toml").out.strip()
    assert ask("cancel", f"{stream}/x").code == 0
    done = ask("workstream", "retry", f"{stream}/x", "--reason", "again", "--json").json
    assert (done["created"], done["state"]) == (True, "queued")
    skipped = ask("workstream", "skip", f"{stream}/x", "--reason", "not wanted")
    assert (skipped.code, skipped.out) == (0, f"{done['id']} was skipped; it is completed\n")
    wrong = ask("workstream", "reassign", f"{stream}/y")
    assert (wrong.code, "nobody holds it" in wrong.err) == (2, True)
    assert ask("workstream", "skip", f"{stream}/y", "--json").json["state"] == "completed"
    assert ask("show", stream, "--json").json["state"] == "completed"
    for part in (["--from", "y"], ["--failed"]):  # the command for all kinds of runs does the same
        assert ask("rerun", stream, *part).out.startswith("workstream_")
    assert ask("rerun", stream, "--from", "none").code == 2
    again = ask("workstream", "rerun", stream, "--from", "y").out.strip()
    states = sorted(task[1:3] for task in ask("workstream", "plan", again).rows)
    assert states == [["x", "completed"], ["y", "queued"]]
    event = ask("events", done["id"], "--json").json["events"][-1]
    assert (event["actor"], event["reason"]) == ("ann", "not wanted")


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("none.toml", None, "'none.toml' cannot be read: No such file or directory"),
        ("bad.toml", b"\xff", "'bad.toml' is no text in UTF-8"),
        ("bad.json", b"name = 1", "'bad.json' is no JSON: Expecting value"),
        ("odd.toml", b'name = "a"\n[tasks.x]\nrnu = "a"', "tasks.x.rnu: there is no such key; did you mean 'run'?"),
        ("empty.toml", b'name = "a"', "workstream 'a' has no tasks; it takes at least one"),
    ],
)
def test_a_wrong_file_is_a_sentence(
    ask: Ask, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: bytes | None, why: str
) -> None:
    monkeypatch.chdir(folder)
    if text is not None:
        Path(name).write_bytes(text)
    for more in ((), ("--dry-run",)):
        done = ask("workstream", "submit", name, *more)
        assert (done.code, done.out, done.err[: len(why)]) == (2, "", why)


def test_here_runs_it_to_its_end(folder: Path) -> None:
    command = [COMMAND, "workstream", "submit", "-", "--here", "--shell-sandbox", "none", "--arg", "ref=v1"]
    environment = {"PATH": "/usr/bin:/bin", "INTERLOCK_DB": f"sqlite:///{folder / 'here.db'}", "INTERLOCK_ACTOR": "ann"}
    done = subprocess.run(
        command, cwd=folder, env=environment, input=SITE, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "workstream_1 is completed"), done.stderr
    assert json.loads((folder / "bundle").read_text()) == {"ref": "v1"}
    failing = SITE.replace("test -f bundle", "exit 3").replace("[{run", "[{attempts = 1, run")
    done = subprocess.run(
        command, cwd=folder, env=environment, input=failing, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1, done.stderr
    assert "is failed: check 'shell': TransientError: the command ended with exit code 3" in done.stdout


def test_what_cannot_run_here_is_not_submitted(ask: Ask, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    for repo, more, why in (
        ('repo = "site"', ("--shell-sandbox", "none"), "not a git repository"),
        ("", ("--shell-sandbox", "odd"), "sandbox = 'odd' is not allowed; allowed are auto, bubblewrap, none"),
    ):
        Path("here.toml").write_text(f'name = "here"\n{repo}\n[tasks.a]\nrun = "true"')
        done = ask("workstream", "submit", "here.toml", "--here", *more)
        assert (done.code, done.out) == (2, "")
        assert why in done.err
    assert "workstream_" not in ask("list", "--lifecycle", "workstream").out


def test_why_says_how_a_task_that_failed_is_done_again(ask: Ask, folder: Path) -> None:
    with interlock.open(f"sqlite:///{folder / 'work.db'}") as app:
        tasks = [interlock.task("a", critical=False, attempts=1), "b"]
        stream = app.workstream("again", tasks=tasks).submit()
        worker = app.send(Register(name="w", incarnation="1", capacity=1))
        (grant,) = app.send(Claim(worker=worker, key="k", nonce="0" * 32))
        held = LeaseRef(grant.unit, grant.fence, grant.lease)
        app.send(Finish(outcomes=(Outcome(held=held, ended="failure", error_class="PermanentError"),)))
        name = format_id("task", grant.unit)
        assert f"retry it: interlock workstream retry {name}\n" in app.why(name)
        stream.cancel()
        assert f"rerun it: interlock workstream rerun {stream.id} --failed\n" in app.why(name)
