"""A SQLite file that is deleted or replaced while a program runs: commands are refused, and nothing is written nowhere."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Timer

import pytest

import interlock
from interlock.client.app import App
from interlock.kernel.commands import Submit, Work
from interlock.kernel.errors import Unavailable
from interlock.lifecycles import shipped
from interlock.plugins import open_engine
from tests.conftest import COMMAND, Run
from tests.server.stage import staged

SUBMIT = Submit(work=(Work(task="mail"),))


def delete(path: Path) -> None:
    path.rename(path.with_suffix(".kept"))


def replace(path: Path) -> None:
    """By a copy of itself, as a restore does."""
    delete(path)
    shutil.copyfile(path.with_suffix(".kept"), path)


CHORES = """
import interlock

app = interlock.open("sqlite:///{path}")

@app.task
def mail() -> None: ...
"""
GONE = {"deleted": (delete, "is not there any more"), "replaced": (replace, "was replaced by another file")}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "work.db"


@pytest.fixture
def app(path: Path) -> Iterator[App]:
    with interlock.open(f"sqlite:///{path}") as app:
        yield app


@pytest.mark.parametrize("how", GONE)
def test_the_next_command_is_refused_with_a_sentence(path: Path, app: App, how: str) -> None:
    take_away, said = GONE[how]

    @app.task
    def mail() -> None: ...

    first = mail.submit()
    take_away(path)
    asked: list[Callable[[], object]] = [mail.submit, first.look, lambda: app.why(first.unit)]
    for ask in asked * 2:
        with pytest.raises(Unavailable, match=said) as refusal:
            ask()
        assert str(path) in str(refusal.value)
    assert path.exists() == (how == "replaced")  # none is made in its place
    path.unlink(missing_ok=True)
    path.with_suffix(".kept").rename(path)
    assert mail.submit().state == "queued"  # it is back


@pytest.mark.parametrize("how", GONE)
def test_over_http_it_is_a_503(path: Path, how: str) -> None:
    """Strangers are not told which file it is."""
    take_away, _ = GONE[how]
    with staged(f"sqlite:///{path}") as stage:
        job = stage.job()
        take_away(path)
        for method, route, body in (
            ("POST", "/v1/jobs", {"task": "mail"}), ("GET", f"/v1/jobs/{job}", None), ("GET", "/metrics", None),
        ):  # fmt: skip
            answer = stage.ask(method, route, body)
            assert answer.status_code == 503, answer.text
            assert answer.json()["error"]["message"] == "the database does not answer; ask again"
        path.unlink(missing_ok=True)
        path.with_suffix(".kept").rename(path)
        assert stage.job() != job


def test_a_worker_waits_for_it_and_says_so_in_a_line(path: Path, interlock: Run, tmp_path: Path) -> None:
    (tmp_path / "chores.py").write_text(CHORES.format(path=path))
    interlock("db", "upgrade", "--db", f"sqlite:///{path}")
    command = [str(COMMAND), "worker", "chores:app", "--log-format", "json"]
    with subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as worker:
        assert worker.stderr
        given_up = Timer(60, worker.kill)
        given_up.start()
        read = [next(worker.stderr)]  # it has begun
        delete(path)
        for line in worker.stderr:
            read.append(line)
            if "is not there any more" in line:
                break
        worker.terminate()
        read += worker.stderr
        given_up.cancel()
    assert any("is not there any more" in line for line in read)
    assert "Traceback" not in "".join(read)


def test_where_a_program_goes_is_no_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with open_engine("sqlite:///work.db", shipped()) as engine:
        engine.send(SUBMIT)
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert engine.send(SUBMIT)[0].created


def test_memory_is_no_file() -> None:
    with open_engine("sqlite://:memory:", shipped()) as engine:
        assert engine.send(SUBMIT)[0].created
