"""The databases that a store's test runs on, each fresh and at the present schema."""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any
from urllib.parse import urlsplit

from interlock.kernel.lifecycle import Lifecycle
from interlock.lifecycles import shipped
from interlock.plugins import STANDARD
from interlock.store import guard, migrate
from interlock.store.catalog import has_table
from interlock.store.connection import Connection as AnyConnection
from interlock.store.migrations import numbers
from interlock.store.postgres import PostgresConnection
from interlock.store.sqlite import MEMORY, SqliteConnection

TEMPLATE = "interlock_template"
LIFECYCLES = STANDARD.lifecycles(shipped())  # those of the plugins too
with_template: set[str] = set()  # servers that have it
KINDS = ("sqlite file", "sqlite memory", "postgres")
Connection = SqliteConnection | PostgresConnection
templates: dict[Hashable, SqliteConnection] = {}  # of SQLite: databases that were upgraded in this process
real_upgrade = migrate.upgrade


@contextmanager
def fresh(
    kind: str,
    folder: Path,
    server: str,
    *more: Lifecycle,
    role: str = "ordinary",
    tables: Mapping[str, str] | None = None,
) -> Iterator[Connection]:
    """A connection as the product uses it: on PostgreSQL an ordinary role that has declared tenant 1.

    The role `operator` may force and archive besides.
    """
    if kind == "postgres":
        with fresh_postgres(server, f"t{abs(hash(folder))}", *more, tables=tables) as url:
            connection: Connection = PostgresConnection(url.replace("//ordinary@", f"//{role}@"))
            declare(connection, 1)
            yield connection
            connection.close()
        return
    connection = SqliteConnection(str(folder / "test.db") if kind == "sqlite file" else MEMORY)
    upgrade_by_copy(connection, LIFECYCLES.values())
    if more or tables:
        migrate.upgrade(connection, [*LIFECYCLES.values(), *more], tables)
    yield connection
    connection.close()


@contextmanager
def fresh_postgres(server: str, name: str, *more: Lifecycle, tables: Mapping[str, str] | None = None) -> Iterator[str]:
    """A database of its own on the server, migrated by its owner; the URL is that of an ordinary role."""
    copy_template(server, name)
    owner = PostgresConnection(swap(server, name))
    # It is a store of its own, and no copy.
    owner.script("UPDATE about SET value = replace(gen_random_uuid()::text, '-', '') WHERE name = 'epoch'")
    if more or tables:
        migrate.upgrade(owner, [*LIFECYCLES.values(), *more], tables)
    owner.close()
    try:
        yield swap(server, name).replace("//postgres@", "//ordinary@")
    finally:
        drop_database(server, name)


def copy_template(server: str, name: str) -> None:
    """Makes a database at the present schema: copying is quicker than migrating."""
    if server not in with_template:
        make_template(server)
    alone(server, f"CREATE DATABASE {name} TEMPLATE {TEMPLATE} STRATEGY file_copy")


def drop_database(server: str, name: str) -> None:
    alone(server, f"DROP DATABASE {name} WITH (FORCE)")


def upgrade_by_copy(
    database: AnyConnection, lifecycles: Iterable[Lifecycle], tables: Mapping[str, str] | None = None
) -> list[int]:
    """As `migrate.upgrade`, but an empty SQLite database becomes a copy of one that was upgraded before.

    The tables of the plugins that Interlock ships are there too.
    """
    lifecycles, tables = list(lifecycles), {**STANDARD.tables, **(tables or {})}
    if not isinstance(database, SqliteConnection) or has_table(database, "about"):
        return real_upgrade(database, lifecycles, tables)
    key = (guard.digest_lifecycles(lifecycles), *sorted(tables.items()))
    if key not in templates:
        templates[key] = SqliteConnection(MEMORY)
        real_upgrade(templates[key], lifecycles, tables)
    templates[key].raw.backup(database.raw)
    # It is a store of its own, and no copy.
    database.rows("UPDATE about SET value = :epoch WHERE name = 'epoch'", {"epoch": token_hex(16)})
    return list(numbers())


def upgrade_with_tables(
    database: AnyConnection, lifecycles: Iterable[Lifecycle], tables: Mapping[str, str] | None = None
) -> list[int]:
    """As `migrate.upgrade`; the tables of the plugins that Interlock ships are there too."""
    return real_upgrade(database, lifecycles, {**STANDARD.tables, **(tables or {})})


def make_template(server: str) -> None:
    """What every fresh database is copied from."""
    with_template.add(server)
    alone(server, f"CREATE DATABASE {TEMPLATE}")
    owner = PostgresConnection(swap(server, TEMPLATE))
    upgrade_with_tables(owner, LIFECYCLES.values())
    owner.script(
        "DO $$ BEGIN IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'ordinary') THEN "
        "CREATE ROLE ordinary LOGIN; END IF; "
        "IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'operator') THEN "
        "CREATE ROLE operator LOGIN; END IF; END $$; "
        "GRANT interlock_app TO ordinary; GRANT interlock_operator TO operator"
    )
    owner.close()


def alone(server: str, sql: str) -> None:
    """A statement on a connection of its own: a test may have restarted the server meanwhile."""
    admin = PostgresConnection(server)
    admin.script(sql)
    admin.close()


def declare(connection: Connection, *tenants: int) -> None:
    """On PostgreSQL a session sees only the tenants that it declares."""
    if isinstance(connection, PostgresConnection):
        listed = "{" + ",".join(map(str, tenants)) + "}"
        connection.rows("SELECT set_config('app.tenants', :listed, false)", {"listed": listed})


def swap(url: str, name: str) -> str:
    return urlsplit(url)._replace(path=f"/{name}").geturl()


def insert(connection: Connection, table: str, **row: Any) -> None:
    columns = ", ".join(row)
    connection.rows(f"INSERT INTO {table} ({columns}) VALUES ({', '.join(f':{column}' for column in row)})", row)
