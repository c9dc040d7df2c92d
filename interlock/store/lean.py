"""PostgreSQL's own library, spoken to with little ado: a cursor of the driver costs more than most statements do.

What is sent often is prepared, under a name that is the digest of its text and of the types of its parameters. So one
name is one statement, whoever prepared it: behind a pooler, which lets several clients speak over one connection of the
server, the worst that a name can do is not to be there. Then nothing was carried out, and what the pipeline had sent is
sent once more without names, if the transaction began in it; else whoever began the transaction has to redo it, and
learns that from the SQLSTATE, which is one of `NOT_PREPARED`. From then on nothing is prepared on this connection.
"""

import hashlib
import re
import select
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import psycopg
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, ExecStatus, TransactionStatus
from psycopg.pq.abc import PGresult

PREPARE_AFTER = 3  # uses
PREPARED_MAX, TEXTS_MAX = 500, 4_096  # of one connection; then it begins anew
THERE_ALREADY, GONE = "42P05", "26000"  # what the server says of the name of a prepared statement
NOT_PREPARED = (THERE_ALREADY, GONE)
INT4, INT8, UNKNOWN = 23, 20, 0  # types; an unknown one the server finds out from where it stands
Kind = tuple[bytes, tuple[int, ...]]  # a text, and the types of its parameters
FAILED, ABORTED, FOUND, SYNC = (
    ExecStatus.FATAL_ERROR, ExecStatus.PIPELINE_ABORTED, ExecStatus.TUPLES_OK, ExecStatus.PIPELINE_SYNC,
)  # fmt: skip


class Said:
    """A statement that was sent, and what came of it."""

    __slots__ = ("found", "kind", "params", "prepares", "statusmessage")

    def __init__(self, kind: Kind, params: list[bytes | None], *, prepares: bool = False) -> None:
        self.found: list[tuple[Any, ...]] = []
        self.kind, self.params, self.prepares, self.statusmessage = kind, params, prepares, ""

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self.found


class Lean:
    """A connection of the driver's, whose statements go straight to the library below it."""

    def __init__(self, raw: psycopg.Connection[tuple[Any, ...]], *, prepares: bool = True) -> None:
        self.raw, self.line, self.loads = raw, raw.pgconn, Transformer(raw)
        self.prepares = prepares  # whether what is sent often is prepared
        self.sent: list[Said] = []
        self.piping, self.idle = False, True  # idle: no transaction was open when the pipeline began
        self.uses: dict[Kind, int] = {}  # of what is not prepared yet
        self.names: dict[Kind, bytes] = {}  # of what is
        self.readable, self.ready = select.poll(), select.poll()
        self.readable.register(self.line.socket, select.POLLIN)
        self.ready.register(self.line.socket, select.POLLIN | select.POLLOUT)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)

    def execute(self, sql: str, params: Mapping[str, Any] | None = None) -> Said:
        """What came of a statement; within `pipeline` it is known at the end of that."""
        if self.piping:
            return self.send(sql, params or {})
        with self.pipeline():
            return self.send(sql, params or {})

    @contextmanager
    def pipeline(self) -> Iterator[None]:
        """What is sent within is answered at its end, all at once. Raises the first error."""
        self.idle = self.line.transaction_status == TransactionStatus.IDLE
        self.line.enter_pipeline_mode()
        self.piping = True
        try:
            yield
        finally:
            self.piping = False
            self.hear()

    # Sending.

    def send(self, sql: str, params: Mapping[str, Any]) -> Said:
        text, names = numbered(sql)
        given = [params[name] for name in names]
        kind = text, tuple(map(type_of, given))
        name = self.names.get(kind) or self.prepare(kind)
        said = Said(kind, list(map(written, given)))
        self.send_statement(said, name)
        self.line.flush()  # the server works while the next statement is put together
        return said

    def send_statement(self, said: Said, name: bytes) -> None:
        """A statement is on its way, by its name if it has one."""
        if name:
            self.line.send_query_prepared(name, said.params)
        else:
            self.line.send_query_params(said.kind[0], said.params, said.kind[1])
        self.sent.append(said)

    def prepare(self, kind: Kind) -> bytes:
        """The name under which the server will know such a statement; empty while it is not used often enough."""
        if not self.prepares:
            return b""
        if len(self.uses) >= TEXTS_MAX:
            self.uses.clear()
        self.uses[kind] = uses = self.uses.get(kind, 0) + 1
        if uses <= PREPARE_AFTER:
            return b""
        if len(self.names) >= PREPARED_MAX:
            self.names.clear()
            self.send_statement(Said((b"DEALLOCATE ALL", ()), []), b"")
        self.names[kind] = name = name_of(kind)
        self.line.send_prepare(name, *kind)
        self.sent.append(Said(kind, [], prepares=True))
        return name

    def stop_preparing(self) -> None:
        """From here on no statement is sent by a name: the next one may go to a server that does not know it."""
        self.prepares = False
        self.names.clear()
        self.uses.clear()

    # Hearing.

    def hear(self) -> None:
        """Everything that was sent is answered. Raises the first error; a connection in the middle of one is closed."""
        errors = self.collect()
        if errors:
            raise errors[0]

    def collect(self) -> list[psycopg.Error]:
        """The errors of everything that was sent; a name that the server does not know is none if it can be mended."""
        sent, self.sent = self.sent, []
        errors: list[psycopg.Error] = []
        try:
            self.line.pipeline_sync()
            while self.line.flush():
                self.ready.poll()
                self.line.consume_input()  # the server may wait until it is read
            for said in sent:
                errors += self.answer(said)
            while (end := self.result()) is None or end.status != SYNC:
                errors += [error_from_result(end)] if end and end.status == FAILED else []  # of its own commit
            self.line.exit_pipeline_mode()
        except BaseException as broken:
            self.raw.close()
            if not errors or not isinstance(broken, psycopg.Error):
                raise
            return errors
        if not errors or errors[0].sqlstate not in NOT_PREPARED:
            return errors
        if errors[0].sqlstate == GONE:
            self.stop_preparing()
        return self.send_again(sent) if self.idle else errors

    def send_again(self, sent: list[Said]) -> list[psycopg.Error]:
        """What a pipeline had sent, without names: its first error has undone all of it."""
        self.line.enter_pipeline_mode()
        if self.line.transaction_status != TransactionStatus.IDLE:
            self.send_statement(Said((b"ROLLBACK", ()), []), b"")
        for said in sent:
            if not said.prepares:
                self.send_statement(said, b"")
        return self.collect()

    def answer(self, said: Said) -> list[psycopg.Error]:
        """A statement knows what came of it; answers what is wrong with it."""
        result = self.result()
        if result is None:
            raise psycopg.OperationalError("the server has left a statement without an answer")
        status, errors = result.status, []
        if status == FOUND:
            self.loads.set_pgresult(result)
            said.found = self.loads.load_rows(0, result.ntuples, tuple)
        elif status in (FAILED, ABORTED):  # aborted: by an error before it
            errors = [error_from_result(result)] if status == FAILED else []
            if said.prepares and not (errors and errors[0].sqlstate == THERE_ALREADY):  # one name is one statement
                self.names.pop(said.kind, None)
        said.statusmessage = (result.command_status or b"").decode()
        self.result()  # none: its answer ends here
        return errors

    def result(self) -> PGresult | None:
        """The next part of what the server says. Others run until it is here."""
        while self.line.is_busy():
            self.readable.poll()
            self.line.consume_input()
        if self.line.status == ConnStatus.BAD:
            raise psycopg.OperationalError(self.line.get_error_message())
        return self.line.get_result()


def name_of(kind: Kind) -> bytes:
    """The same for everybody who sends such a statement, and for no other one."""
    text, types = kind
    return b"interlock_" + hashlib.sha256(repr(types).encode() + text).hexdigest()[:32].encode()


@lru_cache(maxsize=TEXTS_MAX)
def numbered(sql: str) -> tuple[bytes, tuple[str, ...]]:
    """A statement in the server's spelling, and the names of its parameters in their order."""
    names = tuple(dict.fromkeys(re.findall(r"%\((\w+)\)s", sql)))
    places = {name: str(place) for place, name in enumerate(names, start=1)}
    text = re.sub(r"%\((\w+)\)s", lambda found: "$" + places[found[1]], sql)
    return text.replace("%%", "%").encode(), names


def type_of(value: Any) -> int:
    if type(value) is not int:
        return UNKNOWN
    return INT4 if -(2**31) <= value < 2**31 else INT8


def written(value: Any) -> bytes | None:
    """A parameter as the server reads it."""
    if value is None:
        return None
    text = value if isinstance(value, str) else str(value)
    if "\0" in text:
        raise psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
    return text.encode()
