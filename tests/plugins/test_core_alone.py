"""The core's own tests pass with no plugin loaded, and nothing of the core imports one."""

import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT

# Suites that need no plugin, but for a few tests of them; on SQLite in memory.
FILES = (
    "tests/unit", *(f"tests/engine/test_{name}.py" for name in (
        "access", "ci", "claim_keys", "claim_order", "families", "jobs", "needs", "nonce", "own_lifecycle", "retention",
        "seals",
    )), "tests/core/test_positions.py", *(f"tests/store/test_{name}.py" for name in ("lanes", "replace")),
)  # fmt: skip
CHOSEN = "(memory or unit) and not postgres and not template and not rejection and not ten_thousand"
ALONE = (sys.executable, "-m", "pytest", "-p", "no:interlock", "-p", "tests.core_alone", "-p", "no:cacheprovider", "-q")


def run_alone(*words: str) -> "subprocess.CompletedProcess[str]":
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([*ALONE, *words], cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def test_the_suites_of_the_core_pass_with_no_plugin() -> None:
    done = run_alone("-k", CHOSEN, *FILES)
    assert done.returncode == pytest.ExitCode.OK, done.stdout + done.stderr
    assert int(done.stdout.splitlines()[-1].split()[0]) > 250


def test_a_core_that_imports_a_plugin_is_named(tmp_path: "os.PathLike[str]") -> None:
    file = os.path.join(tmp_path, "test_strange.py")
    with open(file, "w", encoding="utf-8") as strange:
        strange.write("from interlock.plugins.approvals.votes import vote\n")
    done = run_alone(file)
    assert done.returncode != pytest.ExitCode.OK
    assert "the core alone is tested, and imports interlock.plugins.approvals" in done.stdout
