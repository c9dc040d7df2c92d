"""The command that document 003 names does what `interlock validate-log` does."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, Run
from tests.validate_log.logs import QUEUE, line, text

SCRIPT = Path("scripts/validate/validate_state_transitions.py")
# Any Python will do, so the tests take the one that knows nothing of this repository.
PYTHON = getattr(sys, "_base_executable", sys.executable)
ILLEGAL = line(0, "t1", ("running", "completed", "execution_completed"))


def python(*args: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PYTHON, *args], cwd=cwd, capture_output=True, text=True, check=False)


@pytest.mark.req("R3-52")
def test_the_command_of_the_document(interlock: Run, tmp_path: Path) -> None:
    state = tmp_path / ".state"
    state.mkdir()
    log = state / "transitions.jsonl"
    for lines, code in (([line(0, "t1", QUEUE)], 0), ([ILLEGAL], 1)):
        log.write_text(text(lines))
        done = python(ROOT / SCRIPT, ".state/transitions.jsonl", cwd=tmp_path)
        same = interlock("validate-log", ".state/transitions.jsonl", cwd=tmp_path)
        assert (done.returncode, done.stdout, done.stderr) == (same.returncode, same.stdout, same.stderr)
        assert done.returncode == code


@pytest.mark.req("R3-52")
def test_wrong_use_and_options_are_the_commands_own(tmp_path: Path) -> None:
    done = python(SCRIPT, "missing.jsonl")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "interlock: missing.jsonl: cannot be read: No such file or directory\n"
    assert python(SCRIPT).returncode == 2
    assert '"ok":true' in python(SCRIPT, "--json", "/dev/null").stdout


def elsewhere(tmp_path: Path, makefile: str) -> Path:
    """The script in a repository without an environment."""
    script = tmp_path / SCRIPT
    script.parent.mkdir(parents=True)
    shutil.copy(ROOT / SCRIPT, script)
    (tmp_path / "Makefile").write_text(makefile)
    return script


def test_a_missing_environment_is_made_first(tmp_path: Path) -> None:
    script = elsewhere(
        tmp_path,
        ".venv/.run:\n"
        "\t@echo setting up\n"
        "\t@mkdir -p .venv/bin && printf '#!/bin/sh\\necho \"$$@\"; exit 1' > .venv/bin/interlock\n"
        "\t@chmod +x .venv/bin/interlock && touch $@\n",
    )
    for said in ("setting up\n", ""):
        done = python(script, "a b", "--strict", cwd=tmp_path.parent)
        assert (done.returncode, done.stdout, done.stderr) == (1, "validate-log a b --strict\n", said)


def test_an_environment_that_cannot_be_made_is_said_in_a_sentence(tmp_path: Path) -> None:
    script = elsewhere(tmp_path, ".venv/.run:\n\t@echo no network; exit 1\n")
    done = python(script, "x")
    assert (done.returncode, done.stdout) == (2, "")
    assert "Interlock could not be set up" in done.stderr
    assert "Traceback" not in done.stderr
