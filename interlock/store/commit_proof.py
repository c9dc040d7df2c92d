"""Find out whether a COMMIT without an answer was committed, by a row that it wrote."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from interlock.kernel.errors import StoreError
from interlock.kernel.rows import Act, Answer, Archived, Artifact, Note, PauseRow, Row
from interlock.store.connection import Connection, LostCommit, Unreachable

if TYPE_CHECKING:
    from interlock.store.unit_of_work import UnitOfWork

# What tells such a row from every other; these stay as they were written.
IDENTITY: dict[type[Row], tuple[str, ...]] = {
    Archived: ("unit", "version", "at"),
    Act: ("id", "tenant", "path", "version", "at", "actor"),
    Note: ("id",),
    Artifact: ("unit", "attempt", "name", "digest", "fence"),
    Answer: ("tenant", "scope", "key", "request", "expires"),
    PauseRow: ("id",),
}
OUTCOME_PAUSE, OUTCOME_WAIT = 0.05, 60.0  # seconds


class Unresolved(Unreachable):
    """Nobody can say whether the command was carried out."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"the database did not answer to COMMIT and cannot be asked now ({why}); "
            "the command may have been carried out or not: look before you send it again"
        )


class CommitProof(msgspec.Struct, frozen=True):
    """A row, by the values that it must have if the transaction was committed."""

    table: str
    values: dict[str, Any]
    lasting: bool  # whether no later transaction changes the row


def choose_proof(
    known: CommitProof | None, written: Iterable[Row], changed: Iterable[tuple[Row, Sequence[str]]]
) -> CommitProof | None:
    """Returns the first row that lasts; failing that, one that was changed, as it was written last.

    A transaction of which only changed rows tell (a beat, a claim that found nothing) comes to the same when it is
    redone, so it does no harm if another has changed them since.
    """
    # What is archived comes before all others: it takes the events of its unit away.
    row = min(
        (row for row in written if type(row) in IDENTITY), key=lambda row: type(row) is not Archived, default=None
    )
    if known and known.lasting and type(row) is not Archived:
        return known
    if row:
        return CommitProof(row.table, {name: getattr(row, name) for name in IDENTITY[type(row)]}, lasting=True)
    for other, columns in changed:
        return CommitProof(other.table, {name: getattr(other, name) for name in columns}, lasting=False)
    return known


def is_proven(connection: Connection, tenants: Sequence[int], proof: CommitProof) -> bool:
    """Whether the row is in the database, exactly as it was written."""
    same = " AND ".join(
        f"{name} IS NULL" if value is None else f"{name} = :{name}" for name, value in proof.values.items()
    )
    params = {name: value for name, value in proof.values.items() if value is not None}
    connection.begin(tenants)
    try:
        return bool(connection.rows(f"SELECT 1 FROM {proof.table} WHERE {same}", params))
    finally:
        connection.rollback()


def wait_for_outcome(connection: Connection, mark: str) -> bool | None:
    """Waits until a transaction is over; returns whether it was committed, None if the database cannot tell.

    Raises:
        Unreachable: The transaction is still open after a minute.
    """
    if not connection.many_writers:  # a file keeps no list of its transactions
        return None
    end = time.monotonic() + OUTCOME_WAIT
    while time.monotonic() < end:
        status = connection.rows("SELECT pg_xact_status((:mark)::xid8)", {"mark": mark})[0][0]
        if status != "in progress":
            return None if status is None else status == "committed"
        time.sleep(OUTCOME_PAUSE)
    raise Unreachable("PostgreSQL has not ended the last transaction yet")


def confirm_on_standby(connection: Connection) -> None:
    """Waits until all earlier commits have reached the standby too: a later commit does not return before that."""
    connection.begin()
    try:
        connection.rows("UPDATE id_block SET next_id = next_id WHERE name = 'unit'")
    except BaseException:
        connection.rollback()
        raise
    connection.commit()


def was_committed(tx: "UnitOfWork", reconnect: Callable[[], None], tries: int) -> bool:
    """Returns whether a transaction was committed, although nobody said so.

    Raises:
        Unresolved: the database could not be asked, so many times in a row.
    """
    why = ""
    for _ in range(tries):
        try:
            reconnect()
            committed = wait_for_outcome(tx.connection, tx.mark)  # not before it is over
            if tx.changes.proof:
                committed = is_proven(tx.connection, tx.tenants, tx.changes.proof)
            if committed:
                confirm_on_standby(tx.connection)
            return bool(committed)
        except (StoreError, LostCommit) as error:
            why = str(error)
    raise Unresolved(why)
