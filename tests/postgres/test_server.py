"""The tests have a real PostgreSQL of their own, whoever runs them and whatever is installed."""

import psycopg

from tests.postgres.server import INSTALL, postgres


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
