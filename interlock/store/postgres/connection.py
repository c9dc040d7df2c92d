"""PostgreSQL: many writers, told apart by row locks, each tenant behind row-level security."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cached_property
from operator import attrgetter
from typing import Any

import msgspec
import psycopg
from psycopg.errors import Diagnostic
from psycopg.rows import tuple_row

from interlock.kernel.errors import Contended, InterlockError, StoreError
from interlock.kernel.rows import Act, Row, Unit, columns
from interlock.store.connection import AUTOCOMMIT, SAVEPOINT, LostCommit, Question, Unreachable, WakeupChannel
from interlock.store.lanes import Lanes
from interlock.store.memory import Memory
from interlock.store.observer import Observers, observed
from interlock.store.postgres.bulk import Given, array, insert_text, update_text
from interlock.store.postgres.driver import (
    PendingResult,
    PipelineConnection,
    is_pooled,
    open_raw,
    translate_error,
    translate_errors,
    translate_sql,
)
from interlock.store.postgres.wakeups import Notify
from interlock.store.url import split_prepare

NAME = "postgres"
# How this database writes what the two write differently. The digest of an act is the database's own word.
WORDS = {
    "act_id": "BIGINT PRIMARY KEY", "ids": "BIGINT[]", "hashes": "TEXT[]",
    "digest": "TEXT NOT NULL GENERATED ALWAYS AS (act_digest(id, tenant, path_digest, version, attempt, fence, at, "
    "actor, reason, cause, payload, available, worker, ttl, beat, until, units, before, leases, secrets, "
    "details)) STORED",
}  # fmt: skip
# The id of an act: the generation of the store, the transaction, the number of the act in it.
# Readers take only transactions below their snapshot's xmin, so the order of ids is the order in which they see acts.
ACT_BITS, XID_BITS = 18, 36
# Every finder has its index, and reads it in order, whatever the planner believes of a table that was analyzed while
# it was empty. Before PostgreSQL 18 a scan that cannot be avoided looks so dear then that it would be compiled first.
# With one way left to go, whatever the values are, a statement is planned once and not each time: to plan what reads
# or writes one row, in the guard too, costs more than to do it.
PLANS = {
    "enable_seqscan": "off", "enable_bitmapscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off",
    "jit": "off", "plan_cache_mode": "force_generic_plan",
}  # fmt: skip
NOW = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
BEGAN = "(extract(epoch FROM now()) * 1000000)::bigint"  # the same in all statements of a transaction
NUMBER = "pg_backend_pid()"  # of the server's process
MIGRATION_LOCK = 5_318_008_531_800_853  # any number, as long as it is always the same
PAUSES = (0.0, 0.1, 0.5, 1.0, 2.0, 2.0)  # seconds before each try to connect anew: a failover takes some
POOLED = (
    "there is a pooler before PostgreSQL: no statement is prepared, which costs time in each, and nobody hears of new "
    "work, so that workers look for it every second; a direct connection has neither cost"
)
FATE_PAUSE, FATE_WAIT = 0.05, 60.0


class PostgresConnection:
    """A connection whose every acknowledged commit is the server's word, and whose lost ones are told."""

    name, words, many_writers, private = NAME, WORDS, True, False
    acts_a_transaction = 1 << ACT_BITS
    acts_before = 0  # acts of this transaction that are not this session's
    generation: int | None = None
    end: float | None = None  # when a transaction that only reads is stopped
    observers: Observers = ()

    def __init__(self, url: str, clock: Callable[[], int] | None = None, *, later: bool = False) -> None:
        self.clock = clock  # a test's own
        self.lanes: dict[int, Lanes] = {}
        self.stuck: dict[int, int] = {}
        self.kept: dict[int, tuple[int, int, int]] = {}
        self.staff: dict[int, tuple[str, bool]] = {}
        self.ahead: Sequence[Question] = ()
        self.answers: dict[Any, list[tuple[Any, ...]]] = {}  # to what was asked ahead
        self.pipe: AbstractContextManager[Any] | None = None  # in which statements were sent that are not heard of yet
        self.memory: Memory | None = None
        self.url, self.mark = url, ""
        self.warnings: list[str] = []
        if not later:
            self.raw = self.open()

    @cached_property
    def raw(self) -> PipelineConnection:
        """The driver's connection, made when it is first used."""
        return self.open()

    def open(self) -> PipelineConnection:
        raw = open_raw(self.url)
        raw.add_notice_handler(self.warn)
        # A name that is prepared here may be unknown to where a pooler sends the next transaction.
        raw_pipeline = PipelineConnection(raw, prepares=split_prepare(self.url)[1] and not is_pooled(raw))
        return observed(raw_pipeline, self.observers)

    def observe(self, observers: Observers) -> None:
        self.observers = observers
        if "raw" in vars(self):  # else it is made when it is first used
            self.raw = observed(self.raw, observers)

    def notice_pooler(self, number: int) -> None:
        """A transaction is carried out by the server's process of this number; another one's names are not its own."""
        if self.raw.prepares and number != self.raw.info.backend_pid:
            self.raw.stop_preparing()

    def rows(self, sql: str, params: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        if self.answers and (known := self.answers.pop(named(sql, params or {}), None)) is not None:
            return known
        self.hear()
        if self.end is not None and time.monotonic() > self.end:  # statement_timeout is of each statement alone
            raise Contended("there is no time left for another statement")
        with translate_errors():
            return self.raw.execute(translate_sql(sql), sent(params or {})).fetchall()

    def declare(self, tenants: Sequence[int], seconds: float | None = None) -> None:
        """This transaction sees and writes the rows of these tenants only, and is stopped after so many seconds."""
        limit = {} if seconds is None else {"statement_timeout": f"{max(int(seconds * 1_000), 1)}ms"}
        self.notice_pooler(self.rows(f"SELECT {NUMBER}, {settings({**declared(tenants), **limit})}")[0][0])
        self.end = None if seconds is None else time.monotonic() + seconds

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
        names = columns(kind)
        given = Given(kind, names, (msgspec.structs.astuple(row)[: len(names)] for row in rows))
        with translate_errors():
            self.raw.execute(insert_text(given.shape), given.params)

    def act_id(self, number: int) -> int:
        """Acts begin with their transaction, so that no other one can make an act of the same id."""
        if self.generation is None:
            self.generation = int(self.rows("SELECT value FROM about WHERE name = 'generation'")[0][0])
        return (self.generation << XID_BITS | int(self.mark)) << ACT_BITS | self.acts_before + number

    def write_acts(self, acts: Sequence[Act], born: Sequence[Unit]) -> None:
        """Whoever is born comes right behind the act that says so."""
        self.insert(acts)
        if born:
            self.insert(born)

    def renew(self, held: Sequence[Unit]) -> None:
        given = {
            "leases": array([unit.lease_id for unit in held]), "units": array([unit.id for unit in held]),
            "ends": array([unit.lease_until for unit in held]),
        }  # fmt: skip
        with translate_errors():
            self.raw.execute("SELECT renew_leases(%(leases)s, %(units)s, %(ends)s)", given)

    def update(self, rows: Sequence[Row], columns: Sequence[str], key: str) -> None:
        given = Given(type(rows[0]), (key, *columns), map(attrgetter(key, *columns), rows))
        with translate_errors():
            self.raw.execute(update_text(given.shape, tuple(columns), key), given.params)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Statements within are sent one after the other; what became of them the next question or COMMIT hears."""
        self.answers.clear()  # what is written from here on they have not seen
        with translate_errors():
            if self.pipe is None:
                pipe = self.raw.pipeline()
                pipe.__enter__()
                self.pipe = pipe
            yield

    def hear(self) -> None:
        """What was sent together has been carried out. Raises what the database says against it."""
        pipe, self.pipe = self.pipe, None
        if pipe is not None:
            with translate_errors():
                pipe.__exit__(None, None, None)

    def many(self, sql: str, rows: list[dict[str, Any]]) -> None:
        with translate_errors(), self.raw.pipeline() if self.pipe is None else nullcontext():
            for row in rows:
                self.raw.execute(translate_sql(sql), row)

    def script(self, sql: str) -> None:
        """Several statements, which have no parameters."""
        self.hear()
        with translate_errors():
            self.raw.psycopg.execute(sql)

    def begin(self, tenants: Sequence[int] = ()) -> int:
        """A transaction is open that sees these tenants only. Answers the store's time in microseconds.

        One round trip, with what is asked ahead.
        """
        self.answers.clear()
        ahead, self.ahead = self.ahead, ()
        now = self.clock() if self.clock else None
        first = f"SELECT pg_current_xact_id()::text, {BEGAN}, {NUMBER}, {settings({**declared(tenants), **PLANS})}"
        with translate_errors():
            try:
                with self.raw.pipeline():
                    self.raw.execute("BEGIN")
                    opened = self.raw.execute(first)
                    asked = {named(*one): self.sent_ahead(one, now) for one in ahead}
            except psycopg.Error:
                self.rollback()
                raise
        self.answers = {name: one.fetchall() for name, one in asked.items()}
        self.mark, began, number, *_ = opened.fetchall()[0]
        self.notice_pooler(number)
        return int(began) if now is None else now

    def ask(self, questions: Sequence[Question]) -> None:
        """The answers are here for whoever asks these next. They come in one round trip."""
        self.hear()
        with translate_errors():
            with self.raw.pipeline():
                asked = {named(*one): self.sent_ahead(one, None) for one in questions}
            self.answers = {name: one.fetchall() for name, one in asked.items()}

    def foretold(self, question: Question) -> list[tuple[Any, ...]]:
        """What was answered to a question that was asked ahead; nothing if it was not."""
        return self.answers.pop(named(*question), [])

    def sent_ahead(self, question: Question, now: int | None) -> PendingResult:
        sql = question.sql if now is not None else question.sql.replace(":now", BEGAN)
        return self.raw.execute(translate_sql(sql), sent({**question.params, "now": now}))

    def commit(self) -> None:
        """The transaction stands. Raises LostCommit if the server may have committed and did not say so."""
        self.warnings.clear()
        pipe, self.pipe = self.pipe, None
        try:
            try:
                cursor = self.raw.execute("COMMIT")
            finally:
                if pipe is not None:  # whatever was said: else ROLLBACK would be sent into the same pipeline
                    pipe.__exit__(None, None, None)
            status = cursor.statusmessage
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
        self.answers, self.generation, self.end = {}, None, None  # the store may have been restored meanwhile
        with suppress(StoreError):  # what was sent is undone, whatever became of it
            self.hear()
        if not self.raw.closed:  # else the server has done it
            try:
                self.raw.execute("ROLLBACK")
            except psycopg.Error:
                self.raw.close()

    def reconnect(self) -> None:
        """There is a new connection. Raises Unreachable when the server stays away."""
        self.close()
        self.lanes.clear()  # it may be another server, or one that was restored
        self.generation = None
        for pause in PAUSES:
            time.sleep(pause)
            try:
                self.raw = self.open()
                return
            except Unreachable as error:
                refusal = error
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

    def wire(self) -> WakeupChannel | None:
        return Notify(self.url, time.monotonic)

    def lock_migration(self) -> None:
        """No other migration runs until this transaction ends."""
        self.rows("SELECT pg_advisory_xact_lock(:key)", {"key": MIGRATION_LOCK})

    def findings(self) -> list[str]:
        """What is wrong with the server, or with how we came to it."""
        found: list[str] = [POOLED] if is_pooled(self.raw.psycopg) else []
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

    def may_insert(self, table: str) -> bool:
        return self.rows("SELECT has_table_privilege(:name, 'INSERT')", {"name": table})[0][0] is True

    def has_table(self, name: str) -> bool:
        return self.rows("SELECT to_regclass(:name) IS NOT NULL", {"name": name})[0][0] is True

    def close(self) -> None:
        if "raw" in vars(self):  # else it was never made
            self.raw.close()


def named(sql: str, params: Mapping[str, Any]) -> Any:
    """A question, by what it asks; its time is that of its transaction."""
    values = ((name, tuple(one) if isinstance(one, list) else one) for name, one in params.items() if name != "now")
    return sql, *sorted(values)


def sent(params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Parameters as the driver takes them."""
    return {**params, "ids": array(params["ids"])} if "ids" in params else params


def declared(tenants: Sequence[int]) -> dict[str, str]:
    """Whose rows a transaction sees."""
    return {"app.tenants": "{" + ",".join(str(int(one)) for one in tenants) + "}"}


def settings(wanted: Mapping[str, str]) -> str:
    """What a transaction says of itself, until it ends."""
    return ", ".join(f"set_config('{name}', '{value}', true)" for name, value in wanted.items())


class CallerPipeline:
    """A caller's connection, whose rows are plain whatever its own look like."""

    closed = prepares = False

    def __init__(self, raw: psycopg.Connection[Any]) -> None:
        self.raw = raw

    def cursor(self) -> psycopg.Cursor[tuple[Any, ...]]:
        return self.raw.cursor(row_factory=tuple_row)

    def execute(self, sql: str, params: Any = None) -> psycopg.Cursor[tuple[Any, ...]]:
        """Never prepared: the caller's driver would name it by a counter, and behind a pooler others count too."""
        return self.cursor().execute(sql, params, prepare=False)

    def pipeline(self) -> AbstractContextManager[None]:
        """How a caller's connection speaks is the caller's choice."""
        return nullcontext()


class CallerPostgresConnection(PostgresConnection):
    """A connection of the caller's, inside its open transaction."""

    acts_made = 0

    def __init__(self, raw: psycopg.Connection[Any]) -> None:
        if raw.autocommit and raw.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
            raise InterlockError(AUTOCOMMIT)
        self.clock, self.lanes, self.stuck, self.mark, self.warnings, self.memory = None, {}, {}, "", [], None
        self.staff, self.ahead, self.answers, self.pipe, self.kept = {}, (), {}, None, {}
        self.raw = CallerPipeline(raw)  # type: ignore[assignment]

    def rows(self, sql: str, params: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        with translate_errors():
            cursor: Any = self.raw.execute(translate_sql(sql), sent(params or {}))
            return cursor.fetchall() if cursor.description else []

    def begin(self, tenants: Sequence[int] = ()) -> int:
        self.rows(f"SAVEPOINT {SAVEPOINT}")
        self.declare(tenants)
        sql = "SELECT pg_current_xact_id()::text, coalesce(nullif(current_setting('interlock.acts', true), ''), '0')"
        self.mark, before = self.rows(sql)[0]
        self.acts_before = int(before)
        return self.now()

    def act_id(self, number: int) -> int:
        self.acts_made = number
        return super().act_id(number)

    def commit(self) -> None:
        """Whoever joins this transaction next makes other acts."""
        self.rows(f"SELECT set_config('interlock.acts', '{self.acts_before + self.acts_made}', true)")
        self.rows(f"RELEASE SAVEPOINT {SAVEPOINT}")

    def rollback(self) -> None:
        self.rows(f"ROLLBACK TO SAVEPOINT {SAVEPOINT}")
