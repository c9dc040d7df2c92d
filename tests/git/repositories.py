"""Git as a person uses it, by its command and not by the library that is tested."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

PERSON = {
    "PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Ann", "GIT_AUTHOR_EMAIL": "ann@example.org",
    "GIT_COMMITTER_NAME": "Ann", "GIT_COMMITTER_EMAIL": "ann@example.org",
}  # fmt: skip


def git(folder: Path, *arguments: str) -> str:
    """Runs git as a person does, and returns what it printed."""
    done = subprocess.run(["git", *arguments], cwd=folder, env=PERSON, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.rstrip("\n")


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def commit_files(folder: Path, files: Mapping[str, str], message: str) -> str:
    """Commits files in a working tree, and returns the commit."""
    write_files(folder, files)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", message)
    return git(folder, "rev-parse", "HEAD")


def commit_on(folder: Path, branch: str, files: Mapping[str, str]) -> str:
    """Commits files on a branch that begins at main, and goes back to main."""
    git(folder, "checkout", "--quiet", "-B", branch, "main")
    commit = commit_files(folder, files, f"on {branch}")
    git(folder, "checkout", "--quiet", "main")
    return commit
