"""Repositories with a config, and runs of it inside the test's own process."""

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import interlock
from interlock.client.app import App
from tests.cli.inside import Ask, Done, inside
from tests.git.repositories import commit_files, git

Runs = Callable[..., Done]


def make_repository(folder: Path, config: str, files: dict[str, str] | None = None) -> Path:
    """A repository with a commit on main that has this config."""
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    commit_files(folder, {".interlock/ci.yaml": config, ".gitignore": "*.o\n", **(files or {})}, "first")
    return folder


def ci(folder: Path, **env: str) -> Runs:
    """A way to say `interlock ci` in a repository."""
    ask: Ask = inside("sqlite:///none.db", **env)
    return lambda *words, **more: ask("ci", *words, "-C", str(folder), **more)


def states(done: Done) -> dict[str, str]:
    """The jobs of a run that was printed as JSON, with their states."""
    return {job["name"]: job["state"] for job in json.loads(done.out)["jobs"]}


def classes(done: Done) -> dict[str, list[Any]]:
    """The jobs of a run, with the classes of their attempts."""
    return {job["name"]: [each["class"] for each in job["attempts"]] for job in json.loads(done.out)["jobs"]}


def fingerprint(folder: Path) -> dict[str, str]:
    """All files of a repository, those of git too but for its objects and what belongs to the runs."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink())
    ours = ("objects", "interlock", "worktrees")
    kept = (path for path in files if ".git" not in path.parts or not {*path.parts} & {*ours})
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in kept}


def open_runs(folder: Path) -> App:
    """The database of a repository's runs."""
    return interlock.open(f"sqlite:///{folder}/.git/interlock/ci.db")


def wait_until(true: Callable[[], object]) -> None:
    """Waits for something that is about to be true. Raises AssertionError if it does not become so."""
    until = time.monotonic() + 120
    while not true():
        assert time.monotonic() < until, "it did not become true"
        time.sleep(0.05)
