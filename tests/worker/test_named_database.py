"""`--db` names the database of an app that is started by the command, whatever its module says."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import interlock
from tests.conftest import Run
from tests.store.databases import fresh_postgres
from tests.worker.test_signals import MODULE, PATIENCE, numbered, started


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mail.py").write_text(MODULE)
    return tmp_path


@pytest.fixture(params=["sqlite", "postgres"])
def named(request: pytest.FixtureRequest, folder: Path, server: str) -> Iterator[str]:
    """A database that the module does not name."""
    if request.param == "sqlite":
        yield f"sqlite:///{folder}/named.db"
        return
    with fresh_postgres(server, f"named{abs(hash(folder))}") as url:
        yield url


@pytest.mark.parametrize("verb", ["up", "worker"])
def test_an_app_works_on_the_database_that_the_command_names(folder: Path, named: str, verb: str) -> None:
    with interlock.open(named) as app:
        app.task(name="quick", queue="mail")(numbered)
        job = app.tasks["quick"].submit(n=7)
        with started(folder, verb, "mail:app", "--db", named) as one:
            assert job.wait(PATIENCE) == 7
            one.send_signal(signal.SIGTERM)
            assert one.wait(PATIENCE) == 0
    assert not (folder / "work.db").exists()


def test_a_worker_has_a_database_or_a_server(folder: Path, interlock: Run) -> None:
    done = interlock("worker", "mail:app", "--db", "sqlite:///x.db", "--server", "http://127.0.0.1:1", cwd=folder)
    assert done.returncode == 2
    assert "--db or --server, not both" in done.stderr
