"""The command as a user runs it: what it prints, where, and its exit codes."""

import io
import json
import os
import subprocess
from pathlib import Path

import pytest

from interlock.cli import validate_log
from interlock.kernel.errors import InterlockError
from tests.cli.inside import called
from tests.conftest import COMMAND, Run
from tests.lifecycles.sample import PARCEL
from tests.validate_log.logs import EXTENSION, FINISH, PASS, QUEUE, RETRY, START, line, text

WHOLE = [line(at, "t1", move) for at, move in enumerate([QUEUE, START, FINISH, PASS])]
ILLEGAL = line(0, "t1", ("running", "completed", "execution_completed"))


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.jsonl"
    path.write_text(text(WHOLE))
    return path


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    path = tmp_path / "bad.jsonl"
    path.write_text(text([WHOLE[0], ILLEGAL | {"entity_id": "t2"}]) + "nonsense\n")
    return path


@pytest.mark.req("R3-52")
def test_a_good_log_exits_with_0(interlock: Run, good: Path) -> None:
    done = interlock("validate-log", good)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{good}: 4 lines checked, no problems found\n"


@pytest.mark.req("R3-52", "R3-53")
def test_a_bad_log_exits_with_1_and_each_finding_has_its_line(interlock: Run, bad: Path) -> None:
    done = interlock("validate-log", bad)
    assert (done.returncode, done.stderr) == (1, "")
    illegal, nonsense, summary = done.stdout.splitlines()
    assert illegal.startswith(
        f"{bad}:2: [legality] t2: running -> completed by execution_completed is not a listed move; "
        "legal from running: validating by execution_completed, "
    )
    assert nonsense.startswith(f"{bad}:3: [schema] it is not JSON that can be read: ")
    assert summary == f"{bad}: 3 lines checked, 2 problems found, 1 of 2 entities first seen in mid-life"


@pytest.mark.req("R3-52")
@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["missing.jsonl"], "missing.jsonl: cannot be read: No such file or directory"),
        (["."], ".: cannot be read: Is a directory"),
        ([], "Missing argument"),
        (["--colour", "x"], "No such option"),
        (["--max-retries", "-1", "x"], "--max-retries"),
        (["a", "b"], "unexpected extra argument"),
        (["--lifecycle", "missing.toml", "x"], "missing.toml: cannot be read"),
        (["--lifecycle", "nobody", "x"], "there is no lifecycle 'nobody'"),
    ],
)
def test_wrong_use_exits_with_2_and_a_sentence(tmp_path: Path, args: list[str], said: str) -> None:
    done = called("validate-log", *args, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_an_empty_log_is_fine() -> None:
    done = called("validate-log", "/dev/null")
    assert (done.returncode, done.stdout) == (0, "/dev/null: 0 lines checked, no problems found\n")


def test_lives_that_began_before_the_log_are_counted(interlock: Run) -> None:
    done = interlock("validate-log", "-", input=text(WHOLE[1:]))
    assert done.stdout == "-: 3 lines checked, no problems found, 1 of 1 entities first seen in mid-life\n"


def test_standard_input(interlock: Run) -> None:
    done = interlock("validate-log", "-", input=text([ILLEGAL]))
    assert done.returncode == 1
    assert done.stdout.startswith("-:1: [legality] t1: running -> completed by execution_completed is not a listed")
    assert done.stdout.endswith("\n-: 1 line checked, 1 problem found, 1 of 1 entities first seen in mid-life\n")


def test_a_named_pipe(interlock: Run, good: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["sh", "-c", 'cat "$0" > "$1"', good, pipe]):
        done = interlock("validate-log", pipe)
    assert (done.returncode, done.stdout) == (0, f"{pipe}: 4 lines checked, no problems found\n")


def test_a_closed_input_is_a_sentence() -> None:
    command = ["sh", "-c", '"$0" validate-log - <&-', COMMAND]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "interlock: -: cannot be read: Bad file descriptor\n")


@pytest.mark.parametrize(("error", "said"), [(MemoryError(), "out of memory"), (OSError(5, "I/O error"), "I/O error")])
def test_a_check_that_cannot_go_on_says_how_far_it_came(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(io.BytesIO):
        def readline(self, size: int | None = -1, /) -> bytes:
            if raw := super().readline(size):
                return raw
            raise error

    monkeypatch.setattr(validate_log, "open_log", lambda file: Failing(text(WHOLE).encode()))
    with pytest.raises(InterlockError, match=f"^x: stopped after line 4: {said}$"):
        validate_log.validate_log("x")


def test_whoever_reads_the_findings_may_stop_early(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text("nonsense\n" * 100_000)
    with subprocess.Popen(
        [COMMAND, "validate-log", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        assert process.stderr
        assert "[schema]" in process.stdout.readline()
        process.stdout.close()
        assert "Traceback" not in process.stderr.read()


@pytest.mark.req("R3-52", "R3-55")
def test_json(interlock: Run, bad: Path) -> None:
    done = interlock("validate-log", "--json", bad)
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert list(report) == ["file", "findings", "lines", "entities", "first_seen_in_mid_life", "not_followed", "ok"]
    assert (report["file"], report["lines"], report["entities"], report["ok"]) == (str(bad), 3, 2, False)
    assert (report["first_seen_in_mid_life"], report["not_followed"]) == (1, 0)
    illegal, nonsense = report["findings"]
    assert list(illegal) == ["line", "rule", "entity", "message", "legal"]
    assert (illegal["line"], illegal["rule"], illegal["entity"]) == (2, "legality", "t2")
    assert illegal["legal"][0] == "validating by execution_completed"
    assert (nonsense["line"], nonsense["rule"], nonsense["entity"], nonsense["legal"]) == (3, "schema", "", [])


def test_json_of_a_good_log(good: Path) -> None:
    report = json.loads(called("validate-log", "--json", good).stdout)
    assert (report["findings"], report["lines"], report["ok"]) == ([], 4, True)


def test_the_options_reach_the_checker(interlock: Run, tmp_path: Path) -> None:
    cases = [
        (["--strict"], [line(0, "t1", EXTENSION)], "is not in document 003"),
        (["--from-birth"], [line(0, "t1", START)], "a life begins in pending"),
        (["--max-retries", "0"], [line(0, "t1", RETRY) | {"severity": "warning"}], "above --max-retries 0"),
    ]
    for options, lines, said in cases:
        assert interlock("validate-log", "-", input=text(lines)).returncode == 0
        done = interlock("validate-log", *options, "-", input=text(lines))
        assert done.returncode == 1
        assert said in done.stdout


def test_lifecycles_of_ones_own_and_shipped_ones_can_be_added(interlock: Run, tmp_path: Path) -> None:
    (tmp_path / "parcel.toml").write_text(PARCEL)
    parcel = {"event_type": "parcel_state_transition", "from_state": "waiting", "to_state": "nowhere"}
    done = interlock("validate-log", "--lifecycle", tmp_path / "parcel.toml", "-", input=text([WHOLE[0] | parcel]))
    assert "'nowhere' is not a state of a parcel; there are waiting, packed" in done.stdout
    job = {"event_type": "job_state_transition", "from_state": "x", "to_state": "y"}
    args = ["--lifecycle", tmp_path / "parcel.toml", "--lifecycle", "job"]
    done = interlock("validate-log", *args, "-", input=text([WHOLE[0] | parcel, WHOLE[0] | job]))
    assert "not a state of a parcel" in done.stdout
    assert "not a state of a job" in done.stdout


def test_any_letter_can_be_printed_anywhere(interlock: Run) -> None:
    log = text([ILLEGAL | {"entity_id": "täsk-✓"}])
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    done = subprocess.run(
        [COMMAND, "validate-log", "-"], input=log, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "t\\xe4sk-\\u2713" in done.stdout
