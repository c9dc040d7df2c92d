"""Real repositories, made by the system's git. Without git the tests fail, and say so: `.ci/run` installs it."""

import shutil
from pathlib import Path

import pytest

from interlock.git import Repository
from tests.git.repositories import commit_files


@pytest.fixture(autouse=True)
def git_is_installed() -> None:
    assert shutil.which("git"), "git is not installed, so nothing about it can be shown; install git 2.38 or newer"


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """A repository with a working tree, where `main` is checked out with two files."""
    made = Repository.create(tmp_path / "shop", bare=False)
    commit_files(tmp_path / "shop", {"a.txt": "one\ntwo\nthree\n", "docs/b.txt": "b\n"}, "first")
    return made


@pytest.fixture
def bare(tmp_path: Path, repository: Repository) -> Repository:
    """A bare copy of it, in which no branch is checked out."""
    made = Repository.create(tmp_path / "bare.git")
    made.fetch(f"file://{tmp_path}/shop", ["refs/heads/main:refs/heads/main"], protocol="file")
    return made
