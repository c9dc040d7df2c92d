"""Compare the guard of a database with the shipped one: what is missing, disabled, changed or added.

Asked are the items of the inventory, the edges and paths of the lifecycles, and on PostgreSQL the rights of roles and
whether triggers fire at all. What the owner may have on purpose is no finding: indexes, tables and functions of its
own, and rights of other roles as far as a role of ours has them too. Edges and paths of a lifecycle that this program
does not know are of somebody's own file: the guard of the others does not rest on them. What is retired lets nothing
pass.
"""

import hashlib
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any

from interlock.kernel.errors import InterlockError
from interlock.kernel.lifecycle import Lifecycle
from interlock.kernel.paths import Path as TransitionPath
from interlock.kernel.paths import enumerate_paths
from interlock.store import inventory, rights
from interlock.store.connection import Connection

NAMED_MAX = 3  # findings that a refusal names
MISSING = "is missing"
LEASE = "lease"  # the lifecycle of leases
DAMAGE_MAX = 100  # damaged places that are named
STRICT = ("trigger", "policy", "rule", "function")  # of these kinds none may be added
EDGE_COLUMNS = ("lifecycle", "source", "trigger", "target", "name", "severity", "opens_attempt", "category")
EDGES = f"SELECT {', '.join(EDGE_COLUMNS)} FROM edge WHERE retired = 0"
PATHS = "SELECT id, lifecycle, source, target FROM transition_path WHERE retired = 0 AND forced = 0"
EDGES_NOTED = "SELECT value FROM about WHERE name = 'edges'"
LIFECYCLES_NOTED = "SELECT value FROM about WHERE name = 'lifecycles'"
LISTING = 1  # counts the ways in which paths were made of edges
# The paths of a lifecycle with those of that lease, by its identity: enumerating all of them takes a while.
CACHE: dict[int, tuple[Lifecycle, Lifecycle, tuple[TransitionPath, ...]]] = {}
# What was granted to whom, be it in one column; what our roles are; and whether triggers fire in this session.
RIGHTS = """
WITH home AS (SELECT relnamespace AS oid FROM pg_catalog.pg_class WHERE pg_class.oid = to_regclass('about')),
ours AS (
    SELECT pg_class.oid, relname, relowner, relacl FROM pg_catalog.pg_class JOIN home ON home.oid = relnamespace
    WHERE relname = ANY (string_to_array(:tables, ',')) AND relkind IN ('r', 'p', 'v')
), granted AS (
    SELECT relname, relowner, acl.grantee, acl.privilege_type FROM ours, aclexplode(relacl) AS acl
    UNION ALL
    SELECT relname, relowner, acl.grantee, acl.privilege_type || '(' || attname || ')'
    FROM ours JOIN pg_catalog.pg_attribute ON attrelid = ours.oid, aclexplode(attacl) AS acl
)
SELECT coalesce(rolname, 'PUBLIC'), relname, string_agg(DISTINCT privilege_type, ',')
FROM granted LEFT JOIN pg_catalog.pg_roles ON pg_roles.oid = grantee WHERE grantee <> relowner GROUP BY rolname, relname
UNION ALL
SELECT rolname, '', concat_ws(', ', CASE WHEN rolsuper THEN 'is a superuser' END,
                              CASE WHEN rolbypassrls THEN 'bypasses row-level security' END,
                              (SELECT 'is a member of ' || string_agg(above.rolname, ' and ' ORDER BY above.rolname)
                               FROM pg_catalog.pg_auth_members JOIN pg_catalog.pg_roles AS above ON above.oid = roleid
                               WHERE member = pg_roles.oid AND above.rolname <> :least))
FROM pg_catalog.pg_roles WHERE rolname = ANY (string_to_array(:roles, ','))
UNION ALL
SELECT '', '', current_setting('session_replication_role')
"""
UPGRADE = "its owner runs `interlock db upgrade --db URL`"
CURE = (
    "find out who did it and ask `interlock audit`; then the owner puts it back: `interlock db upgrade` mends edges "
    "and rights, and `interlock db sql` prints the rest"
)


def find_differences(connection: Connection, lifecycles: Iterable[Lifecycle]) -> list[str]:
    """What weakens the guard of a database, if anything does."""
    lifecycles = list(lifecycles)
    differences = [
        *find_changed_items(connection),
        *find_changed_edges(connection, lifecycles),
        *find_changed_paths(connection, lifecycles),
    ]
    return [*differences, *find_added_rights(connection)] if connection.name == "postgres" else differences


def find_damage(connection: Connection) -> list[str]:
    """Pages of a SQLite file that do not fit together; a server looks after its own."""
    if connection.name != "sqlite":
        return []
    rows = connection.rows(f"PRAGMA integrity_check({DAMAGE_MAX})")
    return [f"the database file is damaged: {text}" for (text,) in rows if text != "ok"]


def refuse_changed(connection: Connection, lifecycles: Iterable[Lifecycle]) -> None:
    """Raises InterlockError if the guard is not what this program ships; it says what differs and what to do."""
    lifecycles = list(lifecycles)
    differences = find_differences(connection, lifecycles)
    kinds = ("edge", "path")
    lacking = [
        name for name in (lifecycle.name for lifecycle in lifecycles)
        if any(difference.startswith(f"{kind} {name}:") for difference in differences for kind in kinds)
    ]  # fmt: skip
    if lacking and all(difference.startswith(kinds) and difference.endswith(MISSING) for difference in differences):
        # Nothing that was refused passes now: it may be no more than a lifecycle that has grown.
        names = " nor this ".join(lacking)
        raise InterlockError(
            f"the guard of the database does not know this {names}: {shorten_list(differences)}; {UPGRADE}"
        )
    refuse(differences)


def refuse_changed_file(connection: Connection) -> None:
    """The same for a SQLite file before it is brought to other lifecycles: its edges are those of its last upgrade."""
    noted = connection.rows(EDGES_NOTED)
    tampered = bool(noted) and noted[0][0] != digest_edges(connection)
    refuse(
        [
            *find_changed_items(connection),
            *(["edges were added or taken away since the last upgrade"] if tampered else []),
        ]
    )


def refuse(differences: list[str]) -> None:
    """Refuses a guard that differs."""
    if differences:
        raise InterlockError(
            f"the guard of the database is not what this program ships: {shorten_list(differences)}; {CURE}"
        )


def shorten_list(differences: list[str]) -> str:
    """The first of these findings, and how many there are more."""
    more = f" and {len(differences) - NAMED_MAX} more" if len(differences) > NAMED_MAX else ""
    return f"{', '.join(differences[:NAMED_MAX])}{more}"


def find_changed_items(connection: Connection) -> Iterator[str]:
    """What the program ships and the database has not, or otherwise; and what was added to it."""
    wanted, there = inventory.list_shipped(connection.name), inventory.read_items(connection)
    for name, digest in wanted.items():
        if name not in there:
            if not is_optional(name):
                yield f"{name} {MISSING}"
        elif there[name].digest != digest:
            yield f"{name} {there[name].fault or 'differs'}"
    tables = {name.partition(" ")[2] for name in wanted if name.startswith("table ")}
    for name in there.keys() - wanted.keys():
        kind, _, rest = name.partition(" ")
        if kind in STRICT and (kind == "function" or rest.rpartition(" on ")[2] in tables):
            yield f"{name} was added"


def is_optional(name: str) -> bool:
    """Whether an item is there only if a role is, which a server need not have."""
    return any(name.startswith(f"policy {rights.name_policy(role)} on ") for role in rights.SEES_ALL)


def find_changed_edges(connection: Connection, lifecycles: Iterable[Lifecycle]) -> Iterator[str]:
    """The edges of these lifecycles are exactly those that the guard lets pass."""
    there: dict[str, set[tuple[Any, ...]]] = {}
    for edge in connection.rows(EDGES):
        there.setdefault(edge[0], set()).add(tuple(edge))
    for lifecycle in lifecycles:
        wanted, known = list_edges(lifecycle), there.get(lifecycle.name, set())
        for word, edges in ((MISSING, wanted - known), ("was added", known - wanted)):
            for _, source, trigger, target, *_ in sorted(edges):
                yield f"edge {lifecycle.name}: {source or 'birth'} -> {target} by '{trigger}' {word}"


def find_changed_paths(connection: Connection, lifecycles: Sequence[Lifecycle]) -> Iterator[str]:
    """The paths of these lifecycles are exactly those that an act may follow."""
    there: dict[str, dict[int, tuple[str, str]]] = {}
    for path_id, name, source, target in connection.rows(PATHS):
        there.setdefault(name, {})[path_id] = source, target
    for lifecycle in lifecycles:
        wanted = {path.id: (path.source, path.target) for path in list_paths(lifecycles, lifecycle)}
        known = there.get(lifecycle.name, {})
        for word, ways in ((MISSING, subtract_paths(wanted, known)), ("was added", subtract_paths(known, wanted))):
            for path_id, (source, target) in ways:
                yield f"path {lifecycle.name}: {source or 'birth'} -> {target} ({path_id}) {word}"


def subtract_paths(paths: dict[int, tuple[str, str]], others: Container[int]) -> list[tuple[int, tuple[str, str]]]:
    """Returns the paths that the others do not have."""
    return sorted((path_id, ends) for path_id, ends in paths.items() if path_id not in others)


def list_edges(lifecycle: Lifecycle) -> set[tuple[Any, ...]]:
    """The rows of a lifecycle in the table of edges."""
    return {
        (
            lifecycle.name, hop.source or "", hop.trigger, hop.target, hop.event, str(hop.severity),
            int(hop.opens_attempt),
            str(lifecycle.category(hop.target)),
        )
        for hop in lifecycle.hops
    }  # fmt: skip


def list_paths(lifecycles: Iterable[Lifecycle], lifecycle: Lifecycle) -> Iterable[TransitionPath]:
    """The paths of one of these lifecycles; the lease has none of its own, it goes along with units."""
    leases = next(candidate for candidate in lifecycles if candidate.name == LEASE)
    if lifecycle is leases:
        return ()
    known = CACHE.get(id(lifecycle))
    if known is None or known[0] is not lifecycle or known[1] is not leases:
        known = CACHE[id(lifecycle)] = lifecycle, leases, tuple(enumerate_paths(lifecycle, leases))
    return known[2]


def find_unknown_lifecycles(connection: Connection, lifecycles: Iterable[Lifecycle]) -> list[str]:
    """Lifecycles whose edges the guard knows and this program does not."""
    known = {lifecycle.name for lifecycle in lifecycles}
    return sorted({row[0] for row in connection.rows(EDGES)} - known)


def digest_edges(connection: Connection) -> str:
    """Returns the digest of all edges and paths of a database."""
    rows = sorted(map(repr, (tuple(row) for sql in (EDGES, PATHS) for row in connection.rows(sql))))
    text = "\n".join(rows)
    return hashlib.sha256(text.encode()).hexdigest()


def note_edges(connection: Connection, lifecycles: Iterable[Lifecycle]) -> None:
    """A file knows the edges of its last upgrade: so a lifecycle that changed is told from an edge that was added."""
    for name, now in (("edges", digest_edges(connection)), ("lifecycles", digest_lifecycles(lifecycles))):
        connection.rows("DELETE FROM about WHERE name = :name", {"name": name})
        connection.rows("INSERT INTO about (name, value) VALUES (:name, :digest)", {"name": name, "digest": now})


def knows_lifecycles(connection: Connection, lifecycles: Iterable[Lifecycle]) -> bool:
    """Whether the last upgrade of a file was for these lifecycles, so that there is nothing to list."""
    return connection.rows(LIFECYCLES_NOTED) == [(digest_lifecycles(lifecycles),)]


def digest_lifecycles(lifecycles: Iterable[Lifecycle]) -> str:
    """Of all that edges and paths are made of."""
    facts = sorted((lifecycle.name, lifecycle.leased, sorted(list_edges(lifecycle))) for lifecycle in lifecycles)
    return hashlib.sha256(f"{LISTING} {facts!r}".encode()).hexdigest()


def read_granted(connection: Connection) -> dict[tuple[str, str], str]:
    """By role and table: its rights there, with commas between them; by role alone: what it is and should not be."""
    names = ",".join((*rights.list_shipped_names("TABLE"), *rights.list_shipped_names("VIEW")))
    rows = connection.rows(RIGHTS, {"tables": names, "roles": ",".join(rights.PURPOSES), "least": rights.APP})
    return {(role, table): given for role, table, given in rows}


def find_added_rights(connection: Connection) -> Iterator[str]:
    """Rights that no role of ours has; of our roles, those that are not theirs; of PUBLIC, any."""
    there = read_granted(connection)
    if there.pop(("", "")) == "replica":
        yield "session_replication_role is replica, so that no trigger fires"
    for (role, table), given in sorted(there.items()):
        if not table:
            if given:
                yield f"role {role} {given}"
            continue
        ours = rights.list_rights(role, table) if role in rights.PURPOSES else list_all_rights(table)
        if extra := set(given.split(",")) - set(() if role == "PUBLIC" else ours):
            yield f"{role} may {', '.join(sorted(extra))} on {table}"


def list_all_rights(table: str) -> tuple[str, ...]:
    """What some role of ours may do with a table."""
    return tuple({right for role in rights.PURPOSES for right in rights.list_rights(role, table)})


def find_missing_rights(connection: Connection) -> Iterator[str]:
    """What a role of ours should be able to do and cannot. Nothing is less safe, but a program may be refused."""
    there, absent = read_granted(connection), rights.find_missing_roles(connection)
    for role in (role for role in rights.PURPOSES if role not in absent):
        lacks = [
            table
            for table in (*rights.list_shipped_names("TABLE"), *rights.list_shipped_names("VIEW"))
            if set(rights.list_rights(role, table)) - set(there.get((role, table), "").split(","))
        ]
        if lacks:
            yield f"role {role} lacks rights on {', '.join(lacks)}: the owner runs `interlock db upgrade`"
