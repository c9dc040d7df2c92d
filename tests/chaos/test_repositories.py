"""Workers that merge are killed and frozen: what completed is on the branch once, and nothing else is.

Beside them the log of all transitions is written by a process that is killed too: it has every transition once.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

import interlock
from interlock.audit.laws import audit
from interlock.git import Repository
from interlock.kernel.commands import Decide, Submit, Work
from interlock.kernel.ids import format_id
from interlock.plugins import STANDARD
from interlock.plugins.state_files.exporter import Exporter
from interlock.plugins.state_files.folder import open_folder
from interlock.store.connection import Connection
from interlock.store.queries.views import workers_seen
from tests.chaos.edits import MANY, made
from tests.conftest import COMMAND, ROOT
from tests.engine.test_state_files import LOGGED, find_problems, read_lines
from tests.git.repositories import commit_files, git
from tests.store.databases import fresh_postgres

MERGE = {"task": "git.merge", "input": '{"onto": "main"}', "losses": MANY, "attempts": MANY}
LEASE = 60.0  # seconds, of a task that nobody hurries
PATIENCE = 900.0  # seconds until a test gives up
POINTS = ("merge-tree>", "commit-tree>", "update-ref<", "update-ref>")
KINDS = ("plain", "plain", "plain", "fail", "conflict")
HOW = ("kill", "holder", "exporter", "freeze", "holder", "kill")  # and round again
SETTLED = "SELECT count(*) FROM unit WHERE outcome IS NOT NULL AND lifecycle IN ('task', 'job')"
OPEN = "SELECT count(*) FROM unit WHERE outcome IS NULL AND lifecycle IN ('task', 'workstream', 'job')"
TRANSITIONS = f"SELECT count(*) FROM event WHERE {LOGGED}"
LOG_BYTES = 64 << 20  # after which another file of the log is begun
STREAMS = "SELECT id, state FROM unit WHERE lifecycle = 'workstream' ORDER BY id"


@pytest.fixture(autouse=True)
def git_is_installed() -> None:
    if not shutil.which("git"):
        pytest.skip("git is not installed, so nothing about it can be shown; install git 2.38 or newer")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A bare repository with one file on `main`."""
    Repository.create(tmp_path / "checkout", bare=False)
    commit_files(tmp_path / "checkout", {"shared.txt": "one\n"}, "first")
    git(tmp_path, "clone", "--quiet", "--bare", "checkout", "site.git")
    return tmp_path / "site.git"


def submit_stream(app: interlock.App, number: int, kind: str) -> int:
    """Two tasks side by side, and one that needs both; of one kind, the last one fails or edits what others edit."""
    options = msgspec.json.encode({"repositories": {"repo": "site"}, "checks": {"jobs": [MERGE]}}).decode()
    work = [Work(task="all", lifecycle="workstream", ref="all", options=options)]
    for step in ("a", "b", "c"):
        own = kind if step == "c" else "plain"
        text = msgspec.json.encode({"name": f"{number}{step}", "kind": own}).decode()
        needs = ("a", "b") if step == "c" else ()
        work.append(
            Work(
                task="edit", lifecycle="task", parent="all", step=step, input=text, needs=needs, attempts=MANY,
                backoff_us=10_000, backoff_cap_us=50_000,
            )
        )  # fmt: skip
    stream = app.send(Submit(work=tuple(work)))[0].unit
    app.send(Decide(unit=stream, trigger="plan"))
    return stream


def count(app: interlock.App, sql: str) -> int:
    return int(app.read(lambda connection, tenant: connection.rows(sql)[0][0]))


def until(true: Callable[[], bool], look: Callable[[], object] = lambda: None) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        look()
        assert time.monotonic() < end, "it never became true"
        time.sleep(0.02)


class Crew:
    """Worker processes on one repository, of which some are killed or frozen."""

    def __init__(self, app: interlock.App, site: Path, hurry: int, stack: ExitStack) -> None:
        self.app, self.site, self.hurry, self.number = app, site, hurry, 0
        self.state, self.exporter = site.parent / "state", subprocess.Popen[bytes]([sys.executable, "-c", ""])
        self.alive: dict[str, subprocess.Popen[bytes]] = {}
        self.log = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        stack.callback(self.end)

    def hire(self, point: str = "") -> subprocess.Popen[bytes]:
        self.number += 1
        name = f"w{self.number}"
        words = [sys.executable, "-m", "tests.chaos.edits", self.app.url, str(self.hurry), name, str(self.site), point]
        process = subprocess.Popen(words, cwd=ROOT, stderr=self.log)
        self.alive[name] = process
        return process

    def strike(self, how: str, dice: random.Random) -> None:
        """One of them is killed and replaced, or is frozen until its leases are over, and goes on then."""
        if how == "exporter":
            self.export()
            return
        name = self.find_holder(dice) if how == "holder" else dice.choice(sorted(self.alive))
        if how == "freeze":
            self.alive[name].send_signal(signal.SIGSTOP)
            time.sleep(LEASE / self.hurry * 1.5)
            self.alive[name].send_signal(signal.SIGCONT)
            return
        process = self.alive.pop(name)
        process.kill()
        process.wait()
        self.hire()

    def export(self) -> None:
        """The exporter is killed, if there is one, and another one goes on."""
        self.exporter.kill()
        self.exporter.wait()
        words = [str(COMMAND), "export", "--state", str(self.state), "--follow", "--db", self.app.url]
        self.exporter = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=self.log)

    def find_holder(self, dice: random.Random) -> str:
        """Returns somebody who holds something; anybody, if nobody does."""
        holding = {worker.name for worker, _ in self.app.read(workers_seen) if worker.holding}
        return dice.choice(sorted(set(self.alive) & holding or self.alive))

    def check(self) -> None:
        """Nobody has ended by themselves."""
        size = os.fstat(self.log.fileno()).st_size
        text = os.pread(self.log.fileno(), 4_000, max(0, size - 4_000)).decode(errors="replace")
        assert [process.poll() for process in self.alive.values()] == [None] * len(self.alive), text

    def end(self) -> None:
        for process in (self.exporter, *self.alive.values()):
            process.kill()
            process.wait()


def judge(connection: Connection, app: interlock.App, site: Path, kinds: list[str]) -> None:
    """Asks every promise: the branch has what completed, once each, and nothing else; every law holds."""
    assert list(audit(connection, app.lifecycles, laws=STANDARD.laws, rebuild=True)) == []
    states = dict(connection.rows(STREAMS))
    trailers = git(site, "log", "--first-parent", "--format=%(trailers:key=Interlock-Unit,valueonly)", "main").split()
    completed = sorted(format_id("workstream", unit) for unit, state in states.items() if state == "completed")
    assert sorted(trailers) == completed
    files = set(git(site, "ls-tree", "--name-only", "main").split())
    expected = {"shared.txt"}
    for number, (kind, state) in enumerate(zip(kinds, states.values(), strict=True)):
        assert state == {"plain": "completed", "fail": "failed"}.get(kind, state)
        expected |= {f"{number}{step}.txt" for step in "abc"} if state == "completed" else set()
    assert files == expected
    conflicts = [state for kind, state in zip(kinds, states.values(), strict=True) if kind == "conflict"]
    assert conflicts.count("completed") <= 1  # all of them edit one file
    for line in git(site, "fsck", "--no-dangling", "--connectivity-only").splitlines():
        assert not line.startswith(("missing", "broken", "error")), line


def chaos(url: str, site: Path, *, seed: int, streams: int, workers: int, strikes: int, hurry: int) -> None:
    """A whole run: the crew is struck when so much has ended, and in the end every promise is asked."""
    dice = random.Random(seed)
    kinds = [KINDS[number % len(KINDS)] for number in range(streams)]
    with ExitStack() as stack:
        app = stack.enter_context(made(url, hurry))
        for number, kind in enumerate(kinds):
            submit_stream(app, number, kind)
        crew = Crew(app, site, hurry, stack)
        crew.export()
        for _ in range(workers):
            crew.hire()
        points = sorted(dice.randrange(5 * streams) for _ in range(strikes))  # each stream ends seven of them or more
        for place, point in enumerate(points):
            until(lambda point=point: count(app, SETTLED) >= point or not count(app, OPEN), crew.check)  # type: ignore[misc]
            time.sleep(dice.random() * 0.3)  # somewhere within what goes on then
            crew.strike(HOW[place % len(HOW)], dice)
        until(lambda: not count(app, OPEN), crew.check)
        crew.end()  # what workers hold no more is told too
        app.read(lambda connection, tenant: judge(connection, app, site, kinds))
        judge_log(app, crew.state)


def judge_log(app: interlock.App, state: Path) -> None:
    """The log has every transition once, and the checker finds nothing."""
    with open_folder(state, LOG_BYTES) as folder:
        Exporter(folder, app.read).run(follow=False)
    lines = read_lines(state)
    assert len(lines) == count(app, TRANSITIONS)
    assert len({line["metadata"]["event_id"] for line in lines}) == len(lines)
    assert find_problems(state) == []


def test_a_merge_whose_worker_is_killed_at_any_point_is_done_once(tmp_path: Path, site: Path) -> None:
    """Each of four workers is killed at a point of its own, between the trees and after the branch was moved."""
    with ExitStack() as stack:
        app = stack.enter_context(made(f"sqlite:///{tmp_path}/work.db", 30))
        for number in range(len(POINTS)):
            submit_stream(app, number, "plain")
        crew = Crew(app, site, 30, stack)
        killed = [crew.hire(point) for point in POINTS]
        until(lambda: all(process.poll() is not None for process in killed))
        assert [process.returncode for process in killed] == [-signal.SIGKILL] * len(POINTS)
        crew.alive.clear()
        crew.hire()
        until(lambda: not count(app, OPEN), crew.check)
        app.read(lambda connection, tenant: judge(connection, app, site, ["plain"] * len(POINTS)))


def test_kills_and_freezes_of_merging_workers(tmp_path: Path, site: Path) -> None:
    chaos(f"sqlite:///{tmp_path}/work.db", site, seed=1, streams=4, workers=2, strikes=4, hurry=30)


@pytest.fixture(params=["sqlite file", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path, server: str) -> Iterator[str]:
    if request.param == "postgres":
        with fresh_postgres(server, f"merges{abs(hash(tmp_path))}") as one:
            yield one
    else:
        yield f"sqlite:///{tmp_path}/work.db"


@pytest.mark.proof
def test_twenty_workstreams_onto_one_branch_under_120_kills_and_freezes(url: str, site: Path) -> None:
    chaos(url, site, seed=2, streams=20, workers=6, strikes=120, hurry=20)
