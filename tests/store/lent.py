"""PostgreSQL databases that one test after another is lent: as fresh as a new one, at a third of its price.

A new database must be copied and dropped, and on a new connection every statement is planned anew. So a test gives its
database back, and its rows are made what they were; its connection stays open for the next test. A database is dropped
in which anything else has changed (a table, a function, a right, a path of a lifecycle), or to which somebody is still
connected, and so is one that was lent often: what tests delete stays in its files.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count

from psycopg.pq import TransactionStatus

from interlock.kernel.errors import StoreError
from interlock.store.postgres import PostgresConnection
from interlock.store.postgres.driver import PipelineConnection, translate_errors, translate_sql
from tests.store.databases import copy_template, drop_database, swap

LENT_MAX = 30  # times
PATIENCE = 0.2  # seconds that those have to leave who were connected
FIXED = ("edge", "transition_path", "path_hop", "command_path")  # whoever writes to them has another database
FIRST_OID = 16_384  # of what is not PostgreSQL's own
# What a database is beside its rows, by the column that says whose it is.
CATALOGS = {
    "pg_class": "oid", "pg_attribute": "attrelid", "pg_attrdef": "oid", "pg_proc": "oid", "pg_trigger": "oid",
    "pg_constraint": "oid", "pg_policy": "oid", "pg_rewrite": "oid", "pg_type": "oid", "pg_namespace": "oid",
    "pg_event_trigger": "oid",
}  # fmt: skip
# A row that was changed has been written by a later transaction, and one that was deleted is not counted.
SHAPE = " UNION ALL ".join(
    [
        f"SELECT count(*), max(xmin::text::bigint) FROM {name} WHERE {key} >= {FIRST_OID}"
        for name, key in CATALOGS.items()
    ]
    + [f"SELECT count(*), max(xmin::text::bigint) FROM {name}" for name in FIXED]
    + ["SELECT count(*), 0 FROM pg_db_role_setting"]
)
TABLES = "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace ORDER BY 1"
OTHERS = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
# What a session has set for itself; what it has prepared stays.
FORGET = (
    "SET SESSION AUTHORIZATION DEFAULT", "RESET ALL", "UNLISTEN *", "SELECT pg_advisory_unlock_all()", "CLOSE ALL",
    "DISCARD TEMP", "DISCARD SEQUENCES",
)  # fmt: skip
NEW_EPOCH = "UPDATE about SET value = replace(gen_random_uuid()::text, '-', '') WHERE name = 'epoch'"  # it is no copy
Statement = tuple[str, dict[str, str]]  # with its parameters
numbers = count(1)
free: dict[str, list["LentDatabase"]] = {}  # by server: those that nobody has now


class LentDatabase:
    """A database that is made fresh whenever it is given back."""

    def __init__(self, server: str) -> None:
        self.server, self.name, self.times = server, f"lent_{os.getpid()}_{next(numbers)}", 0
        self.spare: dict[str, PipelineConnection] = {}  # by role: connections that nobody uses now
        copy_template(server, self.name)
        self.owner = PostgresConnection(swap(server, self.name))
        self.owner.script("SET session_replication_role = replica")  # what guards the rows does not see it
        tables = [table for (table,) in self.owner.rows(TABLES) if table not in FIXED]
        self.reset = [statement for table in tables for statement in list_reset(self.owner, table)]
        self.shape = self.owner.rows(SHAPE)

    def make_fresh(self) -> bool:
        """Its rows are those of a new one. Returns whether it is as a new one otherwise too, and nobody uses it."""
        self.times += 1
        own = {connection.info.backend_pid for connection in self.spare.values()}
        end = time.monotonic() + PATIENCE
        try:
            while {pid for (pid,) in self.owner.rows(OTHERS)} - own:
                if time.monotonic() > end:
                    return False
                time.sleep(0.002)
            with translate_errors(), self.owner.raw.pipeline():
                for sql, params in (("BEGIN", {}), *self.reset, (NEW_EPOCH, {}), ("COMMIT", {})):
                    self.owner.raw.execute(translate_sql(sql), params)
            return self.times < LENT_MAX and self.owner.rows(SHAPE) == self.shape
        except StoreError:  # it is away, or its tables are
            return False

    def drop(self) -> None:
        for connection in (self.owner, *self.spare.values()):
            connection.close()
        with suppress(StoreError):  # its server is away
            drop_database(self.server, self.name)


def list_reset(owner: PostgresConnection, table: str) -> Iterator[Statement]:
    """Yields what makes the rows of a table those that it has now."""
    yield f"DELETE FROM {table}", {}
    ((rows,),) = owner.rows(f"SELECT json_agg({table})::text FROM {table}")
    if rows is not None:
        yield f"INSERT INTO {table} SELECT * FROM json_populate_recordset(NULL::{table}, :rows::json)", {"rows": rows}


@contextmanager
def lend_connection(server: str, role: str = "ordinary") -> Iterator[PostgresConnection]:
    """A connection of a role to a database as fresh as a new one, for as long as a test lasts."""
    known = free.setdefault(server, [])
    database = known.pop() if known else LentDatabase(server)
    url = swap(server, database.name).replace("//postgres@", f"//{role}@")
    raw = database.spare.pop(role, None)
    connection = PostgresConnection(url, later=raw is not None)
    if raw is None:
        raw = connection.raw
    else:
        raw.psycopg.add_notice_handler(connection.warn)
        connection.raw = raw
    fields = set(vars(raw))
    try:
        yield connection
    finally:
        if connection.raw is raw and set(vars(raw)) == fields and forget_session(connection, raw):
            database.spare[role] = raw
        else:
            connection.close()
            raw.close()
        if database.make_fresh():
            known.append(database)
        else:
            database.drop()


def forget_session(connection: PostgresConnection, raw: PipelineConnection) -> bool:
    """Nothing is left of what was set on a connection. Returns whether it can be used again."""
    if raw.closed or raw.sending or raw.sent or not raw.prepares:
        return False
    if raw.info.transaction_status != TransactionStatus.IDLE:
        return False
    raw.psycopg.remove_notice_handler(connection.warn)
    for statement in FORGET:
        raw.execute(statement)
    return True
