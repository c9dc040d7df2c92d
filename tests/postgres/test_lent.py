"""A database that was lent before is as a new one, and one that is not is dropped."""

from collections.abc import Callable
from contextlib import closing

import pytest

from interlock.kernel.commands import SetTenant
from interlock.store.postgres import PostgresConnection
from tests.engine.world import World
from tests.store.databases import Connection, declare, fresh_postgres, swap
from tests.store.lent import TABLES, free, lend_connection


def read_all(url: str) -> dict[str, list[tuple[object, ...]]]:
    """All rows of a database, but for the name of the store."""
    with closing(PostgresConnection(url)) as owner:
        tables = [table for (table,) in owner.rows(TABLES)]
        return {table: sorted(owner.rows(f"SELECT * FROM {table}"), key=str) for table in tables}


def live(connection: Connection) -> tuple[int, str]:
    """Something happens. Returns the id of a job, and the name of the store."""
    declare(connection, 1)
    world = World(connection)
    job = world.submit(mutex="m")
    (grant,) = world.claim(world.worker())
    world.finish(grant)
    world.send(SetTenant(tenant=2, name="other"))
    return job, str(connection.rows("SELECT value FROM about WHERE name = 'epoch'")[0][0])


def test_the_next_one_has_it_as_a_new_one(running_postgres: str) -> None:
    lives = []
    for _ in range(2):
        with lend_connection(running_postgres) as connection:
            name = connection.raw.info.dbname
            lives.append((name, *live(connection), connection.raw))
    (name, job, epoch, raw), (again, other_job, other_epoch, other_raw) = lives
    assert (again, other_job, other_raw) == (name, job, raw)
    assert other_epoch != epoch
    lent = read_all(swap(running_postgres, name))
    with fresh_postgres(running_postgres, "beside_lent") as url:
        new = read_all(url.replace("//ordinary@", "//postgres@"))
    for rows in (lent, new):
        rows["about"] = [row for row in rows["about"] if row[0] != "epoch"]
    assert lent == new


def add_a_table(url: str) -> None:
    with closing(PostgresConnection(url)) as owner:
        owner.script("CREATE TABLE more (id INTEGER)")


def take_a_right(url: str) -> None:
    with closing(PostgresConnection(url)) as owner:
        owner.script("REVOKE SELECT ON note FROM interlock_app")


def put_the_guard_aside(url: str) -> None:
    with closing(PostgresConnection(url)) as owner:
        owner.script("ALTER TABLE unit DISABLE TRIGGER ALL")


def forget_a_hop(url: str) -> None:
    with closing(PostgresConnection(url)) as owner:
        first = "(SELECT min(path) FROM path_hop)"
        owner.script(f"SET session_replication_role = replica; DELETE FROM path_hop WHERE path = {first}")


@pytest.mark.parametrize("change", [add_a_table, take_a_right, put_the_guard_aside, forget_a_hop])
def test_one_in_which_more_than_rows_has_changed_is_dropped(
    running_postgres: str, change: Callable[[str], None]
) -> None:
    with lend_connection(running_postgres) as connection:
        name = connection.raw.info.dbname
        change(swap(running_postgres, name))
    assert name not in [database.name for database in free[running_postgres]]
    with closing(PostgresConnection(running_postgres)) as admin:
        assert admin.rows("SELECT 1 FROM pg_database WHERE datname = :name", {"name": name}) == []


def test_one_that_somebody_still_uses_is_dropped_and_a_session_is_not_gone_on_with(running_postgres: str) -> None:
    with lend_connection(running_postgres) as connection:
        name = connection.raw.info.dbname
        connection.rows("SET work_mem = '1MB'")
    with lend_connection(running_postgres) as connection:
        assert connection.raw.info.dbname == name
        assert connection.rows("SHOW work_mem") != [("1MB",)]
        other = PostgresConnection(swap(running_postgres, name))
    assert name not in [database.name for database in free[running_postgres]]
    other.close()
