"""A connection to PostgreSQL, our own or a caller's."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import psycopg
from psycopg.errors import Diagnostic

from interlock.blobs.folder import FolderBlobs
from interlock.blobs.store import BlobStore
from interlock.kernel.errors import Contended, InterlockError, StoreError
from interlock.kernel.rows import Act, Row, Unit, columns
from interlock.store.acts import ACT_BITS
from interlock.store.connection import AUTOCOMMIT, SAVEPOINT, LostCommit, Opened, Rows, Unreachable
from interlock.store.observer import Observers, wrap_connection
from interlock.store.postgres.bulk import Given, build_insert, build_update, encode_array_literal
from interlock.store.postgres.driver import (
    CallerPipeline,
    PendingResult,
    PipelineConnection,
    is_pooled,
    open_raw,
    translate_error,
    translate_errors,
    translate_sql,
)
from interlock.store.query import BoundQuery
from interlock.store.url import split_prepare

# The id of an act: the generation of the store, the transaction, the number of the act in it.
# Readers take only transactions below their snapshot's xmin, so the order of ids is the order in which they see acts.
XID_BITS = 36
# Every finder has its index, and reads it in order, whatever the planner believes of a table that was analyzed while
# it was empty. Before PostgreSQL 18 a scan that cannot be avoided looks so dear then that it would be compiled first.
# With one way left to go, whatever the values are, a statement is planned once and not each time: to plan what reads
# or writes one row, in the guard too, costs more than to do it. Nothing is shared out to other processes: a statement
# that reads a thousand rows by their keys is done before they have started.
PLANS = {
    "enable_seqscan": "off", "enable_bitmapscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off",
    "jit": "off", "plan_cache_mode": "force_generic_plan", "max_parallel_workers_per_gather": "0",
}  # fmt: skip
UNPLAN = f"SELECT set_config(name, reset_val, true) FROM pg_settings WHERE name IN ({', '.join(map(repr, PLANS))})"
NOW = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
BEGAN = "(extract(epoch FROM now()) * 1000000)::bigint"  # the same in all statements of a transaction
NUMBER = "pg_backend_pid()"  # of the server's process
PAUSES = (0.0, 0.1, 0.5, 1.0, 2.0, 2.0)  # seconds before each try to connect anew: a failover takes some


class PostgresConnection:
    """A connection whose every acknowledged commit is the server's word, and whose lost ones are told."""

    name, many_writers, private, pooled = "postgres", True, False, False
    mark = ""
    acts_before = 0  # acts of this transaction that are not this connection's
    generation: int | None = None
    end: float | None = None  # when a transaction that only reads is stopped
    observers: Observers = ()
    is_planned = False  # whether the session has the settings of PLANS, so that no transaction makes them
    unsynced: AbstractContextManager[Any] | None = None  # the pipeline in which writes were sent and not waited for

    def __init__(self, url: str, clock: Callable[[], int] | None = None, *, later: bool = False) -> None:
        self.url, self.clock = url, clock  # the clock: a test's own
        self.warnings: list[str] = []
        if not later:
            self.raw = self.open()

    @cached_property
    def blobs(self) -> BlobStore | None:
        """A folder for this database below the one that INTERLOCK_BLOBS names; databases must not share one."""
        folder = os.environ.get("INTERLOCK_BLOBS")
        return FolderBlobs(Path(folder) / quote(self.raw.info.dbname, safe=""), marks=True) if folder else None

    @cached_property
    def raw(self) -> PipelineConnection:
        """The driver's connection, made when it is first used."""
        return self.open()

    def open(self) -> PipelineConnection:
        raw = open_raw(self.url)
        raw.add_notice_handler(self.warn)
        self.pooled = is_pooled(raw)
        # A name that is prepared here may be unknown to where a pooler sends the next transaction.
        prepares = split_prepare(self.url)[1] and not self.pooled
        self.is_planned = False
        return wrap_connection(PipelineConnection(raw, prepares=prepares), self.observers)

    def observe(self, observers: Observers) -> None:
        self.observers = observers
        if "raw" in vars(self):  # else it is made when it is first used
            self.raw = wrap_connection(self.raw, observers)

    def notice_pooler(self, number: int) -> None:
        """A transaction is carried out by the server's process of this number; another one's names are not its own."""
        if self.raw.prepares and number != self.raw.info.backend_pid:
            self.raw.stop_preparing()
            self.is_planned = False

    def rows(self, sql: str, params: Mapping[str, Any] | None = None) -> Rows:
        if self.end is not None and time.monotonic() > self.end:  # statement_timeout is of each statement alone
            raise Contended("there is no time left for another statement")
        with translate_errors():
            result = self.raw.execute(translate_sql(sql), encode_lists(params or {}))
        self.sync()  # of writes that were sent before, in the same round trip
        return result.fetchall()

    def declare(self, tenants: Sequence[int], seconds: float | None = None) -> None:
        """This transaction sees and writes the rows of these tenants only, and is stopped after so many seconds."""
        if self.is_planned:
            self.rows(UNPLAN)
        limit = {} if seconds is None else {"statement_timeout": f"{max(int(seconds * 1_000), 1)}ms"}
        self.notice_pooler(self.rows(f"SELECT {NUMBER}, {format_settings({**format_tenants(tenants), **limit})}")[0][0])
        self.end = None if seconds is None else time.monotonic() + seconds

    def now(self) -> int:
        """The time of the store in microseconds, whatever the machines that speak to it think."""
        return self.clock() if self.clock else int(self.rows(f"SELECT {NOW}")[0][0])

    def keep_time(self, clock: Callable[[], int]) -> None:
        self.clock = clock

    def insert(self, rows: Sequence[Row]) -> None:
        """One statement for all rows."""
        kind = type(rows[0])
        names = columns(kind)
        given = Given(kind, names, [msgspec.structs.astuple(row)[: len(names)] for row in rows]).leave_nulls()
        with translate_errors():
            self.raw.execute(build_insert(given.shape), given.params)

    def act_id(self, number: int) -> int:
        """Acts begin with their transaction, so that no other one can make an act of the same id."""
        if self.generation is None:
            self.generation = int(self.rows("SELECT value FROM about WHERE name = 'generation'")[0][0])
        return (self.generation << XID_BITS | int(self.mark)) << ACT_BITS | self.acts_before + number

    def write_acts(self, acts: Sequence[Act], born: Sequence[Unit]) -> None:
        """Whoever is born comes right behind the act that says so."""
        self.insert(acts)
        if born:
            self.raw.send_now()
            self.insert(born)
            self.raw.send_now()

    def update(self, rows: Sequence[Row], columns: Sequence[str], key: str) -> None:
        given = Given(type(rows[0]), (key, *columns), list(map(attrgetter(key, *columns), rows)))
        with translate_errors():
            self.raw.execute(build_update(given.shape, tuple(columns), key), given.params)

    @contextmanager
    def pipeline(self) -> Iterator[None]:
        """Statements within are sent one after the other; the next query or COMMIT waits for their results."""
        with translate_errors():
            if self.unsynced is None:
                pipeline = self.raw.pipeline()
                pipeline.__enter__()
                self.unsynced = pipeline
            yield

    def sync(self) -> None:
        """What was sent has been carried out. Raises what the database says against it."""
        pipeline, self.unsynced = self.unsynced, None
        if pipeline is not None:
            with translate_errors():
                pipeline.__exit__(None, None, None)

    def many(self, sql: str, rows: list[dict[str, Any]]) -> None:
        with translate_errors(), self.raw.pipeline() if self.unsynced is None else nullcontext():
            for row in rows:
                self.raw.execute(translate_sql(sql), encode_lists(row))

    def script(self, sql: str) -> None:
        """Several statements, which have no parameters."""
        self.sync()
        with translate_errors():
            self.raw.psycopg.execute(sql)

    def begin(self, tenants: Sequence[int] = (), ahead: Sequence[BoundQuery[Any]] = ()) -> Opened:
        """A transaction is open that sees these tenants only: one round trip, with the queries that are sent ahead."""
        now = self.clock() if self.clock else None
        with translate_errors():
            if self.raw.prepares and not self.is_planned:  # else a pooler may send each transaction to another session
                self.raw.execute(f"SELECT {format_settings(PLANS, lasts=True)}")
                self.is_planned = True
            settings = format_settings({**format_tenants(tenants), **({} if self.is_planned else PLANS)})
            first = f"SELECT pg_current_xact_id()::text, {BEGAN}, {NUMBER}, {settings}"
            try:
                with self.raw.pipeline():
                    self.raw.execute("BEGIN")
                    opened = self.raw.execute(first)
                    results = [self.send_query(bound, now) for bound in ahead]
            except psycopg.Error:
                self.rollback()
                raise
        self.mark, began, number, *_ = opened.fetchall()[0]
        self.notice_pooler(number)
        return Opened(int(began) if now is None else now, [result.fetchall() for result in results])

    def fetch_together(self, queries: Sequence[BoundQuery[Any]], now: int) -> list[Rows]:
        """What was written before is sent in the same round trip."""
        with self.pipeline():
            results = [self.send_query(bound, now) for bound in queries]
        self.sync()
        return [result.fetchall() for result in results]

    def send_query(self, bound: BoundQuery[Any], now: int | None) -> PendingResult:
        """Without a time it is that of the beginning of the transaction, which the server knows."""
        sql = bound.query.sql if now is not None else bound.query.sql.replace(":now", BEGAN)
        return self.raw.execute(translate_sql(sql), encode_lists(bound.params(now)))

    def commit(self) -> None:
        """The transaction stands.

        Raises:
            LostCommit: the server may have committed and did not say so.
        """
        self.warnings.clear()
        pipeline, self.unsynced = self.unsynced, None
        try:
            try:
                result = self.raw.execute("COMMIT")
            finally:
                if pipeline is not None:  # in any case: else ROLLBACK would be sent into the same pipeline
                    pipeline.__exit__(None, None, None)
            status = result.statusmessage
        except psycopg.Error as error:
            if self.raw.closed:
                raise LostCommit(str(error)) from error
            raise translate_error(error) from error
        if status != "COMMIT":
            raise StoreError("PostgreSQL had given the transaction up before its COMMIT")
        if self.warnings:
            # Told so when the wait for a synchronous standby was cancelled: committed here, perhaps nowhere else.
            raise LostCommit(self.warnings[0])

    def warn(self, notice: Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING":
            self.warnings.append(notice.message_primary or "")

    def rollback(self) -> None:
        self.generation, self.end = None, None  # the store may have been restored meanwhile
        with suppress(StoreError):  # what was sent is undone, whatever became of it
            self.sync()
        if not self.raw.closed:  # else the server has done it
            try:
                self.raw.execute("ROLLBACK")
            except psycopg.Error:
                self.raw.close()

    def reconnect(self) -> None:
        """There is a new connection.

        Raises:
            Unreachable: the server stays away.
        """
        self.close()
        self.generation = None  # it may be another server, or one that was restored
        for pause in PAUSES:
            time.sleep(pause)
            try:
                self.raw = self.open()
                return
            except Unreachable as error:
                refusal = error
        raise refusal

    def close(self) -> None:
        if "raw" in vars(self):  # else it was never made
            self.raw.close()


def encode_lists(params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Parameters as the server reads them: lists are arrays."""
    return {
        name: encode_array_literal(value) if isinstance(value, (list, tuple)) else value
        for name, value in params.items()
    }


def format_tenants(tenants: Sequence[int]) -> dict[str, str]:
    """Whose rows a transaction sees."""
    return {"app.tenants": "{" + ",".join(str(int(tenant)) for tenant in tenants) + "}"}


def format_settings(wanted: Mapping[str, str], *, lasts: bool = False) -> str:
    """What a transaction says of itself, until it ends, or of its session."""
    local = "false" if lasts else "true"
    return ", ".join(f"set_config('{name}', '{value}', {local})" for name, value in wanted.items())


class CallerPostgresConnection(PostgresConnection):
    """A connection of the caller's, inside its open transaction."""

    acts_made = 0

    def __init__(self, raw: psycopg.Connection[Any]) -> None:
        if raw.autocommit and raw.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
            raise InterlockError(AUTOCOMMIT)
        super().__init__("", later=True)
        with translate_errors():
            self.raw = CallerPipeline(raw)

    def begin(self, tenants: Sequence[int] = (), ahead: Sequence[BoundQuery[Any]] = ()) -> Opened:
        self.rows(f"SAVEPOINT {SAVEPOINT}")
        self.declare(tenants)
        sql = "SELECT pg_current_xact_id()::text, coalesce(nullif(current_setting('interlock.acts', true), ''), '0')"
        self.mark, before = self.rows(sql)[0]
        self.acts_before = int(before)
        now = self.now()
        return Opened(now, self.fetch_together(ahead, now))

    def act_id(self, number: int) -> int:
        self.acts_made = number
        return super().act_id(number)

    def commit(self) -> None:
        """Whoever joins this transaction next makes other acts."""
        self.rows(f"SELECT set_config('interlock.acts', '{self.acts_before + self.acts_made}', true)")
        self.rows(f"RELEASE SAVEPOINT {SAVEPOINT}")

    def rollback(self) -> None:
        self.rows(f"ROLLBACK TO SAVEPOINT {SAVEPOINT}")
