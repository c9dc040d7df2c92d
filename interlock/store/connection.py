"""The interface of a connection, which SQLite and PostgreSQL implement.

A connection carries statements out. What an engine remembers between transactions is in `store/cache.py`, and what one
transaction knows in `store/unit_of_work.py`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from interlock.blobs.store import BlobStore
from interlock.kernel.errors import Contended, Unavailable
from interlock.kernel.rows import Act, Row, Unit
from interlock.store.observer import Observers
from interlock.store.query import BoundQuery

GUARD = "interlock guard ["  # how every refusal of the guard begins
SAVEPOINT = "interlock"  # in a caller's transaction: a refusal goes back to it, and what the caller did stays sound
AUTOCOMMIT = (
    "tx: this connection is in autocommit and no transaction is open, so there is none to join; begin one first"
)
Queue = tuple[int, str]  # a tenant and the name of one of its queues
Rows = list[tuple[Any, ...]]
CALL = "\0"  # begins the name under which a worker itself is called; no queue's name has it


class Taken(Contended):
    """A row that was to be unique is there already: a race, or a record that is not whole."""


class NotPrepared(Contended):
    """A prepared statement was not there: behind a pooler this is another connection. Nothing was carried out."""


class Unreachable(Unavailable):
    """No connection could be made, or no transaction begun: no command is to blame for it."""


class LostCommit(Exception):
    """The answer to COMMIT is lost: nobody knows yet whether the transaction stands."""


class Opened(NamedTuple):
    """What the database says when a transaction begins."""

    now: int  # the store's time in microseconds
    ahead: list[Rows]  # the rows of each query that was sent with BEGIN


class WakeupChannel(Protocol):
    """How processes tell each other that a queue has got work. What it loses costs a poll."""

    tells: bool  # whether the others hear nothing unless they are told

    def tell(self, queues: Iterable[Queue]) -> None: ...
    def tell_within(self, connection: "Connection", queues: Iterable[Queue]) -> Callable[[], None] | None: ...
    def tell_with(self, connection: "Connection", queues: Iterable[Queue]) -> None: ...  # by a commit that others make
    def listen(self, queues: Iterable[Queue]) -> None: ...
    def receive(self, watched: Callable[[], set[Queue]], timeout: float) -> set[Queue]: ...
    def close(self) -> None: ...


class Connection(Protocol):
    """An open connection: what a database must be able to do.

    `{lock}`, `{skip}`, `{lock_unit}` and `{skip_unit}` in a statement stand for row locks where there are any, `{ids}`
    for being one of the list that is given as `ids`, and `{list:name}` for all values of a group, as text between
    commas; `{by_key:table}` behind a table has it read by its key. Methods raise StoreError and its subclasses, and no
    error of a driver.
    """

    name: str  # of the kind of database
    many_writers: bool  # whether transactions of several connections overlap
    private: bool  # whether no second connection can see the same database
    pooled: bool  # whether a pooler stands before the server, as far as is known
    # With many writers: the database's name for the open transaction, or the last one. With one writer: the state of
    # the database when it began and, once it is committed, when it ended; whoever writes in between changes it.
    mark: str

    @property
    def blobs(self) -> BlobStore | None:
        """Where large bytes are kept, beside the rows; None: nowhere."""

    # Transactions.

    def begin(self, tenants: Sequence[int] = (), ahead: Sequence[BoundQuery[Any]] = ()) -> Opened:
        """Begins a transaction that sees the rows of these tenants, and runs the queries of `ahead` with it."""

    def declare(self, tenants: Sequence[int], seconds: float | None = None) -> None:
        """Limits the open transaction to the rows of these tenants, and to so many seconds of reading."""

    def commit(self) -> None:
        """Commits.

        Raises:
            LostCommit: The database did not answer, so that nobody knows whether the transaction was committed.
        """

    def rollback(self) -> None:
        """Undoes the open transaction, if there is one."""

    # Statements.

    def rows(self, sql: str, params: Mapping[str, Any] | None = None) -> Rows:
        """Carries a statement out, after all writes that were sent before, and returns its rows."""

    def fetch_together(self, queries: Sequence[BoundQuery[Any]], now: int) -> list[Rows]:
        """Returns the rows of several queries, read in one round trip; `now` is the time of the transaction."""

    def many(self, sql: str, rows: list[dict[str, Any]]) -> None:
        """Carries one statement out for each of these sets of parameters."""

    def script(self, sql: str) -> None:
        """Carries out several statements, which have no parameters, inside the open transaction."""

    def pipeline(self) -> AbstractContextManager[None]:
        """Within it writes are sent and not waited for; what is wrong with them the next query or commit raises."""

    # Many rows as few statements.

    def insert(self, rows: Sequence[Row]) -> None:
        """Inserts rows of one table."""

    def update(self, rows: Sequence[Row], columns: Sequence[str], key: str) -> None:
        """Writes these columns of rows of one table, found by the column `key`."""

    def act_id(self, number: int) -> int:
        """Returns the id of the act of this number (1, 2, …) in the open transaction."""

    def write_acts(self, acts: Sequence[Act], born: Sequence[Unit]) -> None:
        """Inserts acts, and the units that they make."""

    # The connection itself.

    def observe(self, observers: Observers) -> None:
        """Has these observers told of every statement from now on."""

    def now(self) -> int:
        """Returns the store's time in microseconds."""

    def keep_time(self, clock: Callable[[], int]) -> None:
        """Uses a test's clock, which returns microseconds, instead of the store's own."""

    def reconnect(self) -> None:
        """Closes the connection and makes it anew.

        Raises:
            Unreachable: The server cannot be reached after several tries.
        """

    def close(self) -> None:
        """Closes the connection; an open transaction is undone."""
