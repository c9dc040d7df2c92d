"""The tests have a real PostgreSQL of their own, whoever runs them and whatever is installed."""

import subprocess
from pathlib import Path

import psycopg

from tests.postgres.server import INSTALL, copied, postgres


def test_a_real_postgresql_answers() -> None:
    with postgres() as url, psycopg.connect(url) as connection:
        version = connection.execute("SELECT current_setting('server_version_num')::int").fetchone()
        folder = connection.execute("SHOW data_directory").fetchone()
    assert version is not None
    assert version[0] >= 180000
    assert folder is not None
    assert "interlock-pg-" in folder[0]
    assert ".venv" in INSTALL.parts


def test_two_servers_do_not_meet() -> None:
    with postgres() as one, postgres() as two, psycopg.connect(one) as first, psycopg.connect(two) as second:
        first.execute("CREATE TABLE only_here (n int)")
        first.commit()
        assert second.execute("SELECT to_regclass('only_here')").fetchone() == (None,)


def test_the_binaries_run_from_a_copy_too(tmp_path: Path) -> None:
    """As they must where the project lies in a folder that only root can enter."""
    done = subprocess.run(
        [copied(tmp_path) / "bin" / "initdb", "--version"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.split()[0]) == (0, "initdb"), done.stderr
