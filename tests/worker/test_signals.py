"""The worker as a process: how it is started, what its signals do, and what its log says."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.kernel.lifecycle import Category
from interlock.store.queries.views import events_of, view
from tests.conftest import COMMAND, ROOT, Run

PATIENCE = 60.0
MODULE = """
import asyncio, pathlib, time
import interlock
from interlock.worker.context import JobContext
app = interlock.open("sqlite:///work.db")
other = 3

@app.task(queue="mail")
async def quick(n: int) -> int:
    return n

@app.task(queue="mail")
async def soon() -> str:
    while not pathlib.Path("go").exists():
        await asyncio.sleep(0.01)
    return "ended"

@app.task(queue="mail")
async def lasting() -> None:
    await asyncio.Event().wait()

@app.task(queue="mail", capabilities=["gpu"])
def stuck() -> None:
    time.sleep(1_000)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mail.py").write_text(MODULE)
    return tmp_path


@pytest.fixture
def app(folder: Path) -> Iterator[interlock.App]:
    """The same app, seen from outside."""
    with interlock.open(f"sqlite:///{folder}/work.db") as one:
        for name in ("quick", "soon", "lasting", "stuck"):
            cap = ["gpu"] if name == "stuck" else []
            one.task(name=name, queue="mail", capabilities=cap)(NAMED[name])
        yield one


async def numbered(n: int) -> int:
    return n


async def nothing() -> None: ...


NAMED: dict[str, Callable[..., Any]] = {"quick": numbered, "soon": nothing, "lasting": nothing, "stuck": nothing}


@contextmanager
def started(folder: Path, *args: str) -> Iterator["subprocess.Popen[str]"]:
    command = [str(COMMAND), *args]
    log = (folder / "log").open("w")
    with log, subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, text=True) as one:
        try:
            yield one
        finally:
            if one.poll() is None:
                one.kill()


def until(true: Callable[[], object], folder: Path) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, (folder / "log").read_text()
        time.sleep(0.01)


def category(job: interlock.Job) -> str:
    return job.look().category


def last(job: interlock.Job) -> str:
    return job.app.read(events_of, job.unit)[-1].trigger


def test_a_first_signal_lets_what_runs_end_and_gives_back_the_rest(folder: Path, app: interlock.App) -> None:
    soon, lasting, stuck = (app.tasks[name].submit() for name in ("soon", "lasting", "stuck"))
    with started(
        folder, "worker", "mail:app", "-q", "mail:10", "--cap", "gpu", "--grace", "3", "--log-format", "json"
    ) as one:
        until(lambda: all(category(job) == Category.ACTIVE for job in (soon, lasting, stuck)), folder)
        one.send_signal(signal.SIGTERM)
        until(lambda: "SIGTERM" in (folder / "log").read_text(), folder)
        (folder / "go").touch()
        assert one.wait(PATIENCE) == 0, (folder / "log").read_text()
    assert soon.wait(0) == "ended"
    for job in (lasting, stuck):
        unit = app.read(view, job.unit).unit
        assert (category(job), last(job), unit.failures, unit.losses) == (Category.READY, "release", 0, 0)
    lines = [json.loads(line) for line in (folder / "log").read_text().splitlines()]
    assert {"at", "level", "logger", "text"} <= set(lines[0])
    (done,) = [line for line in lines if line.get("ended") == "success"]
    assert (done["task"], done["unit"], done["attempt"]) == ("soon", soon.unit, 1)
    # Its lease is finished, so only the act that granted it tells of it.
    sql = "SELECT units, secrets FROM act JOIN member ON act = id WHERE unit = :unit AND secrets IS NOT NULL"
    ((units, secrets),) = app.read(lambda connection, tenant: connection.rows(sql, {"unit": soon.unit}))
    secret = json.loads(secrets)[json.loads(units).index(soon.unit)]
    assert secret[:16] == done["lease_hash"]


@pytest.mark.parametrize("one_signal", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_at_once(folder: Path, app: interlock.App, one_signal: signal.Signals) -> None:
    job = app.tasks["lasting"].submit()
    with started(folder, "worker", "mail:app", "--grace", "1000") as one:
        until(lambda: category(job) == Category.ACTIVE, folder)
        one.send_signal(one_signal)
        until(lambda: one_signal.name in (folder / "log").read_text(), folder)
        while one.poll() is None:  # two within a moment are one
            one.send_signal(one_signal)
            time.sleep(0.05)
        assert one.wait(PATIENCE) == 128 + one_signal
    assert category(job) == Category.ACTIVE  # until its lease ends
    assert "stopping immediately" in (folder / "log").read_text()


def test_it_serves_the_queues_of_its_tasks_unless_told_which(folder: Path, app: interlock.App) -> None:
    jobs = [app.tasks["quick"].submit(n=n) for n in range(20)]
    with started(folder, "worker", "mail:app", "--name", "ann") as one:
        assert [job.wait(PATIENCE) for job in jobs] == list(range(20))
        one.send_signal(signal.SIGTERM)
        assert one.wait(PATIENCE) == 0
    text = (folder / "log").read_text()
    assert "worker started worker=ann queues=mail:10" in text
    assert "job succeeded id=job_1 task=quick attempt=1 fence=1" in text


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("nowhere:app", "there is no module 'nowhere' in this folder"),
        ("mail", "'mail' names no app; it has mail:app"),
        ("mail:", "it has mail:app"),
        ("mail:ap", "module 'mail' has no 'ap'; it has mail:app"),
        ("mail:other", "'mail:other' is a int, not an app; it has mail:app"),
        ("mail.py:app", "'mail.py:app' names a file; name the module instead: mail:app"),
        ("bare:app", "'bare:app' has no tasks"),
        ("none:app", "make one: app = interlock.open("),
        ("wrong:app", "module 'wrong' cannot be imported: ZeroDivisionError: division by zero (wrong.py, line 2)"),
        ("syntax:app", "module 'syntax' cannot be imported: SyntaxError"),
        ("leaves:app", "module 'leaves' cannot be imported: SystemExit: 3"),
        ("needs:app", "module 'needs' needs 'not_there', which is not installed"),
        ("url:app", "'mysql://x' is no database that Interlock knows"),
    ],
)
def test_an_app_that_cannot_be_found_is_told_in_a_sentence(folder: Path, interlock: Run, place: str, says: str) -> None:
    files = {
        "bare": "import interlock\napp = interlock.open('sqlite:///work.db')",
        "none": "", "wrong": "\n1 / 0", "syntax": "def", "leaves": "raise SystemExit(3)", "needs": "import not_there",
        "url": "import interlock\napp = interlock.open('mysql://x')",
    }  # fmt: skip
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    done = interlock("worker", place, cwd=folder)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("queue", ["mail:x", "mail:0", ":3", "mail:-1", "mail:99999"])
def test_a_queue_that_is_not_allowed_says_what_is(folder: Path, interlock: Run, queue: str) -> None:
    done = interlock("worker", "mail:app", "-q", queue, cwd=folder)
    assert done.returncode == 2
    assert "such as mail:10" in done.stderr


def test_a_database_that_is_not_there_is_told_at_once(folder: Path, interlock: Run) -> None:
    (folder / "far.py").write_text(MODULE.replace("sqlite:///work.db", "postgresql://nobody@127.0.0.1:1/none"))
    done = interlock("worker", "far:app", cwd=folder)
    assert done.returncode == 2
    assert "PostgreSQL cannot be reached" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("one_signal", [signal.SIGTERM, signal.SIGINT])
def test_up_without_a_module_runs_the_demo_tasks_and_ends_well(folder: Path, one_signal: signal.Signals) -> None:
    with started(folder, "up") as one:
        until(lambda: "worker started" in (folder / "log").read_text(), folder)
        with interlock.open(f"sqlite:///{folder}/interlock.db") as app:
            app.task(name="greet")(greeted)
            assert app.tasks["greet"].submit(name="ann").wait(PATIENCE) == "hello, ann"
        one.send_signal(one_signal)
        assert one.wait(PATIENCE) == 0
    text = (folder / "log").read_text()
    assert "Interlock 0" in text
    assert "interlock audit" in text
    assert "Traceback" not in text


async def greeted(name: str) -> str:
    return name


@pytest.mark.parametrize("one_signal", [signal.SIGTERM, signal.SIGINT])
def test_make_run_ends_well_when_its_whole_group_is_told(folder: Path, one_signal: signal.Signals) -> None:
    """As a terminal does it; make passes the signal on, so that the program hears it twice."""
    for name in ("Makefile", "pyproject.toml", "requirements", ".venv", "interlock"):
        (folder / name).symlink_to(ROOT / name)
    log = (folder / "log").open("w")
    options: dict[str, Any] = {"cwd": folder, "stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
    options["env"] = {name: value for name, value in os.environ.items() if name not in ("MAKELEVEL", "MAKEFLAGS")}
    with log, subprocess.Popen(["make", "run"], start_new_session=True, **options) as make:
        until(lambda: "worker started" in (folder / "log").read_text(), folder)
        os.killpg(make.pid, one_signal)
        make.wait(PATIENCE)
    text = (folder / "log").read_text()
    assert "interlock submit greet" in text
    assert " held=0" in text
    assert "stopping immediately" not in text
    assert "Traceback" not in text
    assert text.splitlines()[-1].endswith(
        "worker stopped: it holds no lease any more"
    )  # and no word of make's about errors
    assert (folder / "interlock.db").exists()


def test_up_with_a_module_runs_its_tasks(folder: Path, app: interlock.App) -> None:
    job = app.tasks["quick"].submit(n=7)
    with started(folder, "up", "mail:app") as one:
        assert job.wait(PATIENCE) == 7
        one.send_signal(signal.SIGTERM)
        assert one.wait(PATIENCE) == 0
    assert not (folder / "interlock.db").exists()


def test_a_live_line_on_a_terminal(folder: Path, app: interlock.App) -> None:
    pty = pytest.importorskip("pty")
    job = app.tasks["quick"].submit(n=7)
    leader, follower = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(
        [sys.executable, str(COMMAND), "worker", "mail:app"],
        cwd=folder,
        env=env,
        stdin=follower,
        stdout=follower,
        stderr=follower,
    ) as one:
        os.close(follower)
        assert job.wait(PATIENCE) == 7
        seen = b""
        while b"1 success" not in seen:
            seen += os.read(leader, 4096)
        one.send_signal(signal.SIGINT)
        try:
            while os.read(leader, 4096):
                pass
        except OSError:
            pass  # how a terminal ends
        assert one.wait(PATIENCE) == 0
    os.close(leader)
