"""`interlock up`: what it prints can be pasted, its key outlives it, and it ends well."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from interlock.cli.up import PORT, PORTS, get_key, open_listener
from interlock.client.app import App
from interlock.client.keys import is_valid_key
from interlock.kernel.api_keys import read_key
from interlock.kernel.commands import RevokeKey
from interlock.kernel.errors import InterlockError
from tests.conftest import COMMAND, Run
from tests.store.databases import fresh_postgres

PATIENCE = 60.0
CURL = re.compile(r"^  (curl .+)$", re.MULTILINE)


@contextmanager
def upped(folder: Path, *args: str) -> Iterator[tuple["subprocess.Popen[str]", list[str]]]:
    """The command in a folder, and the lines that it offers."""
    log = folder / "log"
    with log.open("w") as out:
        process = subprocess.Popen(
            [str(COMMAND), "up", *args], cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=out, text=True
        )
    with process:
        try:
            until(lambda: "Ctrl-C stops it" in log.read_text(), lambda: log.read_text())
            yield process, CURL.findall(log.read_text())
        finally:
            process.kill()


def until(true: Callable[[], object], said: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, said()
        time.sleep(0.05)


def pasted(line: str) -> Any:
    """What a line answers in a shell; where there is no curl, what the same request is answered."""
    if shutil.which("curl") and shutil.which("bash"):
        return json.loads(subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True).stdout)
    words = shlex.split(line)
    after = {flag: [words[place + 1] for place, word in enumerate(words) if word == flag] for flag in ("-H", "-d")}
    headers = dict(header.split(": ", 1) for header in after["-H"])
    (url,) = [word for word in words if word.startswith("http")]
    method = "POST" if after["-d"] else "GET"
    return httpx.request(method, url, headers=headers, content="".join(after["-d"]), timeout=30).json()


def key_in(line: str) -> str:
    (found,) = re.findall(r"Bearer (ilk_\w+)", line)
    return str(found)


def test_what_is_printed_works_and_the_key_is_kept(tmp_path: Path) -> None:
    keys = []
    for told in (signal.SIGINT, signal.SIGTERM):
        with upped(tmp_path) as (process, (submit, look)):
            made = pasted(submit)["id"]
            until(lambda look=look: pasted(look)["jobs"][0]["outcome"], lambda: (tmp_path / "log").read_text())
            (job,) = pasted(look)["jobs"]
            assert (job["id"], job["outcome"]) == (made, "success")
            keys.append(key_in(submit))
            process.send_signal(told)
            assert process.wait(PATIENCE) == 0
        text = (tmp_path / "log").read_text()
        assert "Traceback" not in text
        assert text.count(keys[-1]) == 2  # in the two lines, and nowhere else
        assert text.splitlines()[-1].endswith("worker stopped: it holds no lease any more")
    assert keys[0] == keys[1]
    file = tmp_path / "interlock.db.key"
    assert (file.stat().st_mode & 0o777, file.read_text().strip()) == (0o600, keys[0])

    number = (read_key(keys[0]) or (0, 0))[1]
    with App(f"sqlite:///{tmp_path}/interlock.db") as app:
        app.send(RevokeKey(key=number))
    with upped(tmp_path) as (_, (submit, _)), App(f"sqlite:///{tmp_path}/interlock.db") as app:
        assert key_in(submit) != keys[0]
        assert is_valid_key(app, key_in(submit))
        assert file.read_text().strip() == key_in(submit)


def test_shell_commands_run_where_it_is_started_for_them(tmp_path: Path, interlock: Run) -> None:
    with upped(tmp_path, "--shell", "--shell-sandbox", "none") as (_, (submit, _)):
        base, sign = re.findall(r"(http://\S+)/v1", submit)[0], {"Authorization": f"Bearer {key_in(submit)}"}
        made = httpx.post(f"{base}/v1/shell", headers=sign, json={"command": "echo $((6 * 7)) > made"}, timeout=30)
        assert made.status_code == 201, made.text
        job = f"{base}/v1/jobs/{made.json()['id']}"
        until(
            lambda: httpx.get(job, headers=sign, timeout=30).json()["outcome"],
            lambda: (tmp_path / "log").read_text(),
        )
        assert (tmp_path / "made").read_text() == "42\n"
    with App(f"sqlite:///{tmp_path}/interlock.db") as app:
        assert get_key(app) != key_in(submit)  # the key of a start without --shell may not submit commands
    done = interlock("up", "--shell-sandbox", "none", cwd=tmp_path, timeout=PATIENCE)
    assert (done.returncode, "need --shell" in done.stderr) == (2, True)


def test_a_key_that_everybody_can_read_is_refused(tmp_path: Path, interlock: Run) -> None:
    file = tmp_path / "interlock.db.key"
    file.touch(0o600)
    file.chmod(0o604)
    done = interlock("up", cwd=tmp_path, timeout=PATIENCE)
    assert done.returncode == 2
    assert "chmod 600" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_that_holds_something_else_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "work.db.key"
    with App(f"sqlite:///{tmp_path}/work.db") as app:
        made = get_key(app)
        assert made == get_key(app) == file.read_text().strip()
        file.write_text("my diary")
        with pytest.raises(InterlockError, match="holds no key"):
            get_key(app)
    assert file.read_text() == "my diary"


def test_a_port_that_is_taken(tmp_path: Path, interlock: Run) -> None:
    with open_listener(0) as taken:
        done = interlock("up", "--port", str(taken.getsockname()[1]), cwd=tmp_path, timeout=PATIENCE)
    assert done.returncode == 2
    assert "name a free one with --port" in done.stderr
    with open_listener(None) as one, open_listener(None) as other:  # each the next one that is free
        assert PORT <= one.getsockname()[1] < other.getsockname()[1] < PORT + PORTS


def test_without_the_extra_there_are_workers_and_no_api(tmp_path: Path) -> None:
    (tmp_path / "litestar.py").write_text("raise ModuleNotFoundError(\"No module named 'litestar'\", name='litestar')")
    code = "from interlock.cli import main; import sys; sys.argv = ['interlock', 'up']; main()"
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    log = tmp_path / "log"
    with (
        log.open("w") as out,
        subprocess.Popen([sys.executable, "-c", code], env=env, cwd=tmp_path, stdout=out, stderr=out) as process,
    ):
        until(lambda: "worker started" in log.read_text(), log.read_text)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    assert (
        "There is no HTTP API here: the server needs its libraries: pip install 'interlock[server]'" in log.read_text()
    )


def test_on_postgresql_people_make_their_own_keys(tmp_path: Path, server: str) -> None:
    with fresh_postgres(server, f"up{abs(hash(tmp_path))}") as url:
        for whose, says in ((url, "interlock key create"), (url.replace("//ordinary@", "//postgres@"), "no HTTP API")):
            with upped(tmp_path, "--db", whose) as (process, lines):
                assert lines == []
                assert says in (tmp_path / "log").read_text()
                process.send_signal(signal.SIGTERM)
                assert process.wait(PATIENCE) == 0
    assert not list(tmp_path.glob("*.key"))
