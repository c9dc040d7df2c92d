"""Checks of `interlock db doctor`: unsafe settings, roles with too many rights, a changed guard.

A check is a function of a connection that yields sentences; each says what is wrong and what to do. To add one, write
it and name it in CHECKS (both databases) or POSTGRES_CHECKS.
"""

from collections.abc import Callable, Iterator, Mapping

from interlock.kernel.lifecycle import Lifecycle
from interlock.store import guard, migrate, restore, rights
from interlock.store.connection import Connection
from interlock.store.private_files import is_open_to_others
from interlock.store.sqlite import SqliteConnection

EMPTY = "the database is empty: `interlock db upgrade` makes its tables"
DEFINERS = (
    "SELECT pg_proc.oid::regprocedure::text FROM pg_proc WHERE pronamespace = (:home)::regnamespace AND prosecdef "
    "AND NOT coalesce(proconfig, '{}') @> ARRAY['search_path=pg_catalog, ' || :home || ', pg_temp'] ORDER BY 1"
)
SUPERUSER_OWNERS = (
    "SELECT DISTINCT rolname FROM pg_roles JOIN ("
    "SELECT nspowner AS owner FROM pg_namespace WHERE pg_namespace.oid = (:home)::regnamespace "
    "UNION ALL SELECT relowner FROM pg_class WHERE pg_class.oid = to_regclass('unit') "
    "UNION ALL SELECT proowner FROM pg_proc WHERE pronamespace = (:home)::regnamespace AND prosecdef"
    ") AS owners ON owners.owner = pg_roles.oid WHERE rolsuper ORDER BY 1"
)
# PUBLIC is the grantee 0. A database whose rights were never touched has none listed, and lets everybody.
PUBLIC_TEMPORARY = (
    "SELECT quote_ident(datname) FROM pg_database WHERE datname = current_database() AND EXISTS (SELECT 1 "
    "FROM aclexplode(coalesce(datacl, acldefault('d', datdba))) WHERE grantee = 0 AND privilege_type = 'TEMPORARY')"
)
PUBLIC_CREATE = (
    "SELECT 1 FROM pg_namespace WHERE pg_namespace.oid = (:home)::regnamespace AND EXISTS (SELECT 1 "
    "FROM aclexplode(coalesce(nspacl, acldefault('n', nspowner))) WHERE grantee = 0 AND privilege_type = 'CREATE')"
)
IS_OWNER = (
    "SELECT quote_ident(rolname) FROM pg_class JOIN pg_roles ON pg_roles.oid = relowner "
    "WHERE pg_class.oid = to_regclass('unit') AND rolname = current_user AND NOT rolsuper"
)
OLDEST = (
    "SELECT pid, now() - xact_start FROM pg_stat_activity WHERE xact_start < now() - interval '5 minutes' "
    "ORDER BY xact_start LIMIT 1"
)
FULL = 2  # of PRAGMA synchronous
POOLED = (
    "there is a pooler before PostgreSQL: no statement is prepared, which costs time in each, and nobody hears of new "
    "work, so that workers look for it every second; a direct connection has neither cost"
)
Check = Callable[[Connection], Iterator[str]]


def diagnose(connection: Connection, lifecycles: Mapping[str, Lifecycle]) -> list[str]:
    """Everything that is wrong with a database; an empty one has nothing else that could be."""
    at, newest = migrate.version(connection), migrate.numbers()[-1]
    if at == 0:
        return [EMPTY]
    checks = (*CHECKS, *(POSTGRES_CHECKS if connection.name == "postgres" else ()))
    weaknesses = [finding for check in checks for finding in check(connection)]
    if at != newest:
        return [*weaknesses, f"the database is at schema {at} of {newest}: run `interlock db upgrade`"]
    return [*weaknesses, *check_guard(connection, lifecycles)]


def check_guard(connection: Connection, lifecycles: Mapping[str, Lifecycle]) -> Iterator[str]:
    """The guard is what this program ships. What is only unknown is named too, and is no tampering by itself."""
    yield from (
        f"the guard is not what this program ships: {text}"
        for text in guard.find_differences(connection, lifecycles.values())
    )
    if unknown := guard.find_unknown_lifecycles(connection, lifecycles.values()):
        yield (
            f"the guard knows lifecycles that this program does not: {', '.join(unknown)}; if they are yours, name "
            "their files (--lifecycles FILE)"
        )


def check_settings(connection: Connection) -> Iterator[str]:
    """Finds settings that lose commits, or files that are damaged."""
    if isinstance(connection, SqliteConnection):
        yield from check_file(connection)
    else:
        yield from check_server(connection)


def check_file(connection: SqliteConnection) -> Iterator[str]:
    """Finds what is wrong with a SQLite file and its settings."""
    yield from (str(row[0]) for row in connection.rows("PRAGMA integrity_check") if row[0] != "ok")
    if connection.rows("PRAGMA synchronous")[0][0] < FULL:
        yield "synchronous is below FULL: a power loss may lose commits that were acknowledged"
    if not connection.private and is_open_to_others(connection.path):
        yield f"the group or others can read or write the database: chmod 600 '{connection.path}'"


def check_server(connection: Connection) -> Iterator[str]:
    """What is wrong with the server, or with how we came to it."""
    if connection.pooled:
        yield POOLED
    if connection.rows("SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user")[0][0]:
        yield "this role bypasses row-level security: let the application use another one"
    for name in ("fsync", "synchronous_commit"):
        if connection.rows("SELECT current_setting(:name)", {"name": name})[0][0] == "off":
            yield f"{name} is off: a crash may lose commits that were acknowledged"
    for pid, age in connection.rows(OLDEST):
        yield f"the transaction of process {pid} is open for {age}: readers of events wait for it"


def check_paths(connection: Connection) -> Iterator[str]:
    """Finds definer functions that look for names where others can put theirs."""
    home = rights.find_home(connection)
    for (function,) in connection.rows(DEFINERS, {"home": home}):
        path = f"search_path = pg_catalog, {home}, pg_temp"
        yield (
            f"function {function} runs as its owner without `{path}`, so that a temporary table may stand in for one "
            f"of ours: ALTER FUNCTION {function} SET {path}"
        )


def check_superusers(connection: Connection) -> Iterator[str]:
    """Finds tables and functions that a superuser owns."""
    for (owner,) in connection.rows(SUPERUSER_OWNERS, {"home": rights.find_home(connection)}):
        yield (
            f"schema {rights.find_home(connection)}, its tables or its functions are owned by the superuser {owner}, "
            "as whom the guard then runs: let an ordinary role own them (ALTER … OWNER TO …)"
        )


def check_public(connection: Connection) -> Iterator[str]:
    """Finds rights of PUBLIC from which attacks begin."""
    for (database,) in connection.rows(PUBLIC_TEMPORARY):
        yield (
            "PUBLIC may create temporary objects in this database, with which attacks on functions begin: "
            f"REVOKE TEMPORARY ON DATABASE {database} FROM PUBLIC"
        )
    home = rights.find_home(connection)
    if connection.rows(PUBLIC_CREATE, {"home": home}):
        yield (
            f"PUBLIC may create objects in schema {home}, among those of ours: "
            f"REVOKE CREATE ON SCHEMA {home} FROM PUBLIC"
        )


def check_roles(connection: Connection) -> Iterator[str]:
    """Whoever owns the tables can take their guard away: of a program that does so, only an audit tells."""
    for (owner,) in connection.rows(IS_OWNER):
        yield (
            f"this role, {owner}, owns the tables: what it runs may switch the guard off, so that for it the promise "
            "that an illegal move is impossible is kept by `interlock audit` alone, and an anchor kept elsewhere; let "
            f"programs use a role that was granted {rights.APP}"
        )
    if missing := rights.find_missing_roles(connection):
        yield (
            f"the server has no role {' and no role '.join(missing)}; somebody who may make roles runs: "
            + " ".join(line.partition("  --")[0] for line in rights.format_for_dba(connection))
            + " and then the owner runs `interlock db upgrade`"
        )


def check_rights(connection: Connection) -> Iterator[str]:
    """Finds rights that roles lack."""
    yield from guard.find_missing_rights(connection)


def check_generation(connection: Connection) -> Iterator[str]:
    """Finds that a database was restored, and that nobody has said so."""
    if restore.is_counted_anew(connection):
        yield f"the database was restored into a server that counts transactions anew: {restore.RUN}"


CHECKS: tuple[Check, ...] = (check_settings,)
POSTGRES_CHECKS: tuple[Check, ...] = (
    check_paths, check_superusers, check_public, check_roles, check_rights, check_generation,
)  # fmt: skip
