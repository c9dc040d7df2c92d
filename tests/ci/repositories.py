"""Repositories with a config, and runs of it inside the test's own process."""

import contextlib
import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import interlock
from interlock.audit.laws import audit
from interlock.client.app import App
from interlock.kernel.lifecycle import Category
from interlock.plugins.ci.queries import list_ci_attempts, list_ci_jobs, list_ci_runs
from interlock.store.queries.views import Filter, events_of, listing
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


def check_record(folder: Path) -> None:
    """Every law holds, every move is listed, nothing is open, and a job is what its last attempt is (R4-18, R4-64, R4-70)."""
    with open_runs(folder) as app:
        assert app.engine.read(lambda connection: list(audit(connection, app.lifecycles, laws=app.registry.laws))) == []
        rows = app.read(listing, Filter(), 1_000)
        assert {row.unit.outcome for row in rows} <= {Category.SUCCESS, Category.FAILURE, Category.CANCELLED}
        for row in rows:
            lifecycle = app.lifecycles[row.unit.lifecycle]
            for event in app.read(events_of, row.unit.id):
                assert event.source is None or event.source == event.target or (
                    any(event.target in move.path for (_, _), move in lifecycle.moves.items())
                )  # fmt: skip
        for job in (job for run in app.read(list_ci_runs) for job in app.read(list_ci_jobs, run.unit)):
            *before, last = app.read(list_ci_attempts, job.unit) or [None]
            assert last is None or (last.outcome, last.unit) == (job.outcome, job.last_attempt)
            assert last is None or last.state in (job.state, "STALE")
            assert [each.outcome for each in before] == [Category.FAILURE] * len(before)


def processes_of(commit: str) -> list[str]:
    """The processes that were started for jobs of a commit, by what they got in their environment."""
    mark, named = f"INTERLOCK_COMMIT={commit}".encode(), []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark in path.read_bytes():
                named.append(path.parent.name)
    return named
