"""Every time limit of a run of CI, kept by real processes: of planning, of waiting, of the run, of a job and of a step."""

import json
import shutil
import threading
from pathlib import Path

import pytest

from interlock.git import Repository
from interlock.plugins.ci.queries import list_ci_runs
from interlock.store.queries.views import events_of
from tests.ci.repositories import (
    check_record,
    ci,
    classes,
    make_repository,
    open_runs,
    processes_of,
    states,
    wait_until,
)

SLEEP = "trap 'exit 7' TERM; sleep 600 & wait"


@pytest.fixture(autouse=True)
def _own_folder_for_worktrees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))


def path_of_run(place: Path) -> list[str]:
    """The states of the only run, in order."""
    with open_runs(place) as app:
        (run,) = app.read(list_ci_runs)
        return [event.target for event in app.read(events_of, run.unit)]


@pytest.mark.req("R4-13", "R4-57", "R4-67")
def test_a_run_ends_with_its_time_its_steps_are_stopped_and_what_runs_afterwards_runs(tmp_path: Path) -> None:
    config = f"""
run: {{timeout: 2s}}
jobs:
  a: {{steps: ["{SLEEP}"], after: [echo afterwards], cancel_within: 10s}}
  b: {{steps: ["true"], needs: [a]}}
"""
    place = make_repository(tmp_path / "shop", config)
    say = ci(place)
    done = say("run", "--json")
    shown = json.loads(done.out)
    assert (done.code, shown["outcome"], states(done)) == (1, "failure", {"a": "CANCELED", "b": "CANCELED"})
    assert path_of_run(place)[-3:] == ["RUNNING", "TIMEOUT", "REPORTED"]
    assert shown["stopped"] == "the run took longer than run.timeout allows"
    assert classes(done) == {"a": ["cancelled"], "b": ["cancelled"]}
    assert shown["jobs"][0]["attempts"][0]["explanation"] == f"it was cancelled: {shown['stopped']}"
    assert f": {shown['stopped']}" in say("show").out.splitlines()[0]
    assert "afterwards" in say("log", "a").out.splitlines()
    assert processes_of(shown["commit"]) == []
    check_record(place)


@pytest.mark.req("R4-67")
def test_a_run_of_which_no_job_can_begin_is_cancelled_with_its_time_to_wait(tmp_path: Path) -> None:
    config = "run: {queue_timeout: 1s}\njobs: {a: {gate: {approvers: [ann]}, steps: [echo a]}}"
    place = make_repository(tmp_path / "shop", config)
    done = ci(place)("run", "--json")
    assert (done.code, json.loads(done.out)["stopped"]) == (130, "no job began within run.queue_timeout")
    assert path_of_run(place)[-3:] == ["CANCEL_REQUESTED", "CANCELED", "REPORTED"]
    check_record(place)


@pytest.mark.req("R4-06", "R4-67")
def test_a_plan_that_takes_too_long_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Git is slow here, where the planner asks it for branches."""
    put_git(tmp_path, monkeypatch, 'case "$*" in *for-each-ref*) sleep 3;; esac')
    place = make_repository(tmp_path / "shop", "run: {plan_timeout: 1s}\njobs: {a: {steps: [echo a]}}")
    done = ci(place)("run", "--json")
    why = "planning took longer than run.plan_timeout allows"
    assert (done.code, json.loads(done.out)["plan_failed"]) == (2, why)
    assert path_of_run(place) == ["CREATED", "PLANNING", "PLAN_FAILED", "FAILED", "REPORTED"]
    check_record(place)


def test_a_git_that_hangs_ends_with_the_run_that_it_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hangs while the run is planned, and would for an hour; nobody waits for it any more, and nothing is left of it."""
    pid = tmp_path / "it.pid"
    put_git(tmp_path, monkeypatch, f"case \"$*\" in *for-each-ref*) echo $$ > '{pid}'; exec sleep 3600;; esac")
    monkeypatch.setitem(Repository.__init__.__kwdefaults__, "seconds", 3_600.0)
    place = make_repository(tmp_path / "shop", "run: {plan_timeout: 1s}\njobs: {a: {steps: [echo a]}}")
    done = ci(place)("run", "--json")
    assert (done.code, "run.plan_timeout" in json.loads(done.out)["plan_failed"]) == (2, True)
    wait_until(lambda: not any(thread.name.startswith("interlock handler") for thread in threading.enumerate()))
    assert not Path(f"/proc/{pid.read_text().strip()}").exists()
    check_record(place)


def test_a_git_that_hangs_at_a_checkout_ends_with_the_cancel_of_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = tmp_path / "it.pid"
    put_git(tmp_path, monkeypatch, f"case \"$*\" in *'worktree add'*) echo $$ > '{pid}'; exec sleep 3600;; esac")
    monkeypatch.setitem(Repository.__init__.__kwdefaults__, "seconds", 3_600.0)
    place = make_repository(tmp_path / "shop", "run: {timeout: 2s}\njobs: {a: {steps: [echo a], cancel_within: 20s}}")
    done = ci(place)("run", "--json")
    assert (done.code, classes(done)) == (1, {"a": ["cancelled"]})
    assert not Path(f"/proc/{pid.read_text().strip()}").exists()
    assert list((tmp_path / "tmp").rglob("*ci_attempt*")) == []
    check_record(place)


def put_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str) -> None:
    """In place of git comes a script that does this before it becomes git."""
    script = tmp_path / "bin" / "git"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\n{before}\nexec {shutil.which("git")} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setattr("interlock.git.command.find_git", lambda: str(script))


@pytest.mark.req("R4-29", "R4-67")
def test_a_step_and_a_job_end_with_their_time_and_are_tried_again_as_the_config_says(tmp_path: Path) -> None:
    config = f"""
jobs:
  step: {{steps: [{{run: "{SLEEP}", timeout: 1s}}], retries: {{timeout: 1}}}}
  job: {{steps: ["{SLEEP}"], timeout: 2s, after: [echo afterwards], cancel_within: 8s}}
"""
    place = make_repository(tmp_path / "shop", config)
    say = ci(place)
    done = say("run", "--json")
    shown = json.loads(done.out)
    assert (done.code, states(done)) == (1, {"step": "FAILED", "job": "TIMED_OUT"})
    assert classes(done) == {"step": ["timeout", "timeout"], "job": ["timeout"]}
    assert "afterwards" in say("log", "job").out.splitlines()
    assert "the step 'step 1' ran for longer than it may" in say("log", "step").out
    assert processes_of(shown["commit"]) == []
    check_record(place)
