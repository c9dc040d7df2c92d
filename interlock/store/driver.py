"""The PostgreSQL driver in our words: its statements, its errors, and how a connection is made."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import psycopg

from interlock.kernel.errors import Contended, Corrupt, StoreError, Unavailable
from interlock.store.lean import NOT_PREPARED
from interlock.store.session import GUARD, NotPrepared, Taken, Unreachable
from interlock.store.url import split_prepare

UNIQUE = "23505"
CONTENDED = ("40001", "40P01", "55P03", "57014")  # serialization, deadlock, lock not available, cancelled
OUT_OF_REACH = ("08", "53", "57P", "25006")  # connection, resources, shutdown; a primary that is none any more


@cache
def dialect(sql: str) -> str:
    """Our `:name` parameters in psycopg's spelling; a cast such as ::text stays."""
    sql = sql.replace("{lock}", "FOR UPDATE").replace("{skip}", "FOR UPDATE SKIP LOCKED")
    sql = sql.replace("{skip_unit}", "FOR UPDATE OF unit SKIP LOCKED")
    sql = sql.replace("{ids}", "= ANY(:ids)")
    return re.sub(r"(?<!:):(\w+)", r"%(\1)s", sql.replace("%", "%%"))


def meaning(error: Exception) -> StoreError:
    """What an error of the driver says in our words."""
    code, text = getattr(error, "sqlstate", None) or "", str(error).strip().split("\n")[0]
    if GUARD in text:
        return Corrupt(text)
    if code == UNIQUE:
        return Taken(text)
    if code in NOT_PREPARED:
        return NotPrepared(text)
    if code in CONTENDED:
        return Contended(text)
    if code.startswith(OUT_OF_REACH) or (not code and isinstance(error, psycopg.OperationalError)):
        return Unavailable(f"PostgreSQL did not answer: {text}")
    return StoreError(f"PostgreSQL refuses this: {text}")


@contextmanager
def told() -> Iterator[None]:
    """No error of the driver passes."""
    try:
        yield
    except (psycopg.Error, UnicodeError) as error:
        raise meaning(error) from error


def opened(url: str) -> psycopg.Connection[tuple[Any, ...]]:
    """A connection in autocommit, so that a transaction begins where we say so. Raises Unreachable."""
    try:
        return psycopg.connect(split_prepare(url)[0], autocommit=True, prepare_threshold=None, client_encoding="UTF8")
    except psycopg.Error as error:
        reason = str(error).strip().splitlines()[-1]
        raise Unreachable(f"PostgreSQL cannot be reached: {reason}") from None


def is_pooled(raw: psycopg.Connection[tuple[Any, ...]]) -> bool:
    """Whether a pooler stands before the server: it tells clients a number of its own, or swaps what is behind it."""
    numbers = {raw.info.backend_pid}
    with told():
        for _ in range(2):  # transactions
            numbers.add(raw.execute("SELECT pg_backend_pid()").fetchall()[0][0])
    return len(numbers) > 1
