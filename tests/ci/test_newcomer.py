"""The first minutes: repositories of several languages without a config, which are as they were afterwards."""

import json
import os
from pathlib import Path

import pytest

from tests.ci.repositories import ci, fingerprint, states
from tests.git.repositories import commit_files, git, write_files

SUM = "import unittest\nfrom shop import add\n\n\nclass T(unittest.TestCase):\n    def test_add(self): self.assertEqual(add(1, 2), {})\n"
PYTHON = {"shop.py": "def add(a, b): return a + b\n", "tests/test_shop.py": SUM.format(3)}
NODE = {"package.json": json.dumps({"scripts": {"test": "node --test", "lint": "eslint ."}}), "package-lock.json": "{}"}
MAKE = {"Makefile": "all: shop\nshop:\n\techo built > shop\ntest: shop\n\tgrep built shop\n"}
GREEN, SHELL = "SUCCEEDED", '#!/bin/bash\nparts=(a b)\necho "${parts[@]}"\n'
REPOSITORIES = {
    "python": (PYTHON, {"build": GREEN, "test": GREEN}),
    "node": (NODE, {"build": GREEN, "test": GREEN, "lint": GREEN}),
    "go": ({"go.mod": "module shop\n", "shop.go": "package shop\n"}, {"build": GREEN, "test": GREEN, "lint": GREEN}),
    "rust": ({"Cargo.toml": "", "src/lib.rs": ""}, {"build": GREEN, "test": GREEN, "lint": GREEN}),
    "shell": ({"bin/run.sh": SHELL}, {"lint": GREEN}),
    "make": (MAKE, {"build": GREEN, "test": GREEN}),
}


@pytest.fixture(autouse=True)
def _tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tools that a machine may lack, which do nothing and succeed, and a folder for worktrees."""
    for name in ("npm", "go", "cargo"):
        write_files(tmp_path / "bin", {name: '#!/bin/sh\necho $0 "$@"\n'})
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")


def make_plain(folder: Path, files: dict[str, str]) -> Path:
    """A repository without a config, with a file that is staged, one that is changed and a new one."""
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    commit_files(folder, {**files, "notes": "1", "staged": "1"}, "first")
    write_files(folder, {"staged": "2", "notes": "2", "new": "1"})
    git(folder, "add", "staged")
    return folder


@pytest.mark.parametrize(("files", "jobs"), REPOSITORIES.values(), ids=REPOSITORIES)
def test_a_repository_without_a_config_is_checked_and_stays_as_it_is(
    files: dict[str, str], jobs: dict[str, str], tmp_path: Path
) -> None:
    place = make_plain(tmp_path / "shop", files)
    asked = (("status", "--porcelain"), ("reflog",), ("rev-parse", "HEAD"), ("branch", "--all"), ("stash", "list"))
    before, told = fingerprint(place), [git(place, *words) for words in asked]
    say = ci(place)
    done = say("run", "--json")
    assert (done.code, states(done)) == (0, jobs)
    for words in (["plan", "--explain"], ["list"], ["show"], ["log"], ["tests"], ["artifacts"]):
        assert say(*words).code == 0
    assert fingerprint(place) == before
    assert [git(place, *words) for words in asked] == told


BROKEN = {
    "a test in a folder that is no package": {**PYTHON, "tests/test_shop.py": SUM.format(4)},
    "a script that is all there is": {"bin/run.sh": SHELL + "if\n"},
    "a target": {"Makefile": "test:\n\tfalse\n"},
    "a module that cannot be read": {"shop.py": "def add(:\n"},
}


@pytest.mark.parametrize("files", BROKEN.values(), ids=BROKEN)
def test_what_is_broken_is_not_green(files: dict[str, str], tmp_path: Path) -> None:
    assert ci(make_plain(tmp_path / "shop", files))("run", "--json").code == 1


def test_what_git_ignores_for_a_user_stays_out_as_what_the_repository_ignores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = make_plain(tmp_path / "shop", {"Makefile": "test:\n\ttest ! -e .env -a ! -e a.o\n", ".gitignore": "*.o\n"})
    write_files(place, {".env": "KEY=1", "a.o": "x"})
    homes = {
        "named": {".gitconfig": "[core]\n\texcludesFile = ~/mine\n", "mine": ".env\n"},
        "usual": {".config/git/ignore": ".env\n"},
        "none": {".gitconfig": "[user]\n\tname = ann\n"},
    }
    codes = {}
    for name, files in homes.items():
        write_files(tmp_path / name, files)
        monkeypatch.setenv("HOME", str(tmp_path / name))
        monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
        codes[name] = ci(place)("run", "--json").code
    assert codes == {"named": 0, "usual": 0, "none": 1}
