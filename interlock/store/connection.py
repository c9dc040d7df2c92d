"""What the two databases have in common: the seam is the statement, never the operation."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from interlock.kernel.errors import Contended, Unavailable
from interlock.kernel.rows import Act, Row, Unit, columns
from interlock.store.lanes import Lanes
from interlock.store.memory import Memory
from interlock.store.observer import Observers

GUARD = "interlock guard ["  # how every refusal of the guard begins
SAVEPOINT = "interlock"  # in a caller's transaction: a refusal goes back to it, and what the caller did stays sound
AUTOCOMMIT = (
    "tx: this connection is in autocommit and no transaction is open, so there is none to join; begin one first"
)
Queue = tuple[int, str]  # a tenant and the name of one of its queues
CALL = "\0"  # begins the name under which a worker itself is called; no queue's name has it


class Question(NamedTuple):
    """A statement that is sent before its answer is needed; the store fills in `:now`."""

    sql: str
    params: dict[str, Any]


class Taken(Contended):
    """A row that was to be unique is there already: a race, or a record that is not whole."""


class NotPrepared(Contended):
    """A prepared statement was not there: behind a pooler this is another connection. Nothing was carried out."""


class Unreachable(Unavailable):
    """No connection could be made, or no transaction begun: no command is to blame for it."""


class LostCommit(Exception):
    """The answer to COMMIT is lost: nobody knows yet whether the transaction stands."""


class WakeupChannel(Protocol):
    """How processes tell each other that a queue has got work. What it loses costs a poll."""

    tells: bool  # whether the others hear nothing unless they are told

    def tell(self, queues: Iterable[Queue]) -> None: ...
    def tell_within(self, session: "Connection", queues: Iterable[Queue]) -> Callable[[], None] | None: ...
    def tell_with(self, session: "Connection", queues: Iterable[Queue]) -> None: ...  # by a commit that others make
    def listen(self, queues: Iterable[Queue]) -> None: ...
    def heard(self, watched: Callable[[], set[Queue]], timeout: float) -> set[Queue]: ...
    def close(self) -> None: ...


class Connection(Protocol):
    """An open connection.

    `{lock}`, `{skip}` and `{skip_unit}` in a statement stand for row locks where there are any, `{ids}` for being one
    of the list that is given as `ids`.
    """

    name: str
    words: dict[str, str]  # what its tables write in their own way
    stuck: dict[int, int]  # units that time could not move, and until when they are left alone
    kept: dict[int, tuple[int, int, int]]  # by tenant: when it was asked, and how long its beats and notes are kept
    lanes: dict[int, Lanes]  # those of each tenant that are known to be committed
    staff: dict[int, tuple[str, bool]]  # by worker: what it can do, and whether it held something when it last claimed
    ahead: Sequence[Question]  # go with the next BEGIN, where there is a wire; whoever asks them finds the answers here
    acts_a_transaction: int  # ids of acts from one transaction to the next
    private: bool  # whether no second connection can see the same database
    many_writers: bool  # whether transactions of several connections overlap
    mark: str  # the database's own name for the last transaction, if it has one
    memory: (
        Memory | None
    )  # of held units, where reading them again costs more than asking whether somebody touched them

    def observe(self, observers: Observers) -> None: ...  # who is told of every statement
    def begin(self, tenants: Sequence[int] = ()) -> int: ...
    def declare(self, tenants: Sequence[int], seconds: float | None = None) -> None: ...  # and its time limit
    def now(self) -> int: ...
    def keep_time(self, clock: Callable[[], int]) -> None: ...  # by a test's own clock
    def rows(self, sql: str, params: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]: ...
    def ask(self, questions: Sequence[Question]) -> None: ...  # those after the first cost nothing
    def foretold(self, question: Question) -> list[tuple[Any, ...]]: ...  # its answer, if it was asked ahead
    def untouched(self, ids: Sequence[int], marks: Mapping[int, str]) -> list[int]: ...
    def insert(self, rows: Sequence[Row]) -> None: ...
    def act_id(self, number: int) -> int: ...  # of the so many-th act of a transaction
    def write_acts(self, acts: Sequence[Act], born: Sequence[Unit]) -> None: ...  # and the units that they bear
    def renew(self, held: Sequence[Unit]) -> None: ...  # their leases last as long as they say
    def update(self, rows: Sequence[Row], columns: Sequence[str], key: str) -> None: ...
    def together(self) -> AbstractContextManager[None]: ...
    def many(self, sql: str, rows: list[dict[str, Any]]) -> None: ...
    def script(self, sql: str) -> None: ...
    def may_insert(self, table: str) -> bool: ...
    def has_table(self, name: str) -> bool: ...
    def lock_migration(self) -> None: ...
    def findings(self) -> list[str]: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...
    def reconnect(self) -> None: ...
    def fate(self, mark: str) -> bool | None: ...
    def wire(self) -> WakeupChannel | None: ...
    def close(self) -> None: ...


def listed(kind: type[Row]) -> str:
    """The columns of a row's table, in order."""
    return ", ".join(f"{kind.table}.{name}" for name in columns(kind))
