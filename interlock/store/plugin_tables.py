"""Tables of plugins: created once, and separated by tenant as those of the core."""

import re
from collections.abc import Mapping

from interlock.kernel.errors import InterlockError
from interlock.store.connection import Connection
from interlock.store.migrations import as_strict

MADE = re.compile(r"^CREATE TABLE (\w+) \((.*?)^\);$", re.MULTILINE | re.DOTALL)
INSTALLED = "SELECT value FROM about WHERE name = :name"
# As the core's own tables have it: a transaction sees the rows of the tenants that it declared.
POLICIES = """
ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
ALTER TABLE {table} FORCE ROW LEVEL SECURITY;
CREATE POLICY declared ON {table} USING (tenant = ANY ((SELECT declared_tenants())::integer[]))
    WITH CHECK (tenant = ANY ((SELECT declared_tenants())::integer[]));
"""


def has_tables(database: Connection, tables: Mapping[str, str]) -> bool:
    """Whether the tables of all these plugins are there."""
    return all(database.rows(INSTALLED, {"name": f"plugin {name}"}) for name in tables)


def list_plugin_tables(database: Connection) -> list[str]:
    """The tables that plugins have brought."""
    rows = database.rows("SELECT value FROM about WHERE name LIKE 'plugin %' ORDER BY name")
    return [name for (names,) in rows for name in names.split(", ") if name]


def install_tables(database: Connection, tables: Mapping[str, str]) -> None:
    """The tables of these plugins are there, by plugin. Each has a column `tenant`; raises InterlockError if not."""
    for plugin, text in tables.items():
        if database.rows(INSTALLED, {"name": f"plugin {plugin}"}):
            continue
        names = parse_tables(plugin, text)
        database.script(as_strict(text) if database.name == "sqlite" else text)
        if database.name == "postgres":
            database.script("".join(POLICIES.format(table=name) for name in names))
        sql = "INSERT INTO about (name, value) VALUES (:name, :tables)"
        database.rows(sql, {"name": f"plugin {plugin}", "tables": ", ".join(names)})


def parse_tables(plugin: str, text: str) -> list[str]:
    """Returns the names of the tables that a plugin makes."""
    tables = MADE.findall(text)
    for name, columns in tables:
        if not re.search(r"^\s*tenant\s+INTEGER NOT NULL", columns, re.MULTILINE):
            raise InterlockError(f"plugin '{plugin}': table {name} has no column 'tenant INTEGER NOT NULL'")
    return [name for name, _ in tables]
