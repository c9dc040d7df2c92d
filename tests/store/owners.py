"""PostgreSQL databases whose owner is an ordinary role, or a superuser, as a test asks."""

from collections.abc import Iterator
from contextlib import contextmanager

from interlock.lifecycles import shipped
from interlock.store import migrate, rights
from interlock.store.postgres import PostgresConnection
from tests.store.databases import alone, swap

OWNER = "keeper"  # may log in and owns its database; it is no superuser and may not make roles
PROGRAM = "ordinary"  # may log in and do what interlock_app may
PERSON = "operator"  # may log in and do what interlock_operator may


def login(url: str, role: str) -> str:
    """The same database for another role."""
    return url.replace("//postgres@", f"//{role}@")


def make_role(server: str, role: str, rest: str = "LOGIN NOSUPERUSER NOCREATEROLE") -> None:
    alone(
        server,
        f"DO $$ BEGIN IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = '{role}') THEN "
        f"CREATE ROLE {role} {rest}; END IF; END $$",
    )


@contextmanager
def empty_database(server: str, name: str, owner: str) -> Iterator[str]:
    """The owner's URL of a fresh database that has no tables."""
    if owner != "postgres":
        make_role(server, owner)
    alone(server, f"CREATE DATABASE {name} OWNER {owner}")
    try:
        yield login(swap(server, name), owner)
    finally:
        alone(server, f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def owned_database(server: str, name: str, owner: str) -> Iterator[tuple[str, str]]:
    """A migrated database on a server that has the roles: the URLs of its owner and of a program."""
    for role in rights.PURPOSES:
        make_role(server, role, "NOLOGIN")
    for role, given in ((PROGRAM, rights.APP), (PERSON, rights.OPERATOR)):
        make_role(server, role)
        alone(server, f"GRANT {given} TO {role}")
    with empty_database(server, name, owner) as url:
        connection = PostgresConnection(url)
        migrate.upgrade(connection, shipped().values())
        connection.close()
        yield url, url.replace(f"//{owner}@", f"//{PROGRAM}@")
