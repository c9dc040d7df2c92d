"""What a list costs PostgreSQL is what it looks at, also if its tables have grown since they were analyzed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from interlock.kernel.commands import Submit, Work
from interlock.store.postgres import PostgresConnection
from interlock.store.queries.lists import filter_units
from interlock.store.queries.views import Filter
from tests.engine.world import World
from tests.store.databases import declare, fresh
from tests.store.filling import Read, unvalued

JOBS = 2_000


class Watched:
    """A connection that keeps what it was asked."""

    name = "postgres"

    def __init__(self, connection: PostgresConnection) -> None:
        self.connection, self.asked = connection, list[str]()

    def rows(self, sql: str, params: Mapping[str, Any] | None = None) -> Any:
        self.asked.append(sql)
        return self.connection.rows(sql, params)


def test_jobs_that_are_looked_at_are_found_by_their_keys(tmp_path: Path, server: str) -> None:
    """Once it is planned for all values, and not for these, as what is asked often is."""
    with fresh("postgres", tmp_path, server) as connection:
        World(connection).engine.send(Submit(work=tuple(Work(task="mail") for _ in range(JOBS))))
        assert isinstance(connection, PostgresConnection)
        reader = PostgresConnection(connection.url)  # with the settings of those who read
        declare(reader, 1)
        watched = Watched(reader)
        units = [row[0] for row in reader.rows("SELECT id FROM unit")]
        for wanted in (Filter(error="none"), Filter(task="none"), Filter(queue="none")):
            watched.asked.clear()
            assert filter_units(watched, 1, wanted, units) == {}  # type: ignore[arg-type]
            read = Read(watched.asked[0])
            read.of_postgres(unvalued(reader, read.sql))
            assert not [scan for scan in read.scans if scan.endswith((" unit", " body"))], (wanted, read.scans)
            used = {index for index in read.indexes if index.startswith(("unit", "body"))}
            assert used == {"unit_pkey", "body_pkey"}, (wanted, used)
        reader.close()
