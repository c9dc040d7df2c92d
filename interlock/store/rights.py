"""Roles and rights on PostgreSQL, and the search path of our functions.

All of it is put right at the end of every upgrade, for everything that the migrations have made: no migration speaks of
roles. The roles are optional. Where the owner may not make them, the database works for the owner alone, and
`lines_for_dba` says what somebody with more rights can run; the next upgrade then gives the roles what is theirs.
"""

import re
from collections.abc import Iterable
from functools import cache

from interlock.store.connection import Connection
from interlock.store.flush import BODY_WRITTEN, COUNTED, WRITTEN
from interlock.store.migrations import SCHEMA
from interlock.store.plugin_tables import list_plugin_tables

APP, SYSTEM, OPERATOR = "interlock_app", "interlock_system", "interlock_operator"
PURPOSES = {
    APP: "for programs, which serve one tenant at a time",
    SYSTEM: "for what serves all tenants",
    OPERATOR: "for people who force moves and archive",
}
SEES_ALL = (SYSTEM,)  # roles with a policy that shows them the rows of every tenant
WRITE, READ = ("SELECT", "INSERT", "UPDATE", "DELETE"), ("SELECT",)
KEEP = ("SELECT", "INSERT", "UPDATE")  # what is written stays
ADD = ("SELECT", "INSERT")
# What of a unit no act writes: clocks, budgets and counters. What of a body is not fixed at its birth.
UNIT = (*ADD, *(f"UPDATE({name})" for name in (*WRITTEN, *COUNTED, "cost")))
BODY = (*ADD, *(f"UPDATE({name})" for name in BODY_WRITTEN))
# The rights of every role in a table are WRITE, but for these. Edges and paths are the law, and its owner's alone to
# change; what an act writes only its trigger writes, which runs as the owner. Programs neither force a move nor take
# anything out of the record: that is for operators.
OF_TABLE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("about", "edge", "transition_path", "path_hop", "command_path"), READ),
    **dict.fromkeys(("event", "journal", "journal_unit", "job_event", "live_lease"), READ),
    "unit": UNIT, "body": BODY, "artifact": KEEP, "tenant": KEEP,
    "act": ADD, "act_detail": ADD, "act_gone": READ, "seal": ADD, "lease": ("SELECT", "DELETE"),
    "archived": READ, "forced_move": READ,
}  # fmt: skip
# By role and table: where a role differs from the others.
OF_ROLE: dict[tuple[str, str], tuple[str, ...]] = {
    (OPERATOR, "unit"): (*UNIT, "DELETE"),
    (OPERATOR, "body"): (*BODY, "DELETE"),
    (OPERATOR, "artifact"): WRITE,
    (OPERATOR, "act"): (*ADD, "DELETE"),
    (OPERATOR, "act_detail"): (*ADD, "DELETE"),
    (OPERATOR, "act_gone"): ADD,
    (OPERATOR, "archived"): ADD,
    (OPERATOR, "forced_move"): (*ADD, "DELETE"),
}
# Functions that roles call themselves; every other one is the guard's alone.
CALLED = {"renew_leases": tuple(PURPOSES), "list_forced_path": (OPERATOR,)}
MADE = re.compile(r"^CREATE (?:OR REPLACE )?(TABLE|VIEW|FUNCTION) (\w+)", re.MULTILINE)
MAY_CREATE_ROLES = "SELECT rolsuper OR rolcreaterole FROM pg_roles WHERE rolname = current_user"
# Where our tables are, as it is written in a statement.
HOME = (
    "SELECT quote_ident(nspname) FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
    "WHERE pg_class.oid = to_regclass('about')"
)
TABLES = (
    "SELECT relname FROM pg_class WHERE relnamespace = (:home)::regnamespace AND relkind IN ('r', 'v') "
    "AND relname = ANY (string_to_array(:names, ','))"
)
FUNCTIONS = (
    "SELECT pg_proc.oid::regprocedure::text, prosecdef FROM pg_proc JOIN pg_language ON pg_language.oid = prolang "
    "WHERE pronamespace = (:home)::regnamespace AND proname = ANY (string_to_array(:names, ',')) "
    "AND (prosecdef OR lanname = 'plpgsql')"
)
WITHOUT_POLICY = (
    "SELECT relname FROM pg_class WHERE relnamespace = (:home)::regnamespace AND relrowsecurity "
    "AND relname = ANY (string_to_array(:names, ',')) "
    "AND NOT EXISTS (SELECT 1 FROM pg_policy WHERE polrelid = pg_class.oid AND polname = :policy)"
)
MAY_LOOK_IN = "SELECT has_schema_privilege(:role, (:home)::regnamespace, 'USAGE')"
MAY_LET_LOOK_IN = "SELECT has_schema_privilege(current_user, (:home)::regnamespace, 'USAGE WITH GRANT OPTION')"


@cache
def list_shipped_names(kind: str) -> tuple[str, ...]:
    """What the migrations of PostgreSQL make of this kind: TABLE, VIEW or FUNCTION."""
    texts = (path.read_text(encoding="utf-8") for path in SCHEMA.glob("*.sql") if ".sqlite" not in path.suffixes)
    return tuple(sorted({name for text in texts for made, name in MADE.findall(text) if made == kind}))


def list_rights(role: str, table: str) -> tuple[str, ...]:
    """What a role may do with a table or a view."""
    return OF_ROLE.get((role, table)) or OF_TABLE.get(table, WRITE)


def name_policy(role: str) -> str:
    """The name of the policy that shows a role the rows of every tenant."""
    return "everybody" if role == SYSTEM else f"everybody_{role}"


def find_home(connection: Connection) -> str:
    """The schema that holds our tables, quoted."""
    return str(connection.rows(HOME)[0][0])


def find_missing_roles(connection: Connection) -> list[str]:
    """Our roles that the server does not have."""
    there = {name for (name,) in connection.rows("SELECT rolname FROM pg_roles WHERE rolname LIKE 'interlock%'")}
    return [role for role in PURPOSES if role not in there]


def apply(connection: Connection) -> None:
    """The roles that there are, or that this owner may make, have their rights; our functions have their path."""
    for statement in statements(connection):
        connection.script(statement)


def statements(connection: Connection) -> list[str]:
    """What puts the rights right, in order. The tables are there already."""
    home, missing = find_home(connection), find_missing_roles(connection)
    made = missing if missing and connection.rows(MAY_CREATE_ROLES)[0][0] else []
    roles = [role for role in PURPOSES if role in made or role not in missing]
    may_let_look_in = connection.rows(MAY_LET_LOOK_IN, {"home": home})[0][0]
    names = ",".join((*list_shipped_names("TABLE"), *list_shipped_names("VIEW"), *list_plugin_tables(connection)))
    tables = sorted(name for (name,) in connection.rows(TABLES, {"home": home, "names": names}))
    every = ", ".join(f"{home}.{table}" for table in tables)
    sql = [f"CREATE ROLE {role} NOLOGIN" for role in made]
    sql += function_statements(connection, home)
    sql.append(f"REVOKE ALL ON {every} FROM PUBLIC")
    for role in roles:
        sql += [f"REVOKE ALL ON {every} FROM {role}", *grants(home, role, tables)]
        sql += [
            f"GRANT EXECUTE ON FUNCTION {home}.{function} TO {role}"
            for function, callers in CALLED.items()
            if role in callers
        ]
        if may_let_look_in:
            sql.append(f"GRANT USAGE ON SCHEMA {home} TO {role}")
        if role in SEES_ALL:
            policy = name_policy(role)
            bare = connection.rows(WITHOUT_POLICY, {"home": home, "names": names, "policy": policy})
            sql += [
                f"CREATE POLICY {policy} ON {home}.{table} TO {role} USING (true) WITH CHECK (true)"
                for (table,) in bare
            ]
    return sql


def grants(home: str, role: str, tables: Iterable[str]) -> list[str]:
    """The statements that give a role its rights in tables."""
    by_rights: dict[tuple[str, ...], list[str]] = {}
    for table in tables:
        by_rights.setdefault(list_rights(role, table), []).append(f"{home}.{table}")
    return [f"GRANT {', '.join(rights)} ON {', '.join(named)} TO {role}" for rights, named in by_rights.items()]


def function_statements(connection: Connection, home: str) -> list[str]:
    """Our functions find names in our schema only, whatever the session's path is.

    With pg_temp last, a temporary table never stands in for one of ours; were it not named, it would come first. A
    guard that everybody may execute could be made a trigger of somebody's own table, whose columns would bring casts
    along that then run as the guard's owner.
    """
    sql = []
    for function, definer in connection.rows(
        FUNCTIONS, {"home": home, "names": ",".join(list_shipped_names("FUNCTION"))}
    ):
        sql.append(f"ALTER FUNCTION {function} SET search_path = pg_catalog, {home}, pg_temp")
        if definer:
            sql.append(f"REVOKE ALL ON FUNCTION {function} FROM PUBLIC")
    return sql


def format_for_dba(connection: Connection) -> list[str]:
    """What somebody who may make roles can run, before the owner upgrades once more; nothing if all is there."""
    missing = find_missing_roles(connection)
    lines = [f"CREATE ROLE {role} NOLOGIN;  -- {PURPOSES[role]}" for role in missing]
    if missing:
        lines.append(f"GRANT {APP} TO your_program;  -- the role that your program logs in with")
    home = find_home(connection)
    if not connection.rows(MAY_LET_LOOK_IN, {"home": home})[0][0]:
        closed = [
            role
            for role in PURPOSES
            if role in missing or not connection.rows(MAY_LOOK_IN, {"role": role, "home": home})[0][0]
        ]
        lines += [f"GRANT USAGE ON SCHEMA {home} TO {role};" for role in closed]
    return lines
