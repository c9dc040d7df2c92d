"""PostgreSQL: many writers, told apart by row locks, each tenant behind row-level security."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, LiteralString, cast

import psycopg

from interlock.kernel.errors import InterlockError

NAME = "postgres"
# Readers take only transactions below their snapshot's xmin, so the order of commits is the order of (xid, pos).
POS = "xid  BIGINT NOT NULL DEFAULT (pg_current_xact_id()::text::bigint),\n    pos  BIGINT GENERATED ALWAYS AS IDENTITY"
MIGRATION_LOCK = 5_318_008_531_800_853  # any number, as long as it is always the same


@cache
def dialect(sql: str) -> LiteralString:
    """Our `:name` parameters in psycopg's spelling; a cast such as ::text stays."""
    return cast("LiteralString", re.sub(r"(?<!:):(\w+)", r"%(\1)s", sql.replace("%", "%%")))


class Connection:
    """A connection in autocommit, so that a transaction begins where we say so."""

    name, pos = NAME, POS

    def __init__(self, url: str) -> None:
        try:
            self.raw = psycopg.connect(url, autocommit=True)
        except psycopg.OperationalError as error:
            reason = str(error).strip().splitlines()[-1]
            raise InterlockError(f"PostgreSQL cannot be reached: {reason}") from None

    def rows(self, sql: str, params: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        cursor = self.raw.execute(dialect(sql), params or {})
        return cursor.fetchall() if cursor.description else []

    def many(self, sql: str, rows: list[dict[str, Any]]) -> None:
        with self.raw.cursor() as cursor:
            cursor.executemany(dialect(sql), rows)

    def script(self, sql: str) -> None:
        self.raw.execute(cast("LiteralString", sql))

    def begin(self) -> None:
        self.raw.execute("BEGIN")

    def commit(self) -> None:
        self.raw.execute("COMMIT")

    def rollback(self) -> None:
        self.raw.execute("ROLLBACK")

    def has_table(self, name: str) -> bool:
        return self.rows("SELECT to_regclass(:name) IS NOT NULL", {"name": name})[0][0] is True

    def close(self) -> None:
        self.raw.close()
