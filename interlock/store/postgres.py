"""PostgreSQL: many writers, told apart by row locks, each tenant behind row-level security."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, get_type_hints

import msgspec
import psycopg

from interlock.kernel.errors import InterlockError
from interlock.kernel.rows import Row
from interlock.store.lanes import Lanes
from interlock.store.session import listed

NAME = "postgres"
# Readers take only transactions below their snapshot's xmin, so the order of commits is the order of (xid, pos).
POS = "xid  BIGINT NOT NULL DEFAULT (pg_current_xact_id()::text::bigint),\n    pos  BIGINT GENERATED ALWAYS AS IDENTITY"
# Every finder has its index, and reads it in order, whatever the planner believes of a table that was analyzed while
# it was empty. Before PostgreSQL 18 a scan that cannot be avoided looks so dear then that it would be compiled first.
NOT_BY_INDEX = ("enable_seqscan", "enable_bitmapscan", "jit")
MIGRATION_LOCK = 5_318_008_531_800_853  # any number, as long as it is always the same


@cache
def dialect(sql: str) -> str:
    """Our `:name` parameters in psycopg's spelling; a cast such as ::text stays."""
    sql = sql.replace("{lock}", "FOR UPDATE").replace("{skip}", "FOR UPDATE SKIP LOCKED")
    return re.sub(r"(?<!:):(\w+)", r"%(\1)s", sql.replace("%", "%%"))


@cache
def typed(kind: type[Row]) -> str:
    """The columns of a row with their types, as json_to_recordset wants them."""
    hints = get_type_hints(kind)
    return ", ".join(f"{name} {'text' if 'str' in str(hints[name]) else 'bigint'}" for name in kind.__struct_fields__)


class Connection:
    """A connection in autocommit, so that a transaction begins where we say so."""

    name, pos = NAME, POS

    def __init__(self, url: str, clock: Callable[[], int] | None = None) -> None:
        self.clock = clock  # a test's own
        self.lanes: dict[int, Lanes] = {}
        try:
            self.raw = psycopg.connect(url, autocommit=True)
        except psycopg.OperationalError as error:
            reason = str(error).strip().splitlines()[-1]
            raise InterlockError(f"PostgreSQL cannot be reached: {reason}") from None

    def rows(self, sql: str, params: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        cursor = self.raw.execute(dialect(sql), params or {})
        return cursor.fetchall() if cursor.description else []

    def declare(self, tenants: Sequence[int], *, by_index: bool = False) -> None:
        """This transaction sees and writes the rows of these tenants only, and finds them by index if it says so."""
        listed_ids = "{" + ",".join(map(str, tenants)) + "}"
        plans = "".join(f", set_config('{name}', 'off', true)" for name in (NOT_BY_INDEX if by_index else ()))
        self.rows(f"SELECT set_config('app.tenants', :listed, true){plans}", {"listed": listed_ids})

    def now(self) -> int:
        """The time of the store in microseconds, whatever the machines that speak to it think."""
        if self.clock:
            return self.clock()
        sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
        now: int = self.rows(sql)[0][0]
        return now

    def insert(self, rows: Sequence[Row]) -> None:
        """One statement for all rows: one JSON text is cheaper than as many parameters as there are values."""
        kind = type(rows[0])
        source = f"json_to_recordset(%s) AS given ({typed(kind)})"
        text = msgspec.json.encode(rows).decode()
        self.raw.execute(f"INSERT INTO {kind.table} ({listed(kind)}) SELECT {listed(kind)} FROM {source}", (text,))

    def update(self, rows: Sequence[Row], columns: Sequence[str], key: str) -> None:
        kind = type(rows[0])
        sets = ", ".join(f"{column} = given.{column}" for column in columns)
        source = f"json_to_recordset(%s) AS given ({typed(kind)})"
        text = msgspec.json.encode(rows).decode()
        sql = f"UPDATE {kind.table} SET {sets} FROM {source} WHERE {kind.table}.{key} = given.{key}"
        self.raw.execute(sql, (text,))

    def many(self, sql: str, rows: list[dict[str, Any]]) -> None:
        with self.raw.cursor() as cursor:
            cursor.executemany(dialect(sql), rows)

    def script(self, sql: str) -> None:
        self.raw.execute(sql)

    def begin(self) -> None:
        self.raw.execute("BEGIN")

    def commit(self) -> None:
        self.raw.execute("COMMIT")

    def rollback(self) -> None:
        self.raw.execute("ROLLBACK")

    def lock_migration(self) -> None:
        """No other migration runs until this transaction ends."""
        self.rows("SELECT pg_advisory_xact_lock(:key)", {"key": MIGRATION_LOCK})

    def findings(self) -> list[str]:
        """What is wrong with the server, or with how we came to it."""
        found: list[str] = []
        if self.rows("SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user")[0][0]:
            found.append("this role passes row-level security by: let the application use another one")
        found += [
            f"{name} is off: a crash may lose commits that were acknowledged"
            for name in ("fsync", "synchronous_commit")
            if self.rows("SELECT current_setting(:name)", {"name": name})[0][0] == "off"
        ]
        oldest = "SELECT pid, now() - xact_start FROM pg_stat_activity WHERE xact_start < now() - interval '5 minutes'"
        found += [
            f"the transaction of process {pid} is open for {age}: readers of events wait for it"
            for pid, age in self.rows(f"{oldest} ORDER BY xact_start LIMIT 1")
        ]
        return found

    def has_table(self, name: str) -> bool:
        return self.rows("SELECT to_regclass(:name) IS NOT NULL", {"name": name})[0][0] is True

    def close(self) -> None:
        self.raw.close()
