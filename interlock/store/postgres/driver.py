"""The PostgreSQL driver: connecting, error classes, and statements sent in pipelines.

What is here
------------
- `open_raw` makes a psycopg connection; `translate_sql` and `translate_errors` turn our statements into psycopg's
  spelling, and its errors into ours.
- `PipelineConnection` sends statements straight to libpq, below psycopg's cursors: a cursor costs more processor time
  than most of our statements do.
- `CallerPipeline` has the same methods on a connection that a caller has lent; it uses cursors, as the caller does.

A pipeline, in the order in which things happen
-----------------------------------------------
    idle ──pipeline()──> sending ──send()…──> sending ──end of the block──> reading ──sync──> idle

1. `pipeline()` enters libpq's pipeline mode, and notes whether a transaction is open (`idle`).
2. `send()` numbers the parameters, encodes them as text, and sends the statement at once: the server works on it while
   the next one is put together. The caller gets a `PendingResult`, which has no rows yet.
3. At the end of the block `sync()` sends the sync message, reads the results in the order of the statements, and fills
   in the rows. An error aborts everything that was sent behind it up to the sync; the first one is raised.
   If reading breaks off in the middle, the connection is closed: nobody could tell which result comes next.

`execute()` outside a block is a pipeline of one statement. `store/postgres/connection.py` keeps a pipeline open over a
whole flush, and syncs at the next query or at COMMIT: so a flush and its COMMIT cost one round trip.

Prepared statements
-------------------
A statement that was sent `PREPARE_AFTER` times is prepared, under a name that is the digest of its text and of the
types of its parameters. So a name stands for one statement, whoever has prepared it: behind a pooler, which lets
several clients use one connection of the server, the worst is that the name is unknown there, or known already.
Then nothing was carried out. If the transaction began in this pipeline, everything is sent once more without names
(`send_again`); else the caller must redo the transaction, and learns so by `NotPrepared`. A connection that has met an
unknown name prepares nothing any more.

Why so
------
A round trip is what a transaction costs most, so a transaction needs two: BEGIN with the queries that were declared
ahead, and the writes with COMMIT. Waiting is done by `poll` on the socket, with the GIL released, so that other threads
run meanwhile.

What is ugly
------------
- An error is raised where the pipeline is synced, not where its statement was sent: a traceback does not show which
  statement it was, only the server's message does.
- Parameters are sent as text and without types, but for integers; lists become array literals before (`encode_lists`).
- libpq must be told to consume input while it is still sending: a server that cannot send its results stops reading,
  and both would wait for each other.
"""

import hashlib
import re
import select
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import Any

import psycopg
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, ExecStatus, TransactionStatus
from psycopg.pq.abc import PGresult
from psycopg.rows import tuple_row

from interlock.kernel.errors import Contended, Corrupt, StoreError, Unavailable
from interlock.store.connection import GUARD, NotPrepared, Taken, Unreachable
from interlock.store.url import split_prepare

PREPARE_AFTER = 3  # uses
WORTH_SENDING = 4_096  # bytes: each time that something is sent, the server wakes up
PREPARED_MAX, TEXTS_MAX = 500, 4_096  # of one connection; then it begins anew
UNIQUE = "23505"
CONTENDED = ("40001", "40P01", "55P03", "57014")  # serialization, deadlock, lock not available, cancelled
OUT_OF_REACH = ("08", "53", "57P", "25006")  # connection, resources, shutdown; a primary that is none any more
ALREADY_PREPARED, UNKNOWN_NAME = "42P05", "26000"  # what the server says of the name of a prepared statement
NOT_PREPARED = (ALREADY_PREPARED, UNKNOWN_NAME)
INT4, INT8, UNKNOWN = 23, 20, 0  # types; an unknown one the server finds out from where it stands
Statement = tuple[bytes, tuple[int, ...]]  # a text, and the types of its parameters
FAILED, ABORTED, ROWS, SYNC = (
    ExecStatus.FATAL_ERROR, ExecStatus.PIPELINE_ABORTED, ExecStatus.TUPLES_OK, ExecStatus.PIPELINE_SYNC,
)  # fmt: skip


def open_raw(url: str) -> psycopg.Connection[tuple[Any, ...]]:
    """A connection in autocommit, so that a transaction begins where we say so.

    Raises:
        Unreachable: the server cannot be reached.
    """
    try:
        return psycopg.connect(split_prepare(url)[0], autocommit=True, prepare_threshold=None, client_encoding="UTF8")
    except psycopg.Error as error:
        reason = str(error).strip().splitlines()[-1]
        raise Unreachable(f"PostgreSQL cannot be reached: {reason}") from None


def is_pooled(raw: psycopg.Connection[tuple[Any, ...]]) -> bool:
    """Whether a pooler stands before the server: it tells clients a number of its own, or swaps what is behind it."""
    numbers = {raw.info.backend_pid}
    with translate_errors():
        for _ in range(2):  # transactions
            numbers.add(raw.execute("SELECT pg_backend_pid()").fetchall()[0][0])
    return len(numbers) > 1


@cache
def translate_sql(sql: str) -> str:
    """Our `:name` parameters in psycopg's spelling; a cast such as ::text stays."""
    sql = sql.replace("{lock}", "FOR UPDATE").replace("{skip}", "FOR UPDATE SKIP LOCKED")
    sql = re.sub(r"\{by_key:\w+\}", "", sql)  # a planner that knows how many rows there are
    sql = sql.replace("{skip_unit}", "FOR UPDATE OF unit SKIP LOCKED").replace("{lock_unit}", "FOR UPDATE OF unit")
    sql = re.sub(r"\{list:(\w+)\}", r"string_agg(\1::text, ',')", sql)
    sql = sql.replace("{ids}", "= ANY(:ids)").replace("{xid}", "unit.xmin::text")
    return re.sub(r"(?<!:):(\w+)", r"%(\1)s", sql.replace("%", "%%"))


def translate_error(error: Exception) -> StoreError:
    """An error of the driver as one of ours."""
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
def translate_errors() -> Iterator[None]:
    """No error of the driver leaves this block: it is raised as one of ours."""
    try:
        yield
    except (psycopg.Error, UnicodeError) as error:
        raise translate_error(error) from error


class PendingResult:
    """A statement that was sent, and its result once the pipeline was synced."""

    __slots__ = ("params", "prepares", "rows", "statement", "statusmessage")

    def __init__(self, statement: Statement, params: list[bytes | None], *, prepares: bool = False) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.statement, self.params, self.prepares, self.statusmessage = statement, params, prepares, ""

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self.rows


class PipelineConnection:
    """A psycopg connection whose statements go straight to libpq."""

    def __init__(self, psycopg_connection: psycopg.Connection[tuple[Any, ...]], *, prepares: bool = True) -> None:
        self.psycopg = psycopg_connection
        self.pgconn, self.transformer = psycopg_connection.pgconn, Transformer(psycopg_connection)
        self.prepares = prepares  # whether what is sent often is prepared
        self.sent: list[PendingResult] = []
        self.unsent = 0  # bytes of parameters, about, that wait to be sent with what comes next
        self.sending, self.idle = False, True  # idle: no transaction was open when the pipeline began
        self.uses: dict[Statement, int] = {}  # of what is not prepared yet
        self.names: dict[Statement, bytes] = {}  # of what is
        self.readable, self.ready = select.poll(), select.poll()
        self.readable.register(self.pgconn.socket, select.POLLIN)
        self.ready.register(self.pgconn.socket, select.POLLIN | select.POLLOUT)

    @property
    def info(self) -> psycopg.ConnectionInfo:
        return self.psycopg.info

    @property
    def closed(self) -> bool:
        return self.psycopg.closed

    def close(self) -> None:
        self.psycopg.close()

    def execute(self, sql: str, params: Mapping[str, Any] | None = None) -> PendingResult:
        """The result of a statement; within `pipeline` it is known at the end of that."""
        if self.sending:
            return self.send(sql, params or {})
        with self.pipeline():
            return self.send(sql, params or {})

    @contextmanager
    def pipeline(self) -> Iterator[None]:
        """The results of what is sent within are read at its end, all at once. Raises the first error."""
        self.idle = self.pgconn.transaction_status == TransactionStatus.IDLE
        self.pgconn.enter_pipeline_mode()
        self.sending = True
        try:
            yield
        finally:
            self.sending = False
            self.sync()

    # Sending.

    def send(self, sql: str, params: Mapping[str, Any]) -> PendingResult:
        """Sends a statement, prepared if it is used often; its result is filled in by `sync`."""
        text, names = number_parameters(sql)
        types, encoded, size = encode_parameters([params[name] for name in names])
        statement = text, types
        name = self.names.get(statement) or self.prepare(statement)
        pending = PendingResult(statement, encoded)
        self.send_statement(pending, name)
        self.unsent += size
        if self.unsent > WORTH_SENDING:
            self.send_now()
        return pending

    def send_now(self) -> None:
        """The server works on what was sent so far while the next statement is put together."""
        if self.sending:
            self.pgconn.flush()
            self.unsent = 0

    def send_statement(self, pending: PendingResult, name: bytes) -> None:
        """A statement is on its way, by its name if it has one."""
        if name:
            self.pgconn.send_query_prepared(name, pending.params)
        else:
            self.pgconn.send_query_params(pending.statement[0], pending.params, pending.statement[1])
        self.sent.append(pending)

    def prepare(self, statement: Statement) -> bytes:
        """The name under which the server will know a statement; empty while it is not used often enough."""
        if not self.prepares:
            return b""
        if len(self.uses) >= TEXTS_MAX:
            self.uses.clear()
        self.uses[statement] = uses = self.uses.get(statement, 0) + 1
        if uses <= PREPARE_AFTER:
            return b""
        if len(self.names) >= PREPARED_MAX:
            self.names.clear()
            self.send_statement(PendingResult((b"DEALLOCATE ALL", ()), []), b"")
        self.names[statement] = name = statement_name(statement)
        self.pgconn.send_prepare(name, *statement)
        self.sent.append(PendingResult(statement, [], prepares=True))
        return name

    def stop_preparing(self) -> None:
        """From here on no statement is sent by a name: the next one may go to a server that does not know it."""
        self.prepares = False
        self.names.clear()
        self.uses.clear()

    # Reading.

    def sync(self) -> None:
        """All results are read. Raises the first error; a connection in the middle of one is closed."""
        errors = self.read_results()
        if errors:
            raise errors[0]

    def read_results(self) -> list[psycopg.Error]:
        """The errors of everything that was sent; a name that the server does not know is none if it can be mended."""
        sent, self.sent = self.sent, []
        errors: list[psycopg.Error] = []
        self.unsent = 0
        try:
            self.pgconn.pipeline_sync()
            while self.pgconn.flush():
                self.ready.poll()
                self.pgconn.consume_input()  # the server may wait until it is read
            for pending in sent:
                errors += self.read_result(pending)
            while (end := self.next_result()) is None or end.status != SYNC:
                errors += [error_from_result(end)] if end and end.status == FAILED else []  # of its own commit
            self.pgconn.exit_pipeline_mode()
        except BaseException as broken:
            self.close()
            if not errors or not isinstance(broken, psycopg.Error):
                raise
            return errors
        if not errors or errors[0].sqlstate not in NOT_PREPARED:
            return errors
        if errors[0].sqlstate == UNKNOWN_NAME:
            self.stop_preparing()
        return self.send_again(sent) if self.idle else errors

    def send_again(self, sent: list[PendingResult]) -> list[psycopg.Error]:
        """What a pipeline had sent, without names: its first error has undone all of it."""
        self.pgconn.enter_pipeline_mode()
        if self.pgconn.transaction_status != TransactionStatus.IDLE:
            self.send_statement(PendingResult((b"ROLLBACK", ()), []), b"")
        for pending in sent:
            if not pending.prepares:
                self.send_statement(pending, b"")
        return self.read_results()

    def read_result(self, pending: PendingResult) -> list[psycopg.Error]:
        """The result of one statement is read; answers its error, if it has one."""
        result = self.next_result()
        if result is None:
            raise psycopg.OperationalError("the server has left a statement without an answer")
        status, errors = result.status, []
        if status == ROWS:
            self.transformer.set_pgresult(result)
            pending.rows = self.transformer.load_rows(0, result.ntuples, tuple)
        elif status in (FAILED, ABORTED):  # aborted: by an error before it
            errors = [error_from_result(result)] if status == FAILED else []
            if pending.prepares and not (errors and errors[0].sqlstate == ALREADY_PREPARED):  # one name, one statement
                self.names.pop(pending.statement, None)
        pending.statusmessage = (result.command_status or b"").decode()
        self.next_result()  # none: the results of this statement end here
        return errors

    def next_result(self) -> PGresult | None:
        """The next result of the server. Other threads run until it is here."""
        while self.pgconn.is_busy():
            self.readable.poll()
            self.pgconn.consume_input()
        if self.pgconn.status == ConnStatus.BAD:
            raise psycopg.OperationalError(self.pgconn.get_error_message())
        return self.pgconn.get_result()


class CallerPipeline(PipelineConnection):
    """A caller's connection: how it speaks is the caller's choice, so each statement goes by a cursor of psycopg."""

    def __init__(self, psycopg_connection: psycopg.Connection[Any]) -> None:
        super().__init__(psycopg_connection, prepares=False)

    def execute(self, sql: str, params: Mapping[str, Any] | None = None) -> PendingResult:
        """Never prepared: the caller's driver would name it by a counter, and behind a pooler others count too."""
        cursor = self.psycopg.cursor(row_factory=tuple_row).execute(sql, params, prepare=False)
        result = PendingResult((b"", ()), [])
        result.rows = cursor.fetchall() if cursor.description else []  # plain, whatever the caller's own look like
        return result

    @contextmanager
    def pipeline(self) -> Iterator[None]:
        yield


def statement_name(statement: Statement) -> bytes:
    """The same for everybody who sends such a statement, and for no other one."""
    text, types = statement
    return b"interlock_" + hashlib.sha256(repr(types).encode() + text).hexdigest()[:32].encode()


@lru_cache(maxsize=TEXTS_MAX)
def number_parameters(sql: str) -> tuple[bytes, tuple[str, ...]]:
    """A statement in the server's spelling, and the names of its parameters in their order."""
    names = tuple(dict.fromkeys(re.findall(r"%\((\w+)\)s", sql)))
    places = {name: str(place) for place, name in enumerate(names, start=1)}
    text = re.sub(r"%\((\w+)\)s", lambda match: "$" + places[match[1]], sql)
    return text.replace("%%", "%").encode(), names


def encode_parameters(values: Sequence[Any]) -> tuple[tuple[int, ...], list[bytes | None], int]:
    """Parameters as the server reads them, with their types and the number of bytes: it finds out what is no integer.

    One function for all of them, because a transaction of one job sends sixty.
    """
    types, encoded, size = [UNKNOWN] * len(values), list[bytes | None](), 0
    for place, value in enumerate(values):
        if type(value) is int:
            types[place] = INT4 if -(2**31) <= value < 2**31 else INT8
            data = b"%d" % value
        elif value is None:
            encoded.append(None)
            continue
        else:
            data = encode_value(value)
        size += len(data)
        encoded.append(data)
    return tuple(types), encoded, size


def encode_value(value: Any) -> bytes:
    """A parameter that is no integer as the server reads it."""
    if isinstance(value, bytes):
        return b"\\x" + value.hex().encode()
    text = value if isinstance(value, str) else str(value)
    if "\0" in text:
        raise psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
    return text.encode()
