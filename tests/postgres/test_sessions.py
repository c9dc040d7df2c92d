"""Which settings a session has while it writes, and while it reads."""

from pathlib import Path

from interlock.store.postgres.connection import PLANS
from tests.store.databases import fresh

SETTINGS = f"SELECT name, setting FROM pg_settings WHERE name IN ({', '.join(map(repr, PLANS))})"


def test_what_is_written_keeps_to_indexes_and_what_is_read_is_planned_as_the_server_would(
    tmp_path: Path, server: str
) -> None:
    with fresh("postgres", tmp_path, server) as connection:
        as_the_server_is = dict(connection.rows(SETTINGS))
        assert as_the_server_is != PLANS
        for _ in range(2):  # the first write of a session makes the settings, and the others find them
            connection.begin([1])
            assert dict(connection.rows(SETTINGS)) == PLANS
            connection.rollback()
            connection.rows("BEGIN")
            connection.declare([1])
            assert dict(connection.rows(SETTINGS)) == as_the_server_is
            connection.rollback()
