"""PostgreSQL: many writers, told apart by row locks, each tenant behind row-level security."""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from operator import attrgetter
from typing import Any

import msgspec
import psycopg
from psycopg.errors import Diagnostic
from psycopg.rows import tuple_row

from interlock.kernel.errors import Contended, Corrupt, InterlockError, StoreError, Unavailable
from interlock.kernel.rows import Row
from interlock.store.columns import Given, array
from interlock.store.lanes import Lanes
from interlock.store.memory import Memory
from interlock.store.session import AUTOCOMMIT, GUARD, SAVEPOINT, LostCommit, Queue, Taken, Unreachable, Wire, listed

NAME = "postgres"
# Readers take only transactions below their snapshot's xmin, so the order of commits is the order of (xid, pos).
POS = "xid  BIGINT NOT NULL DEFAULT (pg_current_xact_id()::text::bigint),\n    pos  BIGINT GENERATED ALWAYS AS IDENTITY"
# Every finder has its index, and reads it in order, whatever the planner believes of a table that was analyzed while
# it was empty. Before PostgreSQL 18 a scan that cannot be avoided looks so dear then that it would be compiled first.
PLANS = {
    "enable_seqscan": "off", "enable_bitmapscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off",
    "jit": "off",
}  # fmt: skip
NOW = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
MIGRATION_LOCK = 5_318_008_531_800_853  # any number, as long as it is always the same
UNIQUE = "23505"
CONTENDED = ("40001", "40P01", "55P03", "57014")  # serialization, deadlock, lock not available, cancelled
OUT_OF_REACH = ("08", "53", "57P", "25006")  # connection, resources, shutdown; a primary that is none any more
PAUSES = (0.0, 0.1, 0.5, 1.0, 2.0, 2.0)  # seconds before each try to connect anew: a failover takes some
FATE_PAUSE, FATE_WAIT = 0.05, 60.0
CHANNEL = "interlock_work"
PAYLOAD_MOST = 7_900  # bytes; PostgreSQL takes 8,000
ALL = ""  # a payload that names no queue means every one


@cache
def dialect(sql: str) -> str:
    """Our `:name` parameters in psycopg's spelling; a cast such as ::text stays."""
    sql = sql.replace("{lock}", "FOR UPDATE").replace("{skip}", "FOR UPDATE SKIP LOCKED")
    sql = sql.replace("{ids}", "= ANY(:ids)")
    return re.sub(r"(?<!:):(\w+)", r"%(\1)s", sql.replace("%", "%%"))


def meaning(error: Exception) -> StoreError:
    """What an error of the driver says in our words."""
    code, text = getattr(error, "sqlstate", None) or "", str(error).strip().split("\n")[0]
    if GUARD in text:
        return Corrupt(text)
    if code == UNIQUE:
        return Taken(text)
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
        return psycopg.connect(url, autocommit=True)
    except psycopg.Error as error:
        reason = str(error).strip().splitlines()[-1]
        raise Unreachable(f"PostgreSQL cannot be reached: {reason}") from None


class Connection:
    """A connection whose every acknowledged commit is the server's word, and whose lost ones are told."""

    name, pos, many_writers, private = NAME, POS, True, False

    def __init__(self, url: str, clock: Callable[[], int] | None = None) -> None:
        self.clock = clock  # a test's own
        self.lanes: dict[int, Lanes] = {}
        self.stuck: dict[int, int] = {}
        self.memory: Memory | None = None
        self.url, self.raw = url, opened(url)
        self.mark = ""
        self.warnings: list[str] = []
        self.raw.add_notice_handler(self.warn)

    def rows(self, sql: str, params: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        if params and "ids" in params:
            params = {**params, "ids": array(params["ids"])}
        with told():
            cursor = self.raw.execute(dialect(sql), params or {})
            return cursor.fetchall() if cursor.description else []

    def declare(self, tenants: Sequence[int]) -> None:
        """This transaction sees and writes the rows of these tenants only."""
        self.rows(f"SELECT {settings(declared(tenants))}")

    def now(self) -> int:
        """The time of the store in microseconds, whatever the machines that speak to it think."""
        return self.clock() if self.clock else int(self.rows(f"SELECT {NOW}")[0][0])

    def keep_time(self, clock: Callable[[], int]) -> None:
        self.clock = clock

    def untouched(self, ids: Sequence[int], marks: Mapping[int, str]) -> list[int]:
        """All these units are locked; answers which of them were written last by the transactions that are named.

        A row carries the number of the transaction that wrote it, without its epoch.
        """
        found = self.rows("SELECT id, xmin::text FROM unit WHERE id {ids} ORDER BY id {lock}", {"ids": ids})
        return [one for one, wrote in found if one in marks and int(marks[one]) % 2**32 == int(wrote)]

    def insert(self, rows: Sequence[Row]) -> None:
        """One statement for all rows."""
        kind = type(rows[0])
        given = Given(kind, kind.__struct_fields__, map(msgspec.structs.astuple, rows))
        sql = f"INSERT INTO {kind.table} ({listed(kind)}) SELECT {', '.join(map(given.value, kind.__struct_fields__))}"
        with told():
            self.raw.execute(f"{sql} {given.source}", given.params)

    def update(self, rows: Sequence[Row], columns: Sequence[str], key: str) -> None:
        kind = type(rows[0])
        given = Given(kind, (key, *columns), map(attrgetter(key, *columns), rows))
        sets = ", ".join(f"{column} = {given.value(column)}" for column in columns)
        sql = f"UPDATE {kind.table} SET {sets} {given.source} WHERE {kind.table}.{key} = {given.value(key)}"
        with told():
            self.raw.execute(sql, given.params)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Statements within are sent one after the other, and what became of them is heard at the end."""
        with told(), self.raw.pipeline():
            yield

    def many(self, sql: str, rows: list[dict[str, Any]]) -> None:
        with told(), self.raw.cursor() as cursor:
            cursor.executemany(dialect(sql), rows)

    def script(self, sql: str) -> None:
        with told():
            self.raw.execute(sql)

    def begin(self, tenants: Sequence[int] = ()) -> int:
        """A transaction is open that sees these tenants only. Answers the store's time in microseconds.

        One round trip: several statements without parameters go as one message.
        """
        sql = f"BEGIN; SELECT pg_current_xact_id()::text, {NOW}, {settings({**declared(tenants), **PLANS})}"
        with told():
            cursor = self.raw.execute(sql)
            cursor.nextset()
            self.mark, now, *_ = cursor.fetchall()[0]
        return self.clock() if self.clock else int(now)

    def commit(self) -> None:
        """The transaction stands. Raises LostCommit if the server may have committed and did not say so."""
        self.warnings.clear()
        try:
            status = self.raw.execute("COMMIT").statusmessage
        except psycopg.Error as error:
            if self.raw.closed:
                raise LostCommit(str(error)) from error
            raise meaning(error) from error
        if status != "COMMIT":
            raise StoreError("PostgreSQL had given the transaction up before its COMMIT")
        if self.warnings:
            # Told so when the wait for a synchronous standby was cancelled: committed here, perhaps nowhere else.
            raise LostCommit(self.warnings[0])

    def warn(self, notice: Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING":
            self.warnings.append(notice.message_primary or "")

    def rollback(self) -> None:
        if not self.raw.closed:  # else the server has done it
            try:
                self.raw.execute("ROLLBACK")
            except psycopg.Error:
                self.raw.close()

    def reconnect(self) -> None:
        """There is a new connection. Raises Unreachable when the server stays away."""
        self.raw.close()
        self.lanes.clear()  # it may be another server, or one that was restored
        for pause in PAUSES:
            time.sleep(pause)
            try:
                self.raw = opened(self.url)
            except Unreachable as error:
                refusal = error
            else:
                self.raw.add_notice_handler(self.warn)
                return
        raise refusal

    def fate(self, mark: str) -> bool | None:
        """Whether a transaction was committed, once it is over; None if the server cannot tell."""
        end = time.monotonic() + FATE_WAIT
        while time.monotonic() < end:
            status = self.rows("SELECT pg_xact_status((:mark)::xid8)", {"mark": mark})[0][0]
            if status != "in progress":
                return None if status is None else status == "committed"
            time.sleep(FATE_PAUSE)
        raise Unreachable("PostgreSQL has not ended the last transaction yet")

    def wire(self) -> Wire | None:
        return Post(self.url)

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


def declared(tenants: Sequence[int]) -> dict[str, str]:
    """Whose rows a transaction sees."""
    return {"app.tenants": "{" + ",".join(str(int(one)) for one in tenants) + "}"}


def settings(wanted: Mapping[str, str]) -> str:
    """What a transaction says of itself, until it ends."""
    return ", ".join(f"set_config('{name}', '{value}', true)" for name, value in wanted.items())


class Lent:
    """A caller's connection, whose rows are plain whatever its own look like."""

    closed = False

    def __init__(self, raw: psycopg.Connection[Any]) -> None:
        self.raw = raw

    def cursor(self) -> psycopg.Cursor[tuple[Any, ...]]:
        return self.raw.cursor(row_factory=tuple_row)

    def execute(self, sql: str, params: Any = None) -> psycopg.Cursor[tuple[Any, ...]]:
        return self.cursor().execute(sql, params)

    def pipeline(self) -> AbstractContextManager[None]:
        """How a caller's connection speaks is the caller's choice."""
        return nullcontext()


class Borrowed(Connection):
    """A connection of the caller's, inside its open transaction."""

    def __init__(self, raw: psycopg.Connection[Any]) -> None:
        if raw.autocommit and raw.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
            raise InterlockError(AUTOCOMMIT)
        self.clock, self.lanes, self.stuck, self.mark, self.warnings, self.memory = None, {}, {}, "", [], None
        self.raw = Lent(raw)  # type: ignore[assignment]

    def begin(self, tenants: Sequence[int] = ()) -> int:
        self.rows(f"SAVEPOINT {SAVEPOINT}")
        self.declare(tenants)
        return self.now()

    def commit(self) -> None:
        self.rows(f"RELEASE SAVEPOINT {SAVEPOINT}")

    def rollback(self) -> None:
        self.rows(f"ROLLBACK TO SAVEPOINT {SAVEPOINT}")


class Post:
    """NOTIFY and LISTEN, each on a connection of its own that is made when it is first needed."""

    tells = True

    def __init__(self, url: str) -> None:
        self.url = url
        self.mouth: psycopg.Connection[tuple[Any, ...]] | None = None
        self.ears: psycopg.Connection[tuple[Any, ...]] | None = None

    def tell(self, queues: Iterable[Queue]) -> None:
        """Whoever listens hears that these queues have got work."""
        if self.mouth is None or self.mouth.closed:
            self.mouth = opened(self.url)
            with told():
                self.mouth.execute("SET synchronous_commit = off")  # nobody waits for a ring to be durable
        payload = msgspec.json.encode(sorted(queues))
        text = payload.decode() if len(payload) <= PAYLOAD_MOST else ALL
        with told():
            self.mouth.execute("SELECT pg_notify(%s, %s)", (CHANNEL, text))

    def listen(self, queues: Iterable[Queue]) -> None:
        """From here on nothing is missed."""
        if self.ears is None or self.ears.closed:
            ears = opened(self.url)
            with told():
                ears.execute(f"LISTEN {CHANNEL}")
            self.ears = ears

    def heard(self, watched: Callable[[], set[Queue]], timeout: float) -> set[Queue]:
        """The queues that others told of. Raises Unavailable when the connection is lost, and perhaps some with it."""
        assert self.ears, "nobody hears before they listen"
        with told():
            texts = [notice.payload for notice in self.ears.notifies(timeout=timeout, stop_after=1)]
        if ALL in texts:
            return watched()
        return {queue for text in texts for queue in msgspec.json.decode(text, type=list[Queue])}

    def close(self) -> None:
        for one in (self.mouth, self.ears):
            if one is not None:
                one.close()
