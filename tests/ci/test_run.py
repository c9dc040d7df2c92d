"""`interlock ci run` and what looks at its runs, by real git, real processes and real files."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.cli.ci_run import submit_run
from interlock.worker.ci_artifacts import find_kept_until
from tests.ci.repositories import (
    check_record,
    ci,
    classes,
    fingerprint,
    make_repository,
    open_runs,
    processes_of,
    states,
    wait_until,
)
from tests.cli.inside import inside
from tests.conftest import COMMAND
from tests.git.repositories import commit_files, git, write_files

HOUR_US = 3_600_000_000
GREEN = """
jobs:
  build: {steps: [mkdir out, "cat src/a.c new.c > out/all"], artifacts: [{name: out, paths: ["out/**"]}]}
  test: {needs: [build], steps: ["test -e src/a.c", "test ! -e a.o", "test ! -e out"]}
  lint: {steps: [{name: style, run: "echo bad style; exit 4"}], allow_failure: true}
"""


@pytest.fixture(autouse=True)
def _own_folder_for_worktrees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))


def left_over(folder: Path) -> list[str]:
    """Worktrees that are left of jobs."""
    return git(folder, "worktree", "list", "--porcelain").split("\n\n")[1:]


@pytest.mark.req("R4-03", "R4-18", "R4-64", "R4-70")
def test_the_working_tree_is_run_as_it_is_and_nothing_of_it_changes(tmp_path: Path) -> None:
    place = make_repository(tmp_path / "shop", GREEN, {"src/a.c": "1"})
    write_files(place, {"new.c": "uncommitted", "a.o": "ignored"})
    write_files(place, {"staged.c": "staged"})
    git(place, "add", "staged.c")
    before, status, reflog = fingerprint(place), git(place, "status", "--porcelain"), git(place, "reflog")
    done = ci(place)("run", "--json")
    assert (done.code, states(done)) == (0, {"build": "SUCCEEDED", "test": "SUCCEEDED", "lint": "FAILED"})
    shown = json.loads(done.out)
    assert (shown["state"], shown["outcome"], shown["plan_failed"]) == ("REPORTED", "success", None)
    assert classes(done)["lint"] == ["lint"]
    assert fingerprint(place) == before
    assert (git(place, "status", "--porcelain"), git(place, "reflog")) == (status, reflog)
    assert left_over(place) == []
    check_record(place)


def test_what_is_printed_for_people(tmp_path: Path) -> None:
    place = make_repository(tmp_path / "shop", GREEN, {"src/a.c": "1", "new.c": "2"})
    say = ci(place)
    lines = say("run").out.splitlines()
    assert lines[0].startswith("ci_run_1 of ")
    assert lines[1].startswith("plan ")
    assert lines[1].endswith(": 3 jobs")
    ended = [line.split("\t") for line in lines[2:5]]
    assert {row[0]: row[1] for row in ended} == {"build": "SUCCEEDED", "test": "SUCCEEDED", "lint": "FAILED"}
    assert lines[5:9] == [
        "── lint: FAILED (allowed to fail)", "  $ echo bad style; exit 4", "  bad style",
        "  the step 'style' ended with exit code 4",
    ]  # fmt: skip
    assert lines[9:11] == [
        "── lint: the step 'style' ended with exit code 4: bad style", "── alone: interlock ci run lint",
    ]  # fmt: skip
    assert lines[11].startswith("ci_run_1 succeeded: 2 SUCCEEDED, 1 FAILED in ")
    assert "--sandbox" in lines[12]
    assert say("log", "lint").out.splitlines() == [line.strip() for line in lines[6:9]]
    assert [row[:3] for row in say("list").rows] == [["ci_run_1", "success", "REPORTED"]]
    ask = inside(f"sqlite:///{place}/.git/interlock/ci.db")
    (run,) = ask("list", "--lifecycle", "ci_run").rows
    assert run[:3] == ["ci_run_1", "ci.run", "REPORTED (success)"]
    assert "REPORTED (success)" in ask("show", "ci_run_1").out
    assert [row[:3] for row in say("show").rows[1:4]] == [
        ["build", "success", "SUCCEEDED"], ["test", "success", "SUCCEEDED"], ["lint", "failure", "FAILED"],
    ]  # fmt: skip
    why = say("why", "lint").out.splitlines()
    assert why[0] == "reason    nothing differs from 'main', so everything is planned"
    assert why[1] == "last      lint: the step 'style' ended with exit code 4: bad style"


def test_a_program_sees_a_run_as_the_command_line_does(tmp_path: Path) -> None:
    config = """
jobs:
  unit: {steps: [mkdir out, cp report.xml out/x.xml], reports: {junit: "out/*.xml"}, artifacts: [{name: out, paths: ["out/**"]}]}
  last: {needs: [unit], steps: ["true"]}
"""
    report = '<testsuite><testcase name="a"/></testsuite>'
    place = make_repository(tmp_path / "shop", config, {"report.xml": report})
    shown = json.loads(ci(place)("run", "--json").out)
    with open_runs(place) as app:
        run = app.run(shown["id"])
        assert isinstance(run, interlock.CiRun)
        assert (run.outcome, run.jobs) == ("success", {"unit": "SUCCEEDED", "last": "SUCCEEDED"})
        assert run.plan is not None
        assert run.plan.hash == shown["plan_hash"]
        assert ([test.name for test in run.tests], [artifact.name for artifact in run.artifacts]) == (["a"], ["out"])
        with pytest.raises(interlock.InterlockError, match=f"interlock ci rerun {run.id}"):
            run.rerun()


def test_an_artifact_is_unpacked_as_it_was(tmp_path: Path) -> None:
    place = make_repository(tmp_path / "shop", GREEN, {"src/a.c": "1", "new.c": "2"})
    say = ci(place)
    say("run", "build")
    (row,) = say("artifacts").rows
    assert row[:2] == ["out", "build"]
    assert say("artifacts", "out", "--to", str(tmp_path / "there")).out == f"{tmp_path}/there: 1 file\n"
    assert (tmp_path / "there/out/all").read_text() == "12"
    again = say("artifacts", "out", "--to", str(tmp_path / "there"))
    assert (again.code, again.err) == (2, f"'{tmp_path}/there' is there already; name another folder with --to")
    gone = say("artifacts", "other")
    assert (gone.code, gone.err) == (2, "there is no artifact 'other'; there are out")


def test_a_success_is_reused_until_something_changes_that_it_depends_on(tmp_path: Path) -> None:
    config = """
jobs:
  a: {steps: ["echo a"], inputs: [a/**], artifacts: [{name: a, paths: [a/x]}]}
  b: {steps: ["echo b"], inputs: [b/**], needs: [a]}
  c: {steps: ["exit 1"], inputs: [c/**], allow_failure: true}
  n: {steps: ["true"], inputs: [a/**], network: true}
"""
    place = make_repository(tmp_path / "shop", config, {"a/x": "1", "b/x": "1", "c/x": "1"})
    say = ci(place)

    def kinds(*words: str) -> dict[str, list[str]]:
        return classes(say("run", "--json", *words))

    assert kinds() == {"a": ["success"], "b": ["success"], "c": ["step"], "n": ["success"]}
    assert kinds() == {"a": ["reused"], "b": ["reused"], "c": ["step"], "n": ["success"]}
    assert [row[:2] for row in say("artifacts").rows] == [["a", "a"]]  # of the earlier run
    assert "reused from ci_job_" in say("log", "a").out
    assert kinds("--no-reuse")["a"] == ["success"]
    commit_files(place, {"b/x": "2"}, "b")
    assert kinds() == {"a": ["reused"], "b": ["success"], "c": ["step"], "n": ["success"]}
    assert kinds("b") == {"a": ["reused"], "b": ["success"]}  # somebody asked for it
    commit_files(place, {"a/x": "2"}, "a")
    assert kinds() == {"a": ["success"], "b": ["success"], "c": ["step"], "n": ["success"]}
    check_record(place)


def test_a_job_that_was_reused_is_not_reused_for_longer_than_its_result_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = make_repository(tmp_path / "shop", "jobs: {a: {steps: [echo a]}}")
    say = ci(place)
    say("run")
    assert classes(say("run", "--json")) == {"a": ["reused"]}
    monkeypatch.setattr("interlock.worker.ci_planning.REUSED_FOR_US", 0)
    assert classes(say("run", "--json")) == {"a": ["success"]}


def test_a_plan_that_fails_is_a_run_that_failed(tmp_path: Path) -> None:
    place = make_repository(tmp_path / "shop", "jobs:\n  a: {stepz: [make]}\n")
    say = ci(place)
    done = say("run", "--json")
    shown = json.loads(done.out)
    assert (done.code, shown["outcome"], shown["state"], shown["jobs"]) == (2, "failure", "REPORTED", [])
    wrong = "\n.interlock/ci.yaml:2:7: a job has no key 'stepz' (did you mean 'steps'?); allowed are "
    assert wrong in shown["plan_failed"]
    assert shown["plan_failed"] in say("show").out
    again = say("rerun")
    assert (again.code, "has no plan that could be rerun" in again.err) == (2, True)
    write_files(place, {".interlock/ci.yaml": "jobs:\n  a: {steps: [make], secrets: [DEPLOY_KEY]}\n"})
    assert json.loads(say("run", "--json").out)["plan_failed"] == (
        "the job 'a' has the secret DEPLOY_KEY, and the variable of that name is not set; set it to at least 4 characters"
    )
    check_record(place)


def test_reports_of_tests_become_rows(tmp_path: Path) -> None:
    config = """
jobs:
  unit: {steps: [cp report.xml out.xml, "exit 1"], reports: {junit: "*.xml"}}
  other: {steps: ["true"], reports: {junit: [bad/*.xml]}}
"""
    cases = '<testcase name="a"/><testcase name="b" time="0.1"><failure message="no"/></testcase>'
    files = {"report.xml": f"<testsuite>{cases}</testsuite>", "bad/r.xml": "<"}
    say = ci(make_repository(tmp_path / "shop", config, files))
    assert say("run").code == 1
    assert say("tests").out.splitlines()[1:] == ["unit\tb\tfailure\t100 ms\tno"] * 2 + ["4 tests, 2 of them failed"]
    assert len(say("tests", "--all").out.splitlines()) == 6
    assert "'bad/r.xml' is no JUnit file" in say("log", "other").out
    assert "tests in the reports: 4, of which 2 failed" in say("log", "unit").out
    assert say("flaky").out == "TEST\tLOST\tWON\n"


def test_one_job_is_run_with_those_that_it_needs(tmp_path: Path) -> None:
    config = """
jobs:
  a: {steps: ["true"]}
  b: {steps: ["true"], needs: [a], matrix: {v: ["1", "2"]}}
  c: {steps: ["true"], when: {branch: other}}
"""
    say = ci(make_repository(tmp_path / "shop", config))
    assert set(states(say("run", "--json", "b:2"))) == {"a", "b:2"}
    assert set(states(say("run", "--json", "a"))) == {"a"}
    for words, why in (
        ("d", "there is no job 'd'; there are a, b, c"),
        ("b:3", "there is no job 'b:3' (did you mean 'b:2'?); there are b, b:1, b:2"),
        ("c", "the job 'c' may not run here: when.branch is other, and this is 'main'"),
    ):
        done = say("run", "--json", words)
        assert (done.code, json.loads(done.out)["plan_failed"]) == (
            2, why,
        )  # fmt: skip


def test_files_that_git_does_not_track_can_be_left_out(tmp_path: Path) -> None:
    place = make_repository(tmp_path / "shop", "jobs: {a: {steps: [test ! -e new, grep 2 a]}}", {"a": "1"})
    write_files(place, {"new": "1", "a": "2"})
    say = ci(place)
    assert [say("run").code, say("run", "--tracked").code] == [1, 0]
    git(place, "checkout", "--quiet", "-b", "topic")
    assert [say("plan", "--json", *words).json["paths"] for words in ([], ["--tracked"])] == [["a", "new"], ["a"]]


def test_steps_get_what_is_listed_of_the_environment_and_secrets_are_masked(tmp_path: Path) -> None:
    config = """
env: {ALL: "1"}
jobs:
  a: {steps: [env, "printf %s \\"$KEY\\" | base64"], env: {OWN: "{job}"}, secrets: [KEY], matrix: {v: ["3.10"]}}
"""
    say = ci(make_repository(tmp_path / "shop", config), KEY="hunter2-and-more", STRANGE="yes", HOME="/nonexistent")
    assert say("run").code == 0
    log = say("log").out
    for line in ("ALL=1", "OWN=a:3.10", "MATRIX_V=3.10", "CI=true", "INTERLOCK_JOB=a:3.10", "HOME=/nonexistent", "KEY=***",
                 "INTERLOCK_BRANCH=main"):  # fmt: skip
        assert line in log.splitlines(), line
    assert "STRANGE" not in log
    assert "hunter2" not in log
    assert "aHVudGVyMi" not in log


def test_values_reach_commands_as_variables_and_never_as_text_of_the_shell(tmp_path: Path) -> None:
    config = """
jobs:
  a:
    matrix: {v: ["$(touch ../hit)", "`touch ../hit`; touch ../hit"]}
    env: {OWN: "{v}; touch ../hit"}
    steps: ['echo "{v} $MATRIX_V $OWN"']
"""
    place = make_repository(tmp_path / "shop", config)
    say = ci(place)
    assert say("run", "--branch", "$(touch ../hit)").code == 0
    assert "{v} $(touch ../hit) $(touch ../hit); touch ../hit" in say("log").out
    assert list(tmp_path.rglob("hit")) == []


def test_a_step_that_fails_ends_the_job_and_what_comes_after_it_is_cancelled(tmp_path: Path) -> None:
    config = """
jobs:
  a: {steps: ["exit 3", "echo never"], after: ["echo afterwards"]}
  b: {steps: ["true"], needs: [a]}
  c: {steps: ["true"]}
"""
    say = ci(make_repository(tmp_path / "shop", config))
    done = say("run", "--json")
    assert (done.code, states(done)) == (1, {"a": "FAILED", "b": "CANCELED", "c": "SUCCEEDED"})
    assert "echo afterwards" in say("log", "a").out
    assert "echo never" not in say("log", "a").out
    assert "it needs 'a', which is FAILED" in say("why", "b").out


def test_what_runs_afterwards_does_not_hide_the_lines_of_the_step_that_failed(tmp_path: Path) -> None:
    config = """
jobs:
  a:
    steps: [echo first, {name: second, run: seq 100; exit 3}]
    after: [seq 1000 1100, "echo the step; exit 5"]
"""
    lines = ci(make_repository(tmp_path / "shop", config))("run").out.splitlines()
    begin = lines.index("── a: FAILED")
    assert lines[begin + 1 : begin + 43] == [
        *(f"  {number}" for number in range(62, 101)), "  the step 'second' ended with exit code 3",
        "── step: the step 'second' ended with exit code 3: 100", "── alone: interlock ci run a",
    ]  # fmt: skip


def test_the_command_timeout_is_a_timeout_and_an_exit_code_that_is_named_is_tried_again(tmp_path: Path) -> None:
    config = """
jobs:
  a: {steps: [timeout 0.1 sleep 9], retries: {exit: {124: 1}}}
  b: {steps: [timeout 0.1 sleep 9], retries: {timeout: 1, exit: {124: 5}}}
"""
    done = ci(make_repository(tmp_path / "shop", config))("run", "--json")
    assert classes(done) == {"a": ["timeout"] * 2, "b": ["timeout"] * 2}
    last = json.loads(done.out)["jobs"][0]["attempts"][-1]
    assert (last["outcome"], last["fault"], last["step"], last["confidence"] > 0) == ("failure", "USER", "step 1", True)


def test_artifacts_are_handed_out_for_as_long_as_the_config_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = """
jobs:
  a: {steps: ["true"], artifacts: [{name: short, paths: [x], keep: 1h}, {name: long, paths: [x]}]}
  b: {steps: ["true"], artifacts: [{name: other, paths: [x]}]}
"""
    place = make_repository(tmp_path / "shop", config, {"x": "1"})
    say = ci(place)
    say("run")
    assert {row[0] for row in say("artifacts").rows} == {"short", "long", "other"}
    for module in ("interlock.cli.ci_kept", "interlock.worker.ci_planning"):  # two hours later
        monkeypatch.setattr(f"{module}.find_kept_until", lambda *facts: find_kept_until(*facts) - 2 * HOUR_US)
    assert [row[0] for row in say("artifacts").rows] == ["long", "other"]
    gone = say("artifacts", "short")
    assert (gone.code, gone.err) == (2, "there is no artifact 'short'; there are long, other")
    assert classes(say("run", "--json")) == {"a": ["success"], "b": ["reused"]}


def test_a_plan_says_what_a_run_of_it_would_take_over(tmp_path: Path) -> None:
    place = make_repository(tmp_path / "shop", "jobs: {a: {steps: [echo a]}, b: {steps: [exit 1]}}")
    say = ci(place)
    assert [row[:2] for row in say("plan", "--explain").rows[1:]] == [["a", "runs"], ["b", "runs"]]
    say("run")
    (reused, runs) = say("plan", "--explain").rows[1:]
    assert (reused[0], reused[1].startswith("reuses ci_job_"), runs[:2]) == ("a", True, ["b", "runs"])
    assert say("plan", "--json").json["reused"] == ["a"]


def test_a_run_of_files_that_are_gone_is_a_sentence(tmp_path: Path) -> None:
    place = make_repository(tmp_path / "shop", "jobs: {a: {steps: [echo a]}}")
    write_files(place, {"new": "only in the commit of the run"})
    say = ci(place)
    shown = json.loads(say("run", "--json").out)
    git(place, "update-ref", "-d", f"refs/interlock/ci/{shown['id']}")
    git(place, "reflog", "expire", "--expire=now", "--all")
    git(place, "gc", "--quiet", "--prune=now")
    for words in (["rerun"], ["retry", "a"]):
        done = say(*words)
        assert (done.code, done.err) == (
            2,
            f"the commit {shown['commit'][:12]} of {shown['id']} is gone; `interlock ci run` runs the files that there are",
        )
    assert len(say("list").rows) == 1  # nothing was begun


def test_a_run_is_done_again_with_its_plan_and_keeps_what_succeeded(tmp_path: Path) -> None:
    config = """
jobs:
  a: {steps: ["true"], artifacts: [{name: a, paths: [x]}]}
  b: {steps: ["test -e $MARK"], needs: [a], secrets: [MARK]}
  c: {steps: ["true"], needs: [b]}
"""
    mark = tmp_path / "mark"
    place = make_repository(tmp_path / "shop", config, {"x": "1"})
    say = ci(place, MARK=str(mark))
    first = json.loads(say("run", "--json").out)
    assert first["outcome"] == "failure"
    mark.write_text("")
    write_files(place, {"x": "changed since"})
    second = say("rerun", "--failed", "--json")
    shown = json.loads(second.out)
    assert (second.code, shown["retry_of"], shown["plan_hash"]) == (0, first["id"], first["plan_hash"])
    assert shown["commit"] == first["commit"]
    assert classes(second) == {"a": ["reused"], "b": ["success"], "c": ["success"]}
    assert classes(say("retry", "b", "--json")) == {"a": ["reused"], "b": ["success"], "c": ["success"]}
    assert classes(say("rerun", first["id"], "--json")) == {"a": ["success"], "b": ["success"], "c": ["success"]}
    gone = say("rerun", "ci_run_zzz")
    assert (gone.code, gone.err.startswith("there is no run 'ci_run_zzz' in this repository")) == (2, True)
    check_record(place)


def test_a_repository_without_a_config_is_run_by_what_it_holds(tmp_path: Path) -> None:
    place = tmp_path / "shop"
    place.mkdir()
    git(place, "init", "--quiet", "--initial-branch=main")
    commit_files(place, {"Makefile": "build:\n\ttrue\ntest:\n\techo tested\n"}, "first")
    say = ci(place)
    done = say("run", "--json")
    assert (done.code, states(done)) == (0, {"build": "SUCCEEDED", "test": "SUCCEEDED"})
    assert "tested" in say("log", "test").out


def test_a_repository_that_cannot_be_run_is_a_sentence(tmp_path: Path) -> None:
    for make, why in (
        (["init", "--quiet", "--bare"], "is a bare repository, which has no files to check; go to a clone of it"),
        (["init", "--quiet"], "is empty; add files and commit them"),
    ):
        place = tmp_path / make[-1].strip("-")
        place.mkdir()
        git(place, *make)
        done = ci(place)("run")
        assert (done.code, why in done.err) == (2, True)
    none = ci(tmp_path / "tmp")("run")
    assert (none.code, "is in no git repository" in none.err) == (2, True)
    for words in (["list"], ["show"], ["log"], ["why", "a"], ["cancel"], ["rerun"], ["retry", "a"], ["artifacts"]):
        done = ci(tmp_path / "quiet")(*words)
        if words != ["list"]:
            assert (done.code, done.err) == (
                2, "there is no run in this repository yet; `interlock ci run` makes one"
            ), words  # fmt: skip


def test_old_runs_are_moved_to_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.cli.ci_local.RUNS_KEPT", 1)
    monkeypatch.setattr("interlock.cli.ci_local.ARCHIVED_AT_ONCE", 2)
    place = make_repository(tmp_path / "shop", GREEN, {"src/a.c": "1", "new.c": "2"})
    say = ci(place)
    first, second, third = (json.loads(say("run", "--json").out)["id"] for _ in range(3))
    assert [row[0] for row in say("list").rows] == [third]
    assert [path.name for path in (place / ".git/interlock/old").glob("*.jsonl")] == [f"{second}.jsonl"]
    assert git(place, "for-each-ref", "--format=%(refname)", "refs/interlock").split() == [f"refs/interlock/ci/{third}"]
    gone = say("show", first)
    assert (gone.code, gone.err.startswith(f"there is no run '{first}'")) == (2, True)
    check_record(place)


# Steps that behave badly.

HOSTILE = {
    "ignores-term": ("trap '' TERM; sleep 600", "timeout"),
    "daemon": ("setsid sleep 600 &", "success"),
    "second-fork": ("(setsid sh -c 'sleep 600 & exit' &)", "success"),
    "many": ("for i in $(seq 60); do sleep 600 & done", "success"),
    "stopped": ("kill -STOP $$", "timeout"),
    "fills-pipe": ("yes", "timeout"),
    "no-output": ("exec >&- 2>&-; sleep 600", "timeout"),
    "no-newline": ("head -c 30000000 /dev/zero | tr '\\0' x", "success"),
    "binary": ("head -c 100000 /dev/urandom", "success"),
    "disk-full": ("echo x > /dev/full", "infra"),
    "killed": ("kill -KILL $$", "memory"),
    "no-such-command": ("no-such-command-anywhere", "step"),
    "reads": ("cat; read line", "step"),
    "removes-itself": ("rm -rf .git; rm -rf -- *; rm -rf -- $PWD", "success"),
    "locks-itself-out": ("mkdir -p a/b; chmod 0 a", "success"),
    "kills-its-parent": ("kill -KILL $PPID; sleep 600", "infra"),
    # Two more for each, down to 1,024: so many that the limit ends it, and no more than a machine bears without one.
    "forks": ("forks() { [ $1 -eq 10 ] || { forks $(($1+1)) & forks $(($1+1)) & }; sleep 600; }; forks 0", "step"),
    "forks-sessions": (
        "echo '[ $1 -eq 10 ] || { setsid sh f $(($1+1)) & setsid sh f $(($1+1)) & }; sleep 600' > f; sh f 0", "step",
    ),
}  # fmt: skip
PROCESSES = 100  # that a step may have, of which "many" has 60 and is left alone


@pytest.mark.req("R4-67")
def test_a_step_that_behaves_badly_ends_in_its_time_and_leaves_no_process(tmp_path: Path) -> None:
    jobs = "".join(
        f"  {name}: {{steps: [{json.dumps(text)}], timeout: 5s, cancel_within: 2s, retries: {{runner: 0}}, "
        f"processes: {PROCESSES}}}\n"
        for name, (text, _) in HOSTILE.items()
    )
    place = make_repository(tmp_path / "shop", f"jobs:\n{jobs}", {"a.c": "1"})
    say = ci(place)
    done = say("run", "--json", "-j", "4")
    assert classes(done) == {name: [kind] for name, (_, kind) in HOSTILE.items()}
    commit = json.loads(done.out)["commit"]
    wait_until(lambda: processes_of(commit) == [])  # of one that killed its parent, nobody holds what it left
    assert left_over(place) == []
    assert list(Path(os.environ["TMPDIR"]).rglob("*ci_attempt*")) == []
    assert "processes were left behind and killed" in say("log", "many").out
    for name in ("forks", "forks-sessions"):
        assert f"{PROCESSES} processes are allowed at a time" in say("log", name).out
        assert (
            "the step 'step 1' had more processes at a time than it may, and was ended by SIGKILL"
            in say("log", name).out
        )
    check_record(place)


def test_submodules_and_large_files_get_a_sentence(tmp_path: Path) -> None:
    other = make_repository(tmp_path / "other", "jobs: {a: {steps: [x]}}")
    place = make_repository(tmp_path / "shop", "jobs: {a: {steps: [ls sub]}}", {".gitattributes": "*.bin filter=lfs\n"})
    git(place, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other), "sub")
    out = ci(place)("run").out.splitlines()
    assert out[0].startswith("note: submodules are empty folders in jobs (sub); ")
    assert out[1].startswith("note: files of Git LFS are pointers in jobs; ")


# By a process of its own, which is told to stop or killed.

SLOW = """
jobs:
  slow:
    steps: ["trap 'echo got-term; exit 9' TERM; echo $$ > ../pid-slow; sleep 600 & wait"]
    after: [echo cleaned up]
    cancel_within: 20s
  deaf: {steps: ["trap '' TERM; echo $$ > ../pid-deaf; setsid sleep 600 & sleep 600"], cancel_within: 4s}
"""


class Running:
    """`interlock ci run` as a process, with two steps that have begun."""

    def __init__(self, place: Path, *options: str, ignored: tuple[signal.Signals, ...] = ()) -> None:
        """`ignored`: signals that whoever starts it has it ignore."""
        self.place = place
        words = [str(COMMAND), "ci", "run", "-C", str(place), *options]
        self.process = subprocess.Popen(
            words, stdout=subprocess.PIPE, text=True, stderr=subprocess.STDOUT,
            preexec_fn=lambda: [signal.signal(number, signal.SIG_IGN) for number in ignored],
        )  # fmt: skip
        tmp = Path(os.environ["TMPDIR"])
        wait_until(lambda: len(list(tmp.rglob("pid-*"))) == 2)
        wait_until(lambda: all(path.read_text().strip() for path in tmp.rglob("pid-*")))
        self.pids = [int(path.read_text()) for path in tmp.rglob("pid-*")]

    def end(self) -> tuple[int, str]:
        out, _ = self.process.communicate(timeout=120)
        return self.process.returncode, out

    def are_gone(self) -> bool:
        return not any(Path(f"/proc/{pid}").exists() for pid in self.pids)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    started = Running(make_repository(tmp_path / "shop", SLOW))
    yield started
    if started.process.poll() is None:
        started.process.kill()
        started.process.communicate()


@pytest.mark.req("R4-17", "R4-34", "R4-67")
def test_an_interrupt_cancels_in_two_phases(running: Running) -> None:
    running.process.send_signal(signal.SIGINT)
    code, out = running.end()
    assert (code, "stopping; press Ctrl-C again to stop immediately" in out) == (130, True)
    assert running.are_gone()
    say = ci(running.place)
    assert [row[1:3] for row in say("show").rows[1:]] == [["cancelled", "CANCELED"]] * 2
    assert classes(say("show", "--json")) == {"slow": ["cancelled"], "deaf": ["cancelled"]}
    assert {row[3] for row in say("show").rows[1:]} == {"it was cancelled: interrupted"}
    assert [line for line in say("log", "slow").out.splitlines() if "$" not in line] == ["got-term", "cleaned up"]
    assert left_over(running.place) == []
    check_record(running.place)


def test_a_second_interrupt_waits_for_nobody(running: Running) -> None:
    running.process.send_signal(signal.SIGINT)
    assert running.process.stdout
    while "stopping" not in running.process.stdout.readline():
        pass
    running.process.send_signal(signal.SIGINT)
    code, out = running.end()
    assert (code, "stopping immediately" in out) == (130, True)
    assert running.are_gone()
    assert left_over(running.place) == []
    check_record(running.place)


def test_an_interrupt_while_a_run_is_made_cancels_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def submit_and_interrupt(*facts: Any) -> int:
        run = submit_run(*facts)
        signal.raise_signal(signal.SIGINT)
        return run

    monkeypatch.setattr("interlock.cli.ci_run.submit_run", submit_and_interrupt)
    place = make_repository(tmp_path / "shop", "jobs: {a: {steps: [sleep 600]}}")
    say = ci(place)
    try:
        done = say("run")
    except KeyboardInterrupt:
        pytest.fail("the run was left as it was")
    assert (done.code, "stopping; press Ctrl-C again" in done.out) == (130, True)
    assert [row[1:3] for row in say("list").rows] == [["cancelled", "REPORTED"]]
    check_record(place)


def test_a_signal_that_the_starter_has_it_ignore_stops_nothing(tmp_path: Path) -> None:
    """`nohup` and a shell's background do that; were one of them obeyed, the last signal would be a second one."""
    ignored = (signal.SIGHUP, signal.SIGINT)
    running = Running(make_repository(tmp_path / "shop", SLOW), ignored=ignored)
    try:
        for number in (*ignored, signal.SIGTERM):
            running.process.send_signal(number)
        code, out = running.end()
    finally:
        running.process.kill()
    assert (code, "stopping; press Ctrl-C again" in out, "stopping immediately" in out) == (130, True, False)
    check_record(running.place)


@pytest.mark.req("R4-67", "R4-70", "R4-64")
def test_a_run_that_was_killed_is_ended_by_the_next_command(running: Running) -> None:
    running.process.kill()
    running.end()
    wait_until(running.are_gone)  # its supervisors hold nothing that nobody waits for
    assert len(left_over(running.place)) == 2
    say = ci(running.place)
    assert [row[1:3] for row in say("list").rows] == [["cancelled", "REPORTED"]]
    assert [row[1:3] for row in say("show").rows[1:]] == [["cancelled", "CANCELED"]] * 2
    assert left_over(running.place) == []
    assert list(Path(os.environ["TMPDIR"]).rglob("*ci_attempt*")) == []
    check_record(running.place)


@pytest.mark.req("R4-67")
@pytest.mark.parametrize("command", [["list"], ["plan"], ["lint"], ["run", "none-such"]], ids=lambda words: words[0])
def test_what_the_killed_supervisors_of_a_killed_run_held_is_ended_too(running: Running, command: list[str]) -> None:
    """`deaf` has put a process into a session of its own, which nobody holds when its supervisor is gone as well."""
    children = Path(f"/proc/{running.process.pid}/task").glob("*/children")
    supervisors = [int(pid) for path in children for pid in path.read_text().split()]
    commit = git(running.place, "rev-parse", "refs/interlock/ci/ci_run_1")
    assert len(supervisors) == 2
    running.process.send_signal(signal.SIGSTOP)  # so that it sees none of them end
    for pid in supervisors:
        os.kill(pid, signal.SIGKILL)
    running.process.kill()
    running.end()
    assert processes_of(commit) != []
    ci(running.place)(*command)
    assert processes_of(commit) == []
    assert left_over(running.place) == []
    check_record(running.place)


SUPERSEDING = """
run: {supersede: WHICH}
jobs: {a: {steps: ["test -e done || { echo $$ > ../pid-a; echo $$ > ../pid-b; sleep 600; }"], cancel_within: 4s}}
"""


@pytest.mark.parametrize(
    ("which", "event", "cancelled"),
    [("always", "manual", True), ("pull_request", "pull_request", True), ("never", "manual", False)],
)
def test_a_new_run_cancels_the_older_ones_of_its_branch_if_the_config_says_so(
    which: str, event: str, cancelled: bool, tmp_path: Path
) -> None:
    running = Running(make_repository(tmp_path / "shop", SUPERSEDING.replace("WHICH", which)), "--event", event)
    try:
        write_files(running.place, {"done": ""})
        say = ci(running.place)
        assert say("run", "--event", event, "--branch", "other").code == 0
        assert say("run", "--event", "push").code == 0  # neither is one of its branch and event
        assert running.process.poll() is None
        assert say("run", "--event", event).code == 0
        if not cancelled:
            running.process.send_signal(signal.SIGINT)
        assert running.end()[0] == 130
        superseded = "it was cancelled: SUPERSEDED by ci_run_"
        assert (superseded in say("show", "ci_run_1").out) is cancelled
        check_record(running.place)
    finally:
        running.process.kill()
        running.process.communicate()


def test_another_terminal_sees_a_run_and_cancels_it(running: Running) -> None:
    say = ci(running.place)
    assert [row[1:3] for row in say("list").rows] == [["-", "RUNNING"]]
    again = say("rerun")
    assert (again.code, "has not ended" in again.err) == (2, True)
    assert say("cancel", "--job", "deaf").code == 0
    assert say("cancel", "--reason", "wrong branch").out.startswith("ci_run_1 was asked to stop; it is ")
    code, _ = running.end()
    assert (code, running.are_gone()) == (130, True)
    late = say("cancel")
    assert (late.code, late.err) == (2, "ci_run_1 has ended; it was cancelled")
