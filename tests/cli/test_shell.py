"""`interlock shell`, and `interlock worker --shell`, as a user runs them."""

import signal
import subprocess
from pathlib import Path

import msgspec
import pytest

import interlock
from interlock.store.queries.views import view
from tests.cli.inside import Ask, inside
from tests.conftest import COMMAND
from tests.process.commands import is_alive, read_pids, wait_for


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    return inside(f"sqlite:///{tmp_path / 'work.db'}")


def test_a_command_is_submitted_with_what_is_said_of_it(ask: Ask, tmp_path: Path) -> None:
    done = ask("shell", "make test", "--env", "CI=true", "--env", "A=b=c", "--directory", "app", "--limit", "open_files=64",
               "--queue", "builds", "--key", "k", "--attempts", "2", "--timeout", "5m", "--cap", "gpu", "--label", "a=b")  # fmt: skip
    assert (done.code, done.err) == (0, "")
    with interlock.open(f"sqlite:///{tmp_path / 'work.db'}") as app:
        job = app.job(done.out.strip())
        body, shown = app.read(view, job.unit).body, ask("show", job.id, "--json").json
    assert (shown["queue"], shown["capabilities"], shown["task"]) == ("builds", ["gpu", "shell"], "shell")
    policy = msgspec.json.decode(body.policy)
    assert (policy["attempts"], policy["timeout_us"]) == (2, 300_000_000)
    assert msgspec.json.decode(policy["options"]) == {
        "shell": {
            "command": "make test", "environment": {"CI": "true", "A": "b=c"}, "directory": "app",
            "limits": {"open_files": 64},
        }
    }  # fmt: skip
    assert ask("shell", "make test", "--key", "k", "--json").json["created"] is False


def test_why_says_that_no_worker_runs_commands(ask: Ask) -> None:
    job = ask("shell", "make test").out.strip()
    assert "shell" in ask("why", job).out


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("",), "a command is text of 1 to 65,536 characters"),
        (("a", "--env", "CI"), "--env 'CI' is not allowed; allowed is NAME=VALUE"),
        (("a", "--env", "A B=1"), "the name 'A B' is not allowed"),
        (("a", "--env", "INTERLOCK_JOB=1"), "not INTERLOCK_"),
        (("a", "--directory", "../x"), "allowed is one below the worker's"),
        (("a", "--directory", "/etc"), "allowed is one below the worker's"),
        (("a", "--limit", "seconds=1"), "there is no limit 'seconds'; there are grace_seconds"),
        (("a", "--limit", "memory_bytes=lots"), "shell: Expected"),
        (("a", "--limit", "memory_bytes=0"), "memory_bytes = 0 is not allowed"),
        (("a", "--timeout", "soon"), "timeout"),
        (("a", "--attempts", "0"), "attempts"),
        (("a", "--delay", "never"), "delay"),
        (("a", "--on-duplicate", "ignore"), "allowed are return, reject, replace"),
        (("a", "--cap", "x,y"), "comma"),
    ],
)
def test_what_is_wrong_is_refused(ask: Ask, args: tuple[str, ...], text: str) -> None:
    done = ask("shell", *args)
    assert (done.code, done.out) == (2, "")
    assert text in done.err
    assert "Traceback" not in done.err
    assert "job_" not in ask("list").out


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ((), "which app? Name it as in `interlock worker mail:app`, or give --shell to run commands"),
        (("--shell", "--shell-directory", "/nowhere"), "there is no folder '/nowhere' to run commands in"),
        (("--shell", "--shell-sandbox", "docker"), "sandbox = 'docker' is not allowed; allowed are auto, bubblewrap, none"),
        (("--shell", "--shell-env", "NOT_SET_AT_ALL"), "--shell-env names NOT_SET_AT_ALL, which is not set here"),
        (("--shell", "--shell-secret", "NOT_SET_AT_ALL"), "--shell-secret names NOT_SET_AT_ALL, which is not set here"),
        (("--shell", "--shell-secret", "SHORT"), "SHORT: a secret of fewer than 4 bytes cannot be masked"),
        (("--shell", "--cap", "shell"), "the capability 'shell' is not given by name: --shell gives it"),
        (("--shell-env", "PATH", "tests.worker.chores:app"), "need --shell"),
    ],
)  # fmt: skip
def test_a_worker_that_could_not_run_commands_does_not_start(
    ask: Ask, args: tuple[str, ...], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHORT", "abc")
    done = ask("worker", "run", *args)
    assert (done.code, done.out) == (2, "")
    assert text in done.err


def test_a_worker_without_an_app_runs_commands_until_it_is_stopped(tmp_path: Path) -> None:
    url, folder, log = f"sqlite:///{tmp_path}/work.db", tmp_path / "commands", tmp_path / "log"
    folder.mkdir()
    environment = {"PATH": "/usr/bin:/bin", "TOKEN": "open-sesame", "STAGE": "test", "NO_COLOR": "1"}
    words = ["worker", "--shell", "--db", url, "--shell-directory", str(folder), "--shell-env", "STAGE", "--shell-secret",
             "TOKEN", "--shell-sandbox", "none", "--grace", "0.2"]  # fmt: skip
    with log.open("w") as written, interlock.open(url) as app:
        app.connect()
        worker = subprocess.Popen([str(COMMAND), *words], env=environment, stdout=written, stderr=written, cwd=tmp_path)
        try:
            job = app.shell('echo "$STAGE $TOKEN ${HOSTNAME:-nothing}"')
            assert job.wait(timeout="1m")["output"] == "test *** nothing"
            assert job.log() == "sandbox: none (none was wanted)\ntest *** nothing\n"
            left = app.shell("echo $$ > it.pid; exec sleep 1000")
            wait_for(lambda: read_pids(folder))
        finally:
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(60) == 0, log.read_text()
        assert left.look().outcome is None
    assert not any(map(is_alive, read_pids(folder)))
    assert "open-sesame" not in log.read_text()
