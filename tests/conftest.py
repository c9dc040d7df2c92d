"""What all suites share: the real command, and the rule that a test for a requirement is never skipped."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from interlock.store import migrate
from tests.postgres.server import find_memory, postgres
from tests.store.databases import upgrade_by_copy, upgrade_with_tables

ROOT = Path(__file__).parent.parent
COMMAND = Path(sys.executable).parent / "interlock"
Run = Callable[..., subprocess.CompletedProcess[str]]
OTHER_DATABASES = ("sqlite", "http")  # a server of a test's own has a SQLite file, unless it says otherwise
IN_MEMORY = ("client", "core", "corpus", "engine", "plugins", "property", "store")  # folders that write much
BY_COPY = ("cli", "client", "server", "testing", "worker")  # folders of tests that open a fresh store each
TERMINAL = {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "200"}  # whose width and colours change nothing

# A shell without job control has what it puts into the background ignore Ctrl-C, and each program that tests start would
# inherit that: what they show must not depend on how they were started.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def interlock() -> Run:
    """The installed command, as a user runs it."""
    return run_command


def run_command(*args: str | Path, cwd: Path = ROOT, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs the installed command in a process of its own."""
    command = [str(COMMAND), *map(str, args)]
    env = {**os.environ, **TERMINAL}
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False, **options)


@pytest.fixture(scope="session")
def running_postgres() -> Iterator[str]:
    """The URL of a real PostgreSQL that lives as long as the session."""
    with postgres(in_memory=True) as url:
        yield url


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A folder of a test's own. Where many stores are written, it is in memory: a disk takes long to sync each commit."""
    memory = find_memory() if request.path.relative_to(ROOT / "tests").parts[0] in IN_MEMORY else None
    if memory is None:
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(prefix="interlock-test-", dir=memory))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def server(request: pytest.FixtureRequest) -> str:
    """The URL of that PostgreSQL; empty for a test whose parameters name another database, which never waits for it."""
    params = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    kinds = [kind for kind in params.values() if isinstance(kind, str)]
    if any(kind.startswith(OTHER_DATABASES) for kind in kinds) and not any("postgres" in kind for kind in kinds):
        return ""
    url: str = request.getfixturevalue("running_postgres")
    return url


@pytest.fixture(autouse=True)
def copied_schema(request: pytest.FixtureRequest) -> Iterator[None]:
    """Where many stores are opened, a fresh SQLite database is copied from one that was upgraded in this process."""
    with pytest.MonkeyPatch.context() as patch:
        if any(request.path.is_relative_to(ROOT / "tests" / folder) for folder in BY_COPY):
            patch.setattr(migrate, "upgrade", upgrade_by_copy)
        else:
            patch.setattr(migrate, "upgrade", upgrade_with_tables)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A skipped test shows nothing, so one that serves a requirement fails instead."""
    report = yield
    if report.skipped and item.get_closest_marker("req"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} serves a requirement and was skipped"
    return report
