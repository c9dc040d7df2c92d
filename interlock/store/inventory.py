"""List what guards a database, from its catalogue and from the shipped files.

An item has a name for people ("trigger guard_event on event") and facts, which are compared by digest. The facts are
those that every supported version of PostgreSQL spells alike. What SQLite should have is read from a database in memory
that the same migrations made; for PostgreSQL it is in `schema/manifest.postgres.json`, which `scripts/manifest.py`
writes from a fresh database. Nothing is read from the database that is asked: whoever changed its guard could change
that too.
"""

import hashlib
import json
import re
from functools import cache
from typing import NamedTuple

from interlock.store import migrations, rights
from interlock.store.connection import Connection
from interlock.store.sqlite import MEMORY, SqliteConnection

# What versions of PostgreSQL spell differently when they print a view: prefixes, aliases, casts and brackets. Which
# columns of which tables it reads is among its facts besides, so that a prefix hides no other table.
SPELLING = re.compile(r"\b\w+\.(?=\w)|\bAS \w+|::\w+|[()]")
MANIFEST = migrations.SCHEMA / "manifest.postgres.json"
DIGITS = 16  # of a digest that is kept
# Names are printed without their schema, because it is in the path: else `about` would not be found.
POSTGRES = """
WITH owned AS (
    SELECT relnamespace AS home, relowner AS owner FROM pg_catalog.pg_class WHERE oid = to_regclass('about')
), ours AS (
    SELECT pg_class.oid, relname, relkind, relrowsecurity, relforcerowsecurity, relhassubclass, relpersistence,
           reloptions, relowner = owner AS owned
    FROM pg_catalog.pg_class JOIN owned ON home = relnamespace
    WHERE relname = ANY (string_to_array(:tables, ',')) AND relkind IN ('r', 'p', 'v')
)
SELECT 'table', relname, CASE relpersistence WHEN 'u' THEN 'is unlogged, so that a crash empties it' ELSE '' END,
       concat_ws(' ', relkind, owned, relhassubclass, relpersistence, (
           SELECT string_agg(concat_ws(' ', attname, format_type(atttypid, atttypmod), attnotnull, attidentity,
                                       attgenerated, pg_get_expr(adbin, adrelid, true)), ', ' ORDER BY attname)
           FROM pg_catalog.pg_attribute LEFT JOIN pg_catalog.pg_attrdef ON adrelid = attrelid AND adnum = attnum
           WHERE attrelid = ours.oid AND attnum > 0 AND NOT attisdropped))
FROM ours
UNION ALL
SELECT 'view', relname, '', concat_ws(' ', reloptions, (
           SELECT string_agg(one, ', ' ORDER BY one COLLATE "C") FROM (
               SELECT DISTINCT concat_ws(' ', refclassid::regclass, refobjid::regclass, attname) AS one
               FROM pg_catalog.pg_rewrite JOIN pg_catalog.pg_depend ON classid = 'pg_rewrite'::regclass
                   AND objid = pg_rewrite.oid AND refobjid <> ours.oid
               LEFT JOIN pg_catalog.pg_attribute ON refclassid = 'pg_class'::regclass AND attrelid = refobjid
                   AND attnum = refobjsubid
               WHERE ev_class = ours.oid) AS reads), pg_get_viewdef(ours.oid))
FROM ours WHERE relkind = 'v'
UNION ALL
SELECT 'row-level security of', relname,
       CASE WHEN NOT relrowsecurity THEN 'is off' WHEN NOT relforcerowsecurity THEN 'is not forced' ELSE '' END,
       concat_ws(' ', relrowsecurity, relforcerowsecurity)
FROM ours WHERE relkind <> 'v'
UNION ALL
SELECT 'trigger', tgname || ' on ' || relname,
       CASE tgenabled WHEN 'D' THEN 'is disabled' WHEN 'R' THEN 'fires for replicas only' ELSE '' END,
       concat_ws(' ', tgenabled, pg_get_triggerdef(pg_trigger.oid, true))
FROM pg_catalog.pg_trigger JOIN ours ON ours.oid = tgrelid WHERE NOT tgisinternal
UNION ALL
SELECT 'policy', polname || ' on ' || relname, '', concat_ws(' ', polpermissive, polcmd, (
           SELECT string_agg(coalesce(rolname, 'PUBLIC'), ',' ORDER BY rolname)
           FROM unnest(polroles) AS role LEFT JOIN pg_catalog.pg_roles ON pg_roles.oid = role),
           pg_get_expr(polqual, polrelid, true), 'CHECK', pg_get_expr(polwithcheck, polrelid, true))
FROM pg_catalog.pg_policy JOIN ours ON ours.oid = polrelid
UNION ALL
SELECT 'rule', rulename || ' on ' || relname, '', concat_ws(' ', ev_type, ev_enabled, is_instead)
FROM pg_catalog.pg_rewrite JOIN ours ON ours.oid = ev_class WHERE relkind <> 'v'
UNION ALL
SELECT 'index', indexed.relname, CASE WHEN indisvalid THEN '' ELSE 'is invalid' END,
       concat_ws(' ', indisvalid, indisunique, pg_get_indexdef(indexrelid, 0, true))
FROM pg_catalog.pg_index JOIN ours ON ours.oid = indrelid
JOIN pg_catalog.pg_class AS indexed ON indexed.oid = indexrelid
UNION ALL
SELECT 'constraint', conname || ' on ' || relname, '',
       concat_ws(' ', convalidated, pg_get_constraintdef(pg_constraint.oid, true))
FROM pg_catalog.pg_constraint JOIN ours ON ours.oid = conrelid WHERE contype IN ('p', 'u', 'c', 'f', 'x')
UNION ALL
SELECT 'sequence', sequence.relname, '',
       concat_ws(' ', format_type(seqtypid, NULL), seqstart, seqincrement, seqmin, seqmax, seqcache, seqcycle)
FROM pg_catalog.pg_sequence JOIN pg_catalog.pg_class AS sequence ON sequence.oid = seqrelid
JOIN pg_catalog.pg_depend ON objid = seqrelid AND classid = 'pg_class'::regclass AND refclassid = 'pg_class'::regclass
JOIN ours ON ours.oid = refobjid
UNION ALL
SELECT 'function', proname || '(' || pg_get_function_identity_arguments(pg_proc.oid) || ')', '',
       concat_ws(' ', lanname, prosecdef, provolatile, prorettype::regtype, proowner = owner, (
           SELECT string_agg(replace(setting, ', ' || home::regnamespace::text || ', ', ', {home}, '), ', '
                             ORDER BY setting)
           FROM unnest(proconfig) AS setting), (
           SELECT string_agg(privilege_type, ',') FROM aclexplode(coalesce(proacl, acldefault('f', proowner)))
           WHERE grantee = 0), prosrc, pg_get_function_sqlbody(pg_proc.oid))
FROM pg_catalog.pg_proc JOIN owned ON home = pronamespace JOIN pg_catalog.pg_language ON pg_language.oid = prolang
WHERE proname = ANY (string_to_array(:functions, ','))
"""
SQLITE = "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE sql IS NOT NULL"


class Item(NamedTuple):
    """One thing that guards: what is known to be wrong with it as it stands, and the digest of its facts."""

    fault: str
    digest: str


def digest(facts: str) -> str:
    """Facts in few letters. How they are broken into lines, and whether names are quoted, does not count."""
    return hashlib.sha256(" ".join(facts.replace('"', "").split()).encode()).hexdigest()[:DIGITS]


def read_items(connection: Connection) -> dict[str, Item]:
    """What guards this database, by name."""
    if connection.name == "sqlite":
        return sqlite_items(connection)
    names = {
        "tables": ",".join((*rights.list_shipped_names("TABLE"), *rights.list_shipped_names("VIEW"))),
        "functions": ",".join(rights.list_shipped_names("FUNCTION")),
    }
    return {
        f"{kind} {name}": Item(fault, digest(normalize_view(facts) if kind == "view" else facts))
        for kind, name, fault, facts in connection.rows(POSTGRES, names)
    }


def normalize_view(facts: str) -> str:
    """Facts of a view: what it reads, and its text without what depends on the server's version."""
    reads, select, text = facts.partition(" SELECT ")
    return f"{reads}{select}{SPELLING.sub(' ', text)}"


def sqlite_items(connection: Connection) -> dict[str, Item]:
    """Lists what guards a SQLite database."""
    items = {}
    for kind, name, table, sql in connection.rows(SQLITE):
        shown = f"{kind} {name} on {table}" if kind == "trigger" else f"{kind} {name}"
        items[shown] = Item("", digest(sql))
    return items


def list_shipped(database: str) -> dict[str, str]:
    """The digest of everything that guards a database of this kind, by name, as this program ships it."""
    return list_shipped_sqlite() if database == "sqlite" else read_manifest()


@cache
def list_shipped_sqlite() -> dict[str, str]:
    """Lists what guards a SQLite database that this program has made."""
    connection = SqliteConnection(MEMORY)
    try:
        for number in migrations.numbers():
            connection.script(migrations.sql(number, connection.name))
        return {name: item.digest for name, item in sqlite_items(connection).items()}
    finally:
        connection.close()


@cache
def read_manifest() -> dict[str, str]:
    """Reads what guards a PostgreSQL database that this program has made."""
    items: dict[str, str] = json.loads(MANIFEST.read_text(encoding="utf-8"))["items"]
    return items


def source_digest() -> str:
    """Of every migration of PostgreSQL and of the rights: a manifest that was made from others is out of date."""
    files = sorted(path for path in migrations.SCHEMA.glob("*.sql") if ".sqlite" not in path.suffixes)
    texts = [re.sub(r"--.*", "", path.read_text(encoding="utf-8")) for path in files]
    return digest(f"{' '.join(texts)} {POSTGRES} {rights.SEES_ALL}")
